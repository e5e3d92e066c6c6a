//! The daemon's side: finds the gateway of a data directory, starts one, and talks to it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix};
use rustix::net::{SocketFlags, SocketType};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use crate::hooks::Hook;
use crate::process::program_id;
use crate::protocol::{Answer, Asked, Entry, Facts, HELLO, LINE_MAX, Lease, REFUSED, RUNS, Request, Said};
use crate::protocol::{WELCOME, WHICH, line};
use crate::{GATEWAY, SOCKET, wire};

/// How long a gateway may take to answer. None of its operations takes long.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long it may take to show that it runs.
const AWAKE_WITHIN: Duration = Duration::from_secs(2);
/// The interval and the number of checks whether a gateway that was started here has ended.
const REAP_EVERY: Duration = Duration::from_millis(50);
const REAP_LOOKS: u32 = 100;
/// How many requests wait.
const REQUESTS_MAX: usize = 256;
/// The longest answer to the question which program a gateway runs.
const RUNS_MAX: usize = 256;
/// The variables that say where this machine's certificates are.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The reason why a request to the gateway failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the gateway refused: {0}")]
    Refused(String),
    /// The gateway is gone, or does not answer.
    #[error("the gateway cannot be reached: {0}")]
    Io(#[from] io::Error),
}

/// A gateway that has accepted this daemon.
#[derive(Debug)]
pub struct Gateway {
    stream: UnixStream,
    /// The program that it runs; absent from one of an earlier version.
    program: Option<String>,
    /// Present if this daemon has started it.
    child: Option<Child>,
}

impl Gateway {
    /// Connects to the gateway of a data directory whose lock is `lock`; `None` if there is none. One that is stopped or
    /// does not answer is killed: its agents ask again. It blocks.
    pub fn find(data: &Path, lock: BorrowedFd<'_>) -> Result<Option<Self>, Error> {
        let Some((stream, pid)) = reach(data)? else { return Ok(None) };
        // The lock is not sent to one that does not run, because it would hold it.
        let Ok(program) = which(stream) else {
            kill(pid);
            return Ok(None);
        };
        let Some((stream, pid)) = reach(data)? else { return Ok(None) };
        match greet(&stream, lock) {
            Ok(()) => Ok(Some(Self { stream, program, child: None })),
            Err(error) => {
                kill(pid);
                Err(error.into())
            }
        }
    }

    /// Tells whether it runs another program than the one at this path, and can be replaced without cutting an answer.
    #[must_use]
    pub fn is_outdated(&self, path: &Path) -> bool {
        let current = program_id(path).ok();
        self.program.is_some() && current.is_some() && self.program != current
    }

    /// Starts a gateway, replacing any other one. It blocks.
    pub fn start(program: &Path, data: &Path, lock: BorrowedFd<'_>) -> Result<Self, Error> {
        let id = program_id(program)?;
        let (stream, theirs) = UnixStream::pair()?;
        // No directory, no group, no closure: with any of them the standard library would fork.
        let mut command = Command::new(program);
        command.arg0(GATEWAY).arg(data).env_clear();
        command.envs(CERTIFICATES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        #[cfg(feature = "faults")]
        command.envs(std::env::var_os(crate::FAULTS).map(|switches| (crate::FAULTS, switches)));
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        drop(command);
        match greet(&stream, lock) {
            Ok(()) => Ok(Self { stream, program: Some(id), child: Some(child) }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// Returns the OS pid of the gateway.
    #[must_use]
    pub fn os_pid(&self) -> Option<u32> {
        let peer = || rustix::net::sockopt::socket_peercred(&self.stream).ok();
        let found = || u32::try_from(peer()?.pid.as_raw_nonzero().get()).ok();
        self.child.as_ref().map(Child::id).or_else(found)
    }

    /// Talks to the gateway from now on. `hear` is told whatever its calls do.
    pub fn talk(self, hear: impl Fn(Uuid, Facts) + Send + Sync + 'static) -> io::Result<Link> {
        let Self { stream, program, mut child } = self;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        stream.set_nonblocking(true)?;
        let (from, to) = tokio::net::UnixStream::from_std(stream)?.into_split();
        let (requests, asked) = mpsc::channel(REQUESTS_MAX);
        let (gone, is_gone) = watch::channel(false);
        let waiting = Waiting::default();
        let heard = listen(from, waiting.clone(), hear);
        let written = write_all(to, asked, waiting);
        tokio::spawn(async move {
            tokio::select! {
                _ = heard => {}
                _ = written => {}
            }
            gone.send_replace(true);
            if let Some(child) = &mut child {
                reap(child).await;
            }
        });
        Ok(Link { requests, is_gone, takes_sockets: program.is_some() })
    }
}

/// A request that waits to be sent, and who waits for the answer.
#[derive(Debug)]
struct Asking {
    asked: Asked,
    descriptor: Option<OwnedFd>,
    reply: oneshot::Sender<Answer>,
}

/// A connection to the gateway.
#[derive(Debug, Clone)]
pub struct Link {
    requests: mpsc::Sender<Asking>,
    is_gone: watch::Receiver<bool>,
    takes_sockets: bool,
}

impl Link {
    /// Waits until the gateway is gone.
    pub async fn gone(&self) {
        let _ = self.is_gone.clone().wait_for(|is_gone| *is_gone).await;
    }

    #[must_use]
    pub fn is_gone(&self) -> bool {
        *self.is_gone.borrow()
    }

    /// Tells whether the gateway serves a process at a socket that it is given. One of an earlier version opens its own.
    #[must_use]
    pub fn takes_sockets(&self) -> bool {
        self.takes_sockets
    }

    /// Serves a process at this socket, or at one that the gateway opens, and returns its port.
    pub async fn serve(&self, entry: Entry, socket: Option<OwnedFd>) -> Result<u16, Error> {
        let asked = Asked::Serve { entry: Box::new(entry), listener: socket.is_some() };
        match self.ask_with(asked, socket).await? {
            Answer::Port(port) => Ok(port),
            other @ (Answer::Done | Answer::Processes(_) | Answer::Hooks(_) | Answer::Error(_)) => {
                Err(unexpected(other))
            }
        }
    }

    /// Changes what a process may spend. Calls after this obey it.
    pub async fn lease(&self, uuid: Uuid, lease: Lease) -> Result<(), Error> {
        self.done(Asked::Lease { uuid, lease }).await
    }

    /// Serves a process no longer. Its calls are ended, and all of them are in its log.
    pub async fn forget(&self, uuid: Uuid) -> Result<(), Error> {
        self.done(Asked::Forget { uuid }).await
    }

    /// Returns those that are served.
    pub async fn list(&self) -> Result<Vec<Uuid>, Error> {
        match self.ask(Asked::List).await? {
            Answer::Processes(list) => Ok(list),
            other @ (Answer::Done | Answer::Port(_) | Answer::Hooks(_) | Answer::Error(_)) => Err(unexpected(other)),
        }
    }

    /// Returns hooks of a process after a number, the first ones first.
    pub async fn hooks(&self, uuid: Uuid, after: u64) -> Result<Vec<Hook>, Error> {
        match self.ask(Asked::Hooks { uuid, after }).await? {
            Answer::Hooks(hooks) => Ok(hooks),
            other @ (Answer::Done | Answer::Port(_) | Answer::Processes(_) | Answer::Error(_)) => {
                Err(unexpected(other))
            }
        }
    }

    /// Keeps hooks that another gateway has received, for a process that is about to be served.
    pub async fn inherit(&self, uuid: Uuid, hooks: Vec<Hook>) -> Result<(), Error> {
        self.done(Asked::Inherit { uuid, hooks }).await
    }

    /// Has the gateway leave everybody to another one. It ends when this link is dropped, its calls have ended, and the
    /// connections of the agents are closed: an idle one by its agent, or by the gateway after some minutes.
    pub async fn retire(&self) -> Result<(), Error> {
        self.done(Asked::Retire).await
    }

    async fn done(&self, asked: Asked) -> Result<(), Error> {
        match self.ask(asked).await? {
            Answer::Done => Ok(()),
            other @ (Answer::Port(_) | Answer::Processes(_) | Answer::Hooks(_) | Answer::Error(_)) => {
                Err(unexpected(other))
            }
        }
    }

    async fn ask(&self, asked: Asked) -> Result<Answer, Error> {
        self.ask_with(asked, None).await
    }

    async fn ask_with(&self, asked: Asked, descriptor: Option<OwnedFd>) -> Result<Answer, Error> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (reply, replied) = oneshot::channel();
        self.requests.send(Asking { asked, descriptor, reply }).await.map_err(|_| gone())?;
        let answered = tokio::time::timeout(ANSWER_WITHIN, replied).await;
        Ok(answered.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map_err(|_| gone())?)
    }
}

fn unexpected(answer: Answer) -> Error {
    match answer {
        Answer::Error(message) => Error::Refused(message),
        Answer::Port(_) | Answer::Done | Answer::Processes(_) | Answer::Hooks(_) => {
            Error::Io(io::Error::new(io::ErrorKind::InvalidData, "its answer is invalid"))
        }
    }
}

/// The requests that wait for their answers.
#[derive(Debug, Clone, Default)]
struct Waiting(Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>);

impl Waiting {
    fn add(&self, id: u64, reply: oneshot::Sender<Answer>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, reply);
    }

    fn take(&self, id: u64) -> Option<oneshot::Sender<Answer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }
}

async fn listen(
    from: tokio::net::unix::OwnedReadHalf,
    waiting: Waiting,
    hear: impl Fn(Uuid, Facts) + Send + Sync + 'static,
) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut text = Vec::new();
    loop {
        text.clear();
        if (&mut from).take(LINE_MAX as u64).read_until(b'\n', &mut text).await? == 0 {
            return Ok(());
        }
        match serde_json::from_slice(&text)? {
            Said::Answer { id, answer } => {
                if let Some(reply) = waiting.take(id) {
                    // Whoever asked may have given up.
                    let _ = reply.send(answer);
                }
            }
            Said::Facts { uuid, facts } => hear(uuid, facts),
        }
    }
}

async fn write_all(
    mut to: tokio::net::unix::OwnedWriteHalf,
    mut asked: mpsc::Receiver<Asking>,
    waiting: Waiting,
) -> io::Result<()> {
    let mut id = 0;
    while let Some(Asking { asked: what, descriptor, reply }) = asked.recv().await {
        id += 1;
        waiting.add(id, reply);
        wire::write(&mut to, &line(&Request { id, what }), descriptor).await?;
    }
    Ok(())
}

/// Waits a while for the end of a gateway. One that lives on is left to the next daemon.
async fn reap(child: &mut Child) {
    for _ in 0..REAP_LOOKS {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        tokio::time::sleep(REAP_EVERY).await;
    }
}

/// Connects to whoever listens, if that is a process of ours.
fn reach(data: &Path) -> Result<Option<(UnixStream, Pid)>, Error> {
    let directory = File::open(data)?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.map_err(io::Error::from)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
    let address = SocketAddrUnix::new(path).map_err(io::Error::from)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTSOCK | Errno::PROTOTYPE) => return Ok(None),
        Err(error) => return Err(io::Error::from(error).into()),
    }
    let peer = rustix::net::sockopt::socket_peercred(&socket).map_err(io::Error::from)?;
    if peer.uid != rustix::process::geteuid() {
        let message = format!("uid {} listens in its place", peer.uid.as_raw());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message).into());
    }
    Ok(Some((UnixStream::from(socket), peer.pid)))
}

/// Returns which program a gateway runs; none if it is of an earlier version. It fails for one that does not run.
fn which(mut stream: UnixStream) -> io::Result<Option<String>> {
    stream.set_read_timeout(Some(AWAKE_WITHIN))?;
    stream.set_write_timeout(Some(AWAKE_WITHIN))?;
    stream.write_all(WHICH.as_bytes())?;
    let mut answer = String::new();
    io::BufRead::read_line(&mut io::BufReader::new(stream.take(RUNS_MAX as u64)), &mut answer)?;
    match answer.strip_prefix(RUNS).and_then(|program| program.strip_suffix('\n')) {
        Some(program) => Ok(Some(program.to_owned())),
        None if answer == REFUSED => Ok(None),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn greet(stream: &UnixStream, lock: BorrowedFd<'_>) -> io::Result<()> {
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let descriptors = [lock];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(stream, &[IoSlice::new(HELLO.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    let mut answer = [0; WELCOME.len()];
    let mut stream = stream;
    stream.read_exact(&mut answer)?;
    if answer == WELCOME.as_bytes() { Ok(()) } else { Err(io::Error::other("it does not accept this daemon")) }
}

/// Kills a process if it is a gateway.
fn kill(pid: Pid) {
    let is_gateway = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()))
        .is_ok_and(|line| line.split(|byte| *byte == 0).next() == Some(GATEWAY.as_bytes()));
    if is_gateway {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}
