//! Every situation of a process and the result of every event there, written to `docs/states.md`.

use std::fmt::Write as _;

use relive_core::{
    Effects, ErrorCode, Event, Outcome, Pid, Refusal, ReleaseEvent, Signal, SignalSet, State, SuspendReason, Urgency,
    UsageTotals,
};

use crate::support::{Message, Scope, World, names};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/states.md");
const PID: Pid = Pid(2);

type Do = fn(&mut World) -> Result<Effects, Refusal>;

fn apply(world: &mut World, event: Event) -> Result<Effects, Refusal> {
    let before = world.table.clone();
    let applied = world.apply(PID, event)?;
    assert_eq!(applied.changed, world.table != before, "nothing here has a handler");
    Ok(applied.effects)
}

fn send(world: &mut World, signal: Signal, urgency: Urgency) -> Result<Effects, Refusal> {
    let message = Message { urgency, ..Message::new(signal) };
    world.send(PID, Scope::Process, message).map(|reached| reached.effects)
}

fn done() -> Outcome {
    Outcome::Ended(relive_core::End::of(relive_core::ProcessStatus::Exited { code: 0 }))
}

const TRANSITIONS: [(&str, Do); 3] = [
    ("start", |world| apply(world, Event::Start)),
    ("terminate", |world| apply(world, Event::Terminate(done()))),
    ("reap", |world| world.table.reap(PID, world.now())),
];

const EVENTS: [(&str, Do); 22] = [
    TRANSITIONS[0],
    TRANSITIONS[1],
    ("terminate, cancelled", |world| apply(world, Event::Terminate(Outcome::Cancelled))),
    TRANSITIONS[2],
    ("answer: cancelled", |world| world.table.released(world.of(PID), ReleaseEvent::Cancelled, world.now())),
    ("the other three answers", |world| {
        let mut effects = Effects::new();
        for event in [ReleaseEvent::Joined, ReleaseEvent::Closed, ReleaseEvent::Freed] {
            effects.extend(world.table.released(world.of(PID), event, world.now())?);
        }
        Ok(effects)
    }),
    ("SIGTERM", |world| send(world, Signal::Term, Urgency::Boundary)),
    ("SIGKILL", |world| send(world, Signal::Kill, Urgency::Boundary)),
    ("SIGINT", |world| send(world, Signal::Int, Urgency::Boundary)),
    ("SIGPAUSE", |world| send(world, Signal::Pause, Urgency::Boundary)),
    ("SIGPAUSE, now", |world| send(world, Signal::Pause, Urgency::Now)),
    ("SIGRESUME", |world| send(world, Signal::Resume, Urgency::Boundary)),
    ("suspend, budget", |world| {
        apply(world, Event::Suspend { reason: SuspendReason::BudgetExceeded, urgency: Urgency::Boundary })
    }),
    ("suspend, approval", |world| {
        apply(world, Event::Suspend { reason: SuspendReason::Approval, urgency: Urgency::Boundary })
    }),
    ("approval answered", |world| apply(world, Event::EndPause { reason: SuspendReason::Approval })),
    ("boundary reached", |world| apply(world, Event::BoundaryReached)),
    ("queued", |world| apply(world, Event::Queue)),
    ("admitted", |world| apply(world, Event::Admit)),
    ("ends itself", |world| {
        let end = relive_core::End::of(relive_core::ProcessStatus::Abandoned);
        apply(world, Event::EndSelf(Box::new(end)))
    }),
    ("grace expired", |world| apply(world, Event::GraceExpired)),
    ("all unblocked", |world| apply(world, Event::SetMask(SignalSet::EMPTY))),
    ("no progress for 5 min", |world| {
        world.ms += 300_000;
        world.table.progress(world.of(Pid(1)), UsageTotals::default(), world.now())?;
        Ok(world.table.check_stalled(300_000, world.now()))
    }),
];

/// The events that lead from a new process to each situation.
const SITUATIONS: [(State, &[&str]); 20] = [
    (State::Created, &[]),
    (State::Created, &["SIGPAUSE"]),
    (State::Running, &["start"]),
    (State::Running, &["start", "no progress for 5 min"]),
    (State::Running, &["start", "SIGPAUSE"]),
    (State::Running, &["start", "SIGPAUSE", "boundary reached"]),
    (State::Running, &["start", "suspend, budget", "boundary reached"]),
    (State::Running, &["start", "suspend, approval", "boundary reached"]),
    (State::Running, &["start", "suspend, approval", "boundary reached", "SIGPAUSE"]),
    (State::Running, &["start", "suspend, approval", "boundary reached", "SIGPAUSE", "SIGTERM"]),
    (State::Running, &["start", "queued"]),
    (State::Running, &["start", "queued", "SIGPAUSE", "boundary reached"]),
    (State::Running, &["start", "SIGINT"]),
    (State::Running, &["start", "SIGTERM"]),
    (State::Running, &["start", "SIGKILL"]),
    (State::Running, &["start", "SIGPAUSE", "boundary reached", "SIGTERM"]),
    (State::Running, &["start", "block all", "SIGPAUSE"]),
    (State::Zombie, &["start", "terminate"]),
    (State::Zombie, &["start", "terminate", "reap"]),
    (State::Dead, &["start", "terminate", "reap", "answer: cancelled", "the other three answers"]),
];

fn situation(path: &[&str]) -> World {
    let mut world = World::new();
    world.run(Pid::RUNTIME);
    assert_eq!(world.spawn(Pid(1)), PID);
    for step in path {
        if *step == "block all" {
            let all = Signal::ALL.into_iter().collect();
            world.apply(PID, Event::SetMask(all)).unwrap();
            continue;
        }
        let (_, event) = EVENTS.iter().find(|(name, _)| name == step).unwrap();
        event(&mut world).unwrap();
    }
    world
}

/// Describes the situation of the process, as the machine reports it.
fn describe(world: &World) -> String {
    let view = world.view(PID);
    let mut text = format!("{}", view.state);
    if view.display.word() != text && view.state == State::Running {
        write!(text, ", {}", view.display.word()).unwrap();
    }
    if let Some(reason) = view.suspend_reason {
        write!(text, " ({})", serde_json::to_value(reason).unwrap().as_str().unwrap()).unwrap();
    }
    if let Some(signal) = view.ending {
        write!(text, ", told to end by {signal}").unwrap();
    }
    let pending = world.pending(PID);
    for signal in Signal::ALL.into_iter().filter(|signal| pending.contains(*signal)) {
        write!(text, ", {signal} pending").unwrap();
    }
    if view.state == State::Zombie && world.clone().table.reap(PID, world.now()).unwrap().is_empty() {
        text.push_str(", being released");
    }
    if let Some(exit) = view.exit {
        write!(text, ": {} `{}`", exit.code, exit.reason).unwrap();
    }
    text
}

/// Applies one event in one situation; returns the new situation and the effects.
fn walk(before: &World, event: Do) -> (String, String) {
    let mut after = before.clone();
    match event(&mut after) {
        Err(refusal) => {
            assert!(after.table == before.table, "refused, and changed: {refusal}");
            (format!("refused: `{}`", refusal.code()), String::new())
        }
        Ok(effects) => {
            let becomes = if after.table == before.table {
                assert!(effects.is_empty(), "nothing changed, and yet there is something to do: {effects:?}");
                "unchanged".into()
            } else {
                describe(&after)
            };
            (becomes, names(&effects).join(", "))
        }
    }
}

fn document() -> String {
    let mut text = String::from(
        "# The states of a process\n\n\
         Written by a test that walks the machine (`RELIVE_BLESS=1 cargo test -p relive-core states`); do not edit.\n\n\
         Only three transitions are legal:\n\n\
         \x20   Created(0) --start--> Running(1) --terminate--> Zombie(2) --reap--> Dead(3)\n\n\
         Everything refused leaves the table exactly as it was. A reaped zombie is Dead when its release has been\n\
         answered. Paused is not a state but a fact about a running process.\n\n\
         | | start | terminate | reap |\n|---|---|---|---|\n",
    );
    for (state, path) in SITUATIONS.iter().filter(|(state, path)| path.len() == plain_path_len(*state)) {
        write!(text, "| **{state}** |").unwrap();
        for (_, transition) in TRANSITIONS {
            write!(text, " {} |", walk(&situation(path), transition).0).unwrap();
        }
        text.push('\n');
    }
    for (_, path) in SITUATIONS {
        let world = situation(path);
        write!(text, "\n## {}\n\n", describe(&world)).unwrap();
        let way = if path.is_empty() { "spawn".to_string() } else { format!("spawn, {}", path.join(", ")) };
        write!(text, "By: {way}.\n\n| event | becomes | effects |\n|---|---|---|\n").unwrap();
        for (name, event) in EVENTS {
            let (becomes, effects) = walk(&world, event);
            writeln!(text, "| {name} | {becomes} | {effects} |").unwrap();
        }
    }
    text
}

/// Returns the length of the shortest path to a state, which the first table shows.
fn plain_path_len(state: State) -> usize {
    match state {
        State::Created => 0,
        State::Running => 1,
        State::Zombie => 2,
        State::Dead => 5,
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test writes the page when it is told to")]
fn docs_states_md_matches_the_machine() {
    let text = document();
    if std::env::var("RELIVE_BLESS").is_ok() {
        std::fs::write(PATH, &text).unwrap();
    }
    let page = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(page == text, "docs/states.md is stale: run RELIVE_BLESS=1 cargo test -p relive-core states");
}

#[test]
fn case_09_illegal_transitions_are_refused_and_change_nothing() {
    let legal = [(State::Created, "start"), (State::Running, "terminate"), (State::Zombie, "reap")];
    let mut refused = 0;
    for (state, path) in SITUATIONS {
        let before = situation(path);
        assert_eq!(before.view(PID).state, state, "{path:?}");
        for (name, transition) in TRANSITIONS {
            let mut after = before.clone();
            match transition(&mut after) {
                Ok(_) => assert!(legal.contains(&(state, name)), "{name} from {path:?}"),
                Err(refusal) => {
                    assert!(!legal.contains(&(state, name)), "{name} from {path:?}: {refusal}");
                    assert_eq!(refusal.code(), ErrorCode::Internal);
                    assert!(after.table == before.table, "{name} from {path:?}");
                    refused += 1;
                }
            }
        }
    }
    assert_eq!(refused, 2 * SITUATIONS.len() + 1, "one transition is legal in each situation, none for the dead");
}
