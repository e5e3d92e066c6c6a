//! Whatever happens to a process, its journal amounts to the same: the next daemon finds what this one answered.

use std::sync::Arc;

use proptest::prelude::*;
use relive_core::{
    Aim, Applied, Cause, End, Event, Generation, Incarnation, Machine, Moment, Outcome, Pid, ProcessStatus, Settings,
    Signal, SignalSet, Stopwatch, SuspendReason, Timestamp, Urgency, Uuid, Why,
};
use relive_journal::data::{SpaceRules, SpawnRequest};
use relive_journal::faults::{Faults, Injection, Switches};
use relive_journal::record::{OpenedBy, ResumedBy, Spawned};
use relive_journal::{DataDirectory, Disk, Durability, History, Io, Opening, Writer};

use super::{RecordDetails, between};

/// One change of a process, as the verbs and the body make them.
#[derive(Debug, Clone)]
enum Step {
    Start,
    /// A signal; to a process whose body is on its way, together with its start.
    Signal {
        signal: Signal,
        by: u32,
        urgency: Urgency,
        with_start: bool,
    },
    Suspend(SuspendReason, Urgency),
    /// The answer of a person.
    Answer(SuspendReason),
    Timer,
    Boundary,
    Mask {
        blocked: Option<SignalSet>,
        handled: Option<SignalSet>,
    },
    GraceExpired,
    /// It passes its gate.
    Proceed,
    End(Outcome),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let signal = prop::sample::select(Signal::ALL.to_vec());
    let urgency = || prop_oneof![Just(Urgency::Boundary), Just(Urgency::Now)];
    let reason = prop::sample::select(vec![
        SuspendReason::User,
        SuspendReason::BudgetExceeded,
        SuspendReason::Approval,
        SuspendReason::InDoubt,
        SuspendReason::Quota,
        SuspendReason::DaemonStop,
        SuspendReason::Stalled,
    ]);
    let set = prop::collection::vec(prop::sample::select(Signal::LANDING_ORDER.to_vec()), 0..4)
        .prop_map(|signals| signals.into_iter().collect::<SignalSet>());
    let set = prop::option::of(set);
    let completed = Outcome::Ended(End::of(ProcessStatus::Exited { code: 0 }));
    let step = prop_oneof![
        4 => Just(Step::Start),
        12 => (signal, 0..3_u32, urgency(), any::<bool>())
            .prop_map(|(signal, by, urgency, with_start)| Step::Signal { signal, by, urgency, with_start }),
        3 => (reason, urgency()).prop_map(|(reason, urgency)| Step::Suspend(reason, urgency)),
        1 => Just(Step::Answer(SuspendReason::Approval)),
        1 => Just(Step::Answer(SuspendReason::InDoubt)),
        1 => Just(Step::Timer),
        2 => Just(Step::Boundary),
        6 => (set.clone(), set).prop_map(|(blocked, handled)| Step::Mask { blocked, handled }),
        1 => Just(Step::GraceExpired),
        2 => Just(Step::Proceed),
        1 => prop_oneof![Just(Outcome::Cancelled), Just(completed)].prop_map(Step::End),
    ];
    prop::collection::vec(step, 1..24)
}

impl Step {
    /// Applies the step to a draft, and returns what its records say beside it; nothing if it is refused.
    fn apply(&self, draft: &mut Machine, now: Moment) -> Option<RecordDetails> {
        let settings = Settings::default();
        let mut note = RecordDetails::default();
        let mut apply = |event| draft.apply(event, &settings, now).ok();
        match self {
            Self::Start => apply(Event::Start)?,
            Self::Signal { signal, by, urgency, with_start } => {
                if *with_start {
                    let _ = apply(Event::Start);
                }
                let cause = Cause::process(Why::User, Pid(*by));
                apply(Event::Signal { signal: *signal, cause, urgency: *urgency, aim: Aim::Subtree })?
            }
            Self::Suspend(reason, urgency) => apply(Event::Suspend { reason: *reason, urgency: *urgency })?,
            Self::Answer(reason) => apply(Event::EndPause { reason: *reason })?,
            Self::Timer => {
                note.resumed_by = ResumedBy::Timer;
                apply(Event::EndPause { reason: SuspendReason::Quota })?
            }
            Self::Boundary => apply(Event::BoundaryReached)?,
            Self::Mask { blocked, handled } => {
                let events = [handled.map(Event::SetHandlers), blocked.map(Event::SetMask)];
                for event in events.into_iter().flatten() {
                    apply(event)?;
                }
                Applied::default()
            }
            Self::GraceExpired => apply(Event::GraceExpired)?,
            Self::Proceed => apply(Event::Proceed)?,
            Self::End(outcome) => apply(Event::Terminate(outcome.clone()))?,
        };
        Some(note)
    }
}

/// The part of a process that both have to say the same of.
#[derive(Debug, PartialEq)]
struct Said {
    end: Option<End>,
    pause: Option<(Timestamp, SuspendReason)>,
    ending: Option<(Signal, Cause)>,
    pending: Vec<(Signal, Cause)>,
    mask: SignalSet,
    handlers: SignalSet,
    /// Whether its time runs, and what it is later than everything here.
    time: (bool, u64),
}

fn time(stopwatch: Stopwatch) -> (bool, u64) {
    (stopwatch.is_running(), stopwatch.elapsed_ms(1_000_000))
}

impl From<&Machine> for Said {
    fn from(machine: &Machine) -> Self {
        Self {
            end: machine.end().cloned(),
            pause: machine.pause(),
            ending: machine.ending(),
            pending: machine.pending().collect(),
            mask: machine.mask(),
            handlers: machine.handlers(),
            time: time(machine.stopwatch()),
        }
    }
}

impl From<&History> for Said {
    fn from(history: &History) -> Self {
        let mut pending = history.pending.clone();
        pending.sort_by_key(|(signal, _)| Signal::LANDING_ORDER.iter().position(|other| other == signal));
        let end = history.ended().map(|(_, end)| end.clone());
        let paused = history.paused.as_ref().filter(|_| end.is_none());
        Self {
            pause: paused.map(|paused| (paused.asked_at, paused.reason)),
            end,
            ending: history.ending.as_ref().map(|signalled| (signalled.signal, signalled.cause)),
            pending,
            mask: history.mask,
            handlers: history.handlers,
            time: time(history.stopwatch()),
        }
    }
}

/// A data directory on a disk that syncs nothing: a property has many journals.
fn data() -> (tempfile::TempDir, DataDirectory) {
    let root = tempfile::tempdir().unwrap();
    let faults = Faults::new(root.path(), Injection::None, Switches::default()).unwrap();
    let io = Io::new(Disk::with_faults(Arc::new(faults)));
    let data = DataDirectory::open(&root.path().join("data"), io, SpaceRules::default()).unwrap();
    (root, data)
}

/// Creates a process. Every second one is at a gate.
fn spawn(data: &DataDirectory, now: Moment) -> (Uuid, Writer) {
    let pid = data.next_pid().unwrap();
    let gate = pid.0.is_multiple_of(2);
    let uuid = Uuid::from_u128(u128::from(pid.0));
    let spawned = Spawned {
        uuid,
        name: None,
        parent_uuid: None,
        budget_uuid: None,
        origin: None,
        body: "agent".to_owned(),
        intent: "anything".into(),
        program: gate.then(|| serde_json::from_value(serde_json::json!({ "argv": ["x"], "gate": true })).unwrap()),
        cwd: "/".to_owned(),
        isolated: None,
        limits: Default::default(),
        on_in_doubt: Default::default(),
        on_budget: Default::default(),
        env_names: Vec::new(),
        policy: Default::default(),
        root_uuid: None,
        depth: 0,
        workspace: None,
        shell: None,
        request: None,
    };
    let opening =
        Opening { pid, by: OpenedBy::Spawn, boot_id: "boot".to_owned(), now, req: None, seen: None, cause: None };
    let request = SpawnRequest { opening, spawned, meta: None, input: None, records: Vec::new() };
    (uuid, data.spawn(request).unwrap())
}

fn check(data: &DataDirectory, steps: &[Step]) -> Result<(), TestCaseError> {
    let at = |place: usize| Moment {
        at: Timestamp::from_millisecond(1_000 + i64::try_from(place).unwrap()).unwrap(),
        up_ms: 50 * place as u64,
    };
    let (uuid, mut writer) = spawn(data, at(0));
    let mut machine =
        Machine::new(Incarnation { pid: Pid(1), generation: Generation(1) }, writer.history().stopwatch());
    for (place, step) in steps.iter().enumerate() {
        let mut draft = machine.clone();
        let Some(note) = step.apply(&mut draft, at(place)) else { continue };
        let records = between(&machine, &draft, &note);
        let shown = format!("{step:?} on {machine:?} wrote {records:?}");
        if !records.is_empty() {
            writer
                .append(at(place), records, Durability::Written)
                .map_err(|error| TestCaseError::fail(format!("{error}: {shown}")))?;
        }
        machine = draft;
        prop_assert_eq!(Said::from(writer.history()), Said::from(&machine), "{}", shown);
        if machine.end().is_some() {
            break;
        }
    }
    drop(writer);
    let (read, _) = data.history(uuid).unwrap();
    prop_assert_eq!(Said::from(&read), Said::from(&machine), "read again");
    Ok(())
}

#[test]
fn a_journal_amounts_to_what_the_machine_says_after_every_change() {
    let (_root, data) = data();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner.run(&steps(), |steps| check(&data, &steps)).unwrap();
}

/// A PAUSE that waited lands on the process's own handler; the RESUME that comes then is blocked, and kept.
#[test]
fn a_signal_that_is_kept_while_its_opposite_lands_keeps_its_own_cause() {
    let (_root, data) = data();
    let signal = |signal, by, with_start| Step::Signal { signal, by, urgency: Urgency::Boundary, with_start };
    let mask = Step::Mask {
        blocked: Some(SignalSet::EMPTY.with(Signal::Resume)),
        handled: Some(SignalSet::EMPTY.with(Signal::Pause)),
    };
    check(&data, &[signal(Signal::Pause, 1, false), mask, signal(Signal::Resume, 0, true)]).unwrap();
}
