//! An owner's connection to a shim.
//!
//! A [`Connection`] is a cheap handle; all its clones share one socket and one task that reads it. Dropping the last
//! one hangs up, which affects nobody else.
//!
//! **Invariant:** a request is answered once, or fails because the shim is gone. A watcher sees the latest state of the
//! session, so a slow one delays nobody. The end is seen before the loss of the connection.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinHandle;

use crate::exit::ExitRecord;
use crate::packet::{self, Received};
use crate::protocol::{MESSAGE_MAX, Message, MessagePart, Notice, OLDEST, Outcome, Request, VERSION, Verb, WRITE_MAX};
use crate::stage::Snapshot;
use crate::tree::Rungs;

/// How long a shim may take to send its hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// How many requests of one connection may be unanswered; further ones wait.
const UNANSWERED_MAX: usize = 64;

/// A connection to a shim.
#[derive(Debug, Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    reader: JoinHandle<()>,
    shim_pid: i32,
    rungs: Option<Box<Rungs>>,
}

#[derive(Debug)]
struct Shared {
    socket: AsyncFd<OwnedFd>,
    unanswered: Mutex<HashMap<u64, Waiter>>,
    next: AtomicU64,
    places: Arc<Semaphore>,
    /// One write at a time: its permit is held until the shim has answered, even if the caller is gone.
    writing: Arc<Semaphore>,
    seen: watch::Sender<Seen>,
}

#[derive(Debug)]
struct Waiter {
    answer: oneshot::Sender<(Outcome, Option<OwnedFd>)>,
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

/// The latest known state of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub snapshot: Snapshot,
    /// The end of its log. Updated after [`Verb::Attach`].
    pub log_end: u64,
    /// How it ended; the log is complete and the record on the disk.
    pub ended: Option<ExitRecord>,
    /// Whether the connection is over. Without `ended` the shim was lost, and the directory tells more.
    pub gone: bool,
}

/// The reason why a shim cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// It has another version of the protocol.
    #[error("the shim speaks version {theirs} of the protocol, this Relive speaks {VERSION}")]
    Version { theirs: u32 },
    /// It hung up before its hello: too many clients are connected, or it is about to exit.
    #[error("the shim hung up before it introduced itself")]
    HungUp,
    /// It sent something else first.
    #[error("the program that answers is not a Relive shim")]
    NotAShim,
    /// It sent no hello in time.
    #[error("the shim did not introduce itself within {} s", HELLO_PATIENCE.as_secs())]
    Silent,
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The shim is gone without an answer. The directory tells what is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session's shim is gone")]
pub struct Gone;

impl Connection {
    /// Starts to use a socket that is connected to a shim.
    pub async fn adopt(socket: OwnedFd) -> Result<Self, AdoptError> {
        rustix::io::ioctl_fionbio(&socket, true).map_err(io::Error::from)?;
        let socket = packet::watch(socket, Interest::READABLE | Interest::WRITABLE)?;
        let hello = tokio::time::timeout(HELLO_PATIENCE, hello(&socket));
        let Hello { shim_pid, snapshot, rungs } = hello.await.map_err(|_| AdoptError::Silent)??;
        let shared = Arc::new(Shared {
            socket,
            unanswered: Mutex::default(),
            next: AtomicU64::new(1),
            places: Arc::new(Semaphore::new(UNANSWERED_MAX)),
            writing: Arc::new(Semaphore::new(1)),
            seen: watch::Sender::new(Seen { snapshot, log_end: 0, ended: None, gone: false }),
        });
        let reader = tokio::spawn(read(Arc::clone(&shared)));
        Ok(Self { inner: Arc::new(Inner { shared, reader, shim_pid, rungs }) })
    }

    /// Returns the OS pid of the shim itself.
    #[must_use]
    pub fn shim_pid(&self) -> i32 {
        self.inner.shim_pid
    }

    /// Returns the mechanisms in use, if the shim's hello named them.
    #[must_use]
    pub fn rungs(&self) -> Option<&Rungs> {
        self.inner.rungs.as_deref()
    }

    /// Returns the known state of the session, and a way to wait for changes.
    #[must_use]
    pub fn seen(&self) -> watch::Receiver<Seen> {
        self.inner.shared.seen.subscribe()
    }

    /// Waits until the known state satisfies `fits`; `Gone` if that cannot happen any more.
    pub async fn wait_for(&self, fits: impl Fn(&Seen) -> bool) -> Result<Seen, Gone> {
        let mut seen = self.seen();
        let found = seen.wait_for(|seen| fits(seen) || seen.gone).await.map_err(|_| Gone)?.clone();
        if fits(&found) { Ok(found) } else { Err(Gone) }
    }

    pub async fn ended(&self) -> Result<ExitRecord, Gone> {
        self.wait_for(|seen| seen.ended.is_some()).await?.ended.ok_or(Gone)
    }

    pub async fn request(&self, verb: Verb) -> Result<Outcome, Gone> {
        Ok(self.ask(verb, &[], None).await?.0)
    }

    /// Writes input for the program; answered when all of it is in the program's pipe or terminal.
    pub async fn write(&self, bytes: &[u8]) -> Result<Outcome, Gone> {
        for part in bytes.chunks(WRITE_MAX) {
            let outcome = self.ask(Verb::Write { part: None }, part, None).await?.0;
            if outcome != Outcome::Done {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Done)
    }

    /// Writes a message for the program, once: parts that an earlier owner has written are not written again. Answered
    /// when all of it is in the program's pipe or terminal.
    pub async fn write_message(&self, message: u64, bytes: &[u8]) -> Result<Outcome, Gone> {
        for (part, bytes) in (0..).zip(bytes.chunks(WRITE_MAX)) {
            let part = MessagePart { message, part };
            let outcome = self.ask(Verb::Write { part: Some(part) }, bytes, None).await?.0;
            if outcome != Outcome::Done {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Done)
    }

    /// Lets the shim keep a descriptor for the next owner of the session.
    pub async fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> Result<Outcome, Gone> {
        Ok(self.ask(Verb::Store { name: name.into() }, &[], Some(descriptor)).await?.0)
    }

    /// Takes back a stored descriptor.
    pub async fn take(&self, name: &str) -> Result<(Outcome, Option<OwnedFd>), Gone> {
        self.ask(Verb::Return { name: name.into(), keep: false }, &[], None).await
    }

    /// Returns a copy of a stored descriptor. A shim of an earlier version no longer keeps it then.
    pub async fn copy(&self, name: &str) -> Result<(Outcome, Option<OwnedFd>), Gone> {
        self.ask(Verb::Return { name: name.into(), keep: true }, &[], None).await
    }

    async fn ask(
        &self,
        verb: Verb,
        bytes: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Outcome, Option<OwnedFd>), Gone> {
        let shared = &self.inner.shared;
        // Input is sent one request at a time: the shim keeps no queue for a connection.
        let writes = matches!(verb, Verb::Write { .. } | Verb::CloseInput);
        let write = if writes { Some(permit(&shared.writing).await?) } else { None };
        let place = permit(&shared.places).await?;
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let packet = serde_json::to_vec(&Request { id, verb }).map_err(|_| Gone)?;
        if !shared.wait_for_answer(id, Waiter { answer, _permits: [write, Some(place)] }) {
            return shared.after_the_end();
        }
        let sent = shared
            .socket
            .async_io(Interest::WRITABLE, |socket| packet::send(socket, &[&packet, b"\n", bytes], descriptor));
        if sent.await.is_err() {
            // It is gone; the reader may still receive its last messages.
            shared.waiters().remove(&id);
            let _ = self.wait_for(|seen| seen.gone).await;
            return shared.after_the_end();
        }
        match answered.await {
            Ok(answer) => Ok(answer),
            Err(_) => shared.after_the_end(),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Shared {
    fn waiters(&self) -> MutexGuard<'_, HashMap<u64, Waiter>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether an answer can still arrive.
    fn wait_for_answer(&self, id: u64, waiter: Waiter) -> bool {
        let mut waiters = self.waiters();
        // Checked under the lock: everybody in the table when the end is marked is notified.
        if self.seen.borrow().gone {
            return false;
        }
        waiters.insert(id, waiter);
        true
    }

    fn after_the_end<T>(&self) -> Result<(Outcome, Option<T>), Gone> {
        if self.seen.borrow().ended.is_some() { Ok((Outcome::NoProcess, None)) } else { Err(Gone) }
    }

    fn heard(&self, message: Message, descriptor: Option<OwnedFd>) {
        match message {
            Message::Reply(reply) => {
                let waiter = self.waiters().remove(&reply.id);
                if let Some(waiter) = waiter {
                    // The caller may have stopped waiting.
                    let _ = waiter.answer.send((reply.outcome, descriptor));
                }
            }
            Message::Notice(Notice::Moved { snapshot } | Notice::Hello { snapshot, .. }) => {
                self.seen.send_modify(|seen| seen.snapshot = snapshot);
            }
            Message::Notice(Notice::Grown { log_end }) => self.seen.send_modify(|seen| seen.log_end = log_end),
            Message::Notice(Notice::Ended { record }) => self.seen.send_modify(|seen| seen.end(record)),
        }
    }
}

impl Seen {
    fn end(&mut self, record: ExitRecord) {
        self.snapshot.end(&record);
        self.log_end = record.log_end;
        self.ended = Some(record);
    }
}

async fn permit(semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Gone> {
    Arc::clone(semaphore).acquire_owned().await.map_err(|_| Gone)
}

/// The first packet of a shim.
struct Hello {
    shim_pid: i32,
    snapshot: Snapshot,
    rungs: Option<Box<Rungs>>,
}

async fn hello(socket: &AsyncFd<OwnedFd>) -> Result<Hello, AdoptError> {
    let mut buffer = vec![0; MESSAGE_MAX];
    let received = receive(socket, &mut buffer).await?;
    if received.length == 0 {
        return Err(AdoptError::HungUp);
    }
    let line = packet::split(&buffer[..received.length]).0;
    // First the part that every version has: the rest of another version's hello may be anything.
    match serde_json::from_slice(line) {
        Ok(Greeting { notice, version, oldest })
            if notice == "hello" && (version < OLDEST || oldest.unwrap_or(version) > VERSION) =>
        {
            return Err(AdoptError::Version { theirs: version });
        }
        Ok(Greeting { .. }) | Err(_) => {}
    }
    match serde_json::from_slice(line) {
        Ok(Message::Notice(Notice::Hello { shim_pid, snapshot, rungs, .. })) => Ok(Hello { shim_pid, snapshot, rungs }),
        Ok(Message::Notice(Notice::Moved { .. } | Notice::Grown { .. } | Notice::Ended { .. }) | Message::Reply(_))
        | Err(_) => Err(AdoptError::NotAShim),
    }
}

/// The part of a hello that every version of the protocol has.
#[derive(Deserialize)]
struct Greeting {
    notice: String,
    version: u32,
    oldest: Option<u32>,
}

async fn receive(socket: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> io::Result<Received> {
    socket.async_io(Interest::READABLE, |socket| packet::receive(socket.as_fd(), buffer)).await
}

/// Reads all messages of the shim, until it is gone.
async fn read(shared: Arc<Shared>) {
    let mut buffer = vec![0; MESSAGE_MAX];
    while let Ok(received) = receive(&shared.socket, &mut buffer).await {
        if received.length == 0 {
            break;
        }
        // Unknown messages of a newer shim are ignored.
        if let Ok(message) = serde_json::from_slice(packet::split(&buffer[..received.length]).0) {
            shared.heard(message, received.descriptor);
        }
    }
    let mut waiters = shared.waiters();
    shared.seen.send_modify(|seen| seen.gone = true);
    waiters.clear();
}
