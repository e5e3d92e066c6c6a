//! The requests to a shim, and their answers.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::Shim;
use super::stdio::{Asked, Repeat};
use crate::errno;
use crate::packet;
use crate::protocol::{MessagePart, Outcome, PACKET_MAX, REQUEST_MAX, Request, STORED_MAX, Stat, Verb, WRITE_MAX};
use crate::stage::{Answer, Failure};
use crate::tree::Tree;

/// How long to wait for a freeze; output is not read in the meantime.
const FREEZE_PATIENCE: Duration = Duration::from_millis(300);
/// How long the main process of a frozen tree may be missing from it before it is not about to end.
const ENDING_PATIENCE: Duration = Duration::from_millis(50);
/// How many requests that sent a signal are remembered.
const SIGNALS_REMEMBERED: usize = 64;
/// The most members that `stat` lists.
const MEMBERS_MAX: usize = 1000;

/// The id of a request whose rest cannot be parsed.
#[derive(Deserialize)]
struct IdOnly {
    id: u64,
}

/// The answer to a request, and when it is sent.
enum Done {
    Now(Outcome, Option<OwnedFd>),
    /// When its input is in the pipe.
    Later,
}

/// A piece of input.
enum Piece<'a> {
    Bytes(Option<MessagePart>, &'a [u8]),
    /// The end of the input.
    End,
}

impl From<Outcome> for Done {
    fn from(outcome: Outcome) -> Self {
        Self::Now(outcome, None)
    }
}

impl Shim {
    /// Reads one request of a connection, and answers it.
    pub(super) fn serve(&mut self, connection: u64) {
        let buffer = std::mem::take(&mut self.buffer);
        if let Some(received) = self.clients.receive(connection, buffer) {
            let (line, bytes) = packet::split(&buffer[..received.length]);
            let (request, done) = match serde_json::from_slice::<Request>(line) {
                _ if received.truncated => (id_of(line), unknown(format!("a packet has at most {PACKET_MAX} bytes"))),
                Err(error) => (id_of(line), unknown(format!("not a request: {error}"))),
                Ok(request) => {
                    let asked = Asked { connection, request: request.id };
                    (request.id, self.answer(asked, request.verb, bytes, received.descriptor))
                }
            };
            if let Done::Now(outcome, descriptor) = done {
                self.clients.answer(connection, request, outcome, descriptor);
            }
        }
        self.buffer = buffer;
    }

    fn answer(&mut self, asked: Asked, verb: Verb, bytes: &[u8], descriptor: Option<OwnedFd>) -> Done {
        if let Verb::Signal { number, request, .. } = &verb {
            if !(1..=64).contains(number) || request.as_ref().is_some_and(|id| id.len() > REQUEST_MAX) {
                return failed("kill", libc::EINVAL).into();
            }
            if request.as_ref().is_some_and(|id| self.signals_sent.contains(id)) {
                return Outcome::Done.into();
            }
        }
        match self.session.ask(&verb) {
            Answer::Act => self.act(asked, verb, bytes, descriptor),
            Answer::Kept => {
                self.signal_was_sent(&verb);
                if let Verb::Abort { by } = verb {
                    self.aborted_by = by;
                }
                Outcome::Kept.into()
            }
            Answer::NoProcess => Outcome::NoProcess.into(),
            Answer::WrongStage(message) => Outcome::WrongStage { message }.into(),
        }
    }

    fn act(&mut self, asked: Asked, verb: Verb, bytes: &[u8], descriptor: Option<OwnedFd>) -> Done {
        match verb {
            Verb::Proceed => match self.open_gate() {
                Ok(()) => Outcome::Done.into(),
                Err(Failure { stage, errno, .. }) => Outcome::Failed { call: stage, errno }.into(),
            },
            Verb::Abort { by } => {
                self.aborted_by = by;
                outcome("kill", self.kill()).into()
            }
            Verb::Signal { number, .. } => {
                let sent = outcome("kill", self.signal(number));
                if sent == Outcome::Done {
                    self.signal_was_sent(&verb);
                }
                sent.into()
            }
            Verb::Freeze => self.freeze().into(),
            Verb::Thaw => outcome("thaw", self.thaw()).into(),
            Verb::Kill => {
                self.kill_asked = true;
                outcome("kill", self.kill()).into()
            }
            Verb::Write { part } => self.input(asked, Piece::Bytes(part, bytes)),
            Verb::CloseInput => self.input(asked, Piece::End),
            Verb::CloseOutput { stream } => {
                self.close_output(stream);
                Outcome::Done.into()
            }
            Verb::Resize(size) => {
                outcome("tiocswinsz", self.stdio.as_ref().map_or(Ok(()), |stdio| stdio.resize(size))).into()
            }
            Verb::Attach => {
                self.clients.attach(asked.connection);
                Outcome::Done.into()
            }
            Verb::Hold { read } => {
                self.clients.hold(asked.connection, read);
                self.reader_due = None;
                Outcome::Done.into()
            }
            Verb::StartDaemon => self.start_daemon().into(),
            Verb::Deadline { left_ms } => {
                self.deadline.set(left_ms.map(Duration::from_millis), Instant::now());
                Outcome::Done.into()
            }
            Verb::Stat => Outcome::Stat(Box::new(self.stat())).into(),
            Verb::Store { name } => self.store(name, descriptor).into(),
            Verb::Return { name, keep } => match self.stored.iter().position(|(stored, _)| *stored == name) {
                Some(index) if keep => match self.stored[index].1.try_clone() {
                    Ok(copy) => Done::Now(Outcome::Done, Some(copy)),
                    Err(error) => outcome("return", Err(error)).into(),
                },
                Some(index) => Done::Now(Outcome::Done, Some(self.stored.swap_remove(index).1)),
                None => failed("return", libc::ENOENT).into(),
            },
        }
    }

    /// Starts the daemon outside of the leaf that limits the session, in which the shim may be.
    fn start_daemon(&mut self) -> Outcome {
        let Some(daemon) = &self.daemon else { return failed("execve", libc::ENOENT) };
        if let (Some(ahead), Some(tree)) = (self.ahead.take(), &mut self.tree)
            && let Err(error) = tree.release_shim(ahead)
        {
            return outcome("cgroup.procs", Err(error));
        }
        outcome("execve", super::daemon::start(daemon))
    }

    /// Remembers the sender, and the request for an owner that does not know whether it was answered.
    fn signal_was_sent(&mut self, verb: &Verb) {
        let Verb::Signal { number, request, by } = verb else { return };
        match by {
            Some(by) => self.senders.insert(*number, *by),
            None => self.senders.remove(number),
        };
        let Some(id) = request else { return };
        self.last_signal = Some((*number, Instant::now()));
        if self.signals_sent.len() == SIGNALS_REMEMBERED {
            self.signals_sent.pop_front();
        }
        self.signals_sent.push_back(id.clone());
    }

    fn freeze(&mut self) -> Outcome {
        let Some(tree) = &mut self.tree else { return Outcome::Done };
        match tree.freeze_with_escaped(FREEZE_PATIENCE) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                // The order stays: processes that wait in the kernel are frozen when they return.
                self.frozen = true;
                self.deadline.hold(Instant::now());
                Outcome::Kept
            }
            Ok(()) if self.ended_meanwhile() => {
                // What it left is killed.
                let _ = self.thaw();
                Outcome::NoProcess
            }
            frozen => {
                self.frozen = frozen.is_ok();
                if self.frozen {
                    self.deadline.hold(Instant::now());
                }
                outcome("freeze", frozen)
            }
        }
    }

    /// Returns whether the program has ended although its tree was frozen: a process that is about to end is none of those
    /// that have to stop.
    fn ended_meanwhile(&mut self) -> bool {
        let until = Instant::now() + ENDING_PATIENCE;
        loop {
            self.reap();
            let Some(child) = self.child.as_ref().filter(|_| !self.session.stage().is_terminal()) else { return true };
            let is_stopped = self.tree.as_ref().is_some_and(|tree| tree.members().contains(&child.pid));
            // One that left its tree is stopped too.
            if is_stopped || Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn thaw(&mut self) -> io::Result<()> {
        if let Some(tree) = &mut self.tree {
            tree.thaw()?;
            self.frozen = false;
            self.deadline.release(Instant::now());
        }
        Ok(())
    }

    fn input(&mut self, asked: Asked, piece: Piece<'_>) -> Done {
        let Some(stdio) = &mut self.stdio else { return failed("write", libc::EPIPE).into() };
        if let Piece::Bytes(Some(part), _) = piece {
            match stdio.repeat(asked, part) {
                Repeat::Written => return Outcome::Done.into(),
                Repeat::Waits => return Done::Later,
                Repeat::New => {}
            }
        }
        if !stdio.has_input() {
            return failed("write", libc::EPIPE).into();
        }
        if stdio.waits(asked.connection) {
            return Outcome::WrongStage { message: "earlier input of this connection is still waiting".into() }.into();
        }
        match piece {
            Piece::Bytes(_, bytes) if bytes.len() > WRITE_MAX => {
                return unknown(format!("a write has at most {WRITE_MAX} bytes"));
            }
            Piece::Bytes(part, bytes) => stdio.push(asked, part, bytes.to_vec()),
            Piece::End => stdio.push_end(asked),
        }
        self.write_input();
        Done::Later
    }

    /// Writes as much input as fits, and answers the requests whose input is written.
    pub(super) fn write_input(&mut self) {
        let Some(stdio) = &mut self.stdio else { return };
        for (asked, written) in stdio.write() {
            let outcome = written.map_or_else(|error| failed("write", error.raw_os_error()), |()| Outcome::Done);
            self.clients.answer(asked.connection, asked.request, outcome, None);
        }
    }

    fn store(&mut self, name: String, descriptor: Option<OwnedFd>) -> Outcome {
        let Some(descriptor) = descriptor else {
            return Outcome::Unknown { message: "store needs a descriptor with its packet".into() };
        };
        self.stored.retain(|(stored, _)| *stored != name);
        if self.stored.len() >= STORED_MAX {
            return failed("store", libc::ENOSPC);
        }
        self.stored.push((name, descriptor));
        Outcome::Done
    }

    /// Returns whether the whole tree is frozen: by this shim, or together with the session that the program entered, whose
    /// cgroup is above its own.
    fn is_frozen(&self) -> bool {
        let is_below_another = |tree: &Tree| self.entered.is_some() && !tree.is_swept();
        self.tree.as_ref().is_some_and(|tree| (self.frozen || is_below_another(tree)) && tree.is_frozen())
    }

    fn stat(&self) -> Stat {
        let mut members = self.tree.as_ref().map(|tree| tree.members()).unwrap_or_default();
        members.truncate(MEMBERS_MAX);
        Stat {
            snapshot: self.session.snapshot(),
            frozen: self.is_frozen(),
            members,
            log_end: self.log.end(),
            stored: self.stored.iter().map(|(name, _)| name.clone()).collect(),
            input: self.stdio.as_ref().map(|stdio| stdio.input_state()),
            rungs: self.tree.as_ref().map(|tree| tree.rungs().clone()).unwrap_or_default(),
        }
    }
}

fn id_of(line: &[u8]) -> u64 {
    serde_json::from_slice::<IdOnly>(line).map_or(0, |request| request.id)
}

fn unknown(message: String) -> Done {
    Outcome::Unknown { message }.into()
}

fn outcome(call: &str, result: io::Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        // It has ended, but the shim has not noticed yet.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Outcome::NoProcess,
        Err(error) => failed(call, error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

fn failed(call: &str, code: i32) -> Outcome {
    Outcome::Failed { call: call.into(), errno: errno::name(code) }
}
