//! Stops and kills processes one by one, for trees without a cgroup.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::MARKER;
use crate::proc::{self, Identity, Stat};

const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How long a kill tries to stop all processes before it kills those it found.
const HOLD_MAX: Duration = Duration::from_millis(200);

/// Stops all of them, including new ones, until two looks in a row find no new and no running process. Processes that
/// had stopped themselves are not touched; the others are added to `stopped`.
pub(super) fn stop(
    members: impl Fn() -> io::Result<Vec<Identity>>,
    stopped: &mut HashSet<Identity>,
    at_most: Duration,
) -> io::Result<()> {
    let until = Instant::now() + at_most;
    let mut told = HashSet::new();
    let mut quiet_looks = 0;
    while quiet_looks < 2 {
        let mut quiet = true;
        for member in members()? {
            let now = Stat::of(member.pid).ok().filter(|stat| stat.identity == member && stat.lives());
            let Some(now) = now.filter(|stat| !is_stopped(*stat)) else { continue };
            // A process that was continued since is stopped again.
            if told.insert(member) || runs(now) {
                quiet = false;
                match signal(member, Signal::STOP) {
                    Ok(()) => {
                        stopped.insert(member);
                    }
                    // A process of another user cannot be stopped; the others can.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                    Err(error) => return Err(error),
                }
            }
        }
        quiet_looks = if quiet { quiet_looks + 1 } else { 0 };
        if Instant::now() > until {
            return Err(Errno::TIMEDOUT.into());
        }
        if !quiet {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
    Ok(())
}

fn is_stopped(stat: Stat) -> bool {
    matches!(stat.state, b'T' | b't')
}

/// Returns whether it may run now. A process that sleeps in the kernel (`D`) stops before it returns to its program.
fn runs(stat: Stat) -> bool {
    !is_stopped(stat) && stat.state != b'D' && stat.lives()
}

/// Returns whether there are some, and none of them may run now.
pub(super) fn are_stopped(members: &[Identity]) -> bool {
    let stopped = |member: &Identity| !Stat::of(member.pid).is_ok_and(|stat| stat.identity == *member && runs(stat));
    !members.is_empty() && members.iter().all(stopped)
}

/// Kills all of them; stopped first, so that no new ones are missed.
pub(super) fn kill(members: impl Fn() -> io::Result<Vec<Identity>>) -> io::Result<()> {
    match stop(&members, &mut HashSet::new(), HOLD_MAX) {
        Err(error) if error.kind() != io::ErrorKind::TimedOut => return Err(error),
        // Those that were found are killed anyway; the caller repeats this for the others.
        Ok(()) | Err(_) => {}
    }
    signal_all(&members()?, Signal::KILL)
}

/// Sends a signal to each of them, skipping those that have ended. A failure does not spare the others.
pub(crate) fn signal_all(members: &[Identity], number: Signal) -> io::Result<()> {
    let mut outcome = Ok(());
    for member in members {
        outcome = outcome.and(signal(*member, number));
    }
    outcome
}

fn signal(member: Identity, number: Signal) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(member.pid) else { return Ok(()) };
    let sent = rustix::process::pidfd_open(pid, PidfdFlags::empty()).and_then(|pidfd| {
        // Verified only now: the pid may have been reused before the descriptor was opened.
        if Identity::of(member.pid).is_ok_and(|now| now == member) {
            rustix::process::pidfd_send_signal(&pidfd, number)
        } else {
            Ok(())
        }
    });
    match sent {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether this process has no child, not even an unreaped one. A subreaper without a child has no descendants.
pub(crate) fn has_no_children() -> bool {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: numbers only, for which zero means nothing.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is owned here, to be written to; this reaps nobody.
    let looked = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut found, options) };
    looked < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD)
}

/// Returns the processes that a lost shim left behind: those with its session's marker, and, while the first process
/// lives, its group.
pub(super) fn strays(all: &[Stat], name: &str, root: Option<Identity>) -> Vec<Identity> {
    let in_group = |stat: &Stat| root.is_some_and(|root| stat.group == root.pid || stat.identity == root);
    let marked = |stat: &Stat| proc::environment_has(stat.identity.pid, MARKER, name);
    let me = std::process::id() as i32;
    let others = all.iter().filter(|stat| stat.identity.pid != me);
    others.filter(|stat| in_group(stat) || marked(stat)).map(|stat| stat.identity).collect()
}
