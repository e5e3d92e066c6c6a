//! Files that a snapshot leaves out, and files that it does not.

use std::fs;
use std::os::fd::AsRawFd as _;

use relive_workspace::{Grade, SkipReason, Skipped};

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
    assert_eq!(bed.snapshot().grade, Grade::Exact);
}
