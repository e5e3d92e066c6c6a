//! The daemon's side: finds the keeper of a data directory, starts one, and talks to it. Everything here blocks, for at
//! most `ANSWER_WITHIN` per answer.

use std::fs::File;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix};
use rustix::net::{SocketFlags, SocketType};
use rustix::process::{Pid, Signal};

use crate::protocol::{self, FRAME_MAX, KEYS_MAX, Kind, Refusal};
use crate::{KEEPER, Key, SOCKET};

/// How long the keeper may take to answer. None of its operations takes long.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const CONNECT_AGAIN: Duration = Duration::from_millis(1);
/// How long a keeper may take to show that it runs, at first and after it was told to continue.
const AWAKE_WITHIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// The reason why a request to the keeper failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the keeper refused: {0}")]
    Refused(Refusal),
    /// It is there, and does not run: it is stopped, or frozen. It still keeps what it was given.
    #[error("the keeper (OS process {os_pid}) is stopped; continue it with: kill -CONT {os_pid}")]
    Stopped { os_pid: i32 },
    /// It is gone, or does not answer.
    #[error("the keeper cannot be reached: {0}")]
    Io(#[from] io::Error),
}

/// A value, and the keys that have it.
pub type Group = (Vec<Key>, Vec<u8>);

/// A connection to the keeper, for the daemon that holds the data directory.
#[derive(Debug)]
pub struct Keeper {
    stream: UnixStream,
    /// Received bytes that are not parsed yet.
    received: Vec<u8>,
    /// Present if this daemon has started it.
    child: Option<Child>,
}

/// Reports when the keeper is gone.
#[derive(Debug)]
pub struct HangUp(OwnedFd);

impl HangUp {
    /// Waits until the keeper is gone, or the connection was closed here.
    pub fn wait(&self) {
        // A hang-up is reported without being requested.
        while poll(&mut [PollFd::new(&self.0, PollFlags::empty())], None) == Err(Errno::INTR) {}
    }
}

/// Connects, waiting while others fill the queue of the listener: the keeper takes them out of it at once.
fn connect(socket: &OwnedFd, address: &SocketAddrUnix) -> Result<(), Errno> {
    let until = Instant::now() + ANSWER_WITHIN;
    loop {
        match rustix::net::connect(socket, address) {
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(CONNECT_AGAIN),
            connected => return connected,
        }
    }
}

impl Keeper {
    /// Connects to the keeper of a data directory whose lock is `lock`; `None` if there is none. A keeper that is stopped
    /// is told to continue, and left alone if it does not. One that runs and does not answer is killed, because it would
    /// keep the lock that it was sent.
    pub fn find(data: &Path, lock: BorrowedFd<'_>) -> Result<Option<Self>, Error> {
        for within in AWAKE_WITHIN {
            let Some((stream, pid)) = Self::reach(data)? else { return Ok(None) };
            if is_awake(stream, within)? {
                let Some((stream, pid)) = Self::reach(data)? else { return Ok(None) };
                return Self::prove(stream, pid, lock).map(Some);
            }
            signal_keeper(pid, Signal::CONT);
        }
        match Self::reach(data)? {
            Some((_, pid)) => Err(Error::Stopped { os_pid: pid.as_raw_nonzero().get() }),
            None => Ok(None),
        }
    }

    /// Connects to whoever listens, if that is a process of ours.
    fn reach(data: &Path) -> Result<Option<(UnixStream, Pid)>, Error> {
        let directory = File::open(data)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(io::Error::from)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
        let address = SocketAddrUnix::new(path).map_err(io::Error::from)?;
        match connect(&socket, &address) {
            Ok(()) => {}
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTSOCK | Errno::PROTOTYPE) => return Ok(None),
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let peer = rustix::net::sockopt::socket_peercred(&socket).map_err(io::Error::from)?;
        if peer.uid != rustix::process::geteuid() {
            let message = format!("uid {} listens in its place", peer.uid.as_raw());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message).into());
        }
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        Ok(Some((stream, peer.pid)))
    }

    fn prove(stream: UnixStream, pid: Pid, lock: BorrowedFd<'_>) -> Result<Self, Error> {
        let greeted = Self::greet(stream, None, lock);
        if let Err(Error::Io(error)) = &greeted
            && is_timeout(error)
        {
            kill_keeper(pid);
        }
        greeted
    }

    /// Starts a keeper, replacing any other one.
    pub fn start(program: &Path, data: &Path, lock: BorrowedFd<'_>) -> Result<Self, Error> {
        let (ours, theirs) = UnixStream::pair()?;
        // No directory, no group, no closure: with any of them the standard library would fork.
        let mut command = Command::new(program);
        command.arg0(KEEPER).arg(data).env_clear();
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        drop(command);
        Self::greet(ours, Some(child), lock)
    }

    fn greet(stream: UnixStream, child: Option<Child>, lock: BorrowedFd<'_>) -> Result<Self, Error> {
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        let mut keeper = Self { stream, received: Vec::new(), child };
        match keeper.say_hello(lock) {
            Ok(()) => Ok(keeper),
            Err(error) => {
                // A keeper that was just started keeps nothing yet.
                if keeper.child.is_some() {
                    keeper.end();
                }
                Err(error)
            }
        }
    }

    fn say_hello(&mut self, lock: BorrowedFd<'_>) -> Result<(), Error> {
        let hello = protocol::frame(Kind::Hello, &[&protocol::hello()]);
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let descriptors = [lock];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        rustix::net::sendmsg(&self.stream, &[IoSlice::new(&hello)], &mut control, SendFlags::NOSIGNAL)
            .map_err(io::Error::from)?;
        self.hear(Kind::Welcome)
    }

    /// Stores a value for these keys.
    pub fn put(&mut self, keys: &[Key], value: &[u8]) -> Result<(), Error> {
        for keys in keys.chunks(KEYS_MAX) {
            self.ask(&protocol::keyed(Kind::Put, keys, value))?;
        }
        Ok(())
    }

    /// Deletes the values of these keys.
    pub fn remove(&mut self, keys: &[Key]) -> Result<(), Error> {
        for keys in keys.chunks(KEYS_MAX) {
            self.ask(&protocol::keyed(Kind::Remove, keys, &[]))?;
        }
        Ok(())
    }

    /// Returns all stored values. A value may occur more than once, with different keys.
    pub fn list(&mut self) -> Result<Vec<Group>, Error> {
        self.stream.write_all(&protocol::frame(Kind::List, &[]))?;
        let mut groups = Vec::new();
        loop {
            let (kind, body) = self.next()?;
            match kind {
                Some(Kind::Group) => {
                    let (keys, value) = protocol::keys(&body).ok_or_else(garbled)?;
                    groups.push((keys, value.to_vec()));
                }
                kind => return is_expected(kind, &body, Kind::Done).map(|()| groups),
            }
        }
    }

    /// Returns a handle that reports when this keeper is gone.
    pub fn hang_up(&self) -> io::Result<HangUp> {
        Ok(HangUp(self.stream.try_clone()?.into()))
    }

    /// Returns the OS pid of the keeper.
    pub fn os_pid(&self) -> Option<u32> {
        match &self.child {
            Some(child) => Some(child.id()),
            None => {
                let peer = rustix::net::sockopt::socket_peercred(&self.stream).ok()?;
                u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
            }
        }
    }

    /// Abandons a keeper that is gone or does not answer, and ensures that it is gone.
    pub fn end(mut self) {
        match self.child.take() {
            Some(mut child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            None => {
                if let Ok(peer) = rustix::net::sockopt::socket_peercred(&self.stream) {
                    kill_keeper(peer.pid);
                }
            }
        }
    }

    fn ask(&mut self, frame: &[u8]) -> Result<(), Error> {
        self.stream.write_all(frame)?;
        self.hear(Kind::Done)
    }

    fn hear(&mut self, expected: Kind) -> Result<(), Error> {
        let (kind, body) = self.next()?;
        is_expected(kind, &body, expected)
    }

    fn next(&mut self) -> Result<(Option<Kind>, Vec<u8>), Error> {
        loop {
            let whole = protocol::first(&self.received, FRAME_MAX).map_err(|protocol::TooLong| garbled())?;
            if let Some((frame, length)) = whole {
                let read = (frame.kind, frame.body.to_vec());
                self.received.drain(..length);
                return Ok(read);
            }
            let mut buffer = [0; 16 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Also notifies those that wait for its end with a copy.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Some(child) = &mut self.child {
            // An ended keeper is reaped here. A living one keeps its values for the next daemon.
            let _ = child.try_wait();
        }
    }
}

fn is_expected(kind: Option<Kind>, body: &[u8], expected: Kind) -> Result<(), Error> {
    match kind {
        Some(kind) if kind == expected => Ok(()),
        Some(Kind::Refused) => Err(Error::Refused(Refusal::of(body.first().copied().unwrap_or(0)))),
        Some(_) | None => Err(garbled()),
    }
}

fn garbled() -> Error {
    Error::Io(io::Error::new(io::ErrorKind::InvalidData, "its answer is invalid"))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Asks a keeper for something that it refuses, because nothing proves who asks: the refusal shows that it runs. The lock
/// is not sent to one that does not, which would hold it.
fn is_awake(mut stream: UnixStream, within: Duration) -> Result<bool, Error> {
    stream.set_read_timeout(Some(within))?;
    stream.set_write_timeout(Some(within))?;
    let asked = stream.write_all(&protocol::frame(Kind::Hello, &[&protocol::hello()]));
    match asked.and_then(|()| stream.read(&mut [0; 64])) {
        Ok(_) => Ok(true),
        Err(error) if is_timeout(&error) => Ok(false),
        // It has closed the connection, so it runs.
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Kills a process if it is a keeper.
fn kill_keeper(pid: Pid) {
    signal_keeper(pid, Signal::KILL);
}

fn signal_keeper(pid: Pid, signal: Signal) {
    let is_keeper = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()))
        .is_ok_and(|line| line.split(|byte| *byte == 0).next() == Some(KEEPER.as_bytes()));
    if is_keeper {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
