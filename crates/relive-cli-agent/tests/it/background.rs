//! Commands that claude runs in the background.

use relive_cli_agent::{Dialect, Lifecycle};

use crate::support::Replay;

const STARTED: &str = r#"{"type":"system","subtype":"task_started","task_id":"b","is_backgrounded":true}"#;
const RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false}"#;

#[track_caller]
fn check(lines: &[&str], lifecycle: Lifecycle) {
    let mut replay = Replay::new(Some(Dialect::Claude));
    for line in [&[STARTED, RESULT][..], lines].concat() {
        replay.read(line, 0);
    }
    assert_eq!(replay.machine().lifecycle(), lifecycle, "{lines:?}");
}

#[test]
fn a_background_command_missing_from_the_list_has_ended() {
    check(&[], Lifecycle::Working);
    check(&[r#"{"type":"system","subtype":"background_tasks_changed","tasks":[]}"#], Lifecycle::Idle);
    check(&[r#"{"hook_event_name":"Stop","background_tasks":[]}"#], Lifecycle::Idle);
}

#[test]
fn a_line_without_a_list_ends_no_background_command() {
    for line in [
        r#"{"type":"system","subtype":"background_tasks_changed"}"#,
        r#"{"type":"system","subtype":"background_tasks_changed","tasks":null}"#,
        r#"{"type":"system","subtype":"background_tasks_changed","tasks":{"count":0}}"#,
        r#"{"hook_event_name":"Stop"}"#,
        r#"{"hook_event_name":"Stop","background_tasks":"none"}"#,
    ] {
        check(&[line], Lifecycle::Working);
    }
}

#[test]
fn a_listed_command_that_has_ended_does_not_run() {
    for (status, lifecycle) in
        [("running", Lifecycle::Working), ("completed", Lifecycle::Idle), ("cancelled", Lifecycle::Idle)]
    {
        let list = format!(
            r#"{{"type":"system","subtype":"background_tasks_changed","tasks":[{{"task_id":"b","status":"{status}"}}]}}"#
        );
        check(&[&list, RESULT], lifecycle);
    }
}
