//! The hooks of claude's full-screen interface: which call an approval is about, and when a turn is over.

use relive_cli_agent::{ApprovalChannel, Event, EventKind};

use crate::support::{Replay, word};

/// Reads hooks, and returns the events and the last lifecycle. A hook is its name and the rest of its body.
fn read(hooks: &[(&str, &str)]) -> (Vec<Event>, String) {
    let mut replay = Replay::new(None);
    let mut events = Vec::new();
    for (name, rest) in hooks {
        let comma = if rest.is_empty() { "" } else { "," };
        let body = format!(r#"{{"hook_event_name":"{name}","session_id":"s"{comma}{rest}}}"#);
        events.extend(replay.read(&body, 0).events);
    }
    let waiting = replay.machine().waiting().map_or(String::new(), |waiting| format!(" {}", word(waiting)));
    (events, format!("{}{waiting}", word(replay.machine().lifecycle())))
}

/// The ids of calls that started, of requests and of calls that ended.
fn ids(events: &[Event]) -> Vec<String> {
    let id = |event: &Event| {
        if let EventKind::ToolStarted { id, .. } = &event.kind {
            Some(format!("+{id}"))
        } else if let EventKind::ToolEnded { id, .. } = &event.kind {
            Some(format!("-{id}"))
        } else if let EventKind::ApprovalAsked(request) = &event.kind {
            Some(format!("?{}", request.request_id.as_str().trim_matches('"')))
        } else if let EventKind::Answered { request_id } = &event.kind {
            Some(format!("!{}", request_id.as_str().trim_matches('"')))
        } else {
            None
        }
    };
    events.iter().filter_map(id).collect()
}

const LS: &str = r#""tool_name":"Bash","tool_input":{"command":"ls"}"#;
const PWD: &str = r#""tool_name":"Bash","tool_input":{"command":"pwd"}"#;

fn with_id(body: &str, id: &str) -> String {
    format!(r#"{body},"tool_use_id":"{id}""#)
}

#[test]
fn parallel_calls_of_one_tool_have_an_approval_each() {
    let (ls, pwd) = (with_id(LS, "t1"), with_id(PWD, "t2"));
    let asked =
        [("PreToolUse", ls.as_str()), ("PreToolUse", &pwd), ("PermissionRequest", LS), ("PermissionRequest", PWD)];
    let (events, state) = read(&asked);
    assert_eq!(ids(&events), ["+t1", "+t2", "?t1", "?t2"]);
    assert_eq!(state, "working approval");
    let (_, state) = read(&[&asked[..], &[("PostToolUse", &pwd)]].concat());
    assert_eq!(state, "working approval", "the other one waits still");
    let (_, state) = read(&[&asked[..], &[("PostToolUse", &pwd), ("PostToolUse", &ls)]].concat());
    assert_eq!(state, "working");
}

#[test]
fn parallel_calls_with_the_same_input_have_an_approval_each() {
    let (first, second) = (with_id(LS, "t1"), with_id(LS, "t2"));
    let (events, _) =
        read(&[("PreToolUse", &first), ("PreToolUse", &second), ("PermissionRequest", LS), ("PermissionRequest", LS)]);
    assert_eq!(ids(&events), ["+t1", "+t2", "?t2", "?t1"]);
}

/// An approval is asked right after its call is announced, and the call before may need none.
#[test]
fn an_approval_belongs_to_the_last_of_two_equal_calls() {
    let (first, second) = (with_id(LS, "t1"), with_id(LS, "t2"));
    let asked = [("PreToolUse", first.as_str()), ("PreToolUse", &second), ("PermissionRequest", LS)];
    let (events, state) = read(&[&asked[..], &[("PostToolUse", &first)]].concat());
    assert_eq!(ids(&events), ["+t1", "+t2", "?t2", "-t1"]);
    assert_eq!(state, "working approval");
    assert_eq!(read(&[&asked[..], &[("PostToolUse", &second)]].concat()).1, "working");
}

#[test]
fn an_approval_with_an_id_belongs_to_the_call_with_this_id() {
    let (first, second) = (with_id(LS, "t1"), with_id(LS, "t2"));
    let (events, _) = read(&[("PreToolUse", &first), ("PreToolUse", &second), ("PermissionRequest", &first)]);
    assert_eq!(ids(&events), ["+t1", "+t2", "?t1"]);
    // The call was not announced, or not yet.
    let (events, state) = read(&[("PreToolUse", &first), ("PermissionRequest", &second), ("PostToolUse", &first)]);
    assert_eq!((ids(&events), state.as_str()), (vec!["+t1".into(), "?t2".into(), "-t1".into()], "working approval"));
    let (events, state) = read(&[
        ("PermissionRequest", &second),
        ("PreToolUse", &first),
        ("PostToolUse", &first),
        ("PreToolUse", &second),
        ("PostToolUse", &second),
    ]);
    assert_eq!(ids(&events), ["?t2", "+t1", "-t1", "+t2", "-t2"]);
    assert_eq!(state, "working");
}

/// Claude asks again if nobody has answered.
#[test]
fn an_approval_that_is_asked_twice_counts_once() {
    let call = with_id(LS, "t1");
    let asked = [("PreToolUse", call.as_str()), ("PermissionRequest", LS), ("PermissionRequest", LS)];
    let (events, _) = read(&asked);
    assert_eq!(ids(&events), ["+t1", "?t1", "?t1"]);
    assert_eq!(read(&[&asked[..], &[("PostToolUse", &call)]].concat()).1, "working");
}

/// Claude calls no hook when the user says no, and none when the user presses escape.
#[test]
fn the_next_prompt_ends_the_calls_of_the_turn_before() {
    let call = with_id(LS, "t1");
    let denied = [("UserPromptSubmit", ""), ("PreToolUse", call.as_str()), ("PermissionRequest", LS)];
    assert_eq!(read(&denied).1, "working approval");
    let (events, state) = read(&[&denied[..], &[("UserPromptSubmit", "")]].concat());
    assert_eq!(state, "working");
    let kinds: Vec<bool> = events.iter().map(|event| matches!(event.kind, EventKind::TurnEnded { .. })).collect();
    assert_eq!(kinds.iter().filter(|ended| **ended).count(), 1, "{events:?}");
    assert_eq!(read(&[&denied[..], &[("UserPromptSubmit", ""), ("Stop", "")]].concat()).1, "idle");
    // The same call once more is a call of its own.
    let again = with_id(LS, "t2");
    let (events, state) =
        read(&[&denied[..], &[("UserPromptSubmit", ""), ("PreToolUse", &again), ("PermissionRequest", LS)]].concat());
    assert_eq!(ids(&events), ["+t1", "?t1", "+t2", "?t2"]);
    assert_eq!(state, "working approval");
}

#[test]
fn a_call_that_the_user_has_interrupted_ends_the_turn() {
    let (ls, pwd) = (with_id(LS, "t1"), with_id(PWD, "t2"));
    let calls = [("UserPromptSubmit", ""), ("PreToolUse", ls.as_str()), ("PreToolUse", &pwd)];
    let [first, second] = [&ls, &pwd].map(|call| format!(r#"{call},"is_interrupt":true"#));
    assert_eq!(read(&[&calls[..], &[("PostToolUseFailure", &first)]].concat()).1, "idle");
    let both = [("PostToolUseFailure", first.as_str()), ("PostToolUseFailure", &second)];
    let (events, state) = read(&[&calls[..], &both].concat());
    assert_eq!((ids(&events), state.as_str()), (["+t1", "+t2", "-t1", "-t2"].map(Into::into).to_vec(), "idle"));
    let failed = format!(r#"{ls},"is_interrupt":false"#);
    assert_eq!(read(&[&calls[..], &[("PostToolUseFailure", &failed)]].concat()).1, "working");
    let of_subagent = format!(r#"{first},"agent_id":"x""#);
    assert_eq!(read(&[("UserPromptSubmit", ""), ("PostToolUseFailure", &of_subagent)]).1, "working");
}

/// A prompt that was typed during the turn reaches the agent between two calls.
#[test]
fn a_prompt_in_a_turn_without_an_open_call_continues_it() {
    let (events, state) = read(&[("UserPromptSubmit", ""), ("UserPromptSubmit", "")]);
    assert!(!events.iter().any(|event| matches!(event.kind, EventKind::TurnEnded { .. })), "{events:?}");
    assert_eq!(state, "working");
}

/// A hook may have changed the input of a call before its approval is asked.
#[test]
fn an_approval_with_a_changed_input_belongs_to_the_only_call() {
    let (events, state) = read(&[("PreToolUse", &with_id(LS, "t1")), ("PermissionRequest", PWD)]);
    assert_eq!((ids(&events), state.as_str()), (vec!["+t1".into(), "?t1".into()], "working approval"));
}

#[test]
fn hooks_without_ids_tell_calls_apart_by_their_input() {
    let hooks = [("PreToolUse", LS), ("PreToolUse", PWD), ("PermissionRequest", PWD), ("PostToolUse", LS)];
    let (events, state) = read(&hooks);
    assert_eq!(ids(&events), ["+Bash#1", "+Bash#2", "?Bash#2", "-Bash#1"]);
    assert_eq!(state, "working approval");
    let (_, state) = read(&[&hooks[..], &[("PostToolUseFailure", PWD)]].concat());
    assert_eq!(state, "working");
}

#[test]
fn an_approval_before_its_call_ends_with_the_call() {
    let (events, state) =
        read(&[("PermissionRequest", LS), ("PreToolUse", &with_id(LS, "t1")), ("PostToolUse", &with_id(LS, "t1"))]);
    assert_eq!(ids(&events), ["?Bash#1", "+t1", "-t1", "!Bash#1"]);
    assert_eq!(state, "working");
}

#[test]
fn a_denied_call_ends() {
    let call = with_id(LS, "t1");
    let (events, state) = read(&[("PreToolUse", &call), ("PermissionRequest", LS), ("PermissionDenied", &call)]);
    assert_eq!((ids(&events), state.as_str()), (vec!["+t1".into(), "?t1".into(), "-t1".into()], "working"));
}

#[test]
fn a_session_that_ends_in_a_turn_ends_the_turn() {
    let quit = ("SessionEnd", r#""reason":"prompt_input_exit""#);
    let is_turn_end = |event: &Event| matches!(event.kind, EventKind::TurnEnded { .. });
    let (events, state) = read(&[("UserPromptSubmit", ""), ("PreToolUse", LS), quit]);
    assert_eq!((events.iter().filter(|event| is_turn_end(event)).count(), state.as_str()), (1, "idle"), "{events:?}");
    let (events, _) = read(&[("UserPromptSubmit", ""), ("Stop", ""), quit]);
    assert_eq!(events.iter().filter(|event| is_turn_end(event)).count(), 1, "the turn has ended already");
    assert_eq!(events.last().unwrap().kind, EventKind::SessionEnded { reason: Some("prompt_input_exit".into()) });
}

/// Claude calls no `Stop` after the user has pressed escape, or has said no at a dialog.
#[test]
fn a_prompt_that_waits_for_input_ends_the_turn_and_its_calls() {
    let idle = ("Notification", r#""notification_type":"idle_prompt""#);
    let by_message = ("Notification", r#""message":"Claude is waiting for your input""#);
    let permission = ("Notification", r#""notification_type":"permission_prompt""#);
    let call = [("UserPromptSubmit", ""), ("PreToolUse", LS)];
    assert_eq!(read(&[("UserPromptSubmit", ""), permission]).1, "working approval");
    for waits in [idle, by_message] {
        assert_eq!(read(&[("UserPromptSubmit", ""), waits]).1, "idle");
        assert_eq!(read(&[&call[..], &[waits]].concat()).1, "idle");
        assert_eq!(read(&[&call[..], &[("PermissionRequest", LS), waits]].concat()).1, "idle");
        let of_subagent = format!(r#"{LS},"agent_id":"x""#);
        let asked = [("PreToolUse", of_subagent.as_str()), ("PermissionRequest", &of_subagent)];
        assert_eq!(read(&[&asked[..], &[("Stop", "")]].concat()).1, "working approval");
        assert_eq!(read(&[&asked[..], &[("Stop", ""), waits]].concat()).1, "idle", "no dialog is open any more");
    }
    assert_eq!(read(&[("UserPromptSubmit", ""), ("Stop", ""), idle]).1, "idle");
}

#[test]
fn a_question_of_the_agent_is_not_an_approval() {
    let question = r#""tool_name":"AskUserQuestion","tool_input":{"questions":[{"question":"Which one?"}]}"#;
    let (events, state) = read(&[("PreToolUse", &with_id(question, "t1")), ("PermissionRequest", question)]);
    assert!(matches!(&events.last().unwrap().kind, EventKind::Question { text, .. } if text == "Which one?"));
    assert_eq!(state, "working question");
}

#[test]
fn an_mcp_server_that_asks_waits_for_its_result() {
    let asked = ("Elicitation", r#""mcp_server_name":"m","message":"Which one?","mode":"form""#);
    let (events, state) = read(&[("UserPromptSubmit", ""), asked]);
    assert!(matches!(&events.last().unwrap().kind, EventKind::Question { text, .. } if text == "Which one?"));
    assert_eq!(state, "working question");
    // Only the result is sure to have an id.
    let other = ("ElicitationResult", r#""mcp_server_name":"n","action":"accept","elicitation_id":"e""#);
    let own = ("ElicitationResult", r#""mcp_server_name":"m","action":"accept","elicitation_id":"e""#);
    assert_eq!(read(&[("UserPromptSubmit", ""), asked, other]).1, "working question");
    assert_eq!(read(&[("UserPromptSubmit", ""), asked, own]).1, "working");
}

/// Nobody answers the question of a server that the user has closed.
#[test]
fn a_question_of_an_mcp_server_ends_with_its_turn() {
    let asked = ("Elicitation", r#""mcp_server_name":"m","message":"Which one?""#);
    let idle = ("Notification", r#""notification_type":"idle_prompt""#);
    assert_eq!(read(&[asked]).1, "working question");
    assert_eq!(read(&[asked, idle]).1, "idle");
    assert_eq!(read(&[("UserPromptSubmit", ""), asked, ("UserPromptSubmit", "")]).1, "working");
    let answered = ("ElicitationResult", r#""mcp_server_name":"m""#);
    let (events, _) = read(&[("UserPromptSubmit", ""), asked, answered, ("UserPromptSubmit", "")]);
    assert!(!events.iter().any(|event| matches!(event.kind, EventKind::TurnEnded { .. })), "{events:?}");
}

#[test]
fn a_turn_of_a_subagent_does_not_open_a_turn_of_the_agent() {
    let of_subagent = r#""agent_id":"x""#;
    for hook in ["Stop", "StopFailure"] {
        let idle = ("Notification", r#""notification_type":"idle_prompt""#);
        assert_eq!(read(&[("UserPromptSubmit", ""), (hook, of_subagent)]).1, "working", "{hook}");
        assert_eq!(read(&[("UserPromptSubmit", ""), (hook, of_subagent), idle]).1, "idle", "{hook}");
    }
    assert_eq!(read(&[("UserPromptSubmit", of_subagent)]).1, "idle");
    assert_eq!(read(&[("UserPromptSubmit", ""), ("SessionEnd", of_subagent)]).1, "idle");
}

#[test]
fn a_subagent_without_an_id_is_not_named() {
    for hook in ["SubagentStart", "SubagentStop"] {
        let (events, _) = read(&[(hook, "")]);
        assert!(matches!(events.last().unwrap().kind, EventKind::Other { .. }), "{events:?}");
    }
}

/// The user has interrupted the turn, and its subagents with it.
#[test]
fn an_approval_of_a_subagent_in_the_foreground_ends_with_its_turn() {
    let of_subagent = format!(r#"{LS},"agent_id":"ag""#);
    let asked =
        [("UserPromptSubmit", ""), ("PreToolUse", r#""tool_name":"Task""#), ("PermissionRequest", &of_subagent)];
    let (_, state) = read(&asked);
    assert_eq!(state, "working approval");
    let (_, state) = read(&[&asked[..], &[("UserPromptSubmit", "")]].concat());
    assert_eq!(state, "working");
    let stop = ("Stop", r#""background_tasks":[]"#);
    let (_, state) = read(&[&asked[..], &[("UserPromptSubmit", ""), stop]].concat());
    assert_eq!(state, "idle");
    let (_, state) = read(&[&asked[..], &[stop]].concat());
    assert_eq!(state, "idle");
    let listed = ("Stop", r#""background_tasks":[{"id":"ag"}]"#);
    let (_, state) = read(&[&asked[..], &[listed]].concat());
    assert_eq!(state, "working approval", "in the background it waits beyond the turn");
}

#[test]
fn a_claude_that_starts_again_has_no_background_commands() {
    let turn = [("UserPromptSubmit", ""), ("Stop", r#""background_tasks":[{"id":"b"}]"#)];
    for (source, expected) in [("startup", "idle"), ("resume", "idle"), ("compact", "working")] {
        let start = format!(r#""source":"{source}""#);
        let (_, state) = read(&[&turn[..], &[("SessionStart", &start)]].concat());
        assert_eq!(state, expected, "{source}");
    }
}

const DIALOG: &str = r#""notification_type":"permission_prompt","message":"Claude needs your permission to use Bash""#;

/// A setup without a hook for permissions.
#[test]
fn a_permission_dialog_that_only_a_notification_shows_is_an_approval() {
    let ls = with_id(LS, "t1");
    let asked = [("UserPromptSubmit", ""), ("PreToolUse", ls.as_str()), ("Notification", DIALOG)];
    let (events, state) = read(&asked);
    assert_eq!((ids(&events), state.as_str()), (vec!["+t1".into(), "?t1".into()], "working approval"));
    let asked_on = events.iter().find_map(|event| {
        let EventKind::ApprovalAsked(request) = &event.kind else { return None };
        Some(request.channel)
    });
    assert_eq!(asked_on, Some(ApprovalChannel::Screen));
    for end in [("PostToolUse", ls.as_str()), ("UserPromptSubmit", "")] {
        assert_eq!(read(&[&asked[..], &[end]].concat()).1, "working");
    }
    // No hook announces calls either.
    let asked = [("UserPromptSubmit", ""), ("Notification", DIALOG)];
    assert_eq!(read(&asked).1, "working approval");
    assert_eq!(read(&[&asked[..], &[("PostToolUse", ls.as_str())]].concat()).1, "working");
    assert_eq!(read(&[&asked[..], &[("Stop", "")]].concat()).1, "idle");
}

#[test]
fn a_notification_about_a_known_approval_adds_none() {
    let ls = with_id(LS, "t1");
    let (events, _) = read(&[("PreToolUse", &ls), ("PermissionRequest", LS), ("Notification", DIALOG)]);
    assert_eq!(ids(&events), ["+t1", "?t1"]);
}
