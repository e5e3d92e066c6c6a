//! The release: its steps come once each, in a fixed order, in whatever order the answers arrive.

use relive_core::{Effects, ErrorCode, Pid, ReleaseEvent};

use crate::support::{World, names};

const STEPS: [&str; 7] = ["Cancel", "Join", "TakeDebugChannel", "CloseDebugChannel", "FreeContext", "Dead", "Left"];

fn permutations(events: Vec<ReleaseEvent>) -> Vec<Vec<ReleaseEvent>> {
    if events.len() < 2 {
        return vec![events];
    }
    let mut all = Vec::new();
    for at in 0..events.len() {
        let mut rest = events.clone();
        let first = rest.remove(at);
        all.extend(permutations(rest).into_iter().map(|tail| [vec![first], tail].concat()));
    }
    all
}

#[test]
fn steps_come_once_and_in_order_for_every_order_of_repeated_answers() {
    for order in permutations(ReleaseEvent::ALL.to_vec()) {
        for before_reap in 0..=4 {
            let mut world = World::new();
            let pid = world.run(Pid::RUNTIME);
            let of = world.of(pid);
            world.finish(pid);
            let mut effects = Effects::new();
            for (at, event) in order.iter().enumerate() {
                if at == before_reap {
                    effects.extend(world.table.reap(pid, world.now()).unwrap());
                }
                for _ in 0..2 {
                    effects.extend(world.table.released(of, *event, world.now()).unwrap());
                }
            }
            if before_reap == 4 {
                assert_eq!(effects, [], "{order:?}: nothing is released before the reap");
                effects.extend(world.table.reap(pid, world.now()).unwrap());
            }
            assert_eq!(names(&effects), STEPS, "{order:?}, {before_reap} before the reap");
            assert_eq!((world.table.len(), world.view(pid).display.word()), (0, "dead"));
        }
    }
}

#[test]
fn each_step_waits_for_the_answer_to_the_previous_one() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    let of = world.of(pid);
    world.finish(pid);
    let mut came = vec![names(&world.table.reap(pid, world.now()).unwrap())];
    for event in ReleaseEvent::ALL {
        assert_eq!(world.view(pid).display.word(), "zombie");
        assert_eq!(world.table.reap(pid, world.now()).unwrap(), [], "reaping again changes nothing");
        came.push(names(&world.table.released(of, event, world.now()).unwrap()));
    }
    let expect: [&[&str]; 5] =
        [&["Cancel"], &["Join"], &["TakeDebugChannel", "CloseDebugChannel"], &["FreeContext"], &["Dead", "Left"]];
    assert_eq!(came, expect);
}

#[test]
fn orphans_are_reparented_before_any_other_step() {
    let mut world = World::new();
    let parent = world.run(Pid::RUNTIME);
    let (running, zombie) = (world.run(parent), world.run(parent));
    world.finish(zombie);
    world.finish(parent);
    assert_eq!(world.children(parent), [running, zombie]);
    let effects = world.release(parent);
    assert_eq!(names(&effects)[..3], ["Reparented", "Reap", "Cancel"]);
    assert_eq!(world.children(Pid::RUNTIME), [running, zombie]);
}

#[test]
fn a_living_process_is_not_released() {
    let mut world = World::new();
    let pid = world.run(Pid::RUNTIME);
    let before = world.table.clone();
    let refusal = world.table.released(world.of(pid), ReleaseEvent::Joined, world.now()).unwrap_err();
    assert_eq!(refusal.code(), ErrorCode::Internal);
    assert!(world.table == before);
}
