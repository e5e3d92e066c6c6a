use proptest::prelude::*;

use super::*;
use crate::log::Stream;
use crate::protocol::Verb;
use crate::spec::{Gate, Size};

const STAGES: [Stage; 8] = [
    Stage::Starting,
    Stage::Spawned,
    Stage::Ready,
    Stage::Running,
    Stage::Exited,
    Stage::Signaled,
    Stage::Aborted,
    Stage::Errored,
];

fn failure() -> Failure {
    Failure::new("execve", libc::ENOENT)
}

fn at(stage: Stage) -> Session {
    let mut session = Session::new(Gate::Closed, true);
    let spawn = [Event::Spawned { host_pid: 7 }, Event::Ready { child_pid: 7 }];
    let run = [Event::Opened, Event::Executed];
    let events: Vec<Event> = match stage {
        Stage::Starting => vec![],
        Stage::Spawned => spawn[..1].to_vec(),
        Stage::Ready => spawn.to_vec(),
        Stage::Running => [spawn, run].concat(),
        Stage::Exited => [&spawn[..], &run, &[Event::Ended(End::Exited(3))]].concat(),
        Stage::Signaled => [&spawn[..], &run, &[Event::Ended(End::Signaled(15))]].concat(),
        Stage::Aborted => {
            assert_eq!(session.ask(&Verb::Abort { by: None }), Answer::Kept);
            [&spawn[..], &[Event::Ended(End::Signaled(9))]].concat()
        }
        Stage::Errored => vec![Event::Failed(failure())],
    };
    for event in events {
        session.apply(event).unwrap();
    }
    assert_eq!(session.stage(), stage);
    session
}

fn verbs() -> Vec<Verb> {
    let name = || "x".to_owned();
    vec![
        Verb::Proceed,
        Verb::Abort { by: None },
        Verb::signal(15),
        Verb::signal(9),
        Verb::Kill,
        Verb::Freeze,
        Verb::Thaw,
        Verb::Write { part: None },
        Verb::CloseInput,
        Verb::CloseOutput { stream: Stream::Out },
        Verb::Resize(Size { rows: 1, columns: 1 }),
        Verb::Attach,
        Verb::Hold { read: 0 },
        Verb::StartDaemon,
        Verb::Deadline { left_ms: None },
        Verb::Stat,
        Verb::Store { name: name() },
        Verb::Return { name: name(), keep: false },
    ]
}

fn letter(answer: &Answer) -> char {
    match answer {
        Answer::Act => 'a',
        Answer::Kept => 'k',
        Answer::NoProcess => '-',
        Answer::WrongStage(_) => 'w',
    }
}

/// a: done, k: kept, w: wrong stage, -: no process. One row per verb, one column per stage, in the order of [`STAGES`].
#[test]
fn every_verb_has_its_answer_in_every_stage() {
    let table = [
        "kkaw----", // proceed
        "kkaw----", // abort
        "kkka----", // signal 15
        "kaaa----", // signal 9
        "kaaa----", // kill
        "waaa----", // freeze
        "waaa----", // thaw
        "waaa----", // write
        "waaa----", // close_input
        "wwww----", // close_output: it has a terminal
        "waaa----", // resize
        "aaaaaaaa", // attach
        "aaaaaaaa", // hold
        "aaaaaaaa", // start_daemon
        "aaaaaaaa", // deadline
        "aaaaaaaa", // stat
        "aaaaaaaa", // store
        "aaaaaaaa", // return
    ];
    assert_eq!(verbs().len(), table.len(), "each verb has a row");
    for (verb, row) in verbs().iter().zip(table) {
        let got: String = STAGES.iter().map(|stage| letter(&at(*stage).ask(verb))).collect();
        assert_eq!(got, row, "{}", verb.name());
    }
}

/// The stage after the event, or `-` if it is impossible.
#[test]
fn every_event_has_its_effect_in_every_stage() {
    let table = [
        (Event::Spawned { host_pid: 7 }, "spawned - - - - - - -"),
        (Event::Ready { child_pid: 7 }, "- ready - - - - - -"),
        (Event::Opened, "- - ready - - - - -"),
        (Event::Executed, "- - - - - - - -"),
        (Event::Ended(End::Exited(0)), "- exited exited exited - - - -"),
        (Event::Ended(End::Signaled(9)), "- signaled signaled signaled - - - -"),
        (Event::Failed(failure()), "errored errored errored - - - - -"),
    ];
    for (event, row) in table {
        let got: Vec<&str> = STAGES
            .iter()
            .map(|stage| {
                let mut session = at(*stage);
                session.apply(event.clone()).map_or("-", |_| session.stage().name())
            })
            .collect();
        assert_eq!(got.join(" "), row, "{event:?}");
    }
}

#[test]
fn a_wrong_stage_is_reported_with_the_reason() {
    let Answer::WrongStage(message) = at(Stage::Running).ask(&Verb::Abort { by: None }) else {
        panic!("abort of a running one")
    };
    assert_eq!(message, "it is running, so it cannot be aborted: kill it instead");
}

#[test]
fn signals_kept_at_the_gate_are_due_in_order_once_it_runs() {
    let mut session = at(Stage::Ready);
    for number in [10, 15, 12] {
        assert_eq!(session.ask(&Verb::signal(number)), Answer::Kept);
    }
    assert_eq!(session.apply(Event::Opened), Ok(vec![]));
    let due = session.apply(Event::Executed).unwrap();
    assert_eq!(due, [Due::Signal(10), Due::Signal(15), Due::Signal(12)]);
}

#[test]
fn an_abort_kept_before_ready_wins_over_an_open_gate() {
    let mut session = Session::new(Gate::Open, false);
    session.apply(Event::Spawned { host_pid: 7 }).unwrap();
    assert_eq!(session.ask(&Verb::Abort { by: None }), Answer::Kept);
    assert_eq!(session.apply(Event::Ready { child_pid: 7 }), Ok(vec![Due::Abort]));
    assert!(session.apply(Event::Opened).is_err(), "an aborted one never runs");
    session.apply(Event::Ended(End::Signaled(9))).unwrap();
    assert_eq!(session.result(), Some(&SessionResult::Aborted));
}

#[test]
fn a_proceed_before_the_gate_is_reached_is_kept_and_opens_it_once() {
    let mut session = at(Stage::Spawned);
    assert_eq!(session.ask(&Verb::Proceed), Answer::Kept);
    assert!(matches!(session.ask(&Verb::Proceed), Answer::WrongStage(_)));
    assert_eq!(session.apply(Event::Ready { child_pid: 7 }), Ok(vec![Due::OpenGate]));

    let mut session = at(Stage::Spawned);
    assert_eq!(session.ask(&Verb::Proceed), Answer::Kept);
    assert_eq!(session.ask(&Verb::Abort { by: None }), Answer::Kept, "the last word counts");
    assert!(matches!(session.ask(&Verb::Proceed), Answer::WrongStage(_)));
    assert_eq!(session.apply(Event::Ready { child_pid: 7 }), Ok(vec![Due::Abort]));
}

#[test]
fn an_open_gate_is_neither_opened_again_nor_aborted() {
    let mut session = at(Stage::Ready);
    session.apply(Event::Opened).unwrap();
    assert!(matches!(session.ask(&Verb::Proceed), Answer::WrongStage(_)));
    assert!(matches!(session.ask(&Verb::Abort { by: None }), Answer::WrongStage(_)));
}

#[test]
fn kept_signals_are_bounded() {
    let mut session = at(Stage::Ready);
    for _ in 0..KEPT_SIGNALS_MAX {
        assert_eq!(session.ask(&Verb::signal(10)), Answer::Kept);
    }
    assert!(matches!(session.ask(&Verb::signal(10)), Answer::WrongStage(_)));
}

#[test]
fn a_snapshot_is_rendered_compactly() {
    let check = |stage: Stage, expect: &str| assert_eq!(at(stage).snapshot().to_string(), expect);
    check(Stage::Starting, "<spawn starting pty>");
    check(Stage::Running, "<spawn running host=7 pty>");
    check(Stage::Exited, "<spawn exited(3) host=7 pty>");
    check(Stage::Signaled, "<spawn signaled(15) host=7 pty>");
    check(Stage::Aborted, "<spawn aborted host=7 pty>");
    check(Stage::Errored, "<spawn errored(execve/2) pty>");
}

#[derive(Debug, Clone)]
enum Step {
    Happens(Event),
    Asked(Verb),
}

fn step() -> impl Strategy<Value = Step> {
    let event = prop_oneof![
        Just(Event::Spawned { host_pid: 7 }),
        Just(Event::Ready { child_pid: 7 }),
        Just(Event::Opened),
        Just(Event::Executed),
        Just(Event::Ended(End::Exited(0))),
        Just(Event::Ended(End::Signaled(9))),
        Just(Event::Failed(failure())),
    ];
    prop_oneof![event.prop_map(Step::Happens), proptest::sample::select(verbs()).prop_map(Step::Asked)]
}

proptest! {
    #[test]
    fn any_sequence_ends_once_and_stays_ended(
        open in any::<bool>(),
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let mut session = Session::new(if open { Gate::Open } else { Gate::Closed }, false);
        let mut ends = 0;
        let ending = [Step::Happens(Event::Ended(End::Exited(0))), Step::Happens(Event::Failed(failure()))];
        for step in steps.into_iter().chain(ending) {
            let before = session.clone();
            match step {
                Step::Happens(event) => {
                    let accepted = session.apply(event).is_ok();
                    ends += u32::from(accepted && session.stage().is_terminal());
                    prop_assert!(accepted || session.snapshot() == before.snapshot());
                }
                Step::Asked(verb) => {
                    let answer = session.ask(&verb);
                    prop_assert_eq!(session.snapshot(), before.snapshot(), "asking changes no fact");
                    prop_assert!(answer != Answer::NoProcess || before.stage().is_terminal());
                }
            }
            if before.stage().is_terminal() {
                prop_assert_eq!(session.snapshot(), before.snapshot());
            }
        }
        prop_assert_eq!(ends, 1);
    }
}
