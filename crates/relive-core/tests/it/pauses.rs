//! Pause and resume: which processes stop, which continue, and when the clock runs.

use relive_core::{
    Effect, ErrorCode, Event, Pid, Recovered, Signal, SignalSet, Spec, Stopwatch, SuspendReason, Suspension, Urgency,
    UsageTotals,
};

use crate::support::{Message, Reached, Scope, World, names};

/// A root with a child and a grandchild, and a sibling of the child.
fn family(world: &mut World) -> [Pid; 4] {
    let root = world.run(Pid::RUNTIME);
    let child = world.run(root);
    let grandchild = world.run(child);
    let sibling = world.run(root);
    [root, child, grandchild, sibling]
}

fn paused(world: &World, pids: [Pid; 4]) -> [bool; 4] {
    pids.map(|pid| world.view(pid).paused)
}

#[test]
fn case_12_pausing_one_process_pauses_only_that_one() {
    let mut world = World::new();
    let pids @ [_, child, ..] = family(&mut world);
    assert_eq!(world.pause(child).pids, [child]);
    assert_eq!(paused(&world, pids), [false, true, false, false]);
    let before = world.table.clone();
    world.ms += 50;
    assert_eq!(world.pause(child), Reached::default(), "pausing twice changes nothing");
    assert!(world.table == before);
}

#[test]
fn case_12_pausing_a_subtree_pauses_and_counts_its_descendants() {
    let mut world = World::new();
    let pids @ [root, child, grandchild, sibling] = family(&mut world);
    world.pause(grandchild);
    let reached = world.signal_tree(root, Signal::Pause);
    assert_eq!(reached.pids, [root, child, sibling], "the grandchild was paused already");
    assert_eq!(paused(&world, pids), [true; 4]);
    assert_eq!(pids.map(|pid| world.table.suspended_below(pid)), [3, 1, 0, 0]);
    let again = world.signal_tree(root, Signal::Pause);
    assert_eq!(again.pids, []);
    let resumed = world.signal_tree(root, Signal::Resume);
    assert_eq!(resumed.pids, [root, child, grandchild, sibling]);
    assert_eq!(pids.map(|pid| world.table.suspended_below(pid)), [0; 4]);
}

#[test]
fn case_12_a_queued_child_of_a_paused_subtree_does_not_start_running() {
    let mut world = World::new();
    let root = world.run(Pid::RUNTIME);
    let queued = world.spawn(root);
    assert_eq!(world.signal_tree(root, Signal::Pause).pids, [root, queued]);
    let effects = world.effects(queued, Event::Start);
    assert_eq!(names(&effects)[..2], ["Launch", "Stop"]);
    assert!(world.view(queued).paused);
}

#[test]
fn case_13_a_process_is_pausing_until_its_boundary_then_suspended() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    let of = world.of(pid);
    let asked_at = world.now().at;
    let reached = world.pause(pid);
    assert_eq!(reached.effects, [Effect::Stop { of, urgency: Urgency::Boundary }]);
    assert_eq!(world.view(pid).display.word(), "pausing");
    world.ms += 7_000;
    assert_eq!(world.effects(pid, Event::BoundaryReached), [Effect::Suspended { of }]);
    let view = world.view(pid);
    assert_eq!((view.display.word(), view.paused_at), ("suspended", Some(asked_at)));
    assert_eq!((view.suspend_reason, view.status), (Some(SuspendReason::User), None));
    assert_eq!(world.effects(pid, Event::BoundaryReached), [], "said once");
}

#[test]
fn case_13_pausing_now_cancels_work_in_progress() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    let now = Effect::Stop { of: world.of(pid), urgency: Urgency::Now };
    world.pause(pid);
    let reached = world.pause_now(pid);
    assert_eq!((reached.effects, reached.pids), (vec![now], vec![pid]));
    assert_eq!(world.pause_now(pid).pids, []);
    assert_eq!(world.pause(pid).pids, [], "it does not become less urgent");
}

#[test]
fn case_13_a_resume_before_the_boundary_cancels_the_pause() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    world.pause(pid);
    assert_eq!(world.resume(pid).effects, [Effect::Resume { of: world.of(pid) }]);
    assert_eq!(world.effects(pid, Event::BoundaryReached), [], "it was resumed meanwhile");
    assert_eq!(world.view(pid).display.word(), "running");
}

#[test]
fn case_14_elapsed_time_stands_still_while_paused() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    let check = |world: &World, expect: u64| assert_eq!(world.view(pid).elapsed_ms, expect);
    world.ms += 1_000;
    check(&world, 1_000);
    world.pause(pid);
    world.ms += 5_000;
    check(&world, 1_000);
    world.effects(pid, Event::BoundaryReached);
    world.ms += 5_000;
    check(&world, 1_000);
    world.resume(pid);
    check(&world, 1_000);
    world.ms += 300;
    check(&world, 1_300);
    world.suspend(pid);
    world.ms += 9_000;
    world.signal(pid, Signal::Kill);
    world.cancelled(pid);
    world.ms += 9_000;
    check(&world, 1_300);
    world.release(pid);
    check(&world, 1_300);
}

#[test]
fn a_wall_clock_that_jumps_changes_no_duration() {
    for jump in [-500_000, 500_000] {
        let mut world = World::new();
        let (pid, gone) = (world.run(Pid::RUNTIME), world.run(Pid::RUNTIME));
        world.finish(gone);
        world.release(gone);
        world.wall_jump_ms += jump;
        world.ms += 1_000;
        assert_eq!((world.view(pid).elapsed_ms, world.view(gone).elapsed_ms), (1_000, 0));
        world.pause(pid);
        world.wall_jump_ms += jump;
        world.resume(pid);
        world.ms += 5_000;
        assert_eq!(world.view(pid).elapsed_ms, 6_000);
        world.wall_jump_ms += 100 * jump;
        assert_eq!(world.table.check_stalled(300_000, world.now()), [], "no time has passed");
        assert_eq!(world.table.sweep(world.now()), [], "nor has the retention time");
        assert_eq!(names(&world.signal(pid, Signal::Term).effects), ["AskToEnd", "ArmGrace"]);
    }
}

#[test]
fn case_14_the_heartbeat_monitor_never_flags_a_paused_process() {
    let mut world = World::new();
    let (busy, silent, stopped) = (world.run(Pid(0)), world.run(Pid(0)), world.run(Pid(0)));
    let queued = world.spawn(Pid::RUNTIME);
    world.pause(stopped);
    world.ms += 299_999;
    assert_eq!(world.table.check_stalled(300_000, world.now()), []);
    world.table.progress(world.of(busy), UsageTotals { step: 1, ..UsageTotals::default() }, world.now()).unwrap();
    world.ms += 1;
    assert_eq!(world.table.check_stalled(300_000, world.now()), [Effect::Stalled { of: world.of(silent) }]);
    assert_eq!(world.table.check_stalled(300_000, world.now()), [], "said once");
    assert_eq!(world.view(silent).display.word(), "stalled");
    assert_eq!(world.view(queued).display.word(), "loading");

    world.ms += 900_000;
    world.table.progress(world.of(busy), UsageTotals::default(), world.now()).unwrap();
    world.resume(stopped);
    assert_eq!(world.table.check_stalled(300_000, world.now()), [], "its time starts again with the resume");
    world.table.progress(world.of(silent), UsageTotals::default(), world.now()).unwrap();
    assert_eq!(world.view(silent).display.word(), "running");
}

#[test]
fn a_pause_clears_the_stalled_mark() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    world.ms += 300_000;
    let before = world.table.machine(pid).unwrap().clone();
    assert_eq!(names(&world.table.check_stalled(300_000, world.now())), ["Stalled"]);
    assert_eq!(world.table.machine(pid), Some(&before), "a stall is not the owner's affair");
    world.pause(pid);
    world.resume(pid);
    assert_eq!(world.view(pid).display.word(), "running");
}

#[test]
fn case_15_resuming_a_descendant_resumes_ancestors_the_user_paused() {
    let mut world = World::new();
    let pids @ [root, child, grandchild, _] = family(&mut world);
    let top = world.signal_tree(root, Signal::Pause);
    assert_eq!(top.pids.len(), 4);
    assert_eq!(world.resume(grandchild).pids, [grandchild, child, root]);
    assert_eq!(paused(&world, pids), [false, false, false, true], "the sibling sleeps on");
    assert_eq!(pids.map(|pid| world.table.suspended_below(pid)), [1, 0, 0, 0]);
    let before = world.table.clone();
    assert_eq!(world.resume(grandchild), Reached::default(), "resuming a running one changes nothing");
    assert!(world.table == before);
}

#[test]
fn case_15_resuming_a_descendant_skips_ancestors_paused_for_other_reasons() {
    let mut world = World::new();
    let pids @ [root, child, grandchild, _] = family(&mut world);
    world.suspend_for(child, SuspendReason::BudgetExceeded);
    world.signal_tree(root, Signal::Pause);
    assert_eq!(world.resume(grandchild).pids, [grandchild, root]);
    assert_eq!(paused(&world, pids), [false, true, false, true]);
    assert_eq!(world.view(child).suspend_reason, Some(SuspendReason::BudgetExceeded), "the first reason stays");
    assert_eq!(world.resume(child).pids, [child], "asked for by name, it goes on");
}

#[test]
fn ancestors_are_told_of_paused_descendants() {
    let mut world = World::new();
    let [root, child, grandchild, sibling] = family(&mut world);
    let told = |ancestor, of, reason| Effect::SuspendedBelow { ancestor, of, reason };
    let effects = world.suspend_for(grandchild, SuspendReason::DiskFull).effects;
    assert_eq!(
        effects[1..],
        [told(child, grandchild, SuspendReason::DiskFull), told(root, grandchild, SuspendReason::DiskFull)]
    );

    let mask = SignalSet::EMPTY.with(Signal::Pause);
    world.effects(child, Event::SetMask(mask));
    let below_child = world.run(child);
    let reached = world.signal_tree(root, Signal::Pause);
    assert_eq!(reached.pids, [root, child, below_child, sibling]);
    let notices: Vec<_> =
        reached.effects.into_iter().filter(|effect| matches!(effect, Effect::SuspendedBelow { .. })).collect();
    assert_eq!(notices, [told(child, below_child, SuspendReason::User)], "the root sleeps, the child does not yet");
    assert_eq!([root, child].map(|pid| world.table.suspended_below(pid)), [3, 2]);
}

#[test]
fn a_process_that_waits_for_an_answer_is_not_resumed() {
    let mut world = World::new();
    let [root, child, grandchild, _] = family(&mut world);
    for reason in [SuspendReason::InDoubt, SuspendReason::Approval] {
        world.suspend_for(child, reason);
        let before = world.table.clone();
        let refusal = world.send(child, Scope::Process, Message::new(Signal::Resume)).unwrap_err();
        assert_eq!(refusal.code(), ErrorCode::Conflict);
        assert_eq!(refusal.hint().unwrap(), format!("relive resolve {child}"));
        assert!(world.table == before);

        world.pause(grandchild);
        assert_eq!(world.signal_tree(root, Signal::Resume).pids, [grandchild], "passed by in a tree");
        assert!(!world.apply(child, Event::EndPause { reason: SuspendReason::DiskFull }).unwrap().changed);
        assert!(world.apply(child, Event::EndPause { reason }).unwrap().changed);
        assert_eq!(world.table.suspended_below(root), 0);
    }
}

#[test]
fn a_pause_of_a_process_that_waits_for_an_answer_is_kept_until_the_answer() {
    let reasons = [SuspendReason::InDoubt, SuspendReason::Approval, SuspendReason::Question];
    for reason in reasons.into_iter().chain([SuspendReason::Quota, SuspendReason::NeedsCredentials]) {
        let mut world = World::new();
        let [root, child, grandchild, sibling] = family(&mut world);
        world.suspend_for(child, reason);
        assert_eq!(world.signal_tree(root, Signal::Pause).pids, [root, child, grandchild, sibling]);
        assert_eq!(world.view(child).suspend_reason, Some(reason), "it still waits");
        assert!(world.table.machine(child).unwrap().kept_pause().is_some());
        assert!(world.signal_tree(root, Signal::Pause).pids.is_empty(), "kept once");

        let effects = world.effects(child, Event::EndPause { reason });
        assert_eq!(names(&effects), ["Stop"], "it does not run in between");
        assert_eq!(world.view(child).suspend_reason, Some(SuspendReason::User));
        assert_eq!(world.view(child).paused_by.unwrap().root, Some(root), "it was the tree that was paused");
        assert_eq!(world.pending(child), SignalSet::EMPTY);
        assert_eq!(world.table.suspended_below(root), 3);
        assert!(world.resume(child).pids.contains(&child));
        assert_eq!(world.view(child).suspend_reason, None);
    }
}

#[test]
fn a_kept_pause_is_taken_back_by_a_resume_of_the_process_or_its_tree() {
    for scope in [Scope::Process, Scope::Subtree] {
        let mut world = World::new();
        let [root, child, ..] = family(&mut world);
        world.suspend_for(child, SuspendReason::Approval);
        world.signal_tree(root, Signal::Pause);
        let target = if scope == Scope::Process { child } else { root };
        let reached = world.send(target, scope, Message::new(Signal::Resume)).unwrap();
        assert!(reached.pids.contains(&child));
        assert_eq!(world.view(child).suspend_reason, Some(SuspendReason::Approval), "a resume is no answer");
        let effects = world.effects(child, Event::EndPause { reason: SuspendReason::Approval });
        assert_eq!(names(&effects), ["Resume"]);
        assert_eq!(world.view(child).suspend_reason, None);
    }
}

#[test]
fn a_kept_pause_does_not_land_on_a_process_that_was_asked_to_end() {
    for signal in [Signal::Term, Signal::Int] {
        let mut world = World::new();
        let pid = world.run(Pid::RUNTIME);
        world.suspend_for(pid, SuspendReason::Approval);
        world.pause(pid);
        world.signal(pid, signal);
        assert!(!world.view(pid).pause_kept, "nothing follows but its end");
        let effects = world.effects(pid, Event::EndPause { reason: SuspendReason::Approval });
        assert_eq!(names(&effects), ["Resume"], "its body ends by itself");
        assert_eq!((world.view(pid).suspend_reason, world.view(pid).ending), (None, Some(signal)));
    }
}

#[test]
fn a_process_that_handles_pause_is_paused_once_its_answer_is_there() {
    let mut world = World::new();
    let [root, child, ..] = family(&mut world);
    world.effects(child, Event::SetHandlers(SignalSet::EMPTY.with(Signal::Pause)));
    world.suspend_for(child, SuspendReason::Approval);
    let reached = world.signal_tree(root, Signal::Pause);
    assert!(
        reached.pids.contains(&child) && !names(&reached.effects).iter().any(|name| name == "Handle"),
        "{reached:?}"
    );
    assert!(world.view(child).pause_kept);
    let effects = world.effects(child, Event::EndPause { reason: SuspendReason::Approval });
    assert_eq!(names(&effects), ["Stop"], "it does not run on in a paused tree");
    assert_eq!(world.view(child).suspend_reason, Some(SuspendReason::User));
}

#[test]
fn a_pause_that_is_blocked_is_pending_and_not_kept() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    world.effects(pid, Event::SetMask(SignalSet::EMPTY.with(Signal::Pause)));
    world.suspend_for(pid, SuspendReason::Approval);
    world.pause(pid);
    assert_eq!(world.pending(pid), SignalSet::EMPTY.with(Signal::Pause));
    assert!(!world.view(pid).pause_kept && world.table.machine(pid).unwrap().kept_pause().is_none());
    assert_eq!(world.resume(pid).pids, [pid], "a resume takes it back");
    world.pause(pid);
    world.effects(pid, Event::SetMask(SignalSet::EMPTY));
    assert!(world.view(pid).pause_kept, "it is kept once it is not blocked");
    let effects = world.effects(pid, Event::EndPause { reason: SuspendReason::Approval });
    assert_eq!(names(&effects), ["Stop"]);
}

#[test]
fn the_kept_pause_of_an_ancestor_is_taken_back_with_the_resume_of_a_descendant() {
    let mut world = World::new();
    let [root, child, grandchild, _] = family(&mut world);
    world.suspend_for(child, SuspendReason::Question);
    world.signal_tree(root, Signal::Pause);
    assert_eq!(world.resume(grandchild).pids, [grandchild, child, root]);
    assert!(!world.view(child).pause_kept);
    assert_eq!(world.view(child).suspend_reason, Some(SuspendReason::Question), "a resume is no answer");
    // A wait for the provider is not ended from below.
    let quota = world.run(root);
    let below = world.run(quota);
    world.suspend_for(quota, SuspendReason::Quota);
    world.signal_tree(quota, Signal::Pause);
    assert_eq!(world.resume(below).pids, [below]);
    assert_eq!(world.view(quota).suspend_reason, Some(SuspendReason::Quota));
}

#[test]
fn a_process_takes_back_a_child_that_it_had_in_an_earlier_run() {
    let mut world = World::new();
    let [root, child, grandchild, _] = family(&mut world);
    let uuid = world.view(child).uuid;
    world.finish(child);
    world.release(child);
    assert_eq!(world.children(Pid::RUNTIME), [root, grandchild]);
    world.suspend(grandchild);
    let again = world.spawn_as(Spec { uuid, generation: relive_core::Generation(2), ..world.spec(root) });
    assert!(!world.table.take_back(grandchild, root), "it was not spawned by that one");
    assert!(world.table.take_back(grandchild, again));
    assert!(!world.table.take_back(grandchild, again), "it is there");
    assert_eq!((world.children(again), world.view(grandchild).ppid), (vec![grandchild], again));
    assert_eq!([root, again].map(|pid| world.table.suspended_below(pid)), [1, 1]);
    assert_eq!(world.signal_tree(root, Signal::Resume).pids, [grandchild]);
    assert_eq!(world.table.suspended_below(root), 0);
}

#[test]
fn resuming_a_process_that_has_not_been_started_is_refused() {
    let mut world = World::new();
    let queued = world.spawn(Pid::RUNTIME);
    let refusal = world.send(queued, Scope::Process, Message::new(Signal::Resume)).unwrap_err();
    assert_eq!(refusal.code(), ErrorCode::Invalid);
    world.pause(queued);
    assert_eq!(world.resume(queued).pids, [queued], "but its pause can be taken back");
    let effects = world.effects(queued, Event::Start);
    assert_eq!(names(&effects), ["Launch"]);
}

#[test]
fn an_end_says_killed_while_paused_only_after_the_boundary() {
    let check = |at_boundary: bool, signal: Signal, expect: &str| {
        let mut world = World::new();
        let parent = world.run(Pid::RUNTIME);
        let pid = world.run(parent);
        world.pause(pid);
        if at_boundary {
            world.effects(pid, Event::BoundaryReached);
        }
        world.signal(pid, signal);
        world.cancelled(pid);
        let exit = world.view(pid).exit.unwrap();
        assert_eq!((exit.code, &*exit.reason), (1, expect));
        assert_eq!(world.table.suspended_below(parent), 0, "a zombie is not paused");
    };
    check(true, Signal::Kill, "context cancelled while paused");
    check(true, Signal::Term, "context cancelled while paused");
    check(false, Signal::Kill, "interrupted");
}

#[test]
fn a_stopped_process_runs_no_handler() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    let handlers = SignalSet::EMPTY.with(Signal::Pause).with(Signal::Resume);
    world.suspend(pid);
    world.effects(pid, Event::SetHandlers(handlers));
    assert_eq!(world.pause(pid), Reached::default(), "it is paused already");
    assert_eq!(names(&world.resume(pid).effects), ["Resume", "Handle"], "woken first, for its handler to run");
    assert_eq!(names(&world.pause(pid).effects), ["Handle"]);
    assert!(!world.view(pid).paused, "its own handler decides");
}

#[test]
fn a_process_paused_under_an_earlier_daemon_is_recovered_paused() {
    let mut world = World::new();
    let spec = Spec { stopwatch: Stopwatch::default(), ..world.spec(Pid::RUNTIME) };
    let (parent, asked_at) = (spec.pid, world.now().at);
    world.ms += 500_000;
    let paused =
        |reason| Recovered { suspension: Some(Suspension { asked_at, reason, cause: None }), ..Recovered::default() };
    world.table.recover(spec, paused(SuspendReason::DaemonStop), world.now()).unwrap();
    let spec = world.spec(parent);
    let child = spec.pid;
    world.table.recover(spec, paused(SuspendReason::User), world.now()).unwrap();
    for pid in [parent, child] {
        assert_eq!((world.view(pid).display.word(), world.view(pid).paused_at), ("suspended", Some(asked_at)));
    }
    assert_eq!((world.view(parent).elapsed_ms, world.table.suspended_below(parent)), (0, 1));
    assert_eq!(world.signal_tree(parent, Signal::Resume).pids, [parent, child]);
}
