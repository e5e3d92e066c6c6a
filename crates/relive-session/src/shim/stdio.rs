//! The shim's ends of the program's input and output.
//!
//! **Invariant:** output is read independently of the input, and input is written in the order of the requests; no
//! waiting client delays the program.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::{SpecialCodeIndex, Winsize};

use crate::log::Stream;
use crate::protocol::{InputState, MessagePart};
use crate::spec::{self, Size};

/// Both ends of descriptors 0, 1 and 2, until the child has its own.
pub(super) struct Stdio {
    /// The child's ends, closed here as soon as the child has them.
    child: Option<Vec<OwnedFd>>,
    terminal: bool,
    input: Option<OwnedFd>,
    outputs: Vec<(Stream, OwnedFd)>,
    queue: VecDeque<Input>,
    /// The last part of a message that was written completely.
    written: Option<MessagePart>,
}

/// Input that waits for space.
struct Input {
    who: Asked,
    part: Option<MessagePart>,
    bytes: Vec<u8>,
    written: usize,
    /// Whether the pipe is closed after it.
    last: bool,
}

/// Identifies a request of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) connection: u64,
    pub(super) request: u64,
}

/// Whether a part of a message was received before.
pub(super) enum Repeat {
    New,
    /// It waits for space.
    Waits,
    /// It was written completely.
    Written,
}

/// The result of reading an output.
pub(super) enum Output {
    Bytes(usize),
    Nothing,
    /// It is closed.
    End,
}

impl Stdio {
    pub(super) fn open(kind: spec::Stdio, streams: spec::Streams) -> io::Result<Self> {
        let mut made = Self {
            child: None,
            terminal: matches!(kind, spec::Stdio::Pty(_)),
            input: None,
            outputs: Vec::new(),
            queue: VecDeque::new(),
            written: None,
        };
        made.child = Some(match kind {
            spec::Stdio::Pty(size) => {
                let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
                let master = rustix::pty::openpt(flags)?;
                rustix::pty::unlockpt(&master)?;
                // Not by its path, which may be another terminal in this mount namespace.
                let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
                set_nonblocking(&master)?;
                made.input = Some(master.try_clone()?);
                made.outputs.push((Stream::Out, master));
                made.resize(size)?;
                vec![slave]
            }
            spec::Stdio::Pipes => {
                let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                set_nonblocking(&write)?;
                made.input = Some(write);
                made.with_outputs(read, streams)?
            }
            spec::Stdio::Null => {
                let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                made.with_outputs(null, streams)?
            }
        });
        Ok(made)
    }

    fn with_outputs(&mut self, input: OwnedFd, streams: spec::Streams) -> io::Result<Vec<OwnedFd>> {
        let out = self.output(Stream::Out)?;
        let err = match streams {
            spec::Streams::Apart => self.output(Stream::Err)?,
            spec::Streams::Together => rustix::io::fcntl_dupfd_cloexec(&out, 3)?,
        };
        Ok(vec![input, out, err])
    }

    fn output(&mut self, stream: Stream) -> io::Result<OwnedFd> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        set_nonblocking(&read)?;
        self.outputs.push((stream, read));
        Ok(write)
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Returns the name of the program's terminal, if it has one and the name leads to it.
    pub(super) fn terminal_name(&self) -> Option<PathBuf> {
        let terminal = self.child.as_ref().filter(|_| self.terminal)?.first()?;
        let name = std::fs::read_link(format!("/proc/self/fd/{}", terminal.as_raw_fd())).ok()?;
        let known = rustix::fs::fstat(terminal).ok()?;
        let named = rustix::fs::stat(&name).ok()?;
        let is_same = (named.st_dev, named.st_ino, named.st_rdev) == (known.st_dev, known.st_ino, known.st_rdev);
        is_same.then_some(name)
    }

    /// Returns the descriptors that become the child's 0, 1 and 2; the shim's own if the child already has them.
    pub(super) fn child(&self) -> [RawFd; 3] {
        let ends = self.child.as_deref().unwrap_or_default();
        [0, 1, 2].map(|number| ends.get(number).or(ends.first()).map_or(number as RawFd, AsRawFd::as_raw_fd))
    }

    /// Closes the child's ends once the child has them: otherwise its output would never end. That of a terminal is
    /// kept as long as the child lives, so that the output of a program that closes its terminal and opens it again is
    /// read.
    pub(super) fn handed_over(&mut self) {
        if !self.terminal {
            self.child = None;
        }
    }

    /// Closes the terminal after the end of the child: nobody opens it again.
    pub(super) fn child_ended(&mut self) {
        self.child = None;
    }

    pub(super) fn resize(&self, size: Size) -> io::Result<()> {
        let Some((_, master)) = self.outputs.first().filter(|_| self.terminal) else { return Err(Errno::NOTTY.into()) };
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(master, size)?)
    }

    pub(super) fn outputs(&self) -> &[(Stream, OwnedFd)] {
        &self.outputs
    }

    /// Reads from one of the outputs; one that has ended is removed.
    pub(super) fn read(&mut self, index: usize, buffer: &mut [u8]) -> Output {
        let Some((_, descriptor)) = self.outputs.get(index) else { return Output::End };
        match rustix::io::read(descriptor, buffer) {
            Ok(length @ 1..) => Output::Bytes(length),
            Err(Errno::AGAIN | Errno::INTR) => Output::Nothing,
            // Reading a terminal that nobody has open fails with EIO.
            Ok(0) | Err(_) => {
                self.outputs.remove(index);
                Output::End
            }
        }
    }

    /// Closes an output, and returns what was in it.
    pub(super) fn close(&mut self, stream: Stream) -> Vec<u8> {
        let Some(index) = self.outputs.iter().position(|(output, _)| *output == stream) else { return Vec::new() };
        let (_, descriptor) = self.outputs.remove(index);
        let waiting = rustix::io::ioctl_fionread(&descriptor).unwrap_or(0);
        let mut bytes = vec![0; usize::try_from(waiting).unwrap_or(0)];
        let length = if bytes.is_empty() { 0 } else { rustix::io::read(&descriptor, &mut bytes).unwrap_or(0) };
        bytes.truncate(length);
        bytes
    }

    /// Returns the descriptor to watch while input waits for space.
    pub(super) fn waiting_input(&self) -> Option<&OwnedFd> {
        self.input.as_ref().filter(|_| !self.queue.is_empty())
    }

    pub(super) fn has_input(&self) -> bool {
        self.input.is_some() && !self.queue.back().is_some_and(|input| input.last)
    }

    /// Returns whether input of a connection still waits.
    pub(super) fn waits(&self, connection: u64) -> bool {
        self.queue.iter().any(|input| input.who.connection == connection)
    }

    pub(super) fn push(&mut self, who: Asked, part: Option<MessagePart>, bytes: Vec<u8>) {
        self.queue.push_back(Input { who, part, bytes, written: 0, last: false });
    }

    /// Returns whether a part of a message was received before. If it still waits, the new request is answered.
    pub(super) fn repeat(&mut self, who: Asked, part: MessagePart) -> Repeat {
        if self.written.is_some_and(|written| part <= written) {
            return Repeat::Written;
        }
        match self.queue.iter_mut().find(|input| input.part == Some(part)) {
            Some(input) => {
                input.who = who;
                Repeat::Waits
            }
            None => Repeat::New,
        }
    }

    pub(super) fn input_state(&self) -> InputState {
        InputState { open: self.has_input() && !self.has_lost_its_reader(), written: self.written }
    }

    /// Returns whether nobody can read the program's input any more. A terminal can be opened again.
    fn has_lost_its_reader(&self) -> bool {
        let Some(input) = self.input.as_ref().filter(|_| !self.terminal) else { return false };
        let mut watched = [PollFd::new(input, PollFlags::OUT)];
        rustix::event::poll(&mut watched, Some(&Timespec::default())).is_ok()
            && watched[0].revents().contains(PollFlags::ERR)
    }

    /// Ends the input after the input that already waits.
    pub(super) fn push_end(&mut self, who: Asked) {
        let bytes = if self.terminal { self.end_of_file() } else { Vec::new() };
        self.queue.push_back(Input { who, part: None, bytes, written: 0, last: !self.terminal });
    }

    fn end_of_file(&self) -> Vec<u8> {
        let attributes = self.input.as_ref().and_then(|master| rustix::termios::tcgetattr(master).ok());
        vec![attributes.map_or(4, |attributes| attributes.special_codes[SpecialCodeIndex::VEOF])]
    }

    /// Writes as much as fits; returns the requests that are done or failed.
    pub(super) fn write(&mut self) -> Vec<(Asked, Result<(), Errno>)> {
        let mut done = Vec::new();
        while let Some(front) = self.queue.front_mut() {
            let outcome = match &self.input {
                None => Err(Errno::PIPE),
                Some(_) if front.written == front.bytes.len() => Ok(0),
                Some(input) => rustix::io::write(input, &front.bytes[front.written..]),
            };
            match outcome {
                Ok(length) => {
                    front.written += length;
                    if front.written < front.bytes.len() {
                        continue;
                    }
                    if front.last {
                        self.input = None;
                    }
                    self.written = front.part.or(self.written);
                    done.push((front.who, Ok(())));
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => done.push((front.who, Err(error))),
            }
            self.queue.pop_front();
        }
        done
    }
}

fn set_nonblocking(descriptor: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(descriptor, true)?)
}
