//! Drafts: changes that an owner makes before they are recorded, and their publication.

use proptest::prelude::*;
use relive_core::{
    Aim, Effect, ErrorCode, Event, Generation, Holder, Incarnation, Machine, Outcome, Pid, Refusal, Rights, Settings,
    Signal, SignalSet, State, Stopwatch, SuspendReason, Urgency, Wait,
};

use crate::random::{event_of, run, steps};
use crate::support::{USER, World, names};

fn signal(signal: Signal) -> Event {
    Event::Signal { signal, cause: USER, urgency: Urgency::Boundary, aim: Aim::Process }
}

fn draft(world: &World, pid: Pid, events: impl IntoIterator<Item = Event>) -> Machine {
    let mut draft = world.table.machine(pid).unwrap().clone();
    for event in events {
        draft.apply(event, &Settings::default(), world.now()).unwrap();
    }
    draft
}

#[test]
fn a_draft_changes_nothing_until_it_is_published() {
    let mut world = World::new();
    let parent = world.run(Pid::RUNTIME);
    let pid = world.run(parent);
    let before = world.table.clone();
    let paused = draft(&world, pid, [signal(Signal::Pause), Event::BoundaryReached]);
    assert!(world.table == before);

    let reason = SuspendReason::User;
    let effects = world.table.publish(paused.clone(), world.now()).unwrap();
    assert_eq!(effects, [Effect::SuspendedBelow { ancestor: parent, of: pid, reason }]);
    assert_eq!(world.table.machine(pid), Some(&paused));
    assert_eq!((world.view(pid).display.word(), world.table.suspended_below(parent)), ("suspended", 1));
    assert_eq!(world.table.publish(paused, world.now()).unwrap(), [], "publishing it again changes nothing");
    assert_eq!(world.table.suspended_below(parent), 1);
}

#[test]
fn a_pause_and_a_resume_in_one_draft_are_not_told_to_ancestors() {
    let mut world = World::new();
    let parent = world.run(Pid::RUNTIME);
    let pid = world.run(parent);
    let resumed = draft(&world, pid, [signal(Signal::Pause), signal(Signal::Resume)]);
    assert_eq!(world.table.publish(resumed, world.now()).unwrap(), []);
    assert_eq!(world.table.suspended_below(parent), 0);
}

#[test]
fn two_pauses_in_one_draft_are_told_and_counted_once() {
    let mut world = World::new();
    let parent = world.run(Pid::RUNTIME);
    let pid = world.run(parent);
    world.suspend(pid);
    world.ms += 10;
    let reason = SuspendReason::DiskFull;
    let again = draft(&world, pid, [signal(Signal::Resume), Event::Suspend { reason, urgency: Urgency::Now }]);
    let effects = world.table.publish(again, world.now()).unwrap();
    assert_eq!(effects, [Effect::SuspendedBelow { ancestor: parent, of: pid, reason }]);
    assert_eq!(world.table.suspended_below(parent), 1);
}

#[test]
fn a_paused_ancestor_counts_paused_descendants_and_is_told_unless_they_were_paused_together() {
    let mut world = World::new();
    let root = world.run(Pid::RUNTIME);
    let parent = world.run(root);
    let pid = world.run(parent);
    world.pause(parent);
    let effects = world.pause(pid).effects;
    assert_eq!(names(&effects), ["Stop", "SuspendedBelow", "SuspendedBelow"]);
    assert!(matches!(effects[1], Effect::SuspendedBelow { ancestor, .. } if ancestor == parent));
    assert_eq!([root, parent].map(|pid| world.table.suspended_below(pid)), [2, 1]);
    world.signal_tree(root, Signal::Resume);
    let together = world.signal_tree(root, Signal::Pause).effects;
    assert!(together.iter().all(|effect| !matches!(effect, Effect::SuspendedBelow { .. })), "{together:?}");
}

#[test]
fn publishing_an_end_closes_handles_and_calls_the_reaper() {
    let mut world = World::new();
    let (pid, other) = (world.run(Pid::RUNTIME), world.run(Pid::RUNTIME));
    world.hand(Holder::Person, pid, other, Rights::Controller).unwrap();
    let ended = draft(&world, pid, [signal(Signal::Kill), Event::Terminate(Outcome::Cancelled)]);
    assert_eq!(world.table.rights(Holder::Process(pid), other), Some(Rights::Controller));
    assert_eq!(world.table.publish(ended.clone(), world.now()).unwrap(), [Effect::Reap { of: world.of(pid) }]);
    assert_eq!(world.table.rights(Holder::Process(pid), other), None);
    assert_eq!(world.table.wait(pid).unwrap(), Wait::Ended { end: ended.end().unwrap(), successor: None });
}

#[test]
fn a_stale_draft_is_refused_and_changes_nothing() {
    let mut world = World::new();
    let (queued, pid, gone) = (world.spawn(Pid::RUNTIME), world.run(Pid::RUNTIME), world.run(Pid::RUNTIME));
    let unstarted = world.table.machine(queued).unwrap().clone();
    world.apply(queued, Event::Start).unwrap();
    let (killed, left) = (draft(&world, pid, [signal(Signal::Kill)]), draft(&world, gone, []));
    let other_end = draft(&world, pid, [signal(Signal::Kill), Event::Terminate(Outcome::Cancelled)]);
    for pid in [pid, gone] {
        world.finish(pid);
    }
    world.release(gone);
    let of = Incarnation { generation: Generation(2), ..world.of(pid) };
    let before = world.table.clone();
    for stale in [unstarted, killed, left, other_end, Machine::new(of, Stopwatch::default())] {
        let of = stale.incarnation();
        let refusal = world.table.publish(stale, world.now()).unwrap_err();
        assert_eq!((refusal.code(), refusal), (ErrorCode::Internal, Refusal::StaleDraft { of }));
        assert!(world.table == before);
    }
}

#[test]
fn end_of_predicts_the_end_that_terminate_records() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    world.suspend(pid);
    let mut killed = draft(&world, pid, [signal(Signal::Kill)]);
    assert_eq!(killed.ending(), Some((Signal::Kill, USER)));
    let end = killed.end_of(&Outcome::Cancelled).unwrap();
    assert!(end.while_paused);
    killed.apply(Event::Terminate(Outcome::Cancelled), &Settings::default(), world.now()).unwrap();
    assert_eq!((killed.state(), killed.end(), killed.ending()), (State::Zombie, Some(&end), None));
}

#[test]
fn a_machine_tells_pausing_from_suspended() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    let check = |world: &World, urgency: Option<Urgency>, at_boundary: bool, paused: bool| {
        let machine = world.table.machine(pid).unwrap();
        assert_eq!(
            (machine.urgency(), machine.is_at_boundary(), machine.pause().is_some()),
            (urgency, at_boundary, paused)
        );
    };
    check(&world, None, false, false);
    world.pause(pid);
    check(&world, Some(Urgency::Boundary), false, true);
    world.pause_now(pid);
    check(&world, Some(Urgency::Now), false, true);
    world.apply(pid, Event::BoundaryReached).unwrap();
    check(&world, None, true, true);
    world.resume(pid);
    check(&world, None, false, false);
}

#[test]
fn a_resume_of_a_subtree_is_not_refused_by_a_process_that_waits() {
    let mut world = World::new();
    let (parked, queued) = (world.run(Pid::RUNTIME), world.spawn(Pid::RUNTIME));
    world.suspend_for(parked, SuspendReason::Approval);
    for (pid, expect) in [(parked, ErrorCode::Conflict), (queued, ErrorCode::Invalid)] {
        assert_eq!(world.apply(pid, signal(Signal::Resume)).unwrap_err().code(), expect);
        let met = Event::Signal { signal: Signal::Resume, cause: USER, urgency: Urgency::Boundary, aim: Aim::Subtree };
        let applied = world.apply(pid, met).unwrap();
        assert!(!applied.changed && applied.effects.is_empty());
    }
}

#[test]
fn setting_masks_and_handlers_reports_whether_they_changed() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    let mask = SignalSet::EMPTY.with(Signal::Int);
    for event in [Event::SetMask(mask), Event::SetHandlers(mask)] {
        assert!(world.apply(pid, event.clone()).unwrap().changed);
        assert!(!world.apply(pid, event).unwrap().changed);
    }
    let machine = world.table.machine(pid).unwrap();
    assert_eq!((machine.mask(), machine.handlers()), (mask, mask));
}

#[test]
fn subtrees_are_listed_parents_first_without_ended_processes() {
    let mut world = World::new();
    let root = world.run(Pid::RUNTIME);
    let (left, right) = (world.run(root), world.run(root));
    let (deep, queued) = (world.run(left), world.spawn(right));
    world.suspend(root);
    world.suspend_for(left, SuspendReason::Quota);
    assert_eq!(world.table.subtree(root), [root, left, deep, right, queued]);
    assert_eq!(world.table.ancestors_paused_by_user(deep), [root]);
    world.finish(left);
    assert_eq!(world.table.subtree(root), [root, deep, right, queued]);
    assert_eq!(world.table.subtree(left), [deep]);
    world.pause(right);
    assert_eq!(world.table.ancestors_paused_by_user(queued), [right, root]);
    assert_eq!((world.table.subtree(Pid(99)), world.table.ancestors_paused_by_user(Pid(99))), (vec![], vec![]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// One world publishes after each event, the other after each run of events for the same process.
    #[test]
    fn publishing_several_events_at_once_equals_one_by_one(steps in steps()) {
        let (mut single, mut batched) = (World::new(), World::new());
        let mut open: Option<Machine> = None;
        let mut last = Pid(0);
        for (operation, target, ms) in steps {
            single.ms += i64::from(ms);
            batched.ms = single.ms;
            // Three of four events stay with the process of the event before; otherwise there would be no runs of
            // events.
            let fresh = Pid(u32::try_from(target.index(single.table.last_pid().0 as usize + 2)).unwrap());
            let pid = if ms % 4 == 0 { fresh } else { last };
            last = pid;
            if open.as_ref().is_some_and(|draft| draft.incarnation().pid != pid) || event_of(operation).is_none() {
                publish(&mut batched, &mut open)?;
                compare(&single, &batched)?;
            }
            let Some(event) = event_of(operation) else {
                let (one, other) = (run(&mut single, operation, pid), run(&mut batched, operation, pid));
                prop_assert_eq!(one, other);
                continue;
            };
            let one = single.apply(pid, event.clone());
            open = open.or_else(|| batched.table.machine(pid).cloned());
            let Some(draft) = &mut open else {
                prop_assert_eq!(one, batched.apply(pid, event), "it is not in the table");
                continue;
            };
            let before = draft.clone();
            match (one, draft.apply(event, &Settings::default(), batched.now())) {
                (Ok(one), Ok(other)) => {
                    prop_assert_eq!(one.changed, other.changed);
                    prop_assert!(one.effects.starts_with(&other.effects), "the table adds its effects at the end");
                    prop_assert!(other.changed || other.effects.is_empty() && before == *draft);
                }
                (one, other) => {
                    prop_assert_eq!(one.unwrap_err(), other.unwrap_err());
                    prop_assert_eq!(&before, &*draft, "refused, and changed");
                }
            }
        }
        publish(&mut batched, &mut open)?;
        compare(&single, &batched)?;
    }
}

fn publish(world: &mut World, open: &mut Option<Machine>) -> Result<(), TestCaseError> {
    let Some(draft) = open.take() else { return Ok(()) };
    let ends = draft.state() == State::Zombie && world.table.machine(draft.incarnation().pid) != Some(&draft);
    let effects = world.table.publish(draft, world.now()).unwrap();
    prop_assert_eq!(ends, effects.iter().any(|effect| matches!(effect, Effect::Reap { .. })));
    Ok(())
}

/// Checks that both worlds have the same processes in the same tree, with correct counts of paused descendants.
fn compare(single: &World, batched: &World) -> Result<(), TestCaseError> {
    for pid in (1..=single.table.last_pid().0).map(Pid) {
        prop_assert_eq!(single.table.machine(pid), batched.table.machine(pid));
        prop_assert_eq!(single.table.view(pid, single.now()), batched.table.view(pid, single.now()));
        let below = batched.table.subtree(pid).into_iter().filter(|below| *below != pid);
        let paused = below.filter(|below| batched.view(*below).paused).count();
        prop_assert_eq!(batched.table.suspended_below(pid) as usize, paused, "{}", pid);
    }
    Ok(())
}
