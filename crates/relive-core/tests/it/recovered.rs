//! Recovered processes: their state, and the acknowledged requests that are still to be carried out.

use relive_core::{
    Cause, Event, Pid, ProcessStatus, Recovered, Signal, SignalSet, Spec, State, Stopwatch, SuspendReason, Suspension,
    Timestamp, Why,
};

use crate::support::{USER, World, names};

fn recover(world: &mut World, recovered: Recovered) -> Pid {
    let spec = world.spec(Pid::RUNTIME);
    recover_as(world, spec, recovered)
}

fn recover_as(world: &mut World, spec: Spec, recovered: Recovered) -> Pid {
    let pid = spec.pid;
    world.table.recover(spec, recovered, world.now()).unwrap();
    pid
}

fn suspension(world: &World) -> Option<Suspension> {
    Some(Suspension { asked_at: world.now().at, reason: SuspendReason::User, cause: None })
}

#[test]
fn a_process_that_was_running_is_recovered_as_created() {
    let mut world = World::new();
    let stopwatch = Stopwatch::started(400, world.now().up_ms);
    let spec = Spec { stopwatch, created_at: Timestamp::UNIX_EPOCH, ..world.spec(Pid::RUNTIME) };
    let pid = recover_as(&mut world, spec, Recovered::default());
    assert_eq!(
        (world.view(pid).state, names(&world.effects(pid, Event::Start))),
        (State::Created, vec!["Launch".into()])
    );
    world.ms += 1_000;
    assert_eq!(world.view(pid).elapsed_ms, 1_400, "what it ran before, and what it runs now");
}

#[test]
fn the_clock_of_a_recovered_suspended_process_is_stopped_until_resume() {
    let mut world = World::new();
    let suspension = suspension(&world);
    let stopwatch = Stopwatch::started(400, world.now().up_ms - 100);
    let spec = Spec { stopwatch, ..world.spec(Pid::RUNTIME) };
    let pid = recover_as(&mut world, spec, Recovered { suspension, ..Recovered::default() });
    world.ms += 1_000;
    assert_eq!(world.view(pid).elapsed_ms, 500);
    world.resume(pid);
    world.ms += 30;
    assert_eq!(world.view(pid).elapsed_ms, 530);
}

#[test]
fn an_acknowledged_end_is_carried_out_with_the_recorded_cause() {
    for suspended in [false, true] {
        let mut world = World::new();
        let cause = Cause::process(Why::Parent, Pid(7));
        let suspension = suspension(&world).filter(|_| suspended);
        let ending = Some((Signal::Term, cause));
        let pid = recover(&mut world, Recovered { suspension, ending, ..Recovered::default() });
        let machine = world.table.machine(pid).unwrap();
        assert_eq!((machine.state(), machine.ending()), (State::Running, ending));
        assert_eq!(names(&world.cancelled(pid)), ["Ended", "Reap"]);
        let view = world.view(pid);
        assert_eq!(view.status, Some(&ProcessStatus::Killed { signal: Signal::Term.into() }));
        assert_eq!((view.why, view.killed_by), (Some(Why::Parent), Some(Pid(7))));
        assert_eq!(view.exit.unwrap().reason.contains("while paused"), suspended);
    }
}

#[test]
fn pending_signals_are_delivered_at_the_start_unless_blocked() {
    let mut world = World::new();
    let pending = vec![(Signal::Pause, USER), (Signal::Int, USER)];
    let mask = SignalSet::EMPTY.with(Signal::Int);
    let pid = recover(&mut world, Recovered { mask, pending, ..Recovered::default() });
    assert_eq!(names(&world.effects(pid, Event::Start)), ["Launch", "Stop"]);
    assert_eq!(world.pending(pid), mask);
}

#[test]
fn pending_signals_of_a_suspended_process_are_delivered_by_set_mask() {
    let mut world = World::new();
    let suspension = suspension(&world);
    let pending = vec![(Signal::Term, USER)];
    let pid = recover(&mut world, Recovered { suspension, pending, ..Recovered::default() });
    assert!(world.pending(pid).contains(Signal::Term));
    assert_eq!(names(&world.effects(pid, Event::SetMask(SignalSet::EMPTY))), ["AskToEnd", "ArmGrace"]);
    assert!(world.pending(pid).is_empty());
}

#[test]
fn signals_that_cannot_be_pending_or_end_a_process_are_ignored() {
    let mut world = World::new();
    let pending = vec![(Signal::Pause, USER), (Signal::Resume, USER), (Signal::Kill, USER)];
    let ending = Some((Signal::Resume, USER));
    let pid = recover(&mut world, Recovered { pending, ending, ..Recovered::default() });
    assert!(world.pending(pid).is_empty(), "the RESUME took the PAUSE back");
    assert_eq!(world.view(pid).state, State::Created);
    let stopwatch = Stopwatch::started(0, world.now().up_ms);
    let fresh = relive_core::Machine::new(world.of(pid), stopwatch);
    assert_eq!(world.table.machine(pid), Some(&fresh));
}
