//! The end of a session: its tree is empty, its log is complete, its record is on the disk, and every client is told.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use relive_sandbox::Places;

use super::Shim;
use crate::errno::is_of_disk;
use crate::exit::{EndedBy, ExitRecord, LastSignal, Used, VERSION};
use crate::spec::Names;
use crate::stage::SessionResult;
use crate::tree::{Ahead, has_no_children};

/// How long a tree is killed before it is left to the kernel: a process that waits for a dead disk cannot end.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// The longest wait between two kills.
const KILL_AGAIN: Duration = Duration::from_millis(50);
/// An output that a process outside the tree holds open is closed when it is silent for this long,
const QUIET: Duration = Duration::from_millis(200);
/// and in any case after this.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);
/// How long a disk that refuses the record is retried,
const DISK_PATIENCE: Duration = Duration::from_secs(600);
/// and how often.
const DISK_AGAIN: Duration = Duration::from_millis(200);
/// How long clients may take to receive the end.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(1);

impl Shim {
    pub(super) fn end(mut self) -> io::Result<()> {
        let oom_kills = self.tree.as_ref().map_or(0, |tree| tree.oom_kills());
        let is_empty = self.kill_until_empty()?;
        self.disable_planted();
        let left = if is_empty {
            // A process that is left needs what is mounted there.
            drop(self.places.take());
            Vec::new()
        } else {
            self.left()
        };
        self.drain()?;
        let mut record = self.record(oom_kills, left);
        // Before the record: a reader of the record does not look for leaves any more.
        if let Some(tree) = self.tree.take() {
            // A leaf with a process that cannot be killed stays; the record names the process.
            let _ = tree.remove();
        }
        // The name of the session is free from here on.
        let ahead = self.ahead.take().and_then(Ahead::take_back);
        self.leave(&mut record)?;
        let _ = self.directory.ctl_remove();
        let told = self.say_goodbye(&record);
        if ahead.as_ref().is_some_and(Ahead::is_orphaned) {
            // Leaving it takes a while, in which nothing else is held.
            drop(self);
            drop(ahead);
        } else {
            // The process exits now, which closes everything at once.
            std::mem::forget((self, ahead));
        }
        told
    }

    /// Disables a repository that the program planted in its working directory; `info` shows under DEGRADED if that is not
    /// possible.
    fn disable_planted(&mut self) {
        let disabled = self.places.as_mut().map_or(Ok(()), Places::disable_planted);
        if let (Err(error), Some(tree)) = (disabled, &mut self.tree) {
            tree.say_degraded(vec![error.to_string()]);
            // Only for `info`: it must not hold back the end.
            let _ = self.write_state(self.recorded);
        }
    }

    fn is_gone(&self) -> bool {
        // Processes that left the tree are still descendants.
        self.child_gone && self.tree.as_ref().is_none_or(|tree| tree.is_empty()) && has_no_children()
    }

    /// Returns whether nothing is left.
    fn kill_until_empty(&mut self) -> io::Result<bool> {
        let deadline = Instant::now() + KILL_PATIENCE;
        let mut pause = Duration::from_millis(1);
        loop {
            if self.is_gone() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            // A process that cannot be killed is tried again, and finally named in the record.
            let _ = self.kill();
            self.turn(Some(pause))?;
            pause = (pause * 2).min(KILL_AGAIN);
        }
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

    fn record(&self, oom_kills: u64, left: Vec<i32>) -> ExitRecord {
        let snapshot = self.session.snapshot();
        let result = snapshot.result.unwrap_or(SessionResult::Aborted);
        ExitRecord {
            version: VERSION,
            why: self.why(&result, oom_kills),
            by: self.sender(&result),
            last_signal: self.last_signal_before(&result),
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
            left,
        }
    }

    /// Returns the processes that could not be killed.
    fn left(&self) -> Vec<i32> {
        /// The record has to fit into the space reserved for it.
        const NAMED_MAX: usize = 100;
        let tree = self.tree.as_ref();
        let mut left = tree.map(|tree| tree.members()).unwrap_or_default();
        left.extend(tree.map(|tree| tree.escaped()).unwrap_or_default());
        left.sort_unstable();
        left.dedup();
        left.truncate(NAMED_MAX);
        left
    }

    /// Returns the sender of the signal that ended the program.
    fn sender(&self, result: &SessionResult) -> Option<u32> {
        match result {
            SessionResult::Signaled(number) => self.senders.get(number).copied(),
            SessionResult::Aborted => self.aborted_by,
            SessionResult::Exited(_) | SessionResult::Error(_) => None,
        }
    }

    fn last_signal_before(&self, result: &SessionResult) -> Option<LastSignal> {
        let SessionResult::Exited(_) = result else { return None };
        let (number, sent_at) = self.last_signal?;
        let before_end_ms = u64::try_from(sent_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        Some(LastSignal { number, by: self.senders.get(&number).copied(), before_end_ms })
    }

    fn why(&self, result: &SessionResult, oom_kills: u64) -> Option<EndedBy> {
        match *result {
            SessionResult::Aborted => Some(EndedBy::Abort),
            SessionResult::Signaled(libc::SIGKILL) if self.kill_asked => Some(EndedBy::Kill),
            SessionResult::Signaled(libc::SIGKILL) if oom_kills > 0 => Some(EndedBy::Oom),
            // It usually failed because of a child, however it handled that. A program that coped with it has not
            // failed.
            SessionResult::Exited(code) if oom_kills > 0 && code != 0 => Some(EndedBy::Oom),
            SessionResult::Signaled(number) => (self.sent & 1 << (number - 1) != 0).then_some(EndedBy::Signal),
            SessionResult::Exited(_) | SessionResult::Error(_) => None,
        }
    }

    /// Puts the output and the record on the disk, by one sync if that is enough.
    fn leave(&mut self, record: &mut ExitRecord) -> io::Result<()> {
        let ended = match self.names {
            Names::InOrder => serde_json::to_vec(record).ok().and_then(|bytes| self.log.append_exit(&bytes).ok()),
            Names::Apart => None,
        };
        let synced = self.log.sync();
        record.output_lost |= synced.is_err();
        if ended.is_some() && synced.is_ok() && self.directory.write_exit_unsynced(record).is_ok() {
            return Ok(());
        }
        self.leave_apart(record)
    }

    /// Writes the record. The clients are told at once if that fails, so that a program which spoilt its directory does
    /// not hold back its own end; only a disk that may recover is tried again.
    fn leave_apart(&mut self, record: &ExitRecord) -> io::Result<()> {
        let Err(error) = self.directory.write_exit(record) else { return Ok(()) };
        self.say_goodbye(record)?;
        let deadline = Instant::now() + DISK_PATIENCE;
        let mut may_recover = is_of_disk(&error);
        while may_recover && Instant::now() < deadline {
            self.turn(Some(DISK_AGAIN))?;
            may_recover = self.directory.write_exit(record).is_err_and(|error| is_of_disk(&error));
        }
        Ok(())
    }

    /// Sends the end to the clients. A client that does not receive it in time finds the record.
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

fn up_ms() -> u64 {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    since.tv_sec as u64 * 1000 + since.tv_nsec as u64 / 1_000_000
}

/// Returns the resources of all descendants, which were reaped by the shim or by one of them.
fn used() -> Used {
    // SAFETY: a structure owned here, to be written to.
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
