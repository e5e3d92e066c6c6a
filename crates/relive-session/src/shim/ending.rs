//! The end of a session: nothing of it is left, its log is whole, its record is on the disk, and everybody knows.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Shim;
use crate::exit::{EndedBy, ExitRecord, Used, VERSION};
use crate::stage::SessionResult;
use crate::tree::has_no_children;

/// How long a tree is killed before it is left to the kernel: a process that waits for a dead disk cannot end.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// The longest wait between two kills.
const KILL_AGAIN: Duration = Duration::from_millis(50);
/// An output that somebody outside the tree holds open is given up when it is silent for so long,
const QUIET: Duration = Duration::from_millis(200);
/// and in any case after this.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);
/// How long a disk that does not take the record is waited for,
const DISK_PATIENCE: Duration = Duration::from_secs(600);
/// and how often it is tried.
const DISK_AGAIN: Duration = Duration::from_millis(200);
/// How long those who are connected may take to hear the end.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(1);

impl Shim {
    pub(super) fn end(mut self) -> io::Result<()> {
        let oom_kills = self.tree.as_ref().map_or(0, |tree| tree.oom_kills());
        self.kill_until_empty()?;
        self.drain()?;
        self.output_lost |= self.log.sync().is_err();
        let record = self.record(oom_kills);
        // Before the record: whoever finds that does not look for leaves any more.
        if let Some(tree) = self.tree.take() {
            // A leaf with somebody in it whom nobody can kill stays; the record names them.
            let _ = tree.remove();
        }
        self.leave(&record)?;
        let _ = self.directory.ctl_remove();
        self.say_goodbye(&record)
    }

    fn is_gone(&self) -> bool {
        // Whoever left the tree is still below us.
        self.child_gone && self.tree.as_ref().is_none_or(|tree| tree.is_empty()) && has_no_children()
    }

    fn kill_until_empty(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + KILL_PATIENCE;
        let mut pause = Duration::from_millis(1);
        while !self.is_gone() && Instant::now() < deadline {
            // One that cannot be killed is tried again, and at last left and named.
            let _ = self.kill();
            self.turn(Some(pause))?;
            pause = (pause * 2).min(KILL_AGAIN);
        }
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + DRAIN_PATIENCE;
        let mut quiet_since = Instant::now();
        while self.stdio.as_ref().is_some_and(|stdio| !stdio.outputs().is_empty()) {
            let now = Instant::now();
            let until = deadline.min(quiet_since + QUIET);
            if now >= until {
                break;
            }
            if self.turn(Some(until - now))? {
                quiet_since = Instant::now();
            }
        }
        Ok(())
    }

    fn record(&self, oom_kills: u64) -> ExitRecord {
        let snapshot = self.session.snapshot();
        let result = snapshot.result.unwrap_or(SessionResult::Aborted);
        ExitRecord {
            version: VERSION,
            why: self.why(&result, oom_kills),
            result,
            host_pid: snapshot.host_pid,
            child_pid: snapshot.child_pid,
            at_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            up_ms: Some(up_ms()),
            log_end: self.log.end(),
            used: used(),
            output_lost: self.output_lost,
            timed_out: self.timed_out,
            oom_kills,
            left: self.left(),
        }
    }

    /// Those that no kill could end.
    fn left(&self) -> Vec<i32> {
        /// The record has to fit into the room that was set aside for it.
        const NAMED_MAX: usize = 100;
        let tree = self.tree.as_ref().filter(|_| !self.is_gone());
        let mut left = tree.map(|tree| tree.members()).unwrap_or_default();
        left.extend(tree.map(|tree| tree.escaped()).unwrap_or_default());
        left.sort_unstable();
        left.dedup();
        left.truncate(NAMED_MAX);
        left
    }

    fn why(&self, result: &SessionResult, oom_kills: u64) -> Option<EndedBy> {
        match *result {
            SessionResult::Aborted => Some(EndedBy::Abort),
            SessionResult::Signaled(libc::SIGKILL) if self.kill_asked => Some(EndedBy::Kill),
            SessionResult::Signaled(libc::SIGKILL) if oom_kills > 0 => Some(EndedBy::Oom),
            // It failed because of a child, as a rule, whatever it made of that. One that coped with it has not failed.
            SessionResult::Exited(code) if oom_kills > 0 && code != 0 => Some(EndedBy::Oom),
            SessionResult::Signaled(number) => (self.sent & 1 << (number - 1) != 0).then_some(EndedBy::Signal),
            SessionResult::Exited(_) | SessionResult::Error(_) => None,
        }
    }

    /// Writes the record, again and again on a disk that is full. At last those who are connected hear of it all the same.
    fn leave(&mut self, record: &ExitRecord) -> io::Result<()> {
        let deadline = Instant::now() + DISK_PATIENCE;
        while self.directory.write_exit(record).is_err() && Instant::now() < deadline {
            self.turn(Some(DISK_AGAIN))?;
        }
        Ok(())
    }

    /// Who does not take it in time finds the record.
    fn say_goodbye(&mut self, record: &ExitRecord) -> io::Result<()> {
        let deadline = Instant::now() + GOODBYE_PATIENCE;
        self.accept();
        self.flush(Some(record));
        while self.clients.iter().any(|client| !client.was_told_the_end()) && Instant::now() < deadline {
            self.turn(Some(Duration::from_millis(10)))?;
            self.flush(Some(record));
        }
        Ok(())
    }
}

/// Milliseconds since the boot.
fn up_ms() -> u64 {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    since.tv_sec as u64 * 1000 + since.tv_nsec as u64 / 1_000_000
}

/// Everybody who was below us has been reaped by us, or by somebody who was.
fn used() -> Used {
    // SAFETY: a structure of ours to be written to.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let milliseconds = |time: libc::timeval| (time.tv_sec * 1000 + time.tv_usec / 1000) as u64;
    Used {
        user_ms: milliseconds(usage.ru_utime),
        system_ms: milliseconds(usage.ru_stime),
        max_rss_kb: usage.ru_maxrss as u64,
    }
}
