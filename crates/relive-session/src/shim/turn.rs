//! One turn of the shim's loop: waits until something can be done, then does all of it.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::Shim;
use super::clients::Now;
use super::spawn::{Child, Said};
use super::stdio::Output;
use crate::exit::ExitRecord;
use crate::log::Stream;
use crate::spec::OnFullDisk;
use crate::stage::{End, Event, Stage};
use crate::tree::Tree;

/// How long to wait before output is written again that did not fit on the disk.
const SPACE_AGAIN: Duration = Duration::from_millis(200);

/// A watched descriptor.
#[derive(Clone, Copy)]
enum Watched {
    Signals,
    Listener,
    Gate,
    Entered,
    Output(usize),
    Input,
    Client(u64),
}

impl Shim {
    /// Waits until something can be done, at most for `patience`, and does it. Returns whether there was output.
    pub(super) fn turn(&mut self, patience: Option<Duration>) -> io::Result<bool> {
        self.write_waiting();
        self.flush(None);
        let mut had_output = false;
        for (watched, events) in self.wait(patience)? {
            match watched {
                Watched::Signals => self.hear_signals(),
                Watched::Listener => self.accept(),
                Watched::Gate => self.hear_gate(),
                Watched::Entered => self.leave_entered(),
                Watched::Output(index) => had_output |= self.read_output(index),
                Watched::Input => self.write_input(),
                // Closed or readable: reading it tells.
                Watched::Client(id) if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) => {
                    self.serve(id)
                }
                Watched::Client(_) => {}
            }
        }
        if !self.session.stage().is_terminal() {
            self.check_deadline();
        }
        self.flush(None);
        Ok(had_output)
    }

    /// Ends with the session that it runs in.
    fn leave_entered(&mut self) {
        self.entered = None;
        // Repeated when the child has ended.
        let _ = self.kill();
    }

    pub(super) fn accept(&mut self) {
        let tree = self.tree.as_ref();
        self.clients.accept(|| tree.map(|tree| tree.members()).unwrap_or_default());
    }

    /// Sends notices to the clients; also the end, once its record exists.
    pub(super) fn flush(&mut self, ended: Option<&ExitRecord>) {
        let (snapshot, rungs) = (self.session.snapshot(), self.tree.as_ref().map(Tree::rungs));
        self.clients.flush(&Now { snapshot, log_end: self.log.end(), rungs, ended });
    }

    fn wait(&self, patience: Option<Duration>) -> io::Result<Vec<(Watched, PollFlags)>> {
        let mut names = vec![Watched::Signals, Watched::Listener];
        let mut watched = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::from_borrowed_fd(self.clients.listener(), PollFlags::IN),
        ];
        let mut watch = |name, descriptor, flags| {
            names.push(name);
            watched.push(PollFd::from_borrowed_fd(descriptor, flags));
        };
        if let Some(gate) = self.child.as_ref().and_then(|child| child.gate()) {
            watch(Watched::Gate, gate.as_fd(), PollFlags::IN);
        }
        if let Some(entered) = &self.entered {
            watch(Watched::Entered, entered.as_fd(), PollFlags::IN);
        }
        if let Some(stdio) = &self.stdio {
            if let Some(input) = stdio.waiting_input() {
                watch(Watched::Input, input.as_fd(), PollFlags::OUT);
            }
            // The last first: removing one that ends does not change the indices before it.
            let waits = self.is_held_back() || self.unwritten.is_some();
            let outputs = if waits { &[] } else { stdio.outputs() };
            for (index, (_, output)) in outputs.iter().enumerate().rev() {
                watch(Watched::Output(index), output.as_fd(), PollFlags::IN);
            }
        }
        for client in self.clients.iter() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, client.is_read());
            flags.set(PollFlags::OUT, client.has_backlog());
            watch(Watched::Client(client.id), client.socket(), flags);
        }
        let reader_due = self.reader_due.filter(|_| self.is_held_back());
        let reader_due = reader_due.map(|due| due.saturating_duration_since(Instant::now()));
        let deadline = self.deadline.next().filter(|_| !self.session.stage().is_terminal());
        let deadline = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let space = self.unwritten.as_ref().map(|_| SPACE_AGAIN);
        let patience = patience.into_iter().chain(reader_due).chain(deadline).chain(space).min();
        let patience = patience.map(|patience| Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        });
        match rustix::event::poll(&mut watched, patience.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = names.into_iter().zip(watched.iter().map(PollFd::revents));
        Ok(happened.filter(|(_, events)| !events.is_empty()).collect())
    }

    /// Returns whether the program has to wait until its reader has read more. What an ended program left in its pipes
    /// is little.
    fn is_held_back(&self) -> bool {
        let due = || self.reader_due.filter(|due| Instant::now() < *due).map(|_| 0);
        let read = self.clients.slowest_reader().or_else(due);
        let ahead = read.map_or(0, |read| self.log.end().saturating_sub(read));
        ahead >= self.log.ahead_max() && !self.session.stage().is_terminal()
    }

    fn hear_signals(&mut self) {
        let mut read = [0u8; size_of::<libc::signalfd_siginfo>()];
        let mut is_sought = false;
        while rustix::io::read(&self.signals, &mut read).is_ok_and(|length| length > 0) {
            is_sought |= read.first_chunk().is_some_and(|number| i32::from_ne_bytes(*number) == libc::SIGCONT);
        }
        self.reap();
        if is_sought && !self.session.stage().is_terminal() {
            self.listen_again();
        }
    }

    /// Makes its socket again, for an owner that cannot reach it: the program may have removed it.
    fn listen_again(&mut self) {
        self.accept();
        // Without a directory there is no place for it.
        if let Ok(listener) = self.directory.ctl_bind_again() {
            self.clients.listen_at(listener);
        }
    }

    /// Reaps ended processes: the child, and orphans.
    pub(super) fn reap(&mut self) {
        while let Some(pid) = next_ended() {
            let is_child = self.child.as_ref().is_some_and(|child| child.pid == pid);
            if is_child {
                // Messages from before its end come first, and whether it was the program is visible only until it is
                // reaped.
                self.hear_gate();
            }
            let mut status = 0;
            // SAFETY: a number owned here, to be written to.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            if is_child {
                self.child_ended(status);
            }
        }
    }

    fn child_ended(&mut self, status: i32) {
        self.child_gone = true;
        if let Some(stdio) = &mut self.stdio {
            stdio.child_ended();
        }
        let Some(end) = self.child.as_ref().map(|child| child.end(status)) else { return };
        if matches!(end, End::Exited(_)) && self.session.stage() == Stage::Ready {
            // An init reaped it before the shim could look, and failures before the program are reported: this was the
            // program.
            self.happened(Event::Executed);
        }
        self.happened(Event::Ended(end));
    }

    fn hear_gate(&mut self) {
        loop {
            let Some(child) = &mut self.child else { return };
            match child.hear() {
                Said::Ready { child_pid } => self.is_ready(child_pid),
                Said::Failed(failure) => self.happened(Event::Failed(failure)),
                Said::Executed => self.happened(Event::Executed),
                Said::Died | Said::Nothing => return,
            }
        }
    }

    fn is_ready(&mut self, child_pid: i32) {
        if let Some(host_pid) = self.child.as_ref().and_then(Child::below_init) {
            self.happened(Event::BelowInit { host_pid });
        }
        self.happened(Event::Ready { child_pid });
        if self.session.stage() == Stage::Ready && !self.session.is_opened() {
            // Only a hint for readers: what matters is that it does not say `running`.
            let _ = self.write_state(crate::directory::RecordedStage::Ready);
        }
    }

    fn read_output(&mut self, index: usize) -> bool {
        let Some(stdio) = &mut self.stdio else { return false };
        let Some(stream) = stdio.outputs().get(index).map(|(stream, _)| *stream) else { return false };
        match stdio.read(index, self.buffer) {
            Output::Bytes(length) => {
                match self.log.append(stream, &self.buffer[..length]) {
                    Err(error) if is_full(&error) && self.waits_for_space() => {
                        self.unwritten = Some((stream, self.buffer[..length].to_vec()));
                    }
                    // The program continues without its log: a full disk must not block it.
                    written => self.output_lost |= written.is_err(),
                }
                self.clients.log_grew();
                true
            }
            Output::Nothing | Output::End => false,
        }
    }
}

impl Shim {
    /// Returns whether the program waits for space on a full disk. What it left behind at its end waits for nothing.
    fn waits_for_space(&self) -> bool {
        self.on_full_disk == OnFullDisk::Wait && !self.session.stage().is_terminal()
    }

    /// Closes an output that nobody reads any more, like the last reader of a pipe.
    pub(super) fn close_output(&mut self, stream: Stream) {
        let rest = self.stdio.as_mut().map(|stdio| stdio.close(stream)).unwrap_or_default();
        // On a full disk nothing waits for more space than one read needs.
        let lost = !rest.is_empty() && (self.unwritten.is_some() || self.log.append(stream, &rest).is_err());
        self.output_lost |= lost;
        self.clients.log_grew();
    }

    /// Writes the output that waits for space, if there is some now.
    fn write_waiting(&mut self) {
        let Some((stream, bytes)) = &self.unwritten else { return };
        let written = self.log.append(*stream, bytes);
        match written {
            Err(error) if is_full(&error) && self.waits_for_space() => return,
            written => self.output_lost |= written.is_err(),
        }
        self.unwritten = None;
        self.clients.log_grew();
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the pid of a child that has ended and is not reaped yet.
fn next_ended() -> Option<i32> {
    // SAFETY: a structure owned here, to be written to; zero if nobody has ended.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let found = libc::waitid(libc::P_ALL, 0, &raw mut info, options);
        (found == 0 && info.si_pid() != 0).then(|| info.si_pid())
    }
}
