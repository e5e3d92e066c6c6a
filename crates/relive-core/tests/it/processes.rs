//! Trees, signals and causes.

use relive_core::{
    Cause, Effect, End, ErrorCode, Event, KillSignal, Outcome, Pid, ProcessStatus, Signal, SignalSet, Spec, State,
    Wait, Why,
};

use crate::support::{Message, Reached, Scope, USER, World, names, uuid};

#[test]
fn case_06_the_children_of_an_ended_parent_move_to_pid_0() {
    let mut world = World::new();
    let grandparent = world.run(Pid::RUNTIME);
    let parent = world.run(grandparent);
    let (running, paused, queued, zombie) =
        (world.run(parent), world.run(parent), world.spawn(parent), world.run(parent));
    let below = world.run(paused);
    world.suspend(paused);
    world.finish(zombie);
    assert_eq!(world.table.suspended_below(grandparent), 1);

    world.finish(parent);
    let effects = world.release(parent);

    for orphan in [running, paused, queued] {
        assert_eq!(world.view(orphan).ppid, Pid::RUNTIME);
        assert!(effects.contains(&Effect::Reparented { of: world.of(orphan), from: parent }));
    }
    assert_eq!((world.view(paused).display.word(), world.view(running).display.word()), ("suspended", "running"));
    assert_eq!(world.view(running).parent_uuid, Some(uuid(parent.0)), "history keeps the first parent");
    assert_eq!(world.view(below).ppid, paused);
    assert_eq!(world.table.suspended_below(grandparent), 0);
    assert_eq!(effects.iter().filter(|effect| **effect == Effect::Reap { of: world.of(zombie) }).count(), 1);
    world.release(zombie);
    assert_eq!(world.children(Pid::RUNTIME), [grandparent, running, paused, queued]);
    assert_eq!(world.children(grandparent), []);
}

#[test]
fn case_07_every_kill_has_a_cause() {
    let mut world = World::new();
    let root = world.run(Pid::RUNTIME);
    let parent = world.run(root);
    let (child, sibling) = (world.run(parent), world.run(root));
    let check = |world: &mut World, pid: Pid, expect: (Why, Pid, Option<Pid>)| {
        world.cancelled(pid);
        let view = world.view(pid);
        assert_eq!((view.why.unwrap(), view.killed_by.unwrap(), view.killed_from), expect, "{pid}");
    };

    world.signal_for(sibling, Signal::Term, Cause::runtime(Why::Timeout));
    let by_root = Cause::process(Why::Parent, root);
    let reached = world.send(parent, Scope::Subtree, Message { cause: by_root, ..Message::new(Signal::Term) }).unwrap();
    assert_eq!(reached.pids, [parent, child]);
    world.signal(root, Signal::Kill);

    check(&mut world, sibling, (Why::Timeout, Pid::RUNTIME, None));
    check(&mut world, parent, (Why::Parent, root, Some(parent)));
    check(&mut world, child, (Why::Parent, root, Some(parent)));
    check(&mut world, root, (Why::User, Pid::RUNTIME, None));
}

#[test]
fn the_strongest_signal_is_the_cause_unless_the_body_names_another() {
    let mut world = World::new();
    let (escalated, segfaulted, oom) = (world.run(Pid(0)), world.run(Pid(0)), world.run(Pid(0)));
    world.signal_for(escalated, Signal::Int, USER);
    world.signal_for(escalated, Signal::Term, Cause::runtime(Why::Idle));
    world.signal_for(escalated, Signal::Int, Cause::runtime(Why::Budget));
    world.cancelled(escalated);
    assert_eq!(world.view(escalated).why, Some(Why::Idle));
    assert_eq!(world.view(escalated).status, Some(&ProcessStatus::Killed { signal: Signal::Term.into() }));

    let os = |number| End::of(ProcessStatus::Killed { signal: KillSignal::Os(number) });
    world.effects(segfaulted, Event::Terminate(Outcome::Ended(os(11))));
    assert_eq!((world.view(segfaulted).why, world.view(segfaulted).killed_by), (None, None));

    world.signal(oom, Signal::Term);
    let end = End { cause: Some(Cause::runtime(Why::Oom)), ..os(9) };
    world.effects(oom, Event::Terminate(Outcome::Ended(end)));
    assert_eq!(world.view(oom).exit.unwrap().reason, "out of memory");
}

fn all() -> SignalSet {
    Signal::ALL.into_iter().collect()
}

#[test]
fn case_08_a_blocked_signal_is_pending_once_and_delivered_in_order() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    world.effects(pid, Event::SetHandlers(all()));
    world.effects(pid, Event::SetMask(all()));
    for signal in [Signal::Resume, Signal::Int, Signal::Term] {
        assert_eq!(world.signal(pid, signal).pids, [pid]);
        for _ in 0..3 {
            assert_eq!(world.signal(pid, signal).pids, [], "pending once");
        }
    }
    let landed = world.effects(pid, Event::SetMask(SignalSet::EMPTY));
    let of = world.of(pid);
    let handled = [Signal::Term, Signal::Int, Signal::Resume].map(|signal| Effect::Handle { of, signal });
    let came: Vec<_> = landed.into_iter().filter(|effect| matches!(effect, Effect::Handle { .. })).collect();
    assert_eq!(came, handled);
    assert!(world.pending(pid).is_empty());
}

#[test]
fn case_07_a_pending_signal_keeps_the_cause_of_its_first_sender() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    world.effects(pid, Event::SetMask(all()));
    for why in [Why::Idle, Why::User] {
        world.signal_for(pid, Signal::Term, Cause::runtime(why));
    }
    world.effects(pid, Event::SetMask(SignalSet::EMPTY));
    world.cancelled(pid);
    assert_eq!(world.view(pid).why, Some(Why::Idle));
}

#[test]
fn case_08_pause_and_resume_cancel_each_other_while_pending() {
    for (first, second) in [(Signal::Pause, Signal::Resume), (Signal::Resume, Signal::Pause)] {
        let mut world = World::new();
        let pid = world.run(Pid::RUNTIME);
        world.effects(pid, Event::SetMask(all()));
        world.signal(pid, first);
        assert!(world.pending(pid).contains(first));
        assert_eq!(world.signal(pid, second).pids, [pid]);
        assert!(world.pending(pid).is_empty());
        assert_eq!(world.effects(pid, Event::SetMask(SignalSet::EMPTY)), []);
        assert!(!world.view(pid).paused);
    }
}

#[test]
fn case_08_the_last_of_pause_and_resume_counts_even_if_only_one_is_blocked() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    let pause_only = SignalSet::EMPTY.with(Signal::Pause);
    world.effects(pid, Event::SetMask(pause_only));
    world.pause(pid);
    assert_eq!(world.resume(pid).pids, [pid]);
    world.effects(pid, Event::SetMask(SignalSet::EMPTY));
    assert!(!world.view(pid).paused, "it was resumed after it was paused");
}

#[test]
fn case_08_kill_ignores_mask_and_handlers() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    world.effects(pid, Event::SetMask(all()));
    world.effects(pid, Event::SetHandlers(all()));
    let reached = world.signal(pid, Signal::Kill);
    assert_eq!(reached.effects, [Effect::Kill { of: world.of(pid) }]);
    assert_eq!(world.signal(pid, Signal::Kill).pids, [], "killing again changes nothing");
}

#[test]
fn term_is_followed_by_kill_after_the_grace_period() {
    let mut world = World::new();
    let (pid, other) = (world.run(Pid::RUNTIME), world.run(Pid::RUNTIME));
    let of = world.of(pid);
    world.effects(pid, Event::SetMask(all()));
    world.signal_for(pid, Signal::Term, Cause::runtime(Why::Timeout));
    world.ms += 60_000;
    let landed = world.effects(pid, Event::SetMask(SignalSet::EMPTY));
    assert_eq!(
        landed,
        [Effect::AskToEnd { of, signal: Signal::Term }, Effect::ArmGrace { of, grace_ms: 10_000 }],
        "from delivery, not from when it was sent"
    );
    assert_eq!(world.effects(other, Event::GraceExpired), [], "nobody told that one to end");
    assert_eq!(world.effects(pid, Event::GraceExpired), [Effect::Kill { of }]);
    assert_eq!(world.effects(pid, Event::GraceExpired), [], "a second timer is harmless");
    world.cancelled(pid);
    assert_eq!(world.view(pid).status, Some(&ProcessStatus::Killed { signal: Signal::Kill.into() }));
    assert_eq!(world.view(pid).why, Some(Why::Timeout), "the cause is that of the TERM");
}

#[test]
fn stale_reports_change_nothing_and_unknown_ones_are_refused() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    world.signal(pid, Signal::Term);
    let mut stale = world.of(pid);
    stale.generation = stale.generation.next();
    let before = world.table.clone();
    world.table.progress(stale, relive_core::UsageTotals::default(), world.now()).unwrap();
    assert!(world.table == before);
    stale.pid = Pid(99);
    let refusal = world.table.progress(stale, relive_core::UsageTotals::default(), world.now()).unwrap_err();
    assert_eq!(refusal.code(), ErrorCode::NotFound);
    assert_eq!(world.apply(Pid(99), Event::GraceExpired).unwrap_err().code(), ErrorCode::NotFound);
}

#[test]
fn a_handled_term_is_still_followed_by_kill() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    world.effects(pid, Event::SetHandlers(all()));
    assert_eq!(names(&world.signal(pid, Signal::Term).effects), ["Handle", "ArmGrace"]);
    assert_eq!(names(&world.effects(pid, Event::GraceExpired)), ["Kill"]);
}

#[test]
fn a_subtree_signal_skips_zombies_and_counts_changed_processes() {
    let mut world = World::new();
    let root = world.run(Pid::RUNTIME);
    let (left, right) = (world.run(root), world.run(root));
    let (deep, queued) = (world.run(left), world.spawn(left));
    let outside = world.run(Pid::RUNTIME);
    world.finish(right);
    world.signal(deep, Signal::Kill);
    let reached = world.signal_tree(root, Signal::Kill);
    assert_eq!(reached.pids, [root, left, queued], "deep had been killed, right was a zombie");
    assert_eq!(world.view(queued).state, State::Zombie, "a queued process has nobody to ask");
    assert_eq!(world.view(outside).ending, None);
    let again = world.signal_tree(root, Signal::Kill);
    assert_eq!(again, Reached::default());
}

#[test]
fn a_signal_to_a_zombie_root_still_reaches_its_descendants() {
    let mut world = World::new();
    let root = world.run(Pid::RUNTIME);
    let child = world.run(root);
    world.finish(root);
    assert_eq!(world.signal(root, Signal::Kill).pids, []);
    assert_eq!(world.signal_tree(root, Signal::Kill).pids, [child]);
}

#[test]
fn case_11_a_process_that_ends_at_once_is_not_missed() {
    let mut world = World::new();
    let parent = world.run(Pid::RUNTIME);
    let pid = world.run(parent);
    assert_eq!(world.table.wait(pid).unwrap(), Wait::NotEnded);
    world.finish(pid);
    let end = End::of(ProcessStatus::Exited { code: 0 });
    let ended = Wait::Ended { end: &end, successor: None };
    assert_eq!(world.table.wait(pid).unwrap(), ended, "while it is a zombie");
    world.release(pid);
    assert_eq!(world.table.wait(pid).unwrap(), ended, "after it has left the table");
    assert_eq!(world.table.wait(pid).unwrap(), ended, "and again");
}

#[test]
fn a_process_that_ends_before_its_launch_passes_through_running() {
    let mut world = World::new();
    let (queued, broken) = (world.spawn(Pid::RUNTIME), world.spawn(Pid::RUNTIME));
    world.ms += 5;
    let reached = world.signal(queued, Signal::Term);
    assert_eq!(names(&reached.effects), ["Ended", "Reap"], "no body was launched, so none is asked");
    assert_eq!((world.view(queued).state, world.view(queued).started_at), (State::Zombie, Some(world.now().at)));

    world.effects(broken, Event::Start);
    let status = ProcessStatus::StartupFailed { stage: "execve".into(), errno: "ENOENT".into(), code: 2 };
    world.effects(broken, Event::Terminate(Outcome::Ended(End::of(status))));
    let Wait::Ended { end, .. } = world.table.wait(broken).unwrap() else { panic!("it has ended") };
    assert_eq!(end.exit_code(), 127);
}

#[test]
fn a_body_that_reports_an_unrequested_cancel_is_refused() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    let before = world.table.clone();
    let refusal = world.apply(pid, Event::Terminate(Outcome::Cancelled)).unwrap_err();
    assert_eq!(refusal.code(), ErrorCode::Internal);
    assert!(world.table == before);
}

#[test]
fn a_refused_spawn_changes_nothing() {
    let mut world = World::new();
    let (running, queued, zombie, dead) =
        (world.run(Pid(0)), world.spawn(Pid(0)), world.run(Pid(0)), world.run(Pid(0)));
    world.finish(zombie);
    world.finish(dead);
    world.release(dead);
    let before = world.table.clone();
    let mut check = |spec: Spec, expect: ErrorCode| {
        assert_eq!(world.table.spawn(spec).unwrap_err().code(), expect);
        assert!(world.table == before);
    };
    let spec = World { table: before.clone(), ms: 0, wall_jump_ms: 0 }.spec(running);
    for parent in [queued, zombie, dead] {
        check(Spec { parent, ..spec.clone() }, ErrorCode::Conflict);
    }
    check(Spec { parent: Pid(77), ..spec.clone() }, ErrorCode::NotFound);
    for used in [Pid(0), queued, dead] {
        check(Spec { pid: used, ..spec.clone() }, ErrorCode::Internal);
    }
    check(Spec { uuid: uuid(running.0), ..spec.clone() }, ErrorCode::Conflict);
    check(Spec { uuid: uuid(dead.0), ..spec.clone() }, ErrorCode::Internal);
}

#[test]
fn a_chain_of_ten_thousand_does_not_overflow_and_keeps_its_counts() {
    const DEPTH: u32 = 10_000;
    const PAUSED: usize = 100;
    let mut world = World::new();
    let root = world.run(Pid::RUNTIME);
    let mut chain = vec![root];
    for _ in 1..DEPTH {
        chain.push(world.run(*chain.last().unwrap()));
    }
    assert_eq!(world.table.subtree(root), chain);
    let tail = &chain[chain.len() - PAUSED..];
    assert_eq!(world.signal_tree(tail[0], Signal::Pause).pids, tail);
    assert_eq!(world.table.suspended_below(root) as usize, PAUSED);
    assert_eq!(world.resume(tail[PAUSED - 1]).pids.len(), PAUSED, "every ancestor in the tail was paused by the user");
    assert_eq!(world.table.suspended_below(root), 0);
    let killed = world.signal_tree(root, Signal::Kill);
    assert_eq!(killed.pids.len(), DEPTH as usize);
}

#[test]
fn concurrent_spawns_arrive_in_either_order_without_reusing_a_pid() {
    let mut world = World::new();
    let now = world.now();
    let spec = |pid: u32| relive_core::Spec::new(Pid(pid), crate::support::uuid(100 + pid), Pid::RUNTIME, now);
    world.table.spawn(spec(3)).unwrap();
    world.table.spawn(spec(2)).unwrap();
    assert_eq!(world.table.last_pid(), Pid(3));
    let again = |pid: u32| relive_core::Spec { uuid: crate::support::uuid(200 + pid), ..spec(pid) };
    for used in [2, 3] {
        assert!(world.table.spawn(again(used)).is_err(), "{used}");
    }
    world.table.spawn(spec(1)).unwrap();
    assert!(world.table.spawn(again(1)).is_err());
}

/// A process ends as it asks for, however its body is made to end.
#[test]
fn case_69_a_process_that_ends_itself_has_the_end_it_asked_for() {
    let own = || End { reason: Some("enough".into()), ..End::of(ProcessStatus::Exited { code: 3 }) };
    for outcome in [Outcome::Cancelled, Outcome::Ended(End::of(ProcessStatus::Killed { signal: Signal::Kill.into() }))]
    {
        let mut world = World::new();
        let pid = world.run(Pid::RUNTIME);
        let of = world.of(pid);
        assert_eq!(world.effects(pid, Event::EndSelf(Box::new(own()))), [Effect::Kill { of }]);
        assert_eq!(world.effects(pid, Event::EndSelf(Box::new(End::of(ProcessStatus::Abandoned)))), [], "once");
        assert!(world.signal(pid, Signal::Kill).pids.is_empty(), "it ends already");
        world.apply(pid, Event::Terminate(outcome)).unwrap();
        let view = world.view(pid);
        assert_eq!((view.status, view.why), (Some(&ProcessStatus::Exited { code: 3 }), None));
        assert_eq!(view.exit.unwrap().reason, "enough");
    }
    // Whoever asked it to end before is the cause; a KILL cannot be improved upon.
    for (signal, status) in [
        (Signal::Term, ProcessStatus::Abandoned),
        (Signal::Kill, ProcessStatus::Killed { signal: Signal::Kill.into() }),
    ] {
        let mut world = World::new();
        let pid = world.run(Pid::RUNTIME);
        world.signal(pid, signal);
        world.apply(pid, Event::EndSelf(Box::new(End::of(ProcessStatus::Abandoned)))).unwrap();
        world.cancelled(pid);
        assert_eq!((world.view(pid).status, world.view(pid).why), (Some(&status), Some(Why::User)));
    }
    let mut world = World::new();
    let unstarted = world.spawn(Pid::RUNTIME);
    let refused = world.apply(unstarted, Event::EndSelf(Box::new(own()))).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Invalid);
}
