//! The keeper's own process: one thread, one loop.
//!
//! It reads without waiting, so that a silent client cannot keep the daemon from its environments. It waits only while
//! it writes to the daemon, and not for long.

use std::ffi::OsString;
use std::io::{self, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit};

use crate::proof::holds_lock;
use crate::protocol::{self, FRAME_MAX, Frame, HELLO_MAX, KEYS_MAX, Kind, Refusal};
use crate::store::Store;
use crate::{KEEPER, SOCKET, VALUES_MAX_BYTES};

/// How long a client may take to prove that it is the daemon.
const PROOF_WITHIN: Duration = Duration::from_secs(5);
/// How many unproved clients may be connected.
const STRANGERS_MAX: usize = 8;
/// How long to wait for a daemon that does not read.
const WRITE_WITHIN: Duration = Duration::from_secs(5);
/// How often the keeper checks that its data directory still exists, while there is no daemon.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const READ_BYTES: usize = 64 << 10;

/// Returns whether the client at the other end of a socket runs outside of all sessions of the data directory, whose
/// descriptor is the second one.
pub type IsOutside = fn(BorrowedFd<'_>, BorrowedFd<'_>) -> bool;

/// Runs the keeper until it is no longer needed.
pub fn main(is_outside: IsOutside) -> ! {
    let code = match run(is_outside) {
        Ok(()) => 0,
        Err(error) => {
            // Visible only if somebody started it by hand.
            let _ = writeln!(io::stderr(), "error: {KEEPER} is started by the Relive daemon: {error}");
            1
        }
    };
    std::process::exit(code)
}

fn run(is_outside: IsOutside) -> io::Result<()> {
    hide()?;
    let data: OsString = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("no data directory is named"))?;
    let data = rustix::fs::open(data, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // A session of its own: neither a terminal nor the end of the daemon's process group reaches it. This fails only
    // for a session leader.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/")?;
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let starter = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    Process { data, is_outside, listener: None, peers: vec![Peer::new(starter)?], store: Store::default() }.serve()
}

/// Hides this process from all processes except root's.
fn hide() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let _ = rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = rustix::thread::set_name(c"relive-keeper");
    // Locked in memory if the limit covers everything that it may ever hold: with less, it would fail later.
    let limit = rustix::process::getrlimit(Resource::Memlock).current;
    if limit.is_none_or(|limit| limit >= 8 * VALUES_MAX_BYTES as u64) {
        let _ = rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    }
    Ok(())
}

struct Process {
    data: OwnedFd,
    is_outside: IsOutside,
    /// Absent until the starter has proved that it holds the data directory.
    listener: Option<Listener>,
    peers: Vec<Peer>,
    store: Store,
}

struct Listener {
    socket: OwnedFd,
    device: u64,
    inode: u64,
}

struct Peer {
    stream: UnixStream,
    received: Vec<u8>,
    /// The last received descriptor.
    sent: Option<OwnedFd>,
    standing: Standing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// A client that has to prove that it is the daemon, until this moment.
    Stranger(Instant),
    /// The daemon of the data directory.
    Holder,
    Gone,
}

impl Process {
    fn serve(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        while self.is_needed() {
            let mut ready = self.wait()?.into_iter();
            if ready.next().unwrap_or(false) {
                self.accept();
            }
            // Connections that were just accepted were not polled.
            let readable: Vec<usize> = ready.enumerate().filter_map(|(at, ready)| ready.then_some(at)).collect();
            for at in readable {
                self.read(at, &mut buffer);
            }
            let now = Instant::now();
            self.peers.retain(|peer| match peer.standing {
                Standing::Stranger(until) => now < until,
                Standing::Holder => true,
                Standing::Gone => false,
            });
        }
        Ok(())
    }

    fn has_holder(&self) -> bool {
        self.peers.iter().any(|peer| peer.standing == Standing::Holder)
    }

    fn is_needed(&self) -> bool {
        match &self.listener {
            None => !self.peers.is_empty(),
            Some(listener) => {
                self.has_holder()
                    || (!self.store.is_empty() && listener.has_its_name(&self.data) && is_reachable(&self.data))
            }
        }
    }

    /// Waits until there is something to do: returns which of the listener and the peers are ready.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let strangers = self.peers.iter().filter_map(|peer| match peer.standing {
            Standing::Stranger(until) => Some(until.saturating_duration_since(Instant::now())),
            Standing::Holder | Standing::Gone => None,
        });
        let timeout = strangers.chain((!self.has_holder()).then_some(LOOK_EVERY)).min();
        let timeout = timeout.map(|timeout| Timespec::try_from(timeout).map_err(io::Error::other)).transpose()?;
        let listens = self.listener.as_ref().map(|listener| &listener.socket);
        let mut polled: Vec<PollFd<'_>> = listens.iter().map(|socket| PollFd::new(*socket, PollFlags::IN)).collect();
        polled.extend(self.peers.iter().map(|peer| PollFd::new(&peer.stream, PollFlags::IN)));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = polled.iter().map(|polled| !polled.revents().is_empty());
        Ok(listens.is_none().then_some(false).into_iter().chain(ready).collect())
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        let Ok(socket) = rustix::net::accept_with(&listener.socket, SocketFlags::CLOEXEC) else { return };
        let is_ours =
            rustix::net::sockopt::socket_peercred(&socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid());
        if !is_ours {
            return;
        }
        let mut strangers = self.peers.iter_mut().filter(|peer| matches!(peer.standing, Standing::Stranger(_)));
        // The client that has been silent for the longest time is dropped: the daemon writes at once.
        if let Some(oldest) = strangers.next()
            && strangers.count() + 1 >= STRANGERS_MAX
        {
            oldest.standing = Standing::Gone;
        }
        self.peers.extend(Peer::new(socket.into()));
    }

    /// Reads from a peer and answers all complete frames.
    fn read(&mut self, at: usize, buffer: &mut [u8]) {
        let Some(peer) = self.peers.get_mut(at) else { return };
        if !peer.receive(buffer) {
            peer.standing = Standing::Gone;
            return;
        }
        let mut received = std::mem::take(&mut peer.received);
        let mut read = 0;
        loop {
            let standing = self.peers[at].standing;
            let max = if standing == Standing::Holder { FRAME_MAX } else { HELLO_MAX };
            let answered = match protocol::first(&received[read..], max) {
                Ok(None) => break,
                Ok(Some((frame, length))) => {
                    read += length;
                    match standing {
                        Standing::Holder => self.answer(at, &frame),
                        Standing::Stranger(_) => self.greet(at, &frame),
                        Standing::Gone => return,
                    }
                }
                Err(protocol::TooLong) => {
                    let _ = self.peers[at].say(&refused(Refusal::Malformed));
                    Err(io::ErrorKind::InvalidData.into())
                }
            };
            if answered.is_err() {
                self.peers[at].standing = Standing::Gone;
                return;
            }
        }
        received.drain(..read);
        if received.is_empty() {
            received.shrink_to(READ_BYTES);
        }
        self.peers[at].received = received;
    }

    /// Accepts a client that proves that it holds the data directory, replacing the previous one.
    fn greet(&mut self, at: usize, frame: &Frame<'_>) -> io::Result<()> {
        let is_holder = self.peers[at].sent.take().is_some_and(|sent| holds_lock(sent, &self.data));
        let is_outside = || (self.is_outside)(self.peers[at].stream.as_fd(), self.data.as_fd());
        let verdict = match (is_holder, protocol::common_version(frame.body)) {
            _ if frame.kind != Some(Kind::Hello) => Err(Refusal::NotHolder),
            (false, _) => Err(Refusal::NotHolder),
            // A program that has killed the daemon and runs one of its own.
            (true, _) if !is_outside() => Err(Refusal::Inside),
            (true, None) => Err(Refusal::Unsupported),
            (true, Some(version)) => Ok(version),
        };
        let version = match verdict {
            Ok(version) => version,
            Err(refusal) => {
                self.peers[at].say(&refused(refusal))?;
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        };
        if self.listener.is_none() {
            self.listener = Some(Listener::bind(&self.data)?);
        }
        for peer in &mut self.peers {
            if peer.standing == Standing::Holder {
                peer.standing = Standing::Gone;
            }
        }
        self.peers[at].standing = Standing::Holder;
        self.peers[at].say(&protocol::frame(Kind::Welcome, &[&version.to_le_bytes()]))
    }

    fn answer(&mut self, at: usize, frame: &Frame<'_>) -> io::Result<()> {
        let done = match frame.kind {
            Some(Kind::Put) => self.put(frame.body),
            Some(Kind::Remove) => protocol::keys(frame.body).ok_or(Refusal::Malformed).map(|(keys, _)| {
                for key in keys {
                    self.store.remove(key);
                }
            }),
            Some(Kind::List) => {
                self.list(at)?;
                Ok(())
            }
            Some(Kind::Hello | Kind::Done | Kind::Welcome | Kind::Group | Kind::Refused) | None => {
                Err(Refusal::Unsupported)
            }
        };
        let answer = done.map_or_else(refused, |()| protocol::frame(Kind::Done, &[]));
        self.peers[at].say(&answer)
    }

    fn put(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let (keys, value) = protocol::keys(body).ok_or(Refusal::Malformed)?;
        self.store.insert_all(&keys, value).map_err(|_| Refusal::Full)
    }

    fn list(&mut self, at: usize) -> io::Result<()> {
        for (value, keys) in self.store.groups() {
            for keys in keys.chunks(KEYS_MAX) {
                self.peers[at].say(&protocol::keyed(Kind::Group, keys, &value))?;
            }
        }
        Ok(())
    }
}

fn refused(refusal: Refusal) -> Vec<u8> {
    protocol::frame(Kind::Refused, &[&[refusal.code()]])
}

impl Peer {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(WRITE_WITHIN))?;
        let standing = Standing::Stranger(Instant::now() + PROOF_WITHIN);
        Ok(Self { stream, received: Vec::new(), sent: None, standing })
    }

    /// Receives available bytes; returns `false` at the end.
    fn receive(&mut self, buffer: &mut [u8]) -> bool {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(&self.stream, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Ok(received) => {
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                        self.sent = descriptors.next();
                    }
                }
                if self.standing == Standing::Holder {
                    self.sent = None;
                }
                self.received.extend_from_slice(&buffer[..received.bytes]);
                received.bytes > 0
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Writes, for at most `WRITE_WITHIN`: a daemon that does not read is dropped.
    fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }
}

impl Listener {
    /// Binds the socket in the data directory, replacing that of an earlier keeper, which then ends.
    fn bind(data: &OwnedFd) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match rustix::fs::unlinkat(data, SOCKET, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        // By the descriptor: the path of a data directory may be longer than that of a socket.
        rustix::net::bind(&socket, &SocketAddrUnix::new(format!("/proc/self/fd/{}/{SOCKET}", data.as_raw_fd()))?)?;
        let found = look(data)?;
        rustix::net::listen(&socket, i32::try_from(STRANGERS_MAX).unwrap_or(8))?;
        Ok(Self { socket, device: found.st_dev, inode: found.st_ino })
    }

    fn has_its_name(&self, data: &OwnedFd) -> bool {
        look(data).is_ok_and(|found| (found.st_dev, found.st_ino) == (self.device, self.inode))
    }
}

/// Returns whether a path leads to the data directory. None does after a lazy unmount of its file system, which this
/// process would keep from being removed: no daemon can come back to it.
fn is_reachable(data: &OwnedFd) -> bool {
    let path = rustix::fs::readlink(format!("/proc/self/fd/{}", data.as_raw_fd()), Vec::new());
    let (Ok(path), Ok(data)) = (path, rustix::fs::fstat(data)) else { return true };
    match rustix::fs::stat(&path) {
        Ok(found) => (found.st_dev, found.st_ino) == (data.st_dev, data.st_ino),
        Err(error) => !matches!(error, Errno::NOENT | Errno::NOTDIR),
    }
}

fn look(data: &OwnedFd) -> rustix::io::Result<Stat> {
    rustix::fs::statat(data, SOCKET, AtFlags::SYMLINK_NOFOLLOW)
}
