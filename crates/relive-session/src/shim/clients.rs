//! Those who are connected.
//!
//! What always holds: nobody is waited for. What a connection does not take stays with it: at most one answer per request it
//! was read, and of each kind of notice the latest only; it is read again when its answers are gone.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::SocketFlags;

use crate::exit::ExitRecord;
use crate::packet::{self, Received};
use crate::protocol::{CONNECTIONS_MAX, Message, Notice, OLDEST, Outcome, Reply, VERSION};
use crate::stage::Snapshot;

/// Those who are connected.
pub(super) struct Clients {
    listener: OwnedFd,
    connected: Vec<Client>,
    next: u64,
    /// Counts what was heard, to tell who was silent for long.
    heard: u64,
}

pub(super) struct Client {
    pub(super) id: u64,
    socket: OwnedFd,
    answers: VecDeque<(Reply, Option<OwnedFd>)>,
    greeted: bool,
    /// The session moved since it was told.
    moved: bool,
    attached: bool,
    /// The log grew since it was told.
    grown: bool,
    /// How far it has read the log, where the program is to wait for it.
    read: Option<u64>,
    told_the_end: bool,
    gone: bool,
    /// When it last said something, by the count.
    heard: u64,
}

impl Clients {
    /// The owner's own connection is the first.
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

    /// Takes in who knocks. Another user is hung up on. Where there are too many, somebody makes room: first those who are
    /// members of the tree, so that no program keeps its owner out, then whoever was silent for the longest.
    pub(super) fn accept(&mut self, members: impl Fn() -> Vec<i32>) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = rustix::net::accept_with(&self.listener, flags) {
            if is_ours(&socket) && self.make_room(&socket, &members) {
                self.add(socket);
            }
        }
    }

    /// Whether there is room for one more.
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

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.connected.iter()
    }

    fn find(&mut self, id: u64) -> Option<&mut Client> {
        self.connected.iter_mut().find(|client| client.id == id)
    }

    /// Reads one packet of a connection; none where there is nothing, or nobody any more.
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

    /// Answers a request. Who asked may have gone.
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

    /// How far the slowest of those has read for whom the program waits.
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

    /// Sends what is to be sent, as far as it is taken. Notices say how things are now.
    pub(super) fn flush(&mut self, now: &Now<'_>) {
        for client in &mut self.connected {
            if !client.gone && client.flush(now).is_err() {
                client.gone = true;
            }
        }
        self.connected.retain(|client| !client.gone);
    }
}

/// How things are now, for those who are to hear of it.
pub(super) struct Now<'a> {
    pub(super) snapshot: Snapshot,
    pub(super) log_end: u64,
    /// Once the exit record is there.
    pub(super) ended: Option<&'a ExitRecord>,
}

impl Client {
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether something waits until it is taken.
    pub(super) fn has_backlog(&self) -> bool {
        !self.answers.is_empty() || !self.greeted || self.moved || self.grown
    }

    /// Whether it is read: not while it leaves its answers lying.
    pub(super) fn is_read(&self) -> bool {
        self.answers.is_empty()
    }

    pub(super) fn was_told_the_end(&self) -> bool {
        self.told_the_end
    }

    /// An error means that it has gone.
    fn flush(&mut self, now: &Now<'_>) -> io::Result<()> {
        if !self.greeted {
            self.greeted = self.tell(Notice::Hello {
                version: VERSION,
                oldest: Some(OLDEST),
                relive: env!("CARGO_PKG_VERSION").into(),
                shim_pid: std::process::id() as i32,
                snapshot: now.snapshot.clone(),
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
            // That it ended is said last, when the log is whole.
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

    /// Whether it was taken.
    fn send(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        let packet = serde_json::to_vec(message)?;
        match packet::send(&self.socket, &[&packet], descriptor) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The pid of the other side, as this process sees it.
fn peer(socket: &OwnedFd) -> Option<i32> {
    rustix::net::sockopt::socket_peercred(socket).ok().map(|peer| peer.pid.as_raw_nonzero().get())
}

fn is_ours(socket: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_peercred(socket)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}
