//! The calls that wait for a person's answer, exactly as they would be made.

use relive_api::{PendingCall, PendingQuestion, Process, item_of};

use super::approval::{self, Shown, exact};
use super::size::bytes;
use super::time::Clock;
use crate::terminal::Look;

/// How much of a call's arguments is shown.
const ARGS_MAX: usize = 2_000;

/// Returns the tool and its arguments on one line. A single text is shown as such, with the tool's command in
/// backticks.
pub(crate) fn call(call: &PendingCall) -> String {
    with_args(call, |text| shortened(exact(text)))
}

/// Returns the tool and its arguments, each as `show` shows it.
fn with_args(call: &PendingCall, show: impl Fn(&str) -> String) -> String {
    let args = match call.args.as_object().filter(|args| args.len() == 1).and_then(|args| args.values().next()) {
        Some(serde_json::Value::String(text)) => format!("`{}`", show(text)),
        Some(_) | None => show(&call.args.to_string()),
    };
    format!("{} {args}", show(&call.tool))
}

/// Says that a process is paused once it has what it waits for; nothing if nobody has paused it.
pub(crate) fn then_paused(process: &Process) -> String {
    let then = item_of(process).and_then(|item| item.then_paused());
    then.map(|then| format!("{then} (to take the pause back: relive resume {})\n", process.pid)).unwrap_or_default()
}

/// Describes the waiting calls and the possible answers; `None` if nothing waits. `show` renders a call that asks for
/// approval. No line of an agent begins like one of ours.
pub(crate) fn describe(process: &Process, look: &Look, show: impl Fn(&PendingCall) -> Shown) -> Option<Shown> {
    let pid = process.pid;
    if let Some(asked) = &process.approval {
        let (Shown { text: call, whole }, at) = (show(asked), Clock::local().second(asked.at));
        let text = if asked.tool == "network" {
            format!(
                "{call}asked at {at}; the command stands still\n\n\
                 relive resolve {pid} --allow   allow this host for as long as the process lives\n\
                 relive resolve {pid} --deny    refuse it\n"
            )
        } else {
            format!(
                "{call}asked at {at}; the call has not started\n\n\
                 relive resolve {pid} --allow   allow the call\n\
                 relive resolve {pid} --deny    deny the call; --reason TEXT tells the model why\n\
                 with --always {}\n",
                always(asked)
            )
        };
        return Some(Shown { text, whole });
    }
    if let Some(asked) = &process.question {
        let (Shown { text, whole }, at) = (question(process, asked, look), Clock::local().second(asked.at));
        return Some(Shown { text: format!("{text}asked at {at}\n\nrelive resolve {pid} --answer TEXT\n"), whole });
    }
    if process.in_doubt.is_empty() {
        return None;
    }
    let text = format!("PID {pid} was interrupted, and the outcome of this call is unknown:\n");
    let mut told = Shown { text, whole: true };
    for doubtful in &process.in_doubt {
        told.add(approval::quoted(&with_args(doubtful, str::to_owned), look));
        told.text.push_str(&format!("started at {}\n", Clock::local().second(doubtful.at)));
        if let Some(looked) = &doubtful.looked {
            told.text.push_str("checked:\n");
            told.add(approval::quoted(looked, look));
        }
    }
    told.point_to_rest(process);
    told.text.push_str(&format!(
        "\nrelive resolve {pid} --done       the call happened; the model is told\n\
         relive resolve {pid} --not-done   the call did not happen and is not repeated; the model is told\n\
         relive resolve {pid} --retry      repeat the call, whatever it did before\n"
    ));
    Some(told)
}

/// Describes a question of an agent, with the numbers of the answers it proposes.
pub(crate) fn question(process: &Process, asked: &PendingQuestion, look: &Look) -> Shown {
    let who = match &process.name {
        Some(name) => format!("PID {} ({})", process.pid, exact(name)),
        None => format!("PID {}", process.pid),
    };
    let mut told = Shown { text: format!("{who} asks:\n"), whole: true };
    told.add(approval::quoted(&asked.text, look));
    told.point_to_rest(process);
    if !asked.choices.is_empty() {
        told.text.push_str("it proposes:\n");
    }
    for (number, choice) in (1..).zip(&asked.choices) {
        told.text.push_str(&approval::choice(number, choice, look));
    }
    told
}

fn shortened(text: String) -> String {
    if text.len() <= ARGS_MAX {
        return text;
    }
    let head = &text[..text.floor_char_boundary(ARGS_MAX)];
    format!("{head}... ({} in all)", bytes(text.len() as u64))
}

/// Describes what a permanent answer applies to.
fn always(asked: &PendingCall) -> String {
    match approval::rule_for_always(asked) {
        // What the command is stands behind the bar: here it could pass for words of Relive.
        Ok(Some(_)) => "you are not asked again about exactly this command".to_owned(),
        Ok(None) => "the answer applies to every later call of this tool in this process".to_owned(),
        Err(_) => "name the commands that you are not asked about again: --rule RULE".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::processes::tests::process;
    use serde_json::json;

    fn parked(args: serde_json::Value) -> PendingCall {
        let at = "2026-11-15T12:00:00Z".parse().unwrap();
        PendingCall { id: 6, call: 0, tool: "shell".into(), args, at, looked: None }
    }

    #[test]
    fn a_call_is_shown_as_it_would_be_made() {
        let check = |args, expect: &str| assert_eq!(call(&parked(args)), expect);
        check(json!({"command": "ls -l"}), "shell `ls -l`");
        check(json!({"command": "ls\nrm -rf \u{202e}x\u{1b}[2J"}), "shell `ls<LF>rm -rf <U+202E>x<ESC>[2J`");
        check(json!({"path": "a", "content": "b\n"}), r#"shell {"path":"a","content":"b\n"}"#);
        check(json!({}), "shell {}");
        let long = call(&parked(json!({"command": "x".repeat(3_000)})));
        assert!(long.ends_with("... (2.9 KiB in all)`"), "{long}");
    }

    #[test]
    fn waiting_calls_are_shown_with_the_possible_answers() {
        let shown = |asked: &PendingCall| Shown { text: call(asked), whole: true };
        let describe = |process: &Process| describe(process, &Look::plain(), shown).map(|told| told.text);
        assert_eq!(describe(&process(5, 0)), None);
        let asks = Process { approval: Some(parked(json!({"command": "ls"}))), ..process(5, 0) };
        let told = describe(&asks).unwrap();
        assert!(told.contains("shell `ls`") && told.contains("relive resolve 5 --allow"), "{told}");
        let asked = PendingQuestion {
            id: 7,
            text: "Which branch?\n\u{1b}[2J".into(),
            choices: vec!["main".into(), "dev".into()],
            at: "2026-11-15T12:00:00Z".parse().unwrap(),
        };
        let told = describe(&Process { question: Some(asked), ..process(5, 0) }).unwrap();
        assert!(
            told.contains("asks:\n  | Which branch?\n  | <ESC>[2J\nit proposes:\n  1 | main\n  2 | dev\nasked at"),
            "{told}"
        );
        assert!(told.contains("relive resolve 5 --answer TEXT"), "{told}");
        let doubtful = PendingCall { looked: Some("nothing".into()), ..parked(json!({"command": "ls"})) };
        let told = describe(&Process { in_doubt: vec![doubtful], ..process(5, 0) }).unwrap();
        assert!(
            told.contains(":\n  | shell `ls`\nstarted at")
                && told.contains("checked:\n  | nothing\n")
                && told.contains("relive resolve 5 --not-done"),
            "{told}"
        );
        let moves = parked(json!({"command": "ls\nrm <ESC>\u{1b}[2J"}));
        let told = describe(&Process { in_doubt: vec![moves], ..process(5, 0) }).unwrap();
        assert!(told.contains(":\n  | shell `ls\n  | rm <U+003C>ESC><ESC>[2J`\nstarted at"), "{told}");
    }
}
