//! A shim that is started before it is needed.
//!
//! Executing and linking a program takes longer than all that a shim does for a launch. So after each launch the next shim is
//! started, and waits: it knows nothing yet, and ends as soon as its owner is gone. It becomes the shim of a session in two
//! steps. First it gets the spec and the path of the directory, and says that others can find it by that path now; then it
//! gets the directory's lock, without which it launches nothing. An owner that dies in between has launched nothing. A spare
//! that does not answer, or whose priority or limits somebody has changed, never gets the lock, and the session gets a shim
//! that is started for it.
//!
//! Where cgroups are of the first version it also joins the one that will limit the processes of its session, as soon as the
//! session before has ended: the kernel creates and removes no cgroups meanwhile.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use super::attributes::Attributes;
use super::spare_backoff::SpareBackoff;
use super::start::{self, Started};
use crate::proc::Identity;
use crate::tree::Plan;
use crate::{SHIM, faults, packet, proc};

/// The room for the path of a session's directory in the command line of a spare. A session with a longer one gets a shim that
/// is started for it.
pub(crate) const PATH_ROOM: usize = 1024;
/// Begins what fills that room until the path is known; then comes its owner. It is no path of a session: those are absolute.
const FILLER: &str = "waits-for-a-session-of";
/// What filled that room in earlier versions, which did not tell the owner.
const FILLER_WITHOUT_OWNER: &str = "waits-for-a-session";
/// More than an order takes.
pub(crate) const ORDER_MAX: usize = 8 * 1024;
/// The answer of a spare to [`Order::Become`].
pub(crate) const READY: &[u8] = b"ready";
/// How long a spare may take to answer. One that was stopped does not.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// What a spare is told, in this order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Do beforehand what a session with such a tree will need.
    Prepare { plan: Plan },
    /// Be found as the shim of the session in this directory, whose spec comes with it. Answered with [`READY`].
    Become { directory: PathBuf },
    /// Launch the session, whose lock comes with it.
    Launch,
}

/// A shim that waits for its session.
#[derive(Debug)]
struct Spare {
    socket: OwnedFd,
    pidfd: OwnedFd,
    pid: i32,
    is_prepared: bool,
    /// Those of this process when it was started.
    attributes: Attributes,
}

/// At most one spare of a launcher.
#[derive(Debug, Clone, Default)]
pub(super) struct Spares {
    next: Arc<Mutex<Next>>,
}

#[derive(Debug, Default)]
struct Next {
    spare: Option<Spare>,
    is_starting: bool,
    backoff: SpareBackoff,
}

/// Returns whether this is the first argument of a spare.
pub(crate) fn is_filler(argument: &[u8]) -> bool {
    argument.len() == PATH_ROOM && argument.starts_with(FILLER.as_bytes())
}

/// Returns whether this is the first argument of a spare of an earlier version, whose owner is not known.
fn is_without_owner(argument: &[u8]) -> bool {
    argument.len() == PATH_ROOM && argument.trim_ascii_end() == FILLER_WITHOUT_OWNER.as_bytes()
}

/// Returns whether this is the first argument of a spare whose owner is gone or not known.
fn is_alone(argument: &[u8]) -> bool {
    let has_lost_owner = || owner_in(argument).is_some_and(|owner| !owner.lives());
    is_without_owner(argument) || is_filler(argument) && has_lost_owner()
}

/// Returns the process that a spare with this first argument waits for.
fn owner_in(argument: &[u8]) -> Option<Identity> {
    let mut numbers = std::str::from_utf8(argument).ok()?.strip_prefix(FILLER)?.split_ascii_whitespace();
    Some(Identity { pid: numbers.next()?.parse().ok()?, start_time: numbers.next()?.parse().ok()? })
}

/// Returns the first argument of a spare of this owner.
fn filler(owner: Identity) -> String {
    format!("{:<PATH_ROOM$}", format!("{FILLER} {} {}", owner.pid, owner.start_time))
}

/// Lets every stopped spare whose owner is gone, or not known, continue, so that it notices that. One whose owner lives
/// keeps waiting.
pub(crate) fn rouse_stopped() -> io::Result<()> {
    for (spare, argument) in proc::shims()? {
        let argument = argument.as_os_str().as_bytes();
        let is_stopped = || proc::Stat::of(spare.pid).is_ok_and(|stat| stat.identity == spare && stat.state == b'T');
        if is_alone(argument) && is_stopped() {
            // One of another user is that user's.
            let _ = crate::tree::signal_all(&[spare], Signal::CONT);
        }
    }
    Ok(())
}

impl Spares {
    fn next(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pid of the spare, if there is one.
    pub(super) fn waiting(&self) -> Option<i32> {
        self.next().spare.as_ref().map(|spare| spare.pid)
    }

    /// Makes the spare the shim of the session in this directory, and returns the connection to it. Nothing if there is none,
    /// or none of use: then it holds nothing, and never will. Blocks until it answers.
    pub(super) fn employ(&self, directory: &Path, lock: &OwnedFd, spec: &OwnedFd) -> Option<OwnedFd> {
        let fits = directory.as_os_str().len() < PATH_ROOM && directory.to_str().is_some();
        let spare = if fits { self.next().spare.take()? } else { return None };
        let employed = spare.tell(directory, lock, spec);
        let mut next = self.next();
        match employed {
            Ok(()) => {
                next.backoff.succeeded();
                Some(spare.socket)
            }
            Err(_) => {
                next.backoff.failed(Instant::now());
                // It may have gone by itself.
                let _ = rustix::process::pidfd_send_signal(&spare.pidfd, Signal::KILL);
                None
            }
        }
    }

    /// Lets the spare prepare itself for a session with such a tree.
    pub(super) fn prepare(&self, plan: Plan) {
        let mut next = self.next();
        if let Some(spare) = next.spare.as_mut().filter(|spare| !spare.is_prepared && plan.v1_pids.is_some()) {
            spare.is_prepared = true;
            // One that is gone is noticed when it is needed.
            let order = serde_json::to_vec(&Order::Prepare { plan });
            let _ = order.map(|order| packet::send(&spare.socket, &[&order], None));
        }
    }

    /// Starts the next spare, unless there is one, and returns its process. Blocks until it executes.
    pub(super) fn refill(&self, program: &Path) -> Option<Started> {
        {
            let mut next = self.next();
            if next.spare.is_some() || next.is_starting || !next.backoff.may_start(Instant::now()) {
                return None;
            }
            next.is_starting = true;
        }
        // Without a spare the next launch takes longer, and tells what is wrong.
        let (spare, started) = Spare::start(program).ok().unzip();
        let mut next = self.next();
        (next.spare, next.is_starting) = (spare, false);
        started
    }
}

impl Spare {
    fn start(program: &Path) -> io::Result<(Self, Started)> {
        let (socket, theirs) = super::pair()?;
        let null = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let owner = Identity::of(rustix::process::getpid().as_raw_nonzero().get())?;
        let argv = [CString::new(SHIM)?, CString::new(filler(owner))?];
        let program = CString::new(program.as_os_str().as_bytes())?;
        let attributes = Attributes::of(0)?;
        let started = start::start(&program, &argv, [theirs, null()?, null()?])?;
        match started.pidfd.try_clone() {
            Ok(pidfd) => {
                let pid = started.pid.as_raw_nonzero().get();
                Ok((Self { socket, pidfd, pid, is_prepared: false, attributes }, started))
            }
            Err(error) => {
                let _ = rustix::process::pidfd_send_signal(&started.pidfd, Signal::KILL);
                let _ = rustix::process::waitpid(Some(started.pid), WaitOptions::empty());
                Err(error)
            }
        }
    }

    fn tell(&self, directory: &Path, lock: &OwnedFd, spec: &OwnedFd) -> io::Result<()> {
        let send = |order: &Order, descriptor: &OwnedFd| {
            packet::send(&self.socket, &[&serde_json::to_vec(order)?], Some(descriptor.as_fd()))
        };
        send(&Order::Become { directory: directory.to_owned() }, spec)?;
        faults::die_at("spare-told");
        self.hear_ready()?;
        faults::die_at("spare-ready");
        if Attributes::of(self.pid)? != self.attributes {
            // Somebody has changed them while it waited. The program would have them, for no reason that its user could see.
            return Err(io::ErrorKind::InvalidData.into());
        }
        if faults::is_on("spare-stopped") {
            rustix::process::pidfd_send_signal(&self.pidfd, Signal::STOP)?;
        }
        send(&Order::Launch, lock)?;
        faults::die_at("spare-launched");
        Ok(())
    }

    fn hear_ready(&self) -> io::Result<()> {
        let until = Instant::now() + ANSWER_PATIENCE;
        let mut answer = [0; READY.len()];
        loop {
            match packet::receive(&self.socket, &mut answer) {
                Ok(received) if answer[..received.length] == *READY => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let left = until.checked_duration_since(Instant::now()).ok_or(io::ErrorKind::TimedOut)?;
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match rustix::event::poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_is_told_from_the_shim_of_a_session_by_its_argument() {
        let owner = Identity { pid: 4_000_000, start_time: u64::MAX };
        let filler = filler(owner);
        assert!(is_filler(filler.as_bytes()));
        assert_eq!(owner_in(filler.as_bytes()), Some(owner));
        assert!(!is_filler(b"/data/steps/0190/sessions/1"));
        assert!(!is_filler(format!("/{}", &filler[1..]).as_bytes()));
        assert!(!is_filler(b"--probe"));
        assert!(!is_without_owner(filler.as_bytes()));
    }

    #[test]
    fn a_spare_is_alone_if_its_owner_is_gone_or_not_known() {
        let this = Identity::of(rustix::process::getpid().as_raw_nonzero().get()).unwrap();
        let check = |argument: &str, expect| assert_eq!(is_alone(argument.as_bytes()), expect, "{argument:?}");
        check(&filler(this), false);
        check(&filler(Identity { start_time: this.start_time + 1, ..this }), true);
        check(&format!("{FILLER_WITHOUT_OWNER:<PATH_ROOM$}"), true);
        check(FILLER_WITHOUT_OWNER, false);
        check("/data/steps/0190/sessions/1", false);
    }
}
