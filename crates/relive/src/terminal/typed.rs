//! Lines typed on the terminal while something else writes to it, and the key that detaches.
//!
//! The terminal keeps editing lines itself. It is only told that the key ends a line too, so that the key arrives at once.
//! Lines are read by a thread of its own, which nobody waits for: the end of an agent needs no key to be pressed.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::getpgrp;
use rustix::termios::{
    OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcgetpgrp, tcsetattr,
};
use tokio::sync::mpsc;

use super::key::Key;

/// How often a command in the background of its terminal looks whether it is in the foreground: nobody tells it.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The longest line that a terminal hands over.
const LINE_MAX: usize = 4096;

/// What was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    Line(String),
    /// The key that detaches.
    Detach,
    /// The end of input, or a terminal that is gone.
    End,
}

/// The keyboard. However it is dropped, the terminal is as it was.
#[derive(Debug)]
pub(crate) struct Keyboard {
    terminal: Arc<Terminal>,
    lines: mpsc::Receiver<Typed>,
}

#[derive(Debug)]
struct Terminal {
    file: OwnedFd,
    key: Key,
    /// How it was before the key was set.
    before: Mutex<Option<Termios>>,
}

impl Keyboard {
    /// Opens the terminal that a person is at; `None` where there is none. Standard input may be something else, as in
    /// `git diff | relive run "review"`.
    pub(crate) fn open(key: Key) -> io::Result<Option<Self>> {
        let file = if io::stdin().is_terminal() {
            io::stdin().as_fd().try_clone_to_owned()?
        } else {
            match OpenOptions::new().read(true).open("/dev/tty") {
                Ok(file) if File::is_terminal(&file) => file.into(),
                Ok(_) | Err(_) => return Ok(None),
            }
        };
        let terminal = Arc::new(Terminal { file, key, before: Mutex::new(None) });
        terminal.set_key();
        let (typed, lines) = mpsc::channel(1);
        let reading = Arc::clone(&terminal);
        thread::Builder::new().name("keyboard".into()).spawn(move || reading.read(&typed))?;
        Ok(Some(Self { terminal, lines }))
    }

    /// The next thing that is typed. After [`Typed::End`] there may be more.
    pub(crate) async fn next(&mut self) -> Typed {
        self.lines.recv().await.unwrap_or(Typed::End)
    }

    /// Forgets what was typed so far: it is no answer to what is asked next.
    pub(crate) fn forget(&mut self) {
        // A terminal that is gone has nothing to forget.
        let _ = tcflush(&self.terminal.file, QueueSelector::IFlush);
        while self.lines.try_recv().is_ok() {}
    }

    /// Sets the key again: a shell that stopped us has put its own modes.
    pub(crate) fn continued(&self) {
        self.terminal.set_key();
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.terminal.restore();
    }
}

impl Terminal {
    /// Changing or reading a terminal from its background would stop us.
    fn is_foreground(&self) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|foreground| foreground == getpgrp())
    }

    fn set_key(&self) {
        if !self.is_foreground() {
            return;
        }
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(now) = tcgetattr(&self.file) else { return };
        let mut with_key = now.clone();
        with_key.special_codes[SpecialCodeIndex::VEOL] = self.key.byte();
        if tcsetattr(&self.file, OptionalActions::Now, &with_key).is_ok() {
            before.get_or_insert(now);
        }
    }

    fn restore(&self) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(before) = before.filter(|_| self.is_foreground()) {
            // A terminal that is gone needs nothing.
            let _ = tcsetattr(&self.file, OptionalActions::Now, &before);
        }
    }

    fn read(&self, typed: &mpsc::Sender<Typed>) {
        let mut buffer = [0; LINE_MAX];
        while !self.is_foreground() {
            thread::sleep(LOOK_EVERY);
        }
        self.set_key();
        loop {
            let mut ready = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => break,
            }
            if !self.is_foreground() {
                thread::sleep(LOOK_EVERY);
                continue;
            }
            let found = match rustix::io::read(&self.file, &mut buffer) {
                Ok(0) => Typed::End,
                Ok(count) => parse(&buffer[..count], self.key),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                Err(_) => break,
            };
            // A terminal that hung up reads as ended for ever.
            let gone = ready[0].revents().contains(PollFlags::HUP);
            if typed.blocking_send(found).is_err() || gone {
                return;
            }
        }
    }
}

/// One line as the terminal hands it over.
fn parse(bytes: &[u8], key: Key) -> Typed {
    if bytes.ends_with(&[key.byte()]) {
        return Typed::Detach;
    }
    let text = String::from_utf8_lossy(bytes);
    Typed::Line(text.trim_end_matches(['\n', '\r']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::key::{DETACH, parse_key};

    #[test]
    fn a_line_is_a_line_and_the_key_detaches_wherever_it_is_pressed() {
        let check = |bytes: &[u8], expect: Typed| assert_eq!(parse(bytes, parse_key(DETACH).unwrap()), expect);
        check(b"yes\n", Typed::Line("yes".into()));
        check(b"\n", Typed::Line(String::new()));
        check(b"half", Typed::Line("half".into()));
        check(b"\x1d", Typed::Detach);
        check(b"half a line\x1d", Typed::Detach);
    }
}
