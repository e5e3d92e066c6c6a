//! Which processes are items, in which order, and what their commands are.

use serde_json::{Value, json};

use super::*;

fn process(fields: &Value) -> Process {
    let mut process = json!({
        "pid": 5, "ppid": 0, "uuid": "00000000-0000-7000-8000-000000000005", "short": "000000a5", "parent_uuid": null,
        "origin_uuid": null, "origin_step": null, "generation": 1, "successor_pid": null, "name": null, "body": "agent",
        "intent": "fix it", "cwd": "/", "state": "running", "paused": false, "paused_at": null, "display": "running",
        "suspend_reason": null, "resume_at": null, "ending": null, "status": null, "why": null, "killed_by": null,
        "killed_from": null, "exit": null, "step": 0, "max_steps": null, "tokens_in": 0, "tokens_out": 0,
        "max_tokens": null, "cost_usd": null, "model": null, "suspended_below": 0, "resumable": false, "stalled": false,
        "created_at": "2026-11-15T12:00:00Z", "started_at": null, "dead_at": null, "elapsed_ms": 0, "session": null,
        "agent": null
    });
    for (name, value) in fields.as_object().unwrap() {
        process[name] = value.clone();
    }
    serde_json::from_value(process).unwrap()
}

fn suspended(reason: &str) -> Value {
    json!({"paused": true, "paused_at": "2026-11-15T12:01:00Z", "suspend_reason": reason, "display": "suspended"})
}

fn dead(code: i32, unseen: bool) -> Value {
    let reason = if code == 0 { "completed" } else { "no way" };
    let exit = json!({"code": code, "reason": reason, "err": null});
    json!({"state": "dead", "display": "dead", "dead_at": "2026-11-15T12:02:00Z", "exit": exit, "unseen": unseen})
}

#[test]
fn each_state_has_its_kind_or_none() {
    let check = |fields: Value, expect: Option<ItemKind>| {
        assert_eq!(item_of(&process(&fields)).map(|item| item.kind), expect, "{fields}");
    };
    check(json!({}), None);
    check(suspended("user"), None);
    let dialog = |waiting: &str| {
        let agent = json!({"waiting": waiting, "dialog": {"since": "2026-11-15T12:01:00Z", "tool": "Bash"}});
        json!({"body": "cli", "agent": agent})
    };
    check(dialog("approval"), Some(ItemKind::Approval));
    check(dialog("question"), Some(ItemKind::Question));
    let item = item_of(&process(&dialog("approval"))).unwrap();
    assert_eq!((item.text.as_str(), item.since.as_second()), ("waits in its own dialog: Bash", 1_794_744_060));
    assert_eq!(item.answers[0].command, "relive attach 000000a5");
    check(json!({"agent": {"waiting": null, "dialog": null}}), None);
    check(suspended("daemon_stop"), None);
    check(suspended("approval"), Some(ItemKind::Approval));
    check(suspended("question"), Some(ItemKind::Question));
    check(suspended("in_doubt"), Some(ItemKind::InDoubt));
    check(suspended("budget_exceeded"), Some(ItemKind::Budget));
    check(suspended("quota"), Some(ItemKind::Quota));
    check(suspended("needs_credentials"), Some(ItemKind::Credentials));
    check(suspended("stalled"), Some(ItemKind::Stalled));
    check(suspended("disk_full"), Some(ItemKind::Failed));
    check(suspended("io_error"), Some(ItemKind::Failed));
    check(suspended("crash_loop"), Some(ItemKind::Failed));
    check(json!({"stalled": true, "display": "stalled"}), Some(ItemKind::Stalled));
    check(json!({"display": "damaged"}), Some(ItemKind::Damaged));
    check(dead(0, true), Some(ItemKind::Finished));
    check(dead(1, true), Some(ItemKind::Failed));
    check(dead(0, false), None);
    check(dead(1, false), None);
    let mut pausing = suspended("approval");
    pausing["display"] = json!("pausing");
    check(pausing, None);
}

#[test]
fn what_blocks_comes_first_and_the_oldest_of_it() {
    let item = |fields: Value, since: &str| {
        let mut item = item_of(&process(&fields)).unwrap();
        item.since = since.parse().unwrap();
        item
    };
    let mut items = vec![
        item(dead(0, true), "2026-11-15T10:00:00Z"),
        item(dead(1, true), "2026-11-15T11:00:00Z"),
        item(suspended("io_error"), "2026-11-15T13:00:00Z"),
        item(suspended("approval"), "2026-11-15T12:30:00Z"),
    ];
    sort_items(&mut items);
    let kinds: Vec<ItemKind> = items.iter().map(|item| item.kind).collect();
    assert_eq!(kinds, [ItemKind::Approval, ItemKind::Failed, ItemKind::Failed, ItemKind::Finished]);
    assert!(!items[1].has_ended() && items[2].has_ended());
}

#[test]
fn an_answer_names_the_question_and_an_acknowledgement_the_item() {
    let mut fields = suspended("question");
    fields["question"] = json!({"id": 7, "text": "which\none?", "choices": ["it's a"], "at": "2026-11-15T12:01:00Z"});
    let item = item_of(&process(&fields)).unwrap();
    assert_eq!((item.text.as_str(), item.question), ("which one?", Some(7)));
    let command = item.exact_command(&item.answers[0]);
    assert_eq!(command, r"relive resolve 000000a5 --answer 'it'\''s a' --question 7");
    let expect = ["resolve", "000000a5", "--answer", "it's a", "--question", "7"];
    assert_eq!(relive_commands(&command).unwrap(), [expect]);
    let own = item.answers.last().unwrap();
    assert_eq!(own.kind, AnswerKind::Text);
    let command = with_words(&item.exact_command(own), "a && b");
    assert_eq!(command, "relive resolve 000000a5 --answer 'a && b' --question 7");
    let item = item_of(&process(&dead(0, true))).unwrap();
    assert_eq!(item.exact_command(&item.answers[0]), format!("relive inbox ack {}", item.id));
}

#[test]
fn a_command_that_waits_for_an_approval_keeps_its_line_breaks() {
    let mut fields = suspended("approval");
    fields["approval"] = json!({"id": 7, "call": 0, "tool": "shell", "args": {"command": "ls  a\nrm b"},
        "at": "2026-11-15T12:01:00Z"});
    assert_eq!(item_of(&process(&fields)).unwrap().text, "shell: ls  a\nrm b");
}

#[test]
fn every_answer_is_a_command_of_relive_and_a_hint_that_is_none_is_read() {
    let with_hint = |mut fields: Value, hint: &str| {
        fields["hint"] = json!(hint);
        item_of(&process(&fields)).unwrap()
    };
    let prose = "set A_KEY, or providers.a.key_file in config.yaml, then from a shell that has it: relive resume 5";
    let item = with_hint(suspended("needs_credentials"), prose);
    assert_eq!(item.answers[0].command, "relive resume 000000a5");
    assert_eq!(item.text, format!("has no valid key for its model: {prose}"));
    let item = with_hint(suspended("budget_exceeded"), "relive resume 1 --max-tokens 10 && relive resume 5");
    assert_eq!(item.answers[0].command, "relive resume 1 --max-tokens 10 && relive resume 5");
    assert_eq!(with_hint(dead(1, true), "wait a while").answers[1].command, "relive resume 000000a5");
    for fields in all_items() {
        for answer in item_of(&process(&fields)).unwrap().answers {
            assert!(relive_commands(&answer.command).is_some(), "{}", answer.command);
        }
    }
}

/// Each process that is an item.
fn all_items() -> Vec<Value> {
    let reasons = ["approval", "question", "in_doubt", "budget_exceeded", "quota", "needs_credentials", "stalled"];
    let reasons = reasons.into_iter().chain(["disk_full", "io_error", "crash_loop"]);
    let others = [json!({"stalled": true, "display": "stalled"}), json!({"display": "damaged"})];
    reasons.map(suspended).chain(others).chain([dead(0, true), dead(1, true)]).collect()
}

/// What is asked appears while somebody is about to press a key. One that means something else does not answer by it:
/// `r` rewinds, `s` sends, `d` shows a diff, `t` shows a tree. A reply is typed, so nothing happens by its key alone.
#[test]
fn no_answer_has_a_key_that_means_something_else() {
    for fields in all_items() {
        for answer in item_of(&process(&fields)).unwrap().answers {
            assert!(!"jkgGq?/: pfKSctY+-*".contains(answer.key), "{} of {fields}", answer.key);
            let acts = matches!(answer.kind, AnswerKind::Command | AnswerKind::Ack);
            assert!(!acts || !"rsdl".contains(answer.key), "{} of {fields}", answer.key);
        }
    }
}

/// A key that resumes what has failed, pressed again and again, raises no limit and repeats no call.
#[test]
fn what_spends_more_or_repeats_a_call_has_a_key_of_its_own() {
    let keys =
        |fields: &Value| item_of(&process(fields)).unwrap().answers.into_iter().map(|answer| answer.key).collect();
    let own: Vec<String> = ["budget_exceeded", "in_doubt"].map(|reason| keys(&suspended(reason))).into();
    assert_eq!(own, ["m", "hno"]);
    let others: String = [dead(1, true), suspended("quota"), suspended("question")].iter().map(keys).collect();
    assert!(!others.contains(['m', 'h', 'o']), "{others}");
}

#[test]
fn an_item_says_what_happened_in_words() {
    let check = |mut fields: Value, more: Value, expect: &str| {
        for (name, value) in more.as_object().unwrap() {
            fields[name] = value.clone();
        }
        assert_eq!(item_of(&process(&fields)).unwrap().text, expect);
    };
    let absent = json!({"kind": "startup_failed", "stage": "execve", "errno": "ENOENT", "code": 2});
    let program = json!({"body": "exec", "intent": "/nope --fast", "status": absent});
    check(dead(127, true), program, "program not found: /nope");
    let agent = json!({"body": "cli", "agent": {"dialect": "claude"}, "status": absent});
    check(dead(127, true), agent, "program not found: the CLI agent `claude` is not installed");
    let agent = json!({
        "body": "cli", "agent": {"name": "codex", "dialect": "codex-app-server"}, "status": absent, "isolation": "confined",
    });
    let hidden = "or is in a directory that an isolated process does not see, such as /tmp";
    check(dead(127, true), agent, &format!("program not found: the CLI agent `codex` is not installed, {hidden}"));
    let killed = json!({"kind": "killed", "signal": "SIGTERM"});
    let ended = |reason: &str| json!({"code": 1, "reason": reason, "err": null});
    check(dead(1, true), json!({"status": killed, "exit": ended("interrupted")}), "ended by SIGTERM");
    let hint = "relive resume 5 --max-steps 4";
    let reached = |limit: &str| json!({"max_steps": 2, "hint": hint, "reached_limit": limit});
    let mut steps = reached("max_steps");
    steps["exit"] = ended("max steps exceeded");
    check(dead(1, true), steps, "max steps exceeded: --max-steps 2");
    check(suspended("budget_exceeded"), reached("max_steps"), "reached --max-steps 2");
    check(suspended("budget_exceeded"), reached("max_cost"), "reached --max-cost");
    // The limit is a field: a hint is only for people.
    check(suspended("budget_exceeded"), json!({"max_steps": 2, "hint": hint}), "budget exceeded");
    check(suspended("budget_exceeded"), json!({}), "budget exceeded");
    check(dead(1, true), json!({}), "no way");
    check(dead(3, true), json!({"exit": {"code": 3, "reason": "exited", "err": null}}), "exit code 3");
}

#[test]
fn texts_are_one_line_that_ends() {
    assert_eq!(one_line("a\n  b"), "a b");
    let long = one_line(&"日".repeat(1_000));
    assert_eq!(long.chars().count(), TEXT_MAX + 3);
}
