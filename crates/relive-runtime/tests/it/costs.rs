//! The cost of processes in changes to the disk. Not time.

use relive_core::Uuid;
use relive_journal::{Counts, Disk};

use crate::world::World;

/// Returns what it takes to start a daemon that recovers this many running agents.
fn recovering(agents: usize) -> Counts {
    let world = World::new();
    let daemon = world.start();
    let uuids: Vec<Uuid> = (0..agents).map(|_| daemon.run_hanging(&world).uuid).collect();
    drop(daemon);
    world.let_go();
    let disk = Disk::new();
    let before = disk.counts();
    let daemon = world.start_on(disk.clone()).unwrap();
    for uuid in &uuids {
        daemon.until_records(&world, *uuid, "model_started", 2);
    }
    for uuid in uuids {
        daemon.until("everything is synced", || {
            let length = std::fs::metadata(world.data().join(format!("steps/{uuid}/steps.jsonl"))).ok()?.len();
            (daemon.runtime.synced_end(uuid) == Some(length)).then_some(())
        });
    }
    disk.counts().since(before)
}

/// The record of the incarnation is synced with that of its first model call, 50 ms later at the latest. On a busy machine
/// that call may come later, and is synced alone: the best of several attempts counts, of those in which each agent had one.
#[test]
fn to_recover_an_agent_costs_one_sync() {
    const MORE: i128 = 10;
    let costs = |_| {
        let (few, many) = (recovering(3), recovering(13));
        i128::from(many.syncs) - i128::from(few.syncs)
    };
    let least = (0..8).map(costs).find(|more| (1..=MORE).contains(more));
    assert!(least.is_some(), "{MORE} more agents cost more than {MORE} syncs");
}

#[test]
fn to_recover_an_agent_opens_its_journal_and_makes_no_file() {
    let (few, many) = (recovering(3), recovering(13));
    let more = |few: u64, many: u64| many - few;
    assert_eq!(
        [more(few.opens, many.opens), more(few.renames, many.renames), more(few.unlinks, many.unlinks)],
        [10, 0, 0],
        "{few:?} {many:?}"
    );
}

/// Returns how many jobs for journals it takes to start a daemon that recovers this many running agents.
fn journal_jobs(agents: usize) -> u64 {
    let world = World::new();
    let daemon = world.start();
    let uuids: Vec<Uuid> = (0..agents).map(|_| daemon.run_hanging(&world).uuid).collect();
    drop(daemon);
    world.let_go();
    let daemon = world.start();
    for uuid in &uuids {
        daemon.until_records(&world, *uuid, "model_started", 2);
    }
    daemon.runtime.pools().journal.jobs()
}

/// Journals are opened and read many at a time; only the first records of each are written by a job of its own. On a busy
/// machine these may be written in two parts: the middle one of several attempts counts.
#[test]
fn to_recover_an_agent_costs_one_hand_off_to_the_threads_of_journals() {
    const MORE: i128 = 64;
    const MOST: i128 = MORE + MORE / 4;
    let costs = |_| i128::from(journal_jobs(80)) - i128::from(journal_jobs(16));
    let mut all: Vec<i128> = (0..3).map(costs).collect();
    all.sort_unstable();
    let median = all[all.len() / 2];
    assert!((MORE / 2..=MOST).contains(&median), "{MORE} more agents cost {median} more hand-offs: {all:?}");
}

/// Returns what it takes to run an agent to its end.
fn running(steps: usize) -> Counts {
    let world = World::new();
    std::fs::write(world.work().join("note.txt"), "a line that is as long as most\n".repeat(100)).unwrap();
    let turn = "  - calls: [{name: read, args: {path: note.txt}}]\n";
    let model = world.script(&format!("turns:\n{turn}    repeat: {steps}\n"));
    let disk = Disk::new();
    let daemon = world.start_on(disk.clone()).unwrap();
    let before = disk.counts();
    let process = daemon.run(world.request(&model));
    daemon.wait(process.uuid);
    disk.counts().since(before)
}

/// A checkpoint is written when the journal has grown by a quarter: three or four times while it doubles.
#[test]
fn twice_as_many_steps_write_four_more_checkpoints_and_no_other_file() {
    const OF_A_CHECKPOINT: u64 = 3;
    let (few, many) = (running(100), running(200));
    let more = many.renames.saturating_sub(few.renames);
    assert!(more <= 5 * OF_A_CHECKPOINT, "{few:?} {many:?}");
}
