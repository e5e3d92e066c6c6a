//! The journal for a person: what it was asked, what it said, what it did, how it ended.

use relive_core::{End, SuspendReason};
use relive_journal::payload::{Json, Text};
use relive_journal::record::{
    Approval, Call, CallEnded, Compacted, Decision, Doubt, Input, ModelEnded, Opened, OpenedBy, Outcome, Partial,
    Paused, Repair, Resolved, Resumed, ResumedBy, Signalled, Spawned,
};
use serde::de::DeserializeOwned;

use super::line::Line;
use crate::terminal::{Look, Paint, one_line, without_controls};

/// How many lines of a tool's result are shown.
const RESULT_LINES: usize = 10;

/// Remembers what a result belongs to.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    calls: Vec<Call>,
    times: bool,
}

impl Journal {
    /// `times`: each line begins with the moment of its record.
    pub(crate) fn new(times: bool) -> Self {
        Self { calls: Vec::new(), times }
    }

    /// What to show for the next line; empty where there is nothing to show.
    pub(crate) fn show(&mut self, text: &str, look: &Look) -> String {
        let Some(line) = Line::parse(text) else { return String::new() };
        let shown = self.body(&line, text, look).unwrap_or_default();
        let at = line.at.filter(|_| self.times).map(|at| format!("{at} ")).unwrap_or_default();
        shown.lines().map(|line| format!("{}{line}\n", look.paint(Paint::Dim, &at))).collect()
    }

    fn body(&mut self, line: &Line, text: &str, look: &Look) -> Option<String> {
        Some(match line.kind.as_str() {
            "spawned" => self::spawned(&read::<Spawned>(text)?, look),
            "input" => match read::<Input>(text)? {
                // What it was begun with has been shown.
                Input { id, .. } if id == "intent" => return None,
                input => quote(&self::payload(&input.text), look),
            },
            "model_ended" => self.model_ended(read(text)?, look),
            "partial" => {
                let Partial { thinking, text, .. } = read(text)?;
                self::said(thinking.as_ref(), text.as_ref(), look) + &note("the model was cut off here: partial", look)
            }
            "call_ended" => self.call_ended(&read(text)?, look),
            "doubt" => {
                let Doubt { call, reason } = read(text)?;
                note(&format!("in doubt: {}: {}", self.name_of(call), one_line(&reason)), look)
            }
            "resolved" => self.resolved(&read(text)?, look),
            "approval" => self.approval(&read(text)?, look),
            "compacted" => {
                note("the conversation so far was replaced by this summary:", look)
                    + &quote(&self::payload(&read::<Compacted>(text)?.summary), look)
            }
            "opened" => opened(&read(text)?, look),
            "paused" => note(&format!("paused ({})", reason(read::<Paused>(text)?.reason)), look),
            "resumed" => note(&format!("resumed {}", resumed_by(read::<Resumed>(text)?.by)), look),
            "signalled" => note(&signalled(&read(text)?), look),
            "signal_mask" => note(&signal_mask(line), look),
            "limits" => limits(line, look),
            "ended" => ended(&read(text)?, look),
            "repair" => note(&format!("repaired: {} torn bytes were cut off", read::<Repair>(text)?.cut_bytes), look),
            "damaged" => {
                let offset: u64 = line.field("offset").unwrap_or(0);
                note(&format!("damaged: the line at byte {offset} does not match its checksum"), look)
            }
            _ => return None,
        })
    }

    fn model_ended(&mut self, ended: ModelEnded, look: &Look) -> String {
        self.calls = ended.calls;
        let said = said(ended.thinking.as_ref(), ended.text.as_ref(), look);
        let calls = self.calls.iter().map(|call| format!("{}\n", look.paint(Paint::Cyan, &asked(call))));
        said + &calls.collect::<String>()
    }

    fn call_ended(&self, ended: &CallEnded, look: &Look) -> String {
        let result = payload(&ended.result);
        let all: Vec<&str> = result.lines().collect();
        let word = if ended.ok { look.paint(Paint::Green, "ok") } else { look.paint(Paint::Red, "failed") };
        let settled = if ended.settled.is_some() { ", found out after a crash" } else { "" };
        let mut shown = format!("  {}: {word}{settled}\n", self.name_of(ended.call));
        for line in all.iter().take(RESULT_LINES) {
            shown.push_str(&format!("    {line}\n"));
        }
        if all.len() > RESULT_LINES {
            let more = format!("    ({} more lines: relive logs --json)\n", all.len() - RESULT_LINES);
            shown.push_str(&look.paint(Paint::Dim, &more));
        }
        shown
    }

    fn resolved(&self, resolved: &Resolved, look: &Look) -> String {
        let outcome = match resolved.outcome {
            Outcome::Done => "it happened",
            Outcome::NotDone => "it did not happen",
            Outcome::Retry => "it is run again",
        };
        let by = if resolved.by_policy { ", by policy" } else { "" };
        note(&format!("resolved: {}: {outcome}{by}", self.name_of(resolved.call)), look)
    }

    fn approval(&self, approval: &Approval, look: &Look) -> String {
        let decision = match approval.decision {
            Decision::Asked => "a human is asked",
            Decision::Allowed => "allowed",
            Decision::Denied => "denied",
        };
        let always = if approval.always { ", from now on" } else { "" };
        let reason = approval.reason.as_deref().map(|reason| format!(": {}", one_line(reason))).unwrap_or_default();
        note(&format!("approval: {}: {decision}{always}{reason}", self.name_of(approval.call)), look)
    }

    fn name_of(&self, call: u32) -> String {
        let found = usize::try_from(call).ok().and_then(|place| self.calls.get(place));
        found.map_or_else(|| format!("call {call}"), |call| one_line(&call.name))
    }
}

fn signalled(signalled: &Signalled) -> String {
    let state = if signalled.pending { " is blocked and waits" } else { " was sent: it is to end" };
    format!("{}{state}", signalled.signal)
}

fn signal_mask(line: &Line) -> String {
    let names = |field: &str| {
        let names: Vec<String> = line.field(field).unwrap_or_default();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    format!("signals: blocked {}, handled {}", names("blocked"), names("handled"))
}

fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

fn payload(text: &Text) -> String {
    match text {
        Text::Inline(text) => without_controls(text).into_owned(),
        Text::Blob(blob) => {
            format!("{}\n({} bytes in all, in blobs/{})", without_controls(&blob.head), blob.bytes, blob.hash)
        }
    }
}

fn quote(text: &str, look: &Look) -> String {
    text.lines().map(|line| format!("{}\n", look.paint(Paint::Bold, &format!("> {line}")))).collect()
}

fn note(text: &str, look: &Look) -> String {
    format!("{}\n", look.paint(Paint::Yellow, &format!("-- {text}")))
}

fn said(thinking: Option<&Text>, text: Option<&Text>, look: &Look) -> String {
    let thinking = thinking.map(payload).unwrap_or_default();
    let mut out: String = thinking.lines().map(|line| format!("{}\n", look.paint(Paint::Dim, line))).collect();
    let text = text.map(payload).unwrap_or_default();
    out.push_str(text.trim_end());
    if !text.is_empty() {
        out.push('\n');
    }
    out
}

fn asked(call: &Call) -> String {
    let args = match &call.args {
        Json::Inline(raw) => one_line(raw.get()),
        Json::Blob(blob) => format!("{} ({} bytes)", one_line(&blob.head), blob.bytes),
    };
    format!("  {} {args}", one_line(&call.name))
}

fn spawned(spawned: &Spawned, look: &Look) -> String {
    let fork = match spawned.origin {
        Some(origin) => note(&format!("a fork of {} at step {}", origin.uuid, origin.step), look),
        None => String::new(),
    };
    fork + &quote(&payload(&spawned.intent), look)
}

fn opened(opened: &Opened, look: &Look) -> String {
    match opened.by {
        OpenedBy::Spawn => String::new(),
        OpenedBy::Resume => note(&format!("resumed as PID {}", opened.pid), look),
        OpenedBy::Recovery => note(&format!("recovered by a new daemon as PID {}", opened.pid), look),
    }
}

fn reason(reason: SuspendReason) -> &'static str {
    relive_api::reason_word(reason)
}

fn resumed_by(by: ResumedBy) -> &'static str {
    match by {
        ResumedBy::User => "by the user",
        ResumedBy::Descendant => "because a process below was",
        ResumedBy::DaemonStart => "because the daemon is back",
        ResumedBy::Timer => "because its time came",
    }
}

fn limits(line: &Line, look: &Look) -> String {
    let fields: Vec<String> = line
        .fields
        .iter()
        .filter(|(name, _)| name != "req")
        .map(|(name, value)| format!("{name} {}", value.get()))
        .collect();
    note(&format!("limits from here on: {}", if fields.is_empty() { "none".into() } else { fields.join(", ") }), look)
}

fn ended(end: &End, look: &Look) -> String {
    let exit = end.exit();
    note(&format!("ended: {} ({})", one_line(&exit.reason), exit.code), look)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(lines: &[&str]) -> String {
        let mut journal = Journal::new(false);
        lines.iter().map(|line| journal.show(line, &Look::plain())).collect()
    }

    const SPAWNED: &str = r#"{"v":1,"seq":2,"epoch":1,"at":"2026-11-15T12:00:00Z","kind":"spawned","step":0,"uuid":"0198f3c1-0000-7000-8000-000000000000","body":"agent","intent":"fix the test","cwd":"/w","crc":"00000000"}"#;

    #[test]
    fn a_life_reads_from_top_to_bottom() {
        let shown = show(&[
            r#"{"kind":"opened","pid":1,"by":"spawn","boot_id":"b","relive":"0.1.0"}"#,
            SPAWNED,
            r#"{"kind":"input","step":0,"id":"intent","text":"fix the test"}"#,
            r#"{"kind":"model_started","step":1,"model":"script/x"}"#,
            r#"{"kind":"model_ended","step":1,"thinking":"hm","text":"I look.","calls":[{"id":"a","name":"shell","args":{"command":"ls"}}]}"#,
            r#"{"kind":"call_started","step":1,"call":0,"name":"shell","recovery":{"by":"join"}}"#,
            r#"{"kind":"call_ended","step":1,"call":0,"ok":true,"result":"a\n\u001b[2Jb\n"}"#,
            r#"{"kind":"paused","step":1,"reason":"user","asked_at":"2026-11-15T12:00:00Z"}"#,
            r#"{"kind":"opened","pid":7,"by":"recovery","boot_id":"b","relive":"0.1.0"}"#,
            r#"{"kind":"resumed","step":1,"by":"user"}"#,
            r#"{"kind":"input","step":1,"id":"m","text":"and the docs\nplease"}"#,
            r#"{"kind":"partial","step":2,"text":"Wel"}"#,
            r#"{"kind":"a kind of the future","step":2}"#,
            "not JSON",
            r#"{"kind":"ended","step":2,"status":{"kind":"killed","signal":"SIGTERM"},"why":"user"}"#,
        ]);
        assert_eq!(
            shown,
            "> fix the test\nhm\nI look.\n  shell {\"command\":\"ls\"}\n  shell: ok\n    a\n    ?[2Jb\n\
             -- paused (user)\n-- recovered by a new daemon as PID 7\n-- resumed by the user\n> and the docs\n> please\n\
             Wel\n-- the model was cut off here: partial\n-- ended: interrupted (1)\n"
        );
    }

    #[test]
    fn a_long_result_is_cut_a_blob_is_named_and_doubt_is_said() {
        let long: Vec<String> = (1..=12).map(|n| n.to_string()).collect();
        let result = serde_json::to_string(&long.join("\n")).unwrap();
        let shown = show(&[&format!(r#"{{"kind":"call_ended","call":3,"ok":false,"result":{result}}}"#)]);
        assert!(shown.starts_with("  call 3: failed\n    1\n"), "{shown}");
        assert!(shown.ends_with("    10\n    (2 more lines: relive logs --json)\n"), "{shown}");
        let hash = "a".repeat(64);
        let blob = format!(r#"{{"kind":"input","id":"m","text":{{"$blob":"{hash}","bytes":70000,"head":"begins"}}}}"#);
        assert!(show(&[&blob]).contains(&format!("> begins\n> (70000 bytes in all, in blobs/{hash})")));
        let doubt = r#"{"kind":"doubt","call":0,"reason":"the shim is gone"}"#;
        assert_eq!(show(&[doubt]), "-- in doubt: call 0: the shim is gone\n");
    }

    #[test]
    fn with_times_every_line_has_one() {
        let shown = Journal::new(true).show(SPAWNED, &Look::plain());
        assert_eq!(shown, "2026-11-15T12:00:00Z > fix the test\n");
    }
}
