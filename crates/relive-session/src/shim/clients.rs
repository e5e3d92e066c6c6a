//! The connected clients.
//!
//! **Invariant:** the shim waits for no client. Messages that a client does not read are kept for it: at most one
//! answer per request that was read, and only the latest notice of each kind; no more requests are read until its
//! answers are sent.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::SocketFlags;

use crate::exit::ExitRecord;
use crate::packet::{self, Received};
use crate::protocol::{CONNECTIONS_MAX, Message, Notice, OLDEST, Outcome, Reply, VERSION};
use crate::stage::Snapshot;
use crate::tree::Rungs;

/// The connected clients.
pub(super) struct Clients {
    listener: OwnedFd,
    connected: Vec<Client>,
    next: u64,
    /// Counts requests, to find the client that was silent for the longest time.
    heard: u64,
}

pub(super) struct Client {
    pub(super) id: u64,
    socket: OwnedFd,
    answers: VecDeque<(Reply, Option<OwnedFd>)>,
    greeted: bool,
    /// Whether the session changed since its last notice.
    moved: bool,
    attached: bool,
    /// Whether the log grew since its last notice.
    grown: bool,
    /// How far it has read the log, if the program has to wait for it.
    read: Option<u64>,
    told_the_end: bool,
    gone: bool,
    /// The value of the counter at its last request.
    heard: u64,
}

impl Clients {
    /// Creates the list, with the owner's own connection first.
    pub(super) fn new(listener: OwnedFd, owner: OwnedFd) -> Self {
        let mut clients = Self { listener, connected: Vec::new(), next: 0, heard: 0 };
        clients.add(owner);
        clients
    }

    fn add(&mut self, socket: OwnedFd) {
        let id = self.next;
        self.next += 1;
        self.connected.push(Client {
            id,
            socket,
            answers: VecDeque::new(),
            greeted: false,
            moved: false,
            attached: false,
            grown: false,
            read: None,
            told_the_end: false,
            gone: false,
            heard: self.heard,
        });
    }

    /// Accepts new connections. Other users are disconnected. If there are too many, one client is dropped: first
    /// members of the tree, so that no program locks its owner out, then the client that was silent for the longest
    /// time.
    pub(super) fn accept(&mut self, members: impl Fn() -> Vec<i32>) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = rustix::net::accept_with(&self.listener, flags) {
            if is_ours(&socket) && self.make_room(&socket, &members) {
                self.add(socket);
            }
        }
    }

    /// Returns whether there is space for another one.
    fn make_room(&mut self, newcomer: &OwnedFd, members: impl Fn() -> Vec<i32>) -> bool {
        if self.connected.len() < CONNECTIONS_MAX {
            return true;
        }
        let members = members();
        let is_member = |socket: &OwnedFd| peer(socket).is_some_and(|pid| members.contains(&pid));
        let quietest = |inside: bool| {
            let those = self.connected.iter().enumerate().filter(|(_, client)| is_member(&client.socket) == inside);
            those.min_by_key(|(_, client)| client.heard).map(|(index, _)| index)
        };
        match quietest(true).or_else(|| quietest(false).filter(|_| !is_member(newcomer))) {
            Some(index) => {
                self.connected.remove(index);
                true
            }
            None => false,
        }
    }

    /// Takes another socket for new connections. Those that exist stay.
    pub(super) fn listen_at(&mut self, listener: OwnedFd) {
        self.listener = listener;
    }

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.connected.iter()
    }

    fn find(&mut self, id: u64) -> Option<&mut Client> {
        self.connected.iter_mut().find(|client| client.id == id)
    }

    /// Receives one packet of a connection; `None` if there is nothing, or the client is gone.
    pub(super) fn receive(&mut self, id: u64, buffer: &mut [u8]) -> Option<Received> {
        self.heard += 1;
        let heard = self.heard;
        let client = self.find(id)?;
        match packet::receive(&client.socket, buffer) {
            Ok(received) if received.length > 0 => {
                client.heard = heard;
                Some(received)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Ok(_) | Err(_) => {
                client.gone = true;
                None
            }
        }
    }

    /// Answers a request. The client may be gone.
    pub(super) fn answer(&mut self, connection: u64, request: u64, outcome: Outcome, descriptor: Option<OwnedFd>) {
        if let Some(client) = self.find(connection) {
            client.answers.push_back((Reply { id: request, outcome }, descriptor));
        }
    }

    pub(super) fn attach(&mut self, id: u64) {
        if let Some(client) = self.find(id) {
            (client.attached, client.grown) = (true, true);
        }
    }

    pub(super) fn hold(&mut self, id: u64, read: u64) {
        if let Some(client) = self.find(id) {
            client.read = Some(read);
        }
    }

    /// Returns the position of the slowest reader that the program waits for.
    pub(super) fn slowest_reader(&self) -> Option<u64> {
        self.connected.iter().filter_map(|client| client.read).min()
    }

    pub(super) fn log_grew(&mut self) {
        for client in &mut self.connected {
            client.grown = client.attached;
        }
    }

    pub(super) fn session_moved(&mut self) {
        for client in &mut self.connected {
            client.moved = true;
        }
    }

    /// Sends pending messages, as far as the clients accept them. Notices contain the current state.
    pub(super) fn flush(&mut self, now: &Now<'_>) {
        for client in &mut self.connected {
            if !client.gone && client.flush(now).is_err() {
                client.gone = true;
            }
        }
        self.connected.retain(|client| !client.gone);
    }
}

/// The current state, for notices.
pub(super) struct Now<'a> {
    pub(super) snapshot: Snapshot,
    pub(super) log_end: u64,
    pub(super) rungs: Option<&'a Rungs>,
    /// Set once the exit record exists.
    pub(super) ended: Option<&'a ExitRecord>,
}

impl Client {
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether messages wait for the client.
    pub(super) fn has_backlog(&self) -> bool {
        !self.answers.is_empty() || !self.greeted || self.moved || self.grown
    }

    /// Returns whether its requests are read: not while it leaves answers unread.
    pub(super) fn is_read(&self) -> bool {
        self.answers.is_empty()
    }

    pub(super) fn was_told_the_end(&self) -> bool {
        self.told_the_end
    }

    /// An error means that the client is gone.
    fn flush(&mut self, now: &Now<'_>) -> io::Result<()> {
        if !self.greeted {
            self.greeted = self.tell(Notice::Hello {
                version: VERSION,
                oldest: Some(OLDEST),
                relive: env!("CARGO_PKG_VERSION").into(),
                shim_pid: std::process::id() as i32,
                snapshot: now.snapshot.clone(),
                rungs: now.rungs.cloned().map(Box::new),
            })?;
        }
        while self.greeted
            && let Some((reply, descriptor)) = self.answers.pop_front()
        {
            if !self.send(&Message::Reply(reply.clone()), descriptor.as_ref().map(AsFd::as_fd))? {
                self.answers.push_front((reply, descriptor));
                return Ok(());
            }
        }
        if self.greeted && self.moved {
            // The end is reported last, when the log is complete.
            let ended = now.snapshot.stage.is_terminal();
            self.moved = !(ended || self.tell(Notice::Moved { snapshot: now.snapshot.clone() })?);
        }
        if self.greeted && self.grown {
            self.grown = !self.tell(Notice::Grown { log_end: now.log_end })?;
        }
        if let Some(record) = now.ended.filter(|_| !self.told_the_end && !self.has_backlog()) {
            self.told_the_end = self.tell(Notice::Ended { record: record.clone() })?;
        }
        Ok(())
    }

    fn tell(&self, notice: Notice) -> io::Result<bool> {
        self.send(&Message::Notice(notice), None)
    }

    /// Returns whether the message was accepted.
    fn send(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        let packet = serde_json::to_vec(message)?;
        match packet::send(&self.socket, &[&packet], descriptor) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns the pid of the other side, as this process sees it.
fn peer(socket: &OwnedFd) -> Option<i32> {
    rustix::net::sockopt::socket_peercred(socket).ok().map(|peer| peer.pid.as_raw_nonzero().get())
}

fn is_ours(socket: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_peercred(socket)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}
