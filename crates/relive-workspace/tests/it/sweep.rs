//! Kills at every single change of a restore and of a merge.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use relive_workspace::{
    Control, Direction, Disk, Error, Faults, Force, MergeRequest, Removal, RestoreRequest, Settings, Snapshot,
    Workspace,
};

use crate::support::{Bed, Seen, look, shell, unprivileged};

type Files = BTreeMap<Vec<u8>, Seen>;

const OLD: &str = "mkdir -p dir/deep empty; echo 1 > dir/deep/one; echo 2 > two; echo 3 > three; ln -s two link
     echo same > h1; ln h1 h2; chmod 700 dir; printf 'a\\000b' > binary; echo t > type; mkdir tree; echo x > tree/x";
const NEW: &str = "echo changed > dir/deep/one; rm two; chmod 600 three; ln -sf three link; rm h2; cp h1 h2; echo n > h1
     rm -r tree; echo f > tree; rm type; mkdir type; echo y > type/y; rmdir empty; mkdir -p fresh/dir; echo z > fresh/dir/z";

struct World {
    bed: Bed,
    faults: Arc<Faults>,
    old: (Snapshot, Files),
    new: (Snapshot, Files),
}

/// Directories that only their owner may change, and only after changing their permissions.
const OLD_READ_ONLY: &str =
    "mkdir -p kept/deep gone; echo 1 > kept/a; echo 1 > kept/deep/b; echo 1 > gone/x; chmod 555 gone";
const NEW_READ_ONLY: &str =
    "echo 2 > kept/a; echo 2 > kept/new; chmod 444 kept/a; echo 2 > kept/deep/b; chmod 555 kept kept/deep
     chmod 755 gone; rm -r gone; mkdir -p born/in; echo 1 > born/x; echo 1 > born/in/y; chmod 555 born born/in";

/// Returns a workspace in its new state, with both states known.
fn world() -> World {
    world_of(OLD, NEW)
}

fn world_of(old: &str, new: &str) -> World {
    let faults = Arc::new(Faults::default());
    let mut bed = Bed::new(Disk::with_faults(faults.clone()), Settings::default());
    shell(&bed.root, old);
    let old = (bed.snapshot(), look(&bed.root));
    shell(&bed.root, new);
    let new = (bed.snapshot(), look(&bed.root));
    World { bed, faults, old, new }
}

/// Opens the workspace like the next process after a kill.
fn reopen(world: &World) -> Workspace {
    world.faults.allow_all();
    Workspace::open(&world.bed.store, &world.bed.root, Settings::default()).unwrap()
}

/// Settles the interrupted plan and checks that the files are entirely old or entirely new, as reported.
fn check_settled(world: &World, direction: Direction, start: &Files, end: &Files, at: u64) {
    let mut workspace = reopen(world);
    let control = Control::default();
    match workspace.interrupted().unwrap() {
        Some(_) => {
            let pending = RestoreRequest { target: &world.old.0, expected: None, paths: &[], force: Force::Yes };
            assert!(matches!(workspace.restore(&pending, &control), Err(Error::PlanPending { .. })), "{at}");
            let applied = workspace.settle_interrupted(direction, &control).unwrap();
            assert_eq!((applied.direction, &applied.left), (direction, &Vec::new()), "stopped after {at}");
            let expected = if direction == Direction::Finish { end } else { start };
            assert!(look(&world.bed.root) == *expected, "stopped after {at}, {direction:?}");
        }
        None => {
            let now = look(&world.bed.root);
            assert!(now == *start || now == *end, "stopped after {at}");
            assert!(matches!(workspace.settle_interrupted(direction, &control), Err(Error::NoPlan { .. })));
        }
    }
    assert!(workspace.interrupted().unwrap().is_none());
}

/// Stops `act` after every number of changes; `act` returns whether it was done.
fn sweep(
    direction: Direction,
    prepare: impl Fn() -> (World, Files, Files),
    act: impl Fn(&mut World) -> Result<(), Error>,
) {
    for at in 0.. {
        let (mut world, start, end) = prepare();
        world.faults.stop_after(at);
        let is_done = act(&mut world).is_ok();
        check_settled(&world, direction, &start, &end, at);
        if is_done {
            assert!(at > 30, "the sweep saw only {at} changes");
            return;
        }
    }
}

fn restore(world: &mut World) -> Result<(), Error> {
    let target = world.old.0;
    let request = RestoreRequest { target: &target, expected: None, paths: &[], force: Force::No };
    world.bed.workspace.restore(&request, &Control::default()).map(drop)
}

fn restore_world() -> (World, Files, Files) {
    let world = world();
    let (start, end) = (world.new.1.clone(), world.old.1.clone());
    (world, start, end)
}

#[test]
fn case_73_an_interrupted_restore_waits_for_its_directory() {
    let mut world = world();
    for at in 0.. {
        world.faults.stop_after(at);
        restore(&mut world).unwrap_err();
        world.faults.allow_all();
        if world.bed.workspace.interrupted().unwrap().is_some() && look(&world.bed.root) != world.new.1 {
            break;
        }
        let _ = world.bed.workspace.settle_interrupted(Direction::RollBack, &Control::default());
    }
    let (half, aside) = (look(&world.bed.root), world.bed.directory.path().join("aside"));
    fs::rename(&world.bed.root, &aside).unwrap();
    fs::create_dir(&world.bed.root).unwrap();
    fs::write(world.bed.root.join("other"), "x").unwrap();
    for mut workspace in [reopen(&world), reopen(&world)] {
        let settled = workspace.settle_interrupted(Direction::RollBack, &Control::default());
        assert!(matches!(settled, Err(Error::OtherDirectory { .. })), "{settled:?}");
        assert!(matches!(restore(&mut world), Err(Error::OtherDirectory { .. })), "the plan is not replaced");
    }
    assert_eq!(look(&world.bed.root).len(), 1, "nothing is written");
    fs::remove_dir_all(&world.bed.root).unwrap();
    fs::rename(&aside, &world.bed.root).unwrap();
    assert_eq!(look(&world.bed.root), half);
    reopen(&world).settle_interrupted(Direction::RollBack, &Control::default()).unwrap();
    assert_eq!(look(&world.bed.root), world.new.1);
}

#[test]
fn case_73_a_restore_that_cannot_be_rolled_back_says_so() {
    let mut world = world();
    let mut half = 0;
    for at in 0.. {
        world.faults.stop_after(at);
        let restored = restore(&mut world);
        world.faults.allow_all();
        let is_pending = world.bed.workspace.interrupted().unwrap().is_some();
        match restored {
            Ok(()) => break,
            Err(Error::HalfApplied { .. }) => half += 1,
            // The plan was saved, and nothing was changed yet.
            Err(error) => assert!(!is_pending || look(&world.bed.root) == world.new.1, "stopped after {at}: {error}"),
        }
        if !is_pending && look(&world.bed.root) == world.old.1 {
            // All was done, also the removal of the plan; only that was not synced.
            break;
        }
        let _ = world.bed.workspace.settle_interrupted(Direction::RollBack, &Control::default());
        assert_eq!(look(&world.bed.root), world.new.1, "stopped after {at}");
    }
    assert!(half > 20, "{half}");
}

#[test]
fn case_73_gc_keeps_what_an_interrupted_restore_needs() {
    for direction in [Direction::RollBack, Direction::Finish] {
        let mut world = world();
        for at in 0.. {
            world.faults.stop_after(at);
            restore(&mut world).unwrap_err();
            world.faults.allow_all();
            if world.bed.workspace.interrupted().unwrap().is_some() && look(&world.bed.root) != world.new.1 {
                break;
            }
            let _ = world.bed.workspace.settle_interrupted(Direction::RollBack, &Control::default());
        }
        // No journal names any of the files.
        world.bed.store.collect(&[], Removal::Remove, &Control::default()).unwrap();
        let applied = reopen(&world).settle_interrupted(direction, &Control::default()).unwrap();
        assert!(applied.is_verified(), "{applied:?}");
        let expected = if direction == Direction::Finish { &world.old.1 } else { &world.new.1 };
        assert!(look(&world.bed.root) == *expected, "{direction:?}");
    }
}

#[test]
fn case_73_a_restore_killed_at_any_point_can_be_finished() {
    sweep(Direction::Finish, restore_world, restore);
}

#[test]
fn case_73_a_restore_killed_at_any_point_can_be_rolled_back() {
    sweep(Direction::RollBack, restore_world, restore);
}

#[test]
fn case_73_a_restore_of_read_only_directories_killed_at_any_point_can_be_settled() {
    let prepare = || {
        let world = world_of(OLD_READ_ONLY, NEW_READ_ONLY);
        let (start, end) = (world.new.1.clone(), world.old.1.clone());
        (world, start, end)
    };
    for direction in [Direction::Finish, Direction::RollBack] {
        unprivileged(|| sweep(direction, prepare, restore));
    }
}

/// Returns a world in which the old state is the base, the new one is theirs, and ours has a change of its own.
fn merge_world() -> (World, Files, Files) {
    let mut world = world();
    world.bed.restore(&world.old.0.clone());
    shell(&world.bed.root, "echo own > own");
    let start = look(&world.bed.root);
    merge(&mut world).unwrap();
    let end = look(&world.bed.root);
    assert_ne!(start, end);
    let back = world.old.0;
    world.bed.restore(&back);
    shell(&world.bed.root, "echo own > own");
    assert_eq!(look(&world.bed.root), start);
    (world, start, end)
}

fn merge(world: &mut World) -> Result<(), Error> {
    let (base, theirs) = (world.old.0, world.new.0);
    let request = MergeRequest { base: &base, theirs: &theirs, force: Force::No };
    world.bed.workspace.merge(&request, &Control::default()).map(drop)
}

#[test]
fn case_73_a_merge_killed_at_any_point_can_be_finished() {
    sweep(Direction::Finish, merge_world, merge);
}

#[test]
fn case_73_a_merge_killed_at_any_point_can_be_rolled_back() {
    sweep(Direction::RollBack, merge_world, merge);
}

/// Killed, settled, killed again, and so on.
#[test]
fn a_restore_that_is_killed_repeatedly_can_be_settled_and_leaves_no_temporary_file() {
    for direction in [Direction::Finish, Direction::RollBack] {
        let (mut world, start, end) = restore_world();
        world.faults.stop_after(40);
        assert!(restore(&mut world).is_err());
        for allowed in 1.. {
            let mut workspace = reopen(&world);
            world.faults.stop_after(allowed);
            if workspace.settle_interrupted(direction, &Control::default()).is_ok() {
                break;
            }
            assert!(allowed < 200);
        }
        assert_eq!(look(&world.bed.root), if direction == Direction::Finish { end } else { start });
    }
}

#[test]
fn a_snapshot_killed_at_any_point_leaves_a_store_that_works() {
    for at in 0.. {
        let World { mut bed, faults, old, .. } = world();
        shell(&bed.root, "echo more > more");
        faults.stop_after(at);
        let is_done = bed.workspace.snapshot(&Control::default()).is_ok();
        faults.allow_all();
        let store = relive_workspace::Store::open(bed.store.path(), Disk::new(), 0).unwrap();
        let mut workspace = Workspace::open(&store, &bed.root, Settings::default()).unwrap();
        let taken = workspace.snapshot(&Control::default()).unwrap();
        assert!(!store.diff(&old.0, &taken.snapshot).unwrap().is_empty());
        let names = fs::read_dir(store.path().join("objects/pack")).unwrap();
        assert!(names.map(|entry| entry.unwrap().file_name()).all(|name| name.to_str().unwrap().starts_with("pack-")));
        bed.git(&["fsck", "--full", "--no-dangling"]);
        if is_done {
            return;
        }
    }
}

#[test]
fn a_collection_killed_at_any_point_loses_nothing_that_is_live() {
    for at in 0.. {
        let World { bed, faults, old, new } = world();
        faults.stop_after(at);
        let is_done =
            bed.store.collect(&[old.0, new.0], relive_workspace::Removal::Remove, &Control::default()).is_ok();
        faults.allow_all();
        let store = relive_workspace::Store::open(bed.store.path(), Disk::new(), 0).unwrap();
        let own = bed.directory.path().join("own");
        for (snapshot, files) in [&old, &new] {
            store.copy(snapshot, &own, &Control::default()).unwrap();
            assert_eq!(look(&own), *files, "stopped after {at}");
            fs::remove_dir_all(&own).unwrap();
        }
        if is_done {
            return;
        }
    }
}

#[test]
fn a_copy_killed_at_any_point_is_complete_or_absent() {
    for at in 0.. {
        let World { bed, faults, old, .. } = world();
        let own = bed.directory.path().join("own");
        faults.stop_after(at);
        let is_done = bed.store.copy(&old.0, &own, &Control::default()).is_ok();
        faults.allow_all();
        if own.exists() {
            assert_eq!(look(&own), old.1, "stopped after {at}");
        } else {
            bed.store.copy(&old.0, &own, &Control::default()).unwrap();
            assert_eq!(look(&own), old.1);
        }
        if is_done {
            return;
        }
    }
}

#[test]
fn case_75_a_stopped_removal_never_leaves_half_a_copy() {
    for at in 0.. {
        let world = world_of("echo 1 > a; mkdir d; echo 2 > d/b; echo 3 > d/c", "echo 2 > a");
        let own = world.bed.directory.path().join("own");
        world.bed.store.copy(&world.new.0, &own, &Control::default()).unwrap();
        let whole = look(&own);
        world.faults.stop_after(at);
        let is_done = world.bed.store.remove_copy(&own).is_ok();
        world.faults.allow_all();
        assert!(!own.exists() || look(&own) == whole, "stopped after {at}");
        let aside = world.bed.store.removed_copy(&own);
        assert!(!own.exists() || !aside.exists(), "stopped after {at}");
        world.bed.store.remove_copy(&own).unwrap();
        assert!(!own.exists() && !aside.exists(), "stopped after {at}");
        if is_done {
            assert!(at > 6, "the sweep saw only {at} changes");
            return;
        }
    }
}
