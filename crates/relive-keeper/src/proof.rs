//! Verifies that a client holds the data directory.
//!
//! The lock of a data directory belongs to an open file description, and the daemon sends its own. If another
//! description of the same file cannot be locked, somebody holds the lock; if the received one can be locked, its
//! sender does. The copy is closed at once: the lock must not outlive the daemon.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;

const LOCK: &str = "lock";

/// Returns whether a descriptor holds the lock of the data directory.
#[must_use]
pub fn holds_lock(sent: OwnedFd, data: impl AsFd) -> bool {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(ours) = openat(data, LOCK, flags, Mode::empty()) else { return false };
    let (Ok(theirs), Ok(found)) = (fstat(&sent), fstat(&ours)) else { return false };
    if (theirs.st_dev, theirs.st_ino) != (found.st_dev, found.st_ino) {
        return false;
    }
    flock(&ours, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
        && flock(&sent, FlockOperation::NonBlockingLockExclusive).is_ok()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files as a person would")]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn only_the_description_that_has_the_lock_proves_it() {
        let directory = tempfile::tempdir().unwrap();
        let data = File::open(directory.path()).unwrap();
        let open =
            || File::options().create(true).truncate(false).write(true).open(directory.path().join(LOCK)).unwrap();
        let holder = open();
        assert!(!holds_lock(holder.try_clone().unwrap().into(), &data), "nobody holds it");
        assert!(holder.try_lock().is_ok(), "a look at the lock does not take it");
        assert!(holds_lock(holder.try_clone().unwrap().into(), &data));
        assert!(!holds_lock(open().into(), &data), "another description of the same file");
        assert!(!holds_lock(File::open("/dev/null").unwrap().into(), &data));
        let other = File::create(directory.path().join("other")).unwrap();
        other.try_lock().unwrap();
        assert!(!holds_lock(other.into(), &data), "the lock of another file");
        drop(holder);
        assert!(open().try_lock().is_ok(), "no copy of it is left");
    }
}
