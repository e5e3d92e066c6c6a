//! Links that lead out of a workspace or out of the store, from the beginning or while files are changed: nothing outside
//! is ever written, removed or given other permissions.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use relive_workspace::{
    Control, Direction, Disk, Faults, Force, MergeRequest, Removal, RestoreRequest, Settings, Snapshot, Store,
    Workspace,
};

use crate::support::{Bed, Random, look, shell};

fn bed() -> (Bed, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    (Bed::new(Disk::with_faults(faults.clone()), Settings::default()), faults)
}

/// Files outside of the workspace with the names and contents of those in it.
struct Outside {
    path: PathBuf,
    before: std::collections::BTreeMap<Vec<u8>, crate::support::Seen>,
}

impl Outside {
    fn new(bed: &Bed, script: &str) -> Self {
        let path = bed.directory.path().join("outside");
        fs::create_dir(&path).unwrap();
        shell(&path, script);
        let before = look(&path);
        Self { path, before }
    }

    fn check(&self, what: &str) {
        assert_eq!(look(&self.path), self.before, "{what}");
    }
}

/// Calls `attempt` with 0, 1, 2 and so on, until it returns that there were not so many changes.
fn at_each_change(mut attempt: impl FnMut(u64) -> u64) {
    for at in 0.. {
        if attempt(at) <= at {
            assert!(at > 3, "there were only {at} changes");
            return;
        }
    }
}

/// Puts a link in the place of a file or directory, which gets another name.
fn redirect(path: &Path, target: &Path) {
    if fs::rename(path, path.with_extension("moved")).is_ok() {
        symlink(target, path).unwrap();
    }
}

fn restore(workspace: &mut Workspace, target: &Snapshot, force: Force) -> bool {
    let request = RestoreRequest { target, expected: None, paths: &[], force };
    workspace.restore(&request, &Control::default()).is_ok_and(|restored| restored.applied.is_verified())
}

const OLD: &str = "mkdir -p d; echo 1 > changed; echo 1 > gone; echo 1 > d/deep; echo 1 > mode; chmod 644 mode";
const NEW: &str = "echo 2 > changed; rm gone; echo 2 > d/deep; chmod 600 mode; echo 2 > more; mkdir e; echo 2 > e/new";
/// The same names as after the change, where a write through a link would be seen.
const DECOYS: &str = "mkdir d e; echo 2 > changed; echo 2 > d/deep; echo 1 > mode; chmod 600 mode; echo 2 > more; \
     echo 2 > e/new; chmod 700 d e";

#[test]
fn a_link_that_takes_the_place_of_a_file_is_never_followed() {
    let targets: [fn(&Path, &str) -> PathBuf; 4] = [
        |outside, name| outside.join(name),
        |_, name| Path::new("../outside").join(name),
        |outside, _| outside.join("nothing"),
        |outside, _| outside.to_owned(),
    ];
    for target in targets {
        at_each_change(|at| {
            let (mut bed, faults) = bed();
            shell(&bed.root, OLD);
            let old = bed.snapshot();
            shell(&bed.root, NEW);
            bed.snapshot();
            let outside = Outside::new(&bed, DECOYS);
            let (root, path) = (bed.root.clone(), outside.path.clone());
            faults.before_each_change(move |number| {
                if number == at {
                    ["changed", "mode", "more"]
                        .iter()
                        .for_each(|name| redirect(&root.join(name), &target(&path, name)));
                }
            });
            restore(&mut bed.workspace, &old, Force::No);
            outside.check(&format!("before change {at}"));
            faults.changes()
        });
    }
}

#[test]
fn links_that_are_there_from_the_beginning_are_replaced_by_files_and_files_by_links() {
    let (mut bed, _) = bed();
    let outside = Outside::new(&bed, DECOYS);
    shell(&bed.root, OLD);
    let files = bed.snapshot();
    shell(
        &bed.root,
        "rm -r changed d mode; ln -s ../outside/changed changed; ln -s ../outside/d d; ln -s ../outside/nothing mode",
    );
    let links = bed.snapshot();
    for (target, name) in [(&files, "files"), (&links, "links"), (&files, "files again")] {
        assert!(restore(&mut bed.workspace, target, Force::No), "{name}");
        assert!(bed.snapshot().is_same_files(target), "{name}");
        outside.check(name);
    }
}

#[test]
fn a_file_with_a_name_outside_is_replaced_and_the_other_name_keeps_its_version() {
    let (mut bed, _) = bed();
    let outside = Outside::new(&bed, "echo 2 > changed; echo 1 > mode; chmod 600 mode; echo 2 > more");
    shell(&bed.root, "echo 1 > changed; echo 1 > mode; chmod 644 mode");
    let old = bed.snapshot();
    shell(&bed.root, "ln -f ../outside/changed changed; ln -f ../outside/mode mode; ln ../outside/more more");
    bed.snapshot();
    assert!(restore(&mut bed.workspace, &old, Force::Yes));
    assert_eq!((bed.read("changed"), bed.path("more").exists()), ("1\n".to_owned(), false));
    outside.check("after the restore");
}

#[test]
fn links_that_others_put_into_a_merge_are_never_followed() {
    at_each_change(|at| {
        let (mut bed, faults) = bed();
        shell(&bed.root, OLD);
        let old = bed.snapshot();
        shell(&bed.root, NEW);
        let theirs = bed.snapshot();
        bed.restore(&old);
        let outside = Outside::new(&bed, DECOYS);
        let (root, path) = (bed.root.clone(), outside.path.clone());
        faults.before_each_change(move |number| {
            if number == at {
                ["changed", "mode", "d", "e"].iter().for_each(|name| redirect(&root.join(name), &path.join(name)));
            }
        });
        let request = MergeRequest { base: &old, theirs: &theirs, force: Force::Yes };
        let _ = bed.workspace.merge(&request, &Control::default());
        outside.check(&format!("before change {at}"));
        faults.changes()
    });
}

#[test]
fn an_interrupted_plan_is_settled_without_following_links() {
    for direction in [Direction::Finish, Direction::RollBack] {
        at_each_change(|at| {
            let (mut bed, faults) = bed();
            shell(&bed.root, OLD);
            let old = bed.snapshot();
            shell(&bed.root, NEW);
            bed.snapshot();
            let outside = Outside::new(&bed, DECOYS);
            faults.stop_after(at);
            let is_done = restore(&mut bed.workspace, &old, Force::No);
            let changes = faults.changes();
            faults.allow_all();
            if !is_done {
                for entry in fs::read_dir(&bed.root).unwrap() {
                    let path = entry.unwrap().path();
                    redirect(&path, &outside.path.join(path.file_name().unwrap()));
                }
                let _ = bed.workspace.settle_interrupted(direction, &Control::default());
                outside.check(&format!("after change {at}, {direction:?}"));
            }
            changes
        });
    }
}

#[test]
fn links_that_others_put_into_a_copy_that_is_made_or_removed_are_never_followed() {
    for is_removed in [false, true] {
        at_each_change(|at| {
            let (mut bed, faults) = bed();
            shell(&bed.root, "mkdir -p d/e d/g/h; echo 1 > d/e/f; ln d/e/f d/e/same; echo 1 > d/f; echo 1 > a");
            let snapshot = bed.snapshot();
            let outside = Outside::new(&bed, "mkdir e; echo 2 > f; echo 2 > e/keep; chmod 500 e");
            let copy = bed.directory.path().join("copies/one");
            if is_removed {
                bed.store.copy(&snapshot, &copy, &Control::default()).unwrap();
                shell(&copy, "chmod 500 d/e");
            }
            let (above, path) = (copy.with_file_name(""), outside.path.clone());
            faults.before_each_change(move |number| {
                for name in [".one.relive-copy", ".one.relive-removed", "one"] {
                    let inner = above.join(name).join("d");
                    if number == at && inner.is_dir() && !inner.is_symlink() {
                        redirect(&inner, &path);
                    }
                }
            });
            let _ = match is_removed {
                true => bed.store.remove_copy(&copy),
                false => bed.store.copy(&snapshot, &copy, &Control::default()).map(drop),
            };
            outside.check(&format!("before change {at}, removed: {is_removed}"));
            faults.changes()
        });
    }
}

#[test]
fn links_in_the_store_are_never_written_through_and_never_swept() {
    for (name, is_directory) in [
        ("generation", false),
        ("lock", false),
        ("config", false),
        ("STATE/plan", false),
        ("STATE/cache", false),
        ("STATE/root", false),
        ("STATE/lock", false),
        ("objects/pack", true),
        ("STATE", true),
        ("workspaces", true),
    ] {
        for is_dangling in [false, true] {
            let (mut bed, faults) = bed();
            shell(&bed.root, OLD);
            let old = bed.snapshot();
            bed.workspace.save_cache().unwrap();
            let outside = Outside::new(&bed, "echo 7 > file; mkdir d; echo 1 > d/tmp_1; echo 1 > d/pack-1.pack");
            let states = fs::read_dir(bed.store.path().join("workspaces")).unwrap();
            let state = states.map(|entry| entry.unwrap().file_name()).next().unwrap();
            let name = name.replace("STATE", &format!("workspaces/{}", state.display()));
            let target = match (is_dangling, is_directory) {
                (true, _) => "nothing",
                (false, true) => "d",
                (false, false) => "file",
            };
            let planted = bed.store.path().join(&name);
            let _ = fs::rename(&planted, planted.with_extension("moved"));
            symlink(outside.path.join(target), &planted).unwrap();
            shell(&bed.root, NEW);
            let control = Control::default();
            let _ = bed.workspace.snapshot(&control);
            let _ = bed.workspace.save_cache();
            restore(&mut bed.workspace, &old, Force::Yes);
            let _ = bed.store.collect(&[], Removal::Remove, &control);
            if let Ok(store) = Store::open(bed.store.path(), Disk::with_faults(faults), 0) {
                let settings = Settings::default();
                let _ = Workspace::open(&store, &bed.root, settings).map(|mut again| again.snapshot(&control).is_ok());
            }
            outside.check(&format!("{name}, dangling: {is_dangling}"));
        }
    }
}

#[test]
fn what_others_put_in_the_place_of_temporary_files_of_the_store_is_no_obstacle() {
    let (mut bed, _) = bed();
    let outside = Outside::new(&bed, "echo 7 > file; mkdir d; echo 1 > d/f");
    shell(&bed.root, OLD);
    let old = bed.snapshot();
    let state = fs::read_dir(bed.store.path().join("workspaces")).unwrap().next().unwrap().unwrap().path();
    for planted in
        ["mkfifo NAME", "mkdir -p NAME/d", "ln -s ../../../outside/file NAME", "ln -s ../../../outside/d NAME"]
    {
        for name in ["plan.tmp", "cache.tmp"] {
            shell(&state, &planted.replace("NAME", name));
        }
        shell(&bed.root, "echo 3 > changed");
        bed.snapshot();
        bed.workspace.save_cache().unwrap();
        assert!(restore(&mut bed.workspace, &old, Force::No), "{planted}");
        outside.check(planted);
        shell(&state, "rm -rf plan.tmp cache.tmp");
    }
    // A killed process left the first, and another one is writing the second.
    shell(&state, "echo x > cache.0123456789abcdef.tmp; touch -d '1 hour ago' cache.0123456789abcdef.tmp");
    shell(
        &state,
        "echo x > cache.1123456789abcdef.tmp; echo x > cache.notes.tmp; touch -d '1 hour ago' cache.notes.tmp",
    );
    bed.workspace.save_cache().unwrap();
    let left: Vec<_> = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut left: Vec<_> = left.iter().filter_map(|name| name.to_str().filter(|name| name.ends_with("tmp"))).collect();
    left.sort_unstable();
    assert_eq!(left, ["cache.1123456789abcdef.tmp", "cache.notes.tmp"]);
}

#[test]
fn two_that_write_the_same_file_of_the_store_at_once_do_not_disturb_each_other() {
    let bed = Bed::new(Disk::new(), Settings::default());
    let other = Workspace::open(&bed.store, &bed.root, Settings::default()).unwrap();
    let save = |workspace: &Workspace| (0..200).try_for_each(|_| workspace.save_cache());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| save(&other));
        save(&bed.workspace).unwrap();
        thread.join().unwrap().unwrap();
    });
}

#[test]
fn another_program_that_keeps_swapping_files_for_links_never_leads_a_restore_outside() {
    let mut bed = Bed::new(Disk::new(), Settings::default());
    shell(&bed.root, OLD);
    let old = bed.snapshot();
    shell(&bed.root, NEW);
    let new = bed.snapshot();
    let outside = Outside::new(&bed, DECOYS);
    let is_over = AtomicBool::new(false);
    let (root, decoys) = (bed.root.clone(), outside.path.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(7);
            let aside = root.with_file_name("aside");
            while !is_over.load(Ordering::Relaxed) {
                let name = random.pick(&["changed", "mode", "d", "more"]);
                let (place, decoy) = (root.join(name), decoys.join(name));
                // A link to the decoy, or the decoy itself by another name, takes the place for a moment.
                let made = if random.below(2) == 0 { symlink(&decoy, &aside) } else { fs::hard_link(&decoy, &aside) };
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                let swap = || rustix::fs::renameat_with(rustix::fs::CWD, &aside, rustix::fs::CWD, &place, exchange);
                if made.is_ok() && swap().is_ok() {
                    std::thread::yield_now();
                    let _ = swap();
                }
                let _ = fs::remove_file(&aside).or_else(|_| fs::remove_dir_all(&aside));
            }
        });
        for round in 0..60 {
            restore(&mut bed.workspace, if round % 2 == 0 { &old } else { &new }, Force::Yes);
            let _ = bed.workspace.settle_interrupted(Direction::RollBack, &Control::default());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    outside.check("after all rounds");
}
