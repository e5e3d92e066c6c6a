//! The gateway's socket: the daemon says who is served, and hears what their calls do.

use std::collections::HashMap;
use std::io::{self, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::entry::Served;
use crate::hooks::Hooks;
use crate::protocol::{
    Answer, Asked, Entry, Facts, HELLO, PING, PONG, REFUSED, RUNS, Request, Said, WELCOME, WHICH, line,
};
use crate::wire::Lines;
use crate::{SOCKET, serve as port};

/// How long a client may take to prove that it is the daemon.
const PROOF_WITHIN: Duration = Duration::from_secs(5);
/// How many unproved clients may be connected.
const STRANGERS_MAX: usize = 8;
/// How often the gateway checks that it is still needed, while there is no daemon.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How many messages wait for a daemon that does not read.
const MESSAGES_MAX: usize = 1024;

/// What all connections share.
struct Control {
    data: OwnedFd,
    /// Which program this is, see [`crate::process::program_id`].
    program: String,
    client: reqwest::Client,
    entries: Mutex<HashMap<Uuid, Arc<Served>>>,
    /// The hooks of processes that are about to be served.
    hooks: Mutex<HashMap<Uuid, Hooks>>,
    /// Whether another gateway serves everybody now.
    retired: watch::Sender<bool>,
    /// Rings when the facts of a process have changed.
    bell: watch::Sender<()>,
    /// The number of the daemon's connection, of which the last one counts.
    holder: watch::Sender<u64>,
    /// Whether that one is connected.
    is_held: watch::Sender<bool>,
}

/// Serves the daemon, and those that it names, until nobody needs it any more.
pub(crate) async fn serve(
    data: OwnedFd,
    program: String,
    starter: UnixStream,
    client: reqwest::Client,
) -> io::Result<()> {
    let control = Arc::new(Control {
        data,
        program,
        client,
        entries: Mutex::default(),
        hooks: Mutex::default(),
        retired: watch::Sender::new(false),
        bell: watch::Sender::new(()),
        holder: watch::Sender::new(0),
        // By its starter, or it ends here.
        is_held: watch::Sender::new(true),
    });
    let Some(stream) = control.greet(starter).await else {
        return Err(io::Error::other("nobody proves that the data directory is theirs"));
    };
    let (listener, identity) = control.bind()?;
    tokio::spawn(Arc::clone(&control).hold(stream));
    tokio::spawn(Arc::clone(&control).accept_all(listener));
    let mut is_held = control.is_held.subscribe();
    loop {
        // The sender is in `control`.
        let _ = is_held.wait_for(|is_held| !is_held).await;
        if *control.retired.borrow() {
            control.drained().await;
            // The socket is that of its successor.
            return Ok(());
        }
        if control.entries().is_empty() || control.identity() != Some(identity) || !control.is_reachable() {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    if control.identity() == Some(identity) {
        let _ = rustix::fs::unlinkat(&control.data, SOCKET, AtFlags::empty());
    }
    Ok(())
}

impl Control {
    fn entries(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<Served>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bind(&self) -> io::Result<(tokio::net::UnixListener, (u64, u64))> {
        match rustix::fs::unlinkat(&self.data, SOCKET, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        // By the descriptor: the path of a data directory may be longer than that of a socket.
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", self.data.as_raw_fd()))?;
        listener.set_nonblocking(true)?;
        let identity = self.identity().ok_or(io::ErrorKind::NotFound)?;
        Ok((tokio::net::UnixListener::from_std(listener)?, identity))
    }

    /// Returns which file its socket is.
    fn identity(&self) -> Option<(u64, u64)> {
        let found = rustix::fs::statat(&self.data, SOCKET, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((found.st_dev, found.st_ino))
    }

    /// Returns whether a path leads to the data directory.
    fn is_reachable(&self) -> bool {
        let path = rustix::fs::readlink(format!("/proc/self/fd/{}", self.data.as_raw_fd()), Vec::new());
        let (Ok(path), Ok(data)) = (path, rustix::fs::fstat(&self.data)) else { return true };
        match rustix::fs::stat(&path) {
            Ok(found) => (found.st_dev, found.st_ino) == (data.st_dev, data.st_ino),
            Err(error) => !matches!(error, Errno::NOENT | Errno::NOTDIR),
        }
    }

    async fn accept_all(self: Arc<Self>, listener: tokio::net::UnixListener) {
        let places = Arc::new(Semaphore::new(STRANGERS_MAX));
        while let Ok((stream, _)) = listener.accept().await {
            let is_ours = stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw());
            let (Ok(stream), Ok(place)) = (stream.into_std(), Arc::clone(&places).try_acquire_owned()) else {
                continue;
            };
            if !is_ours {
                continue;
            }
            let control = Arc::clone(&self);
            tokio::spawn(async move {
                let greeted = control.greet(stream).await;
                drop(place);
                if let Some(stream) = greeted {
                    control.hold(stream).await;
                }
            });
        }
    }

    /// Accepts a client that proves that it holds the data directory.
    async fn greet(self: &Arc<Self>, stream: UnixStream) -> Option<tokio::net::UnixStream> {
        let control = Arc::clone(self);
        let greeted = tokio::task::spawn_blocking(move || greet(&control, stream)).await;
        let stream = greeted.ok()?.ok()??;
        stream.set_nonblocking(true).ok()?;
        tokio::net::UnixStream::from_std(stream).ok()
    }

    /// Serves the daemon until it is gone or another one comes.
    async fn hold(self: Arc<Self>, stream: tokio::net::UnixStream) {
        let mut number = 0;
        self.holder.send_modify(|holder| {
            *holder += 1;
            number = *holder;
        });
        self.is_held.send_replace(true);
        let mut holder = self.holder.subscribe();
        let (from, to) = stream.into_split();
        let (say, said) = mpsc::channel(MESSAGES_MAX);
        tokio::select! {
            _ = self.hear(from, say.clone()) => {}
            _ = write_all(to, said) => {}
            () = self.tell(say) => {}
            _ = holder.wait_for(|holder| *holder != number) => return,
        }
        self.is_held.send_if_modified(|is_held| {
            let is_last = *self.holder.borrow() == number;
            *is_held &= !is_last;
            is_last
        });
    }

    async fn hear(self: &Arc<Self>, from: tokio::net::unix::OwnedReadHalf, say: mpsc::Sender<Said>) -> io::Result<()> {
        let mut lines = Lines::new(from);
        // The last calls of a process may take a while to be recorded, and no other request waits for them.
        let mut forgetting: JoinSet<()> = JoinSet::new();
        while let Some(text) = lines.next().await? {
            while forgetting.try_join_next().is_some() {}
            let Request { id, what } = serde_json::from_slice(&text)?;
            let mut forgotten = None;
            if let Asked::Forget { uuid } = &what {
                forgotten = self.entries().remove(uuid);
            }
            let mut listener = None;
            if matches!(what, Asked::Serve { listener: true, .. }) {
                listener = Some(lines.descriptors.pop_front().ok_or(io::ErrorKind::InvalidData)?);
            }
            let answer = self.answer(what, listener).await;
            if let Some(served) = forgotten {
                let say = say.clone();
                forgetting.spawn(async move {
                    served.close().await;
                    // The daemon may be gone.
                    let _ = say.send(Said::Answer { id, answer }).await;
                });
                continue;
            }
            if say.send(Said::Answer { id, answer }).await.is_err() {
                break;
            }
        }
        // A gateway that serves nobody ends when this returns.
        while forgetting.join_next().await.is_some() {}
        Ok(())
    }

    async fn answer(self: &Arc<Self>, asked: Asked, listener: Option<OwnedFd>) -> Answer {
        match asked {
            Asked::Serve { .. } if *self.retired.borrow() => Answer::Error("another gateway serves now".to_owned()),
            Asked::Serve { entry, .. } => {
                self.serve(*entry, listener).await.map_or_else(|e| Answer::Error(e.to_string()), Answer::Port)
            }
            Asked::Lease { uuid, lease } => {
                let served = self.entries().get(&uuid).cloned();
                match served {
                    Some(served) => {
                        served.set_lease(lease);
                        Answer::Done
                    }
                    None => Answer::Error("it is not served".to_owned()),
                }
            }
            // Said when its calls are recorded, see `hear`.
            Asked::Forget { .. } => Answer::Done,
            Asked::Hooks { uuid, after } => {
                let served = self.entries().get(&uuid).cloned();
                Answer::Hooks(served.map(|served| served.hooks_after(after)).unwrap_or_default())
            }
            Asked::List => Answer::Processes(self.entries().keys().copied().collect()),
            Asked::Inherit { uuid, hooks } => {
                self.hooks().entry(uuid).or_default().inherit(hooks);
                Answer::Done
            }
            Asked::Retire => self.retire().await.map_or_else(|e| Answer::Error(e.to_string()), |()| Answer::Done),
        }
    }

    /// Leaves everybody to another gateway. Nobody finds this one any more.
    async fn retire(&self) -> io::Result<()> {
        self.retired.send_replace(true);
        match rustix::fs::unlinkat(&self.data, SOCKET, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let all: Vec<_> = self.entries().values().cloned().collect();
        for served in all {
            served.retire().await?;
        }
        Ok(())
    }

    /// Waits until nobody needs a gateway that was replaced.
    async fn drained(&self) {
        let all: Vec<_> = self.entries().values().cloned().collect();
        for served in all {
            served.drained().await;
        }
    }

    fn hooks(&self) -> MutexGuard<'_, HashMap<Uuid, Hooks>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self: &Arc<Self>, entry: Entry, listener: Option<OwnedFd>) -> io::Result<u16> {
        let known = self.entries().get(&entry.uuid).cloned();
        if let Some(known) = known {
            if entry.port.is_none_or(|port| port == known.port) {
                known.renew(entry);
                return Ok(known.port);
            }
            self.entries().remove(&entry.uuid);
            known.close().await;
        }
        let hooks = self.hooks().remove(&entry.uuid).unwrap_or_default();
        let (served, listener) = Served::open(entry, listener, hooks, self.bell.clone())?;
        tokio::spawn(port::accept_all(Arc::clone(&served), listener, self.client.clone()));
        let following = Arc::clone(&served);
        tokio::spawn(async move { following.follow_predecessor().await });
        let opened = served.port;
        self.entries().insert(served.uuid, served);
        self.bell.send_replace(());
        Ok(opened)
    }

    /// Tells the daemon whatever changes.
    async fn tell(&self, say: mpsc::Sender<Said>) {
        let mut bell = self.bell.subscribe();
        let mut told: HashMap<Uuid, Facts> = HashMap::new();
        loop {
            bell.borrow_and_update();
            let now: HashMap<Uuid, Facts> =
                self.entries().values().map(|served| (served.uuid, served.facts())).collect();
            for (uuid, facts) in &now {
                if told.get(uuid) != Some(facts)
                    && say.send(Said::Facts { uuid: *uuid, facts: facts.clone() }).await.is_err()
                {
                    return;
                }
            }
            told = now;
            if bell.changed().await.is_err() {
                return;
            }
        }
    }
}

async fn write_all(mut to: tokio::net::unix::OwnedWriteHalf, mut said: mpsc::Receiver<Said>) -> io::Result<()> {
    while let Some(said) = said.recv().await {
        to.write_all(&line(&said)).await?;
    }
    Ok(())
}

/// Hears the first line of a client: `None` unless it proves that it is the daemon. It blocks, but not for long.
fn greet(control: &Control, mut stream: UnixStream) -> io::Result<Option<UnixStream>> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PROOF_WITHIN))?;
    stream.set_write_timeout(Some(PROOF_WITHIN))?;
    let mut buffer = [0; 64];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut sent = RecvAncillaryBuffer::new(&mut room);
    let received =
        rustix::net::recvmsg(&stream, &mut [IoSliceMut::new(&mut buffer)], &mut sent, RecvFlags::CMSG_CLOEXEC)?;
    let mut lock = None;
    for message in sent.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            lock = descriptors.next();
        }
    }
    let said = &buffer[..received.bytes];
    if said == PING.as_bytes() {
        stream.write_all(PONG.as_bytes())?;
        return Ok(None);
    }
    if said == WHICH.as_bytes() {
        stream.write_all(format!("{RUNS}{}\n", control.program).as_bytes())?;
        return Ok(None);
    }
    let is_holder = lock.is_some_and(|lock| relive_keeper::holds_lock(lock, &control.data));
    if !is_holder || said != HELLO.as_bytes() {
        stream.write_all(REFUSED.as_bytes())?;
        return Ok(None);
    }
    stream.write_all(WELCOME.as_bytes())?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(Some(stream))
}
