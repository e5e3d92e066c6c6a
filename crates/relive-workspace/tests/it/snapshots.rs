//! The content and the cost of a snapshot.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use relive_workspace::{Control, Disk, Error, Grade, Limit, RefusedRoot, Settings, SkipReason, Skipped, Workspace};

use crate::support::{Bed, bed, path, run, shell};

fn reasons(skipped: &[Skipped]) -> Vec<(String, SkipReason)> {
    skipped.iter().map(|skipped| (skipped.path.to_string(), skipped.reason)).collect()
}

#[test]
fn an_unchanged_file_is_not_read_again() {
    let mut bed = bed();
    bed.write("a/b", "one");
    bed.write("c", "two");
    let first = bed.take();
    assert_eq!((first.files, first.bytes, first.read_bytes), (2, 6, 6));
    std::thread::sleep(Duration::from_millis(40));
    assert_eq!(bed.take().read_bytes, 6, "too recent to be trusted");
    let third = bed.take();
    assert_eq!((third.read_bytes, third.snapshot), (0, first.snapshot));
    bed.write("c", "three");
    assert_eq!(bed.take().read_bytes, 5);
}

#[test]
fn the_cache_is_saved_and_can_be_deleted() {
    let mut bed = bed();
    bed.write("a", "one");
    std::thread::sleep(Duration::from_millis(40));
    let first = bed.snapshot();
    bed.workspace.save_cache().unwrap();
    let mut again = Workspace::open(&bed.store, &bed.root, Settings::default()).unwrap();
    let taken = again.snapshot(&Control::default()).unwrap();
    assert_eq!((taken.read_bytes, taken.snapshot), (0, first));
    let states = bed.store.path().join("workspaces");
    let state = fs::read_dir(states).unwrap().next().unwrap().unwrap().path();
    fs::write(state.join("cache"), "not a cache").unwrap();
    let mut again = Workspace::open(&bed.store, &bed.root, Settings::default()).unwrap();
    let taken = again.snapshot(&Control::default()).unwrap();
    assert_eq!((taken.read_bytes, taken.snapshot), (3, first));
}

fn check_rewrites(bed: &mut Bed) {
    bed.write("a", "0000");
    let mut last = bed.snapshot();
    for number in 1..200 {
        fs::write(bed.path("a"), format!("{number:04}")).unwrap();
        let now = bed.snapshot();
        assert_ne!(now.tree, last.tree, "rewrite {number}");
        last = now;
    }
}

#[test]
fn a_rewrite_of_equal_length_at_the_same_time_is_detected() {
    check_rewrites(&mut bed());
}

#[test]
fn a_rewrite_is_detected_despite_coarse_file_times() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let mount = std::process::Command::new("mount").args(["-t", "ramfs", "none"]).arg(&path).status();
    if !mount.is_ok_and(|status| status.success()) {
        // Not root.
        return;
    }
    let inner = tempfile::tempdir_in(&path).unwrap();
    let mut bed = Bed::at(inner, Disk::new(), Settings::default());
    check_rewrites(&mut bed);
    check_names(&mut bed);
    drop(bed);
    run(std::process::Command::new("umount").arg(&path));
}

#[test]
fn a_reset_mtime_does_not_hide_a_change() {
    let mut bed = bed();
    bed.write("a", "one");
    shell(&bed.root, "touch -d 2020-01-01 a");
    std::thread::sleep(Duration::from_millis(40));
    let first = bed.snapshot();
    bed.snapshot();
    shell(&bed.root, "cp -p a ../reference; printf two > a; touch -r ../reference a");
    assert_ne!(bed.snapshot().tree, first.tree);
}

#[test]
fn files_with_times_in_the_future_are_read_again() {
    let mut bed = bed();
    bed.write("a", "one");
    shell(&bed.root, "touch -d 2099-01-01 a");
    std::thread::sleep(Duration::from_millis(40));
    bed.snapshot();
    assert_eq!(bed.take().read_bytes, 3);
}

#[test]
fn names_that_appear_and_disappear_at_once_are_detected() {
    check_names(&mut bed());
}

/// The names of a directory that has not changed are not read again.
fn check_names(bed: &mut Bed) {
    bed.write("d/a", "one");
    std::thread::sleep(Duration::from_millis(40));
    let mut last = bed.snapshot();
    for round in 0..100 {
        bed.write(&format!("d/{round}"), "new");
        let now = bed.snapshot();
        assert_ne!(now.tree, last.tree, "the file of round {round} is missing");
        last = now;
        fs::remove_file(bed.root.join(format!("d/{round}"))).unwrap();
        let now = bed.snapshot();
        assert_ne!(now.tree, last.tree, "the file of round {round} is still there");
        last = now;
    }
}

#[test]
fn a_reset_mtime_of_a_directory_does_not_hide_a_new_file() {
    let mut bed = bed();
    bed.write("d/a", "one");
    shell(&bed.root, "touch -d 2020-01-01 d");
    std::thread::sleep(Duration::from_millis(40));
    let first = bed.snapshot();
    bed.snapshot();
    shell(&bed.root, "touch -r d ../reference; printf two > d/b; touch -r ../reference d");
    assert_ne!(bed.snapshot().tree, first.tree);
}

#[test]
fn an_ignored_link_is_a_link_when_it_is_no_longer_ignored() {
    let mut bed = bed();
    bed.write(".gitignore", "link\nfifo\n");
    shell(&bed.root, "ln -s nowhere link; mkfifo fifo");
    std::thread::sleep(Duration::from_millis(40));
    bed.snapshot();
    bed.snapshot();
    // Its directory stays as it is.
    shell(&bed.root, "printf 'other\n' > .gitignore");
    let taken = bed.take();
    let skipped: Vec<_> = taken.skipped.iter().map(|skipped| (skipped.path.to_string(), skipped.reason)).collect();
    assert_eq!(skipped, [("fifo".to_owned(), SkipReason::Special)]);
    assert_eq!(taken.files, 2);
}

#[test]
fn names_that_are_left_out_are_reported_by_every_snapshot() {
    let mut bed = bed();
    bed.write("d/.env", "KEY=1");
    bed.write("d/a", "one");
    shell(&bed.root, "mkfifo d/fifo");
    std::thread::sleep(Duration::from_millis(40));
    let first = bed.take();
    assert_eq!(first.skipped_count, 2, "{:?}", first.skipped);
    for _ in 0..2 {
        assert_eq!(bed.take().skipped, first.skipped);
    }
}

#[test]
fn a_file_replaced_by_another_inode_is_detected() {
    let mut bed = bed();
    bed.write("a", "one");
    bed.write("b", "two");
    shell(&bed.root, "touch -d 2020-01-01 a b");
    std::thread::sleep(Duration::from_millis(40));
    let first = bed.snapshot();
    bed.snapshot();
    shell(&bed.root, "mv b a");
    assert_ne!(bed.snapshot().tree, first.tree);
}

#[test]
fn a_write_to_a_mapped_page_is_detected_by_the_next_snapshot() {
    // A program that maps the file: Python, if there is one.
    let has_python = std::process::Command::new("python3").arg("--version").output().is_ok();
    let mut bed = bed();
    let is_tmpfs = shell(&bed.root, "stat -f -c %T .").trim() == "tmpfs";
    if !has_python || is_tmpfs {
        return;
    }
    bed.write("a", vec![b'.'; 4096]);
    let script = "import mmap,sys\nf=open('a','r+b');m=mmap.mmap(f.fileno(),0)\nfor line in sys.stdin:\n m[0]=ord(line[0])\n print(line,end='',flush=True)";
    let mut python = std::process::Command::new("python3");
    python.current_dir(&bed.root).args(["-c", script]);
    let mut python = python.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) =
        (python.stdin.take().unwrap(), std::io::BufReader::new(python.stdout.take().unwrap()));
    let mut store = |letter: &str| {
        let mut answer = String::new();
        writeln!(input, "{letter}").unwrap();
        std::io::BufRead::read_line(&mut output, &mut answer).unwrap();
    };
    let mut last = bed.snapshot().tree;
    for letter in ["x", "y", "z", "1", "2"] {
        store(letter);
        let now = bed.snapshot().tree;
        assert_ne!(now, last, "store of {letter}");
        last = now;
        // Long enough for the file to be trusted again.
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(bed.snapshot().tree, last);
        bed.snapshot();
    }
    drop(input);
    python.wait().unwrap();
}

#[test]
fn files_that_cannot_be_stored_are_listed_and_never_opened() {
    let mut bed = bed();
    bed.write("kept", "x");
    shell(&bed.root, "mkfifo pipe; ln -s /dev/zero device-link; ln -s loop loop; ln -s nowhere dangling");
    // Not everybody may make a device.
    shell(&bed.root, "mknod device c 1 5 2>&1 || true");
    let has_device = bed.path("device").symlink_metadata().is_ok();
    let socket = std::os::unix::net::UnixListener::bind(bed.path("socket")).unwrap();
    let begun = Instant::now();
    let taken = bed.take();
    drop(socket);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(taken.snapshot.grade, Grade::Partial);
    let names = ["device", "pipe", "socket"].into_iter().filter(|name| has_device || *name != "device");
    let expected: Vec<_> = names.map(|name| (name.to_owned(), SkipReason::Special)).collect();
    assert_eq!(reasons(&taken.skipped), expected);
    assert_eq!(bed.ls_tree(&taken.snapshot), ["dangling", "device-link", "kept", "loop"]);
}

#[test]
fn a_large_or_sparse_file_is_skipped_without_being_read() {
    let mut bed = bed();
    bed.write("small", "x");
    let mut file = fs::File::create(bed.path("sparse")).unwrap();
    file.seek(SeekFrom::Start(4 << 30)).unwrap();
    file.write_all(b"end").unwrap();
    let begun = Instant::now();
    let taken = bed.take();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(reasons(&taken.skipped), [("sparse".to_owned(), SkipReason::TooLarge)]);
    assert_eq!(taken.snapshot.grade, Grade::Partial);
    assert_eq!(bed.ls_tree(&taken.snapshot), ["small"]);
}

#[test]
fn a_file_larger_than_memory_buffers_is_streamed() {
    let mut bed = bed();
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    bed.write("large", &bytes);
    let snapshot = bed.snapshot();
    let change = &bed.store.diff(&snapshot, &snapshot).unwrap();
    assert!(change.is_empty());
    let id = bed.store.state(&snapshot, &path("large")).unwrap().unwrap().id.unwrap();
    assert!(bed.store.blob(id).unwrap() == bytes);
    let read = run(std::process::Command::new("sh")
        .args(["-c", "git --git-dir=$0 cat-file blob $1 | sha256sum"])
        .arg(bed.store.path())
        .arg(id.to_string()));
    assert_eq!(read, run(std::process::Command::new("sh").args(["-c", "sha256sum < $0"]).arg(bed.path("large"))));
}

#[test]
fn a_file_that_changes_constantly_makes_the_snapshot_moving() {
    let mut bed = bed();
    bed.write("a", vec![0; 16 << 20]);
    let (stop, file) = (Arc::new(AtomicBool::new(false)), fs::File::options().write(true).open(bed.path("a")).unwrap());
    let writer = std::thread::spawn({
        let stop = stop.clone();
        move || {
            for number in 0_u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                file.write_all_at(&number.to_le_bytes(), 0).unwrap();
            }
        }
    });
    // The writer may not run during every read, but it will during some.
    let taken = (0..100).map(|_| bed.take()).find(|taken| taken.snapshot.grade != Grade::Exact).unwrap();
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert_eq!((taken.snapshot.grade, taken.moving), (Grade::Moving, vec![path("a")]));
    assert_eq!(bed.take().snapshot.grade, Grade::Exact);
}

#[test]
fn changes_during_a_walk_end_in_the_same_tree_as_a_full_read() {
    let mut bed = bed();
    for number in 0..300 {
        bed.write(&format!("d{}/f{number}", number % 20), "x");
    }
    for round in 0..10 {
        let root = bed.root.clone();
        let churn = std::thread::spawn(move || {
            for number in 0..300 {
                let (from, to) =
                    (root.join(format!("d{}/f{number}", number % 20)), root.join(format!("d{}/g", number % 20)));
                let _ = fs::rename(&from, &to).and_then(|()| fs::rename(&to, &from));
                let _ = fs::write(root.join(format!("d{}/new{round}-{number}", number % 20)), "y");
            }
        });
        let during = bed.take();
        assert!(bed.store.diff(&during.snapshot, &during.snapshot).is_ok());
        bed.git(&["ls-tree", "-r", "-l", &during.snapshot.tree.to_string()]);
        churn.join().unwrap();
        let cached = bed.snapshot();
        let mut fresh = Workspace::open(&bed.store, &bed.root, Settings::default()).unwrap();
        let full = fresh.snapshot(&Control::default()).unwrap();
        assert_eq!((cached, cached.grade), (full.snapshot, Grade::Exact));
    }
}

#[test]
fn limits_refuse_the_whole_directory() {
    let settings = Settings { max_files: 5, ..Settings::default() };
    let mut bed = Bed::new(Disk::new(), settings);
    (0..6).for_each(|number| bed.write(&format!("f{number}"), "x"));
    let error = bed.workspace.snapshot(&Control::default()).unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: Limit::Files, most: 5, .. }), "{error}");
    let settings = Settings { max_total_bytes: 5, ..Settings::default() };
    let mut bed = Bed::new(Disk::new(), settings);
    bed.write("a", "123456");
    let error = bed.workspace.snapshot(&Control::default()).unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: Limit::TotalBytes, .. }), "{error}");
    let settings = Settings { time_limit: Some(Duration::ZERO), ..Settings::default() };
    let mut bed = Bed::new(Disk::new(), settings);
    let error = bed.workspace.snapshot(&Control::default()).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert_eq!(bed.store.pack_count(), 0, "nothing is left behind");
}

#[test]
fn a_cancelled_snapshot_leaves_nothing() {
    let mut bed = bed();
    bed.write("a", "x");
    let control = Control::default().with_cancel(Arc::new(AtomicBool::new(true)));
    assert!(matches!(bed.workspace.snapshot(&control), Err(Error::Cancelled)));
    assert_eq!(fs::read_dir(bed.store.path().join("objects/pack")).unwrap().count(), 0);
}

#[test]
fn the_root_the_home_and_the_store_are_refused_as_workspaces() {
    let bed = bed();
    let own = bed.root.join("home/me/own");
    let home = Settings { home: Some(bed.root.join("home/me")), private: vec![own.clone()], ..Settings::default() };
    fs::create_dir_all(bed.root.join("home/me/project")).unwrap();
    fs::create_dir_all(own.join("copy")).unwrap();
    let open = |path: &std::path::Path| match Workspace::open(&bed.store, path, home.clone()) {
        Ok(_) => None,
        Err(Error::RefusedRoot { why, .. }) => Some(why),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(open("/".as_ref()), Some(RefusedRoot::FileSystemRoot));
    assert_eq!(open(&bed.root.join("home/me")), Some(RefusedRoot::Home));
    assert_eq!(open(&bed.root), Some(RefusedRoot::Home));
    assert_eq!(open(&bed.root.join("home/me/project")), None);
    assert_eq!((open(&own), open(&own.join("copy"))), (Some(RefusedRoot::Private), None));
    assert_eq!(open(&bed.store.path().join("objects")), Some(RefusedRoot::Store));
    fs::write(bed.root.join("file"), "").unwrap();
    assert_eq!(open(&bed.root.join("file")), Some(RefusedRoot::NotADirectory));
}

#[test]
fn the_store_and_private_directories_are_never_in_a_snapshot() {
    let bed = bed();
    let above = bed.directory.path();
    fs::create_dir(above.join("private")).unwrap();
    fs::write(above.join("private/key"), "x").unwrap();
    bed.write("file", "x");
    let settings = Settings { private: vec![above.join("private")], ..Settings::default() };
    let mut workspace = Workspace::open(&bed.store, above, settings).unwrap();
    let taken = workspace.snapshot(&Control::default()).unwrap();
    assert_eq!(bed.ls_tree(&taken.snapshot), ["work/file"]);
}

#[test]
fn other_file_systems_are_skipped() {
    let mut bed = bed();
    bed.write("a", "x");
    fs::create_dir(bed.path("mounted")).unwrap();
    let mount = |arguments: &[&str]| {
        std::process::Command::new("mount")
            .args(arguments)
            .arg(bed.path("mounted"))
            .status()
            .is_ok_and(|status| status.success())
    };
    if !mount(&["-t", "tmpfs", "none"]) {
        // Not root.
        return;
    }
    bed.write("mounted/inside", "x");
    let taken = bed.take();
    run(std::process::Command::new("umount").arg(bed.path("mounted")));
    assert_eq!(reasons(&taken.skipped), [("mounted".to_owned(), SkipReason::OtherFileSystem)]);
    // The workspace itself, mounted inside of itself, is on the same file system.
    run(std::process::Command::new("mount").arg("--bind").arg(&bed.root).arg(bed.path("mounted")));
    let taken = bed.take();
    run(std::process::Command::new("umount").arg(bed.path("mounted")));
    assert_eq!(reasons(&taken.skipped), [("mounted".to_owned(), SkipReason::OtherFileSystem)]);
}

#[test]
fn names_of_any_bytes_and_deep_directories_are_kept() {
    let mut bed = bed();
    let names: [&[u8]; 6] = [b"new\nline", b"caf\xe9", b"\xff\xfe", b" ", b"\"quoted\\\"", b"-rf"];
    for name in names {
        fs::write(bed.root.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    let deep = vec!["d"; 150].join("/");
    bed.write(&format!("{deep}/file"), "x");
    let taken = bed.take();
    assert_eq!((taken.snapshot.grade, taken.files), (Grade::Exact, 7));
    let too_deep = vec!["d"; 201].join("/");
    bed.write(&format!("{too_deep}/file"), "x");
    let taken = bed.take();
    assert_eq!(reasons(&taken.skipped), [(too_deep, SkipReason::TooDeep)]);
}

#[test]
fn set_id_bits_are_reported_and_the_bytes_stored() {
    let mut bed = bed();
    bed.write("tool", "x");
    bed.chmod("tool", 0o4755);
    let taken = bed.take();
    assert_eq!(reasons(&taken.skipped), [("tool".to_owned(), SkipReason::SetIdBits)]);
    assert_eq!((bed.ls_tree(&taken.snapshot).len(), taken.snapshot.grade), (1, Grade::Exact));
    bed.remove("tool");
    let request = relive_workspace::RestoreRequest {
        target: &taken.snapshot,
        expected: None,
        paths: &[],
        force: relive_workspace::Force::No,
    };
    assert_eq!(
        bed.workspace.plan_restore(&request, &Control::default()).unwrap().without_bits,
        vec!["tool".parse::<relive_workspace::FilePath>().unwrap()]
    );
    bed.workspace.restore(&request, &Control::default()).unwrap();
    assert_eq!(fs::metadata(bed.path("tool")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn a_directory_that_was_replaced_is_opened_again() {
    let mut bed = bed();
    bed.write("a", "old");
    bed.snapshot();
    fs::remove_dir_all(&bed.root).unwrap();
    bed.write("b", "new");
    let snapshot = bed.snapshot();
    assert_eq!(bed.ls_tree(&snapshot), ["b"]);
}
