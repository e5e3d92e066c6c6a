//! Forwards typed or piped input piece by piece: the next piece is read only when the last one has arrived.

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

/// The effect of the end of the input on the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// The input of the program ends too.
    Close,
    /// None: others may still send input.
    Leave,
    /// The input is not read: it belongs to another program.
    Unread,
}

/// The reason why forwarding stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    Finished,
    Detached,
    /// The program accepts no input.
    Refused,
}

/// Forwards stdin until it ends, the key is pressed, or the program accepts no more.
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
        // A program that has ended in the meantime needs no end of input.
        let _ = connection.request(Verb::CloseInput).await;
    }
    Stopped::Finished
}

/// Reads stdin on a thread of its own: there is no other way to wait for a regular file or a terminal. The thread is
/// never joined; it ends with the command.
fn pieces() -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel(1);
    thread::spawn(move || read(&sender));
    receiver
}

fn read(sender: &Sender<Vec<u8>>) {
    /// A command in the background of its terminal has to poll for the foreground: there is no notification.
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    let stdin = io::stdin();
    let mut buffer = vec![0; WRITE_MAX];
    loop {
        // Reading from the background would stop this process, although the program may never want any input.
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
