//! One event of a running agent, for a watcher.

use relive_api::Process;
use relive_core::{ProcessStatus, SuspendReason, Uuid, Why};
use relive_journal::payload::{Json, Text};
use relive_types::CommandRule;
use relive_types::rule::COMMAND_TOOL;

use super::approval::exact;
use super::line::Line;
use super::time::{elapsed, local};
use crate::terminal::{Paint, one_line};

/// The prefix of each line of a command's output.
pub(crate) const OUTPUT_BAR: &str = "   | ";

/// Returns the lines of a call: a command with its line breaks, the arguments of any other tool exactly.
pub(crate) fn call(line: &Line) -> Vec<String> {
    let (name, args) = (exact(&word(line, "name")), args(line));
    let cut =
        line.field::<u64>("args_bytes").map(|bytes| format!("... ({})", super::size::bytes(bytes))).unwrap_or_default();
    let parsed: Option<serde_json::Value> = serde_json::from_str(&args).ok();
    let command = parsed.as_ref().and_then(|args| args.get("command")).and_then(serde_json::Value::as_str);
    let rule = match (line.field::<CommandRule>("rule"), command.map(CommandRule::exactly)) {
        (None, _) => String::new(),
        (Some(rule), Some(Ok(exactly))) if rule == exactly => " (allowed by a rule for this command)".to_owned(),
        (Some(rule), _) => format!(" (allowed by the rule {})", exact(&rule.to_string())),
    };
    match command.filter(|_| is_command(line)) {
        Some(command) => {
            let mut lines = command.lines();
            let first = lines.next().unwrap_or_default();
            let mut shown = vec![format!("-> {name}: {}{rule}", exact(first))];
            shown.extend(lines.map(|line| format!("   > {}", exact(line))));
            shown
        }
        None => vec![format!("-> {name} {}{cut}{rule}", exact(&args))],
    }
}

/// Returns the lines of a call that was never made, from its result. Daemons of earlier versions tell no arguments.
pub(crate) fn unmade_call(result: &Line) -> Vec<String> {
    match result.field::<Json>("args") {
        Some(_) => call(result),
        None => vec![format!("-> {}", exact(&word(result, "name")))],
    }
}

pub(crate) fn is_command(line: &Line) -> bool {
    word(line, "name") == COMMAND_TOOL
}

/// Returns the result of a call. Output that was already shown is not repeated.
pub(crate) fn result(line: &Line, streamed: bool) -> String {
    let ok = match (line.field::<bool>("ok"), line.field::<bool>("denied")) {
        (_, Some(true)) => "denied",
        (Some(false), _) => "failed",
        (Some(true) | None, _) => "ok",
    };
    let text = payload(line, "text");
    let last = line.field::<String>("last").unwrap_or_else(|| text.lines().last().unwrap_or_default().to_owned());
    let said = match (streamed, ok) {
        (true, "ok") => String::new(),
        (true, _) => format!(": {}", one_line(&last)),
        (false, _) if text.trim().is_empty() => String::new(),
        (false, _) => format!(": {}", one_line(&text)),
    };
    format!("<- {} {ok}{said}", exact(&word(line, "name")))
}

/// Returns the line of any other event that is worth one.
pub(crate) fn line(line: &Line, who: Uuid) -> Option<(String, Paint)> {
    Some(match line.kind.as_str() {
        "paused" => {
            let reason: SuspendReason = line.field("reason")?;
            let hint = line.field::<String>("hint").map(|hint| one_line(&hint));
            let until = line.field("resume_at").map(|at| format!(" until {}", local(at))).unwrap_or_default();
            let text = paused(reason, who)?;
            (format!("{}{until}; {}", text.0, hint.unwrap_or(text.1)), Paint::Yellow)
        }
        "resumed" => ("resumed".to_owned(), Paint::Yellow),
        "stalled" => (format!("stalled: no progress for a long time; relive info {who}"), Paint::Yellow),
        "model_retry" => {
            let wait = elapsed(line.field::<u64>("after_ms").unwrap_or(0));
            (format!("retrying in {wait} ({})", one_line(&payload(line, "text"))), Paint::Yellow)
        }
        // A CLI agent asks its model again.
        "retry" => {
            let wait = line.field::<u64>("delay_ms").map(|ms| format!(" in {}", elapsed(ms))).unwrap_or_default();
            (format!("retrying{wait} ({})", one_line(&payload(line, "text"))), Paint::Yellow)
        }
        "model_error" => (format!("the model call failed: {}", one_line(&payload(line, "text"))), Paint::Red),
        "compacted" => ("the conversation was too long, and its older part was summarized".to_owned(), Paint::Dim),
        "in_doubt" => {
            let what = format!("in doubt: {} {}", exact(&word(line, "name")), one_line(&payload(line, "reason")));
            (what, Paint::Red)
        }
        _ => return None,
    })
}

/// Returns why a process is suspended and what ends that; `None` for an approval, which is asked for.
fn paused(reason: SuspendReason, who: Uuid) -> Option<(String, String)> {
    let resume = format!("resume it with: relive resume {who}");
    let (why, next) = match reason {
        SuspendReason::Approval | SuspendReason::Question => return None,
        SuspendReason::User => ("paused", resume),
        SuspendReason::BudgetExceeded => ("paused: budget exceeded", resume),
        SuspendReason::DiskFull => ("paused: the disk is full", "it resumes when there is space".to_owned()),
        SuspendReason::IoError => ("paused: its journal cannot be written", resume),
        SuspendReason::CrashLoop => ("paused: it crashed too often", resume),
        SuspendReason::InDoubt => {
            ("paused: the outcome of a call is unknown", format!("answer with: relive resolve {who}"))
        }
        SuspendReason::Quota => ("paused: the provider's quota is used up", "it resumes automatically".to_owned()),
        SuspendReason::NeedsCredentials => ("paused: it has no valid key for its model", resume),
        SuspendReason::DaemonStop => ("paused: the daemon is stopping", "the next daemon resumes it".to_owned()),
        SuspendReason::Stalled => ("paused: it stalled", resume),
    };
    Some((why.to_owned(), next))
}

/// Returns the command that lets an ended process continue; `None` where a resume would end at once.
pub(crate) fn resume_hint(process: &Process) -> Option<String> {
    match (&process.hint, process.why) {
        (Some(hint), _) => Some(hint.clone()),
        // It would not start again either.
        (None, _) if matches!(process.status, Some(ProcessStatus::StartupFailed { .. })) => None,
        // The limit is an ancestor's, and the daemon knows no command that raises it.
        (None, Some(Why::Budget | Why::Timeout)) => None,
        (None, _) => Some(format!("relive resume {}", process.pid)),
    }
}

pub(crate) fn word(line: &Line, name: &str) -> String {
    line.field::<String>(name).unwrap_or_default()
}

pub(crate) fn payload(line: &Line, name: &str) -> String {
    line.field::<Text>(name).map(|text| text.head(usize::MAX).to_owned()).unwrap_or_default()
}

fn args(line: &Line) -> String {
    match line.field::<Json>("args") {
        Some(Json::Inline(raw)) => serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| raw.get().to_owned()),
        Some(Json::Blob(blob)) => blob.head,
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Line {
        Line::parse(text).unwrap()
    }

    #[test]
    fn arguments_are_quoted_exactly() {
        let check = |event: &str, expect: &[&str]| assert_eq!(call(&parse(event)), expect);
        check(
            r#"{"kind":"call","name":"shell","args":"{\"command\":\"echo 'a  b'\\nmake\\u001b[2J\"}"}"#,
            &["-> shell: echo 'a  b'", "   > make<ESC>[2J"],
        );
        check(
            r#"{"kind":"call","name":"write","args":"{\"path\": \"a  b\", \"content\":\"x\\ny\"}"}"#,
            &[r#"-> write {"path": "a  b", "content":"x\ny"}"#],
        );
        check(
            r#"{"kind":"call","name":"shell","args":"{\"command\":\"ls\"}","rule":"shell:l*"}"#,
            &["-> shell: ls (allowed by the rule shell:l*)"],
        );
        check(
            r#"{"kind":"call","name":"shell","args":"{\"command\":\"ls","args_bytes":9000}"#,
            &[r#"-> shell {"command":"ls... (8.7 KiB)"#],
        );
    }

    #[test]
    fn a_denied_call_shows_what_was_denied() {
        let check = |event: &str, expect: &[&str]| assert_eq!(unmade_call(&parse(event)), expect);
        check(
            r#"{"kind":"call_result","name":"shell","ok":false,"denied":true,"args":"{\"command\":\"rm -rf x\\nls\"}","text":"no"}"#,
            &["-> shell: rm -rf x", "   > ls"],
        );
        check(r#"{"kind":"call_result","name":"shell","ok":false,"text":"no"}"#, &["-> shell"]);
    }

    #[test]
    fn a_rule_equal_to_the_command_is_not_repeated() {
        let event = r#"{"kind":"call","name":"shell","args":"{\"command\":\"ls *\"}","rule":"shell:ls \\*"}"#;
        assert_eq!(call(&parse(event)), ["-> shell: ls * (allowed by a rule for this command)"]);
    }

    #[test]
    fn a_result_does_not_repeat_shown_output() {
        let failed = parse(r#"{"kind":"call_result","name":"shell","ok":false,"text":"a\nexit code 2"}"#);
        assert_eq!(result(&failed, true), "<- shell failed: exit code 2");
        assert_eq!(result(&failed, false), "<- shell failed: a exit code 2");
        let denied = parse(r#"{"kind":"call_result","name":"shell","ok":false,"denied":true,"text":"Not run."}"#);
        assert_eq!(result(&denied, false), "<- shell denied: Not run.");
        let ok = parse(r#"{"kind":"call_result","name":"shell","ok":true,"text":"a\n"}"#);
        assert_eq!((result(&ok, true).as_str(), result(&ok, false).as_str()), ("<- shell ok", "<- shell ok: a"));
    }

    #[test]
    fn the_reason_of_a_pause_is_shown() {
        let check = |event: &str, expect: Option<&str>| {
            assert_eq!(line(&parse(event), Uuid::nil()).map(|(text, _)| text).as_deref(), expect);
        };
        check(
            r#"{"kind":"model_retry","attempt":2,"after_ms":8000,"text":"429: slow\ndown"}"#,
            Some("retrying in 8.0s (429: slow down)"),
        );
        check(
            r#"{"kind":"retry","attempt":1,"delay_ms":600,"status":529,"text":"overloaded"}"#,
            Some("retrying in 0.6s (overloaded)"),
        );
        check(r#"{"kind":"retry","attempt":1,"delay_ms":null,"text":"cut off"}"#, Some("retrying (cut off)"));
        check(r#"{"kind":"model_error","text":"401: bad key"}"#, Some("the model call failed: 401: bad key"));
        check(r#"{"kind":"paused","reason":"approval"}"#, None);
        check(
            r#"{"kind":"paused","reason":"user"}"#,
            Some("paused; resume it with: relive resume 00000000-0000-0000-0000-000000000000"),
        );
    }
}
