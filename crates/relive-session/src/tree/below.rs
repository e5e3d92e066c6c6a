//! Ends everything below a process that is a subreaper, in whatever process group or session it is.

use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, wait};

use super::{has_no_children, sweep};
use crate::proc;

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Kills all descendants of the calling process, which has to be a subreaper, and reaps its children. Gives up after a time.
pub fn kill_all(at_most: Duration) {
    let until = Instant::now() + at_most;
    let me = std::process::id() as i32;
    while !has_no_children() && Instant::now() < until {
        // A process that cannot be killed, as that of another user, does not spare the others.
        let _ = sweep::kill(|| Ok(proc::descendants(&proc::all()?, &[me])));
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        std::thread::sleep(LOOK_AGAIN);
    }
}
