//! The journal for a person: what it was asked, what it said, what it did, how it ended.

use relive_core::{Cause, End, Pid, SuspendReason};
use relive_journal::payload::{Json, Text};
use relive_journal::record::{
    Approval, Call, CallEnded, CallStarted, Compacted, Decision, Doubt, FilesVerb, FlowRecord, Input, ModelEnded,
    Opened, OpenedBy, Outcome, Partial, Paused, Question, Repair, Resolved, Resumed, ResumedBy, Rewound, Signalled,
    Spawned,
};
use serde::de::DeserializeOwned;

use super::approval::exact;
use super::files::count;
use super::line::Line;
use super::processes::{suspension, wanted_from_you};
use super::size;
use super::time::Clock;
use crate::terminal::{Look, Paint, one_line, without_controls};

/// How many lines of a tool's result are shown.
const RESULT_LINES: usize = 10;

/// Remembers what a result belongs to.
#[derive(Debug)]
pub(crate) struct Journal {
    id: String,
    calls: Vec<Call>,
    /// Where each line begins with the moment of its record.
    clock: Option<Clock>,
    /// The task was shown already: a fork says it again.
    told: bool,
}

impl Journal {
    /// `id` is the process, for commands that are suggested. With a clock, each line begins with the moment of its record.
    pub(crate) fn new(id: impl ToString, clock: Option<Clock>) -> Self {
        Self { id: id.to_string(), calls: Vec::new(), clock, told: false }
    }

    /// Returns the text for the next line of the journal; empty if there is nothing to show.
    pub(crate) fn show(&mut self, text: &str, look: &Look) -> String {
        let Some(line) = Line::parse(text) else { return String::new() };
        let shown = self.body(&line, text, look).unwrap_or_default();
        let at =
            self.clock.as_ref().zip(line.at).map(|(clock, at)| format!("{} ", clock.moment(at))).unwrap_or_default();
        shown.lines().map(|line| format!("{}{line}\n", look.paint(Paint::Dim, &at))).collect()
    }

    fn body(&mut self, line: &Line, text: &str, look: &Look) -> Option<String> {
        Some(match line.kind.as_str() {
            "spawned" => self.spawned(&read::<Spawned>(text)?, look),
            "input" => match read::<Input>(text)? {
                // What it was begun with has been shown, but for what was piped in.
                Input { id, text, .. } if id == "intent" => piped(&text, look)?,
                input => quote(&self::payload(&input.text), look),
            },
            "model_ended" => self.model_ended(read(text)?, look),
            "partial" => {
                let Partial { thinking, text, cause, .. } = read(text)?;
                self::said(thinking.as_ref(), text.as_ref(), look) + &note(&cut_off(cause.as_deref()), look)
            }
            "call_started" => {
                let rule = read::<CallStarted>(text)?.rule?;
                note(&format!("allowed by the rule {}", exact(&rule.to_string())), look)
            }
            "call_ended" => self.call_ended(&read(text)?, look),
            "doubt" => {
                let Doubt { call, reason } = read(text)?;
                note(&format!("in doubt: {}: {}", self.name_of(call), one_line(&reason)), look)
            }
            "resolved" => self.resolved(&read(text)?, look),
            "approval" => self.approval(&read(text)?, look),
            "question" => match read::<Question>(text)?.answer {
                None => note("asked; waiting for an answer", look),
                Some(answer) => note(&format!("answered: {}", one_line(&answer)), look),
            },
            "proceeded" => note("allowed to pass its gate", look),
            "acked" => note("you have seen its end", look),
            "compacted" => {
                note("the conversation so far was replaced by this summary:", look)
                    + &quote(&self::payload(&read::<Compacted>(text)?.summary), look)
            }
            "opened" => opened(&read(text)?, look),
            "paused" => note(&paused(&read(text)?), look),
            "resumed" => note(&format!("resumed {}", resumed_by(&read(text)?)), look),
            "signalled" => note(&signalled(&read(text)?), look),
            "signal_mask" => note(&signal_mask(line), look),
            "limits" => limits(line, look),
            "renamed" => note(&format!("renamed to {}", one_line(&line.field::<String>("name")?)), look),
            "model" => note(&format!("runs on {} from here on", one_line(&line.field::<String>("model")?)), look),
            "flow" => return flow(&read(text)?).map(|text| note(&text, look)),
            "ended" => ended(&read(text)?, look),
            "repair" => {
                let cut = size::bytes(read::<Repair>(text)?.cut_bytes);
                note(&format!("repaired: {cut} of a torn record were cut off"), look)
            }
            "rewound" => return rewound(&read(text)?).map(|text| note(&text, look)),
            "damaged" => {
                let offset: u64 = line.field("offset").unwrap_or(0);
                note(&format!("damaged: the line at byte {offset} does not match its checksum"), look)
            }
            _ => return None,
        })
    }

    fn spawned(&mut self, spawned: &Spawned, look: &Look) -> String {
        let fork = match spawned.origin {
            Some(origin) => note(&format!("forked from {} at step {}", origin.uuid, origin.step), look),
            None => String::new(),
        };
        // The task of a fork is that of its original, whose records come first.
        if std::mem::replace(&mut self.told, true) { fork } else { fork + &quote(&payload(&spawned.intent), look) }
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
        let word = match (ended.ok, ended.denied) {
            (_, true) => look.paint(Paint::Yellow, "denied"),
            (true, false) => look.paint(Paint::Green, "ok"),
            (false, false) => look.paint(Paint::Red, "failed"),
        };
        let settled = if ended.settled.is_some() { ", found out after an interruption" } else { "" };
        // Of several calls, a person has to see which one was denied.
        let denied = usize::try_from(ended.call).ok().and_then(|place| self.calls.get(place)).filter(|_| ended.denied);
        let call = denied.map_or_else(|| format!("  {}", self.name_of(ended.call)), asked);
        let mut shown = format!("{call}: {word}{settled}\n");
        for line in all.iter().take(RESULT_LINES) {
            shown.push_str(&format!("    {line}\n"));
        }
        if all.len() > RESULT_LINES {
            let more = format!("    ({} more lines: relive logs --json {})\n", all.len() - RESULT_LINES, self.id);
            shown.push_str(&look.paint(Paint::Dim, &more));
        }
        shown
    }

    fn resolved(&self, resolved: &Resolved, look: &Look) -> String {
        let outcome = match resolved.outcome {
            Outcome::Done => "it happened",
            Outcome::NotDone => "it did not happen",
            Outcome::Retry => "it is repeated",
        };
        let by = if resolved.by_policy { ", by policy" } else { "" };
        note(&format!("resolved: {}: {outcome}{by}", self.name_of(resolved.call)), look)
    }

    fn approval(&self, approval: &Approval, look: &Look) -> String {
        let decision = match approval.decision {
            Decision::Asked => "waiting for an answer",
            Decision::Allowed => "allowed",
            Decision::Denied => "denied",
        };
        let always = if approval.always { ", from now on" } else { "" };
        let reason = approval.reason.as_deref().map(|reason| format!(": {}", one_line(reason))).unwrap_or_default();
        note(&format!("approval: {}: {decision}{always}{reason}", self.name_of(approval.call)), look)
    }

    fn name_of(&self, call: u32) -> String {
        let found = usize::try_from(call).ok().and_then(|place| self.calls.get(place));
        found.map_or_else(|| format!("call {call}"), |call| exact(&call.name))
    }
}

fn cut_off(cause: Option<&str>) -> String {
    match cause {
        Some(cause) => format!("the model call did not finish: {}", one_line(cause)),
        None => "the model call did not finish; its cause was not recorded".to_owned(),
    }
}

fn signalled(signalled: &Signalled) -> String {
    let state = if signalled.pending { " was sent, and waits until it is unblocked" } else { " was sent" };
    format!("{}{state}", signalled.signal)
}

fn signal_mask(line: &Line) -> String {
    let names = |field: &str| {
        let names: Vec<String> = line.field(field).unwrap_or_default();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    if let Some(signal) = line.field::<String>("delivered") {
        return format!("{} was sent: it handles that itself", one_line(&signal));
    }
    format!("signals: blocked {}, handled {}", names("blocked"), names("handled"))
}

/// Only what is done is of interest.
fn rewound(rewound: &Rewound) -> Option<String> {
    let Rewound { verb, done: true, to_step, into, changed, undo, .. } = rewound else { return None };
    let (step, were) = (to_step.unwrap_or(0), if *changed == 1 { "was" } else { "were" });
    let files = count(*changed);
    Some(match verb {
        FilesVerb::Rewind if *undo => format!("{files} {were} put back by undoing the last rewind or restore"),
        FilesVerb::Rewind => format!("{files} {were} put back to step {step}"),
        FilesVerb::Restore => format!("{files} {were} restored from step {step}"),
        FilesVerb::Merge => format!("{files} {were} merged into {}", one_line(into.as_deref().unwrap_or("?"))),
    })
}

/// Starts and ends of the processes of a tree, and what a person asked of it.
fn flow(record: &FlowRecord) -> Option<String> {
    use relive_flow::{Event, Outcome, Start};
    let Some(Json::Inline(event)) = &record.event else { return None };
    Some(match serde_json::from_str(event.get()).ok()? {
        Event::Starting { slot, uuid, start } => match start {
            Start::New => format!("{slot} started: {uuid}"),
            Start::Resume { .. } => format!("{slot} resumed: {uuid}"),
            Start::Fork { from, .. } => format!("{slot} forked from {from}: {uuid}"),
        },
        Event::Started { slot, .. } => format!("{slot} has started"),
        Event::Ended { slot, outcome, note, .. } => {
            let how = match outcome {
                Outcome::Succeeded => "succeeded".to_owned(),
                Outcome::Failed { code } => format!("failed ({code})"),
                Outcome::Stopped => "was stopped".to_owned(),
                Outcome::Halted => "was ended with the run".to_owned(),
                Outcome::NeverRan => "never ran".to_owned(),
            };
            let note = note.map(|note| format!(": {}", one_line(&note))).unwrap_or_default();
            format!("{slot} {how}{note}")
        }
        Event::Stopped { slot, note, .. } => {
            let note = note.map(|note| format!(": {}", one_line(&note))).unwrap_or_default();
            format!("{slot} was to be started again and was stopped{note}")
        }
        Event::Redo { slot, .. } => format!("{slot} will be resumed"),
        Event::Reopened { .. } => "what did not succeed will be resumed".to_owned(),
    })
}

fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

fn payload(text: &Text) -> String {
    match text {
        Text::Inline(text) => without_controls(text).into_owned(),
        Text::Blob(blob) => {
            let all = size::bytes(blob.bytes);
            format!("{}\n({all} in all, in blobs/{})", without_controls(&blob.head), blob.hash)
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
        Json::Inline(raw) => exact(raw.get()),
        Json::Blob(blob) => {
            format!("{}... ({}, in blobs/{})", exact(&blob.head), size::bytes(blob.bytes), blob.hash)
        }
    };
    format!("  {} {args}", exact(&call.name))
}

/// Says that something was piped in. It is data, and may be long.
fn piped(text: &Text, look: &Look) -> Option<String> {
    let text = payload(text);
    let (_, rest) = text.split_once("\n\nThe standard input of the command, ")?;
    let (bytes, _) = rest.split_once(" bytes, follows between two marks.")?;
    bytes.parse::<u64>().ok().map(|bytes| note(&format!("with {} from the standard input", size::bytes(bytes)), look))
}

fn opened(opened: &Opened, look: &Look) -> String {
    match opened.by {
        OpenedBy::Spawn => String::new(),
        OpenedBy::Resume => note(&format!("resumed as PID {}", opened.pid), look),
        OpenedBy::Recovery => note(&format!("recovered by a new daemon as PID {}", opened.pid), look),
    }
}

/// Says why a process does not continue.
fn paused(paused: &Paused) -> String {
    if paused.reason == SuspendReason::User {
        return format!("paused by {}", asker(paused.cause));
    }
    match wanted_from_you(paused.reason) {
        Some(wanted) => format!("waits for your {wanted}"),
        None => format!("paused ({})", suspension(paused.reason)),
    }
}

fn resumed_by(resumed: &Resumed) -> String {
    match resumed.by {
        ResumedBy::User => format!("by {}", asker(resumed.cause)),
        ResumedBy::Descendant => "because a descendant was resumed".to_owned(),
        ResumedBy::DaemonStart => "by the daemon after its start".to_owned(),
        ResumedBy::Timer => "at its resume time".to_owned(),
        ResumedBy::Withdrawn => "because its request was closed".to_owned(),
    }
}

/// Returns who asked for something: a person, or the process that has a handle.
fn asker(cause: Option<Cause>) -> String {
    match cause.map(|cause| cause.by).filter(|by| *by != Pid::RUNTIME) {
        Some(pid) => format!("PID {pid}"),
        None => "you".to_owned(),
    }
}

/// The limits that a record can set; it has other fields too.
const LIMITS: [&str; 4] = ["max_steps", "max_tokens", "max_cost_usd", "timeout_ms"];

fn limits(line: &Line, look: &Look) -> String {
    let fields: Vec<String> = line
        .fields
        .iter()
        .filter(|(name, _)| LIMITS.contains(&name.as_str()))
        .map(|(name, value)| format!("{name} {}", value.get()))
        .collect();
    note(&format!("new limits: {}", if fields.is_empty() { "none".into() } else { fields.join(", ") }), look)
}

fn ended(end: &End, look: &Look) -> String {
    let exit = end.exit();
    let exit = relive_api::Exit { code: exit.code, reason: exit.reason.into_owned(), err: None };
    note(&format!("{} ({})", super::exit::phrase(Some(&end.status), &exit), end.exit_code()), look)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(lines: &[&str]) -> String {
        let mut journal = Journal::new(5, None);
        lines.iter().map(|line| journal.show(line, &Look::plain())).collect()
    }

    const SPAWNED: &str = r#"{"v":1,"seq":2,"epoch":1,"at":"2026-11-15T12:00:00Z","kind":"spawned","step":0,"uuid":"0198f3c1-0000-7000-8000-000000000000","body":"agent","intent":"fix the test","cwd":"/w","crc":"00000000"}"#;

    #[test]
    fn a_single_restored_file_is_reported_in_the_singular() {
        let record = |verb: &str, changed: u32| {
            let tree = "0".repeat(64);
            format!(
                r#"{{"kind":"rewound","step":2,"verb":"{verb}","done":true,"to_step":1,"tree":"{tree}","grade":"exact","into":"/w","changed":{changed}}}"#
            )
        };
        let told: Vec<String> = ["rewind", "restore", "merge"].map(|verb| show(&[&record(verb, 1)])).into();
        assert!(told.iter().all(|told| told.contains("1 file was ")), "{told:?}");
        assert!(show(&[&record("rewind", 2)]).contains("2 files were put back to step 1"));
    }

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
            r#"{"kind":"partial","step":2,"text":"Wel","cause":"429: slow\ndown"}"#,
            r#"{"kind":"partial","step":2}"#,
            r#"{"kind":"a kind of the future","step":2}"#,
            "not JSON",
            r#"{"kind":"ended","step":2,"status":{"kind":"killed","signal":"SIGTERM"},"why":"user"}"#,
        ]);
        assert_eq!(
            shown,
            "> fix the test\nhm\nI look.\n  shell {\"command\":\"ls\"}\n  shell: ok\n    a\n    <ESC>[2Jb\n\
             -- paused by you\n-- recovered by a new daemon as PID 7\n-- resumed by you\n> and the docs\n> please\n\
             Wel\n-- the model call did not finish: 429: slow down\n\
             -- the model call did not finish; its cause was not recorded\n-- ended by SIGTERM (1)\n"
        );
    }

    #[test]
    fn a_fork_says_its_task_once_and_arguments_are_quoted_exactly() {
        let fork = SPAWNED
            .replace(r#""body""#, r#""origin_uuid":"0198f3c1-0000-7000-8000-000000000001","origin_step":2,"body""#);
        let call =
            r#"{"kind":"model_ended","step":1,"calls":[{"id":"a","name":"shell","args":{"command": "a  b\n\t"}}]}"#;
        assert_eq!(
            show(&[SPAWNED, call, &fork]),
            "> fix the test\n  shell {\"command\": \"a  b\\n\\t\"}\n\
             -- forked from 0198f3c1-0000-7000-8000-000000000001 at step 2\n"
        );
        assert!(show(&[&fork]).ends_with("at step 2\n> fix the test\n"));
    }

    #[test]
    fn a_long_result_is_cut_a_blob_is_named_and_doubt_is_said() {
        let long: Vec<String> = (1..=12).map(|n| n.to_string()).collect();
        let result = serde_json::to_string(&long.join("\n")).unwrap();
        let shown = show(&[&format!(r#"{{"kind":"call_ended","call":3,"ok":false,"result":{result}}}"#)]);
        assert!(shown.starts_with("  call 3: failed\n    1\n"), "{shown}");
        assert!(shown.ends_with("    10\n    (2 more lines: relive logs --json 5)\n"), "{shown}");
        let hash = "a".repeat(64);
        let blob = format!(r#"{{"kind":"input","id":"m","text":{{"$blob":"{hash}","bytes":70000,"head":"begins"}}}}"#);
        assert!(show(&[&blob]).contains(&format!("> begins\n> (68.3 KiB in all, in blobs/{hash})")));
        let doubt = r#"{"kind":"doubt","call":0,"reason":"the shim is gone"}"#;
        assert_eq!(show(&[doubt]), "-- in doubt: call 0: the shim is gone\n");
    }

    #[test]
    fn a_denied_call_is_shown_with_its_arguments() {
        let calls = r#"{"kind":"model_ended","step":1,"calls":[{"id":"a","name":"shell","args":{"command":"ls"}},{"id":"b","name":"shell","args":{"command":"rm x"}}]}"#;
        let denied = r#"{"kind":"call_ended","step":1,"call":1,"ok":false,"denied":true,"result":"No."}"#;
        let shown = show(&[calls, denied]);
        assert!(shown.ends_with("  shell {\"command\":\"rm x\"}: denied\n    No.\n"), "{shown}");
    }

    #[test]
    fn with_times_every_line_has_one() {
        let shown = Journal::new(5, Some(Clock::utc())).show(SPAWNED, &Look::plain());
        assert_eq!(shown, "2026-11-15T12:00:00.000Z > fix the test\n");
    }
}
