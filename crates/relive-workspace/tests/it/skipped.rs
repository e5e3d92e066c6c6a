//! Files that a snapshot leaves out, and files that it does not.

use std::fs;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use relive_workspace::{Control, Grade, SkipReason, Skipped};

use crate::support::bed;

fn reasons(skipped: &[Skipped]) -> Vec<(String, SkipReason)> {
    skipped.iter().map(|skipped| (skipped.path.to_string(), skipped.reason)).collect()
}

#[test]
fn a_file_that_cannot_be_opened_is_skipped_and_the_others_are_kept() {
    let mut bed = bed();
    bed.write("a", "x");
    bed.write("leased", "x");
    let file = fs::OpenOptions::new().read(true).write(true).open(bed.path("leased")).unwrap();
    // While it is held, nobody else can open the file without waiting.
    // SAFETY: the descriptor is open, and no memory is passed. Nothing in this program uses the signal.
    let held = unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
    };
    assert_eq!(held, 0);
    let taken = bed.take();
    assert_eq!(reasons(&taken.skipped), [("leased".to_owned(), SkipReason::Unreadable)]);
    assert_eq!((taken.snapshot.grade, bed.ls_tree(&taken.snapshot)), (Grade::Partial, vec!["a".to_owned()]));
    drop(file);
    // A program that another test starts right now has the file open until it executes.
    while bed.snapshot().grade != Grade::Exact {
        std::thread::yield_now();
    }
}

#[test]
fn a_directory_with_a_path_too_long_for_the_kernel_is_skipped_and_the_rest_restored() {
    let mut bed = bed();
    let name = "d".repeat(250);
    // A shell cannot go that deep.
    let mut directory = std::os::fd::OwnedFd::from(fs::File::open(&bed.root).unwrap());
    for at in 1..=20 {
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        rustix::fs::mkdirat(&directory, &*name, 0o755.into()).unwrap();
        directory = rustix::fs::openat(&directory, &*name, flags, 0.into()).unwrap();
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, "file", flags, 0o644.into()).unwrap();
        writeln!(fs::File::from(file), "{at}").unwrap();
    }
    let taken = bed.take();
    let skipped = vec![&*name; 16].join("/");
    assert_eq!(reasons(&taken.skipped), [(skipped, SkipReason::TooDeep)]);
    assert_eq!((taken.snapshot.grade, taken.files), (Grade::Partial, 15));
    let last = format!("{}/file", vec![&*name; 15].join("/"));
    bed.write(&last, "changed");
    let restored = bed.force_restore(&taken.snapshot).unwrap();
    assert!(restored.applied.is_verified(), "{:?}", restored.applied);
    assert_eq!(bed.read(&last), "15\n");
    let copied = bed.store.copy(&taken.snapshot, &bed.directory.path().join("copy"), &Control::default()).unwrap();
    assert_eq!(copied.files, 15);
}

#[test]
fn a_file_of_the_user_that_is_called_like_a_temporary_one_is_kept() {
    let mut bed = bed();
    bed.write(".relive-notes.tmp", "x");
    bed.write(".relive-0123456789abcdef-1.tmp", "left behind");
    let taken = bed.take();
    assert_eq!(bed.ls_tree(&taken.snapshot), [".relive-notes.tmp"]);
    assert_eq!(reasons(&taken.skipped), [(".relive-0123456789abcdef-1.tmp".to_owned(), SkipReason::Temporary)]);
}
