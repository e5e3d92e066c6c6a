//! What is typed or piped in, handed on piece by piece: the next piece is read only when the last one has arrived.

use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::Duration;

use relive_session::connection::Connection;
use relive_session::protocol::{Outcome, Verb, WRITE_MAX};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::terminal::key::Key;

/// What the end of our input means to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// It has no more input either.
    Close,
    /// Nothing: others may still have some for it.
    Leave,
    /// There is none: our input is somebody else's.
    Unread,
}

/// Why no more is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// There is no more.
    Finished,
    /// The detach key was pressed.
    Detached,
    /// The program takes none.
    Refused,
}

/// Forwards our stdin until it ends, the key is pressed, or the program takes no more.
pub(crate) async fn forward(connection: &Connection, detach: Option<Key>, at_end: AtEnd) -> Stopped {
    if at_end == AtEnd::Unread {
        return Stopped::Finished;
    }
    let mut pieces = pieces();
    while let Some(piece) = pieces.recv().await {
        let pressed = detach.and_then(|key| piece.iter().position(|byte| *byte == key.byte()));
        let typed = &piece[..pressed.unwrap_or(piece.len())];
        if !typed.is_empty() && !matches!(connection.write(typed).await, Ok(Outcome::Done)) {
            return if pressed.is_some() { Stopped::Detached } else { Stopped::Refused };
        }
        if pressed.is_some() {
            return Stopped::Detached;
        }
    }
    if at_end == AtEnd::Close {
        // A program that has ended meanwhile needs no end of its input.
        let _ = connection.request(Verb::CloseInput).await;
    }
    Stopped::Finished
}

/// Stdin, read by a thread of its own: a regular file or a terminal cannot be waited for in any other way. The thread is
/// never joined; it goes with the command.
fn pieces() -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel(1);
    thread::spawn(move || read(&sender));
    receiver
}

fn read(sender: &Sender<Vec<u8>>) {
    /// A command in the background of its terminal waits for the foreground; nobody tells it when it gets there.
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    let stdin = io::stdin();
    let mut buffer = vec![0; WRITE_MAX];
    loop {
        // Reading from the background would stop us, though the program may never want any input.
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        if stdin.is_terminal() && tcgetpgrp(&stdin).is_ok_and(|foreground| foreground != getpgrp()) {
            thread::sleep(LOOK_EVERY);
            continue;
        }
        match rustix::io::read(&stdin, &mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}
