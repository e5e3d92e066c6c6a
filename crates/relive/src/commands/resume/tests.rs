use std::time::Duration;

use super::*;

fn resumed() -> Resumed {
    Resumed {
        pid: Pid(5),
        uuid: "0198f3c1-0000-7000-8000-00000c9d1e77".parse().unwrap(),
        origin_uuid: None,
        resumed_from_step: 12,
        max_steps: Some(20),
        model: Some("anthropic/claude".into()),
        changed: true,
        affected: 1,
        pids: vec![Pid(5)],
        pending: Vec::new(),
        kept: Vec::new(),
        cancelled: Vec::new(),
        note: None,
        workspace: None,
        nodes: None,
    }
}

#[test]
fn a_tree_is_told_of_by_the_nodes_that_start_again() {
    let told = |nodes| {
        let resumed = Resumed { nodes, model: None, max_steps: None, resumed_from_step: 0, ..resumed() };
        tell_of_tree(&resumed, "run", ["node", "nodes"])
    };
    let running = "PID 5 running | resumed from 0c9d1e77\n";
    assert_eq!(told(None), format!("resuming run 0c9d1e77 from its journal\n{running}"));
    assert_eq!(told(Some(1)), format!("resuming run 0c9d1e77 from its journal: 1 node starts again\n{running}"));
    assert!(told(Some(2)).contains(": 2 nodes start again\n"));
    assert!(told(Some(0)).contains(": no node is left to start\n"));
}

#[test]
fn a_program_is_resumed_or_started_again_and_says_which() {
    assert_eq!(tell_of_program(&resumed(), State::Running), "PID 5 resumed\n");
    assert_eq!(
        tell_of_program(&resumed(), State::Dead),
        "starting 0c9d1e77 again: programs have no journal to resume from\nPID 5 started\n"
    );
    let gated = Resumed { note: Some("it waits at its gate".into()), ..resumed() };
    assert!(tell_of_program(&gated, State::Dead).ends_with("\nPID 5 started; it waits at its gate\n"));
}

#[test]
fn the_processes_above_a_program_that_are_resumed_with_it_are_named() {
    let note = "2 processes below PID 3 stay paused; to resume all: relive resume --subtree 3";
    let pids = vec![Pid(5), Pid(3)];
    let with_parent = Resumed { affected: 2, pids, note: Some(note.to_owned()), ..resumed() };
    let expect = format!("2 processes (PIDs 5, 3) resumed\nnote: {note}\n");
    assert_eq!(tell_of_program(&with_parent, State::Running), expect);
    assert!(tell_of_program(&with_parent, State::Dead).ends_with("\n2 processes (PIDs 5, 3) resumed\n"));
}

#[test]
fn a_fork_of_a_program_is_a_new_run_of_it() {
    let origin_uuid = Some("0199a2b4-0000-7000-8000-00005f6a7b8c".parse().unwrap());
    assert_eq!(
        tell_of_forked_program(&Resumed { origin_uuid, model: None, ..resumed() }),
        "starting the program of 5f6a7b8c again, as 0c9d1e77: programs have no steps to fork from\nPID 5 started\n"
    );
}

#[test]
fn new_limits_and_messages_for_a_running_process_are_named() {
    let none = Changes { input: None, model: None, limits: LimitArgs::default() };
    assert_eq!(added(&none), None);
    let limits = LimitArgs { max_steps: Some(9), timeout: Some(Duration::from_secs(60)), ..LimitArgs::default() };
    let some = Changes { input: Some("x".into()), limits, ..none };
    let expect = "it has new limits (max steps 9, timeout 1m00s), and it was sent the message";
    assert_eq!(added(&some).as_deref(), Some(expect));
}

#[test]
fn resume_reports_the_step_and_the_process() {
    assert_eq!(
        tell(&resumed(), false),
        "resuming 0c9d1e77 from its journal (step 12/20)\n\
         PID 5 running (anthropic/claude) | resumed from 0c9d1e77\n"
    );
    let origin = Some("0198f3c1-0000-7000-8000-00000c9d1e77".parse().unwrap());
    let uuid = "0199a2b4-0000-7000-8000-00005f6a7b8c".parse().unwrap();
    let fork = Resumed { pid: Pid(6), uuid, origin_uuid: origin, resumed_from_step: 5, max_steps: None, ..resumed() };
    assert_eq!(
        tell(&fork, true),
        "forking 0c9d1e77 at step 5 -> 5f6a7b8c\nPID 6 running (anthropic/claude) | forked from 0c9d1e77\n"
    );
    let noted = Resumed { note: Some("the files differ".into()), ..fork.clone() };
    assert!(tell(&noted, true).ends_with("| forked from 0c9d1e77\nnote: the files differ\n"));
    // A fork that is resumed later is resumed, not forked again.
    assert!(tell(&fork, false).starts_with("resuming 5f6a7b8c from its journal (step 5)\n"));
    let without_model = Resumed { model: None, ..resumed() };
    assert!(tell(&without_model, false).ends_with("PID 5 running | resumed from 0c9d1e77\n"));
    let still = Resumed { changed: false, affected: 0, ..resumed() };
    assert_eq!(tell(&still, false), "PID 5 is already running: nothing changed\n");
}
