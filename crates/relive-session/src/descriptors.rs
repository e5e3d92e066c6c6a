//! Descriptors that a long-lived process must not keep.

/// Closes every descriptor apart from the standard ones. A shell passes all of its own on: a daemon that kept the end of
/// a pipe would keep its reader waiting, and one that kept a lock would hold it for as long as it runs.
///
/// Call it first in a process: it also closes descriptors that somebody in the process uses.
pub fn close_inherited() {
    // SAFETY: the call takes three numbers. No descriptor above the standard ones is in use yet.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}
