//! The calls that wait for a human's word, exactly as they would be made.

use relive_api::{PendingCall, Process};

/// How much of a call's arguments a person is shown.
const ARGS_MAX: usize = 2_000;

/// The tool and its arguments on one line. A single text is shown as such, with the tool's command in backticks.
pub(crate) fn call(call: &PendingCall) -> String {
    let args = match call.args.as_object().filter(|args| args.len() == 1).and_then(|args| args.values().next()) {
        Some(serde_json::Value::String(text)) => format!("`{}`", shortened(&exact(text))),
        Some(_) | None => shortened(&exact(&call.args.to_string())),
    };
    format!("{} {args}", exact(&call.tool))
}

/// What waits for a word, what is known about it, and what can be said; nothing where nothing waits.
pub(crate) fn describe(process: &Process) -> Option<String> {
    let pid = process.pid;
    if let Some(asked) = &process.approval {
        let (call, at) = (call(asked), asked.at);
        return Some(format!(
            "PID {pid} asks whether it may make this call:\n  {call}\n  asked at {at}; nothing of it has been done\n\n\
             relive resolve {pid} --allow   it may\n\
             relive resolve {pid} --deny    it may not; --reason TEXT tells the model why\n\
             with --always the answer holds for every later call of {} in this process\n",
            exact(&asked.tool)
        ));
    }
    if process.in_doubt.is_empty() {
        return None;
    }
    let mut told = format!("PID {pid} was interrupted, and what became of this is not known:\n");
    for doubtful in &process.in_doubt {
        told.push_str(&format!("  {}\n  begun at {}\n", call(doubtful), doubtful.at));
        if let Some(looked) = &doubtful.looked {
            told.push_str(&format!("  looked at: {}\n", exact(looked)));
        }
    }
    told.push_str(&format!(
        "\nrelive resolve {pid} --done       it happened: the model is told so\n\
         relive resolve {pid} --not-done   it did not happen, and shall not: the model is told so\n\
         relive resolve {pid} --retry      run it again, whatever it did\n"
    ));
    Some(told)
}

fn shortened(text: &str) -> String {
    if text.len() <= ARGS_MAX {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(ARGS_MAX)];
    format!("{head}... ({} bytes in all: relive info --json)", text.len())
}

/// With every character that is not seen, or that moves others about, spelled out: what is approved is what is read.
fn exact(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
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
        check(json!({"command": "ls\nrm -rf \u{202e}x\u{1b}[2J"}), "shell `ls\\nrm -rf \\u{202e}x\\u{1b}[2J`");
        check(json!({"path": "a", "content": "b\n"}), r#"shell {"path":"a","content":"b\n"}"#);
        check(json!({}), "shell {}");
        let long = call(&parked(json!({"command": "x".repeat(3_000)})));
        assert!(long.ends_with("... (3000 bytes in all: relive info --json)`"), "{long}");
    }

    #[test]
    fn what_waits_is_told_with_what_can_be_said() {
        assert_eq!(describe(&process(5, 0)), None);
        let asks = Process { approval: Some(parked(json!({"command": "ls"}))), ..process(5, 0) };
        let told = describe(&asks).unwrap();
        assert!(told.contains("shell `ls`") && told.contains("relive resolve 5 --allow"), "{told}");
        let doubtful = PendingCall { looked: Some("nothing".into()), ..parked(json!({"command": "ls"})) };
        let told = describe(&Process { in_doubt: vec![doubtful], ..process(5, 0) }).unwrap();
        assert!(told.contains("looked at: nothing") && told.contains("relive resolve 5 --not-done"), "{told}");
    }
}
