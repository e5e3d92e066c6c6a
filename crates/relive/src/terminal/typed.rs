//! Lines typed on the terminal while something else writes to it, and the key that detaches.
//!
//! The terminal keeps editing lines itself. It is only told that the key ends a line too, so that the key arrives at once.
//! Lines are read by a thread of its own, which nobody waits for: the end of an agent needs no key to be pressed. What was
//! typed until the keyboard is closed is not left to the shell; what is typed later is.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use relive_top::AT_ONCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcgetpgrp, tcsetattr,
};
use tokio::sync::mpsc;

use super::key::Key;

/// How often a command in the background of its terminal looks whether it is in the foreground: nobody tells it.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The longest line that a terminal hands over.
const LINE_MAX: usize = 4096;

/// How much of a pasted text is taken in at once.
const LINES_MAX: usize = 64 << 10;

/// What was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    Line(String),
    /// Several lines that came at once: they were pasted, and none of them was typed as an answer.
    Lines(Vec<String>),
    /// Text that Enter did not end, and Ctrl-D: the text does not count.
    Unended,
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
    /// Lines that came at once, and are taken one by one.
    pasted: VecDeque<String>,
}

#[derive(Debug)]
struct Terminal {
    file: OwnedFd,
    key: Key,
    /// How it was before the key was set.
    before: Mutex<Option<Termios>>,
    /// Locked while a line is read, so that the lines that were typed so far can be dropped completely.
    access: Mutex<Access>,
}

/// Whether lines are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Open,
    Closed,
}

/// What became of text that was typed and not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untaken {
    Nothing,
    /// There was some, perhaps a line that was not ended; it is gone.
    Dropped,
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
        let terminal = Arc::new(Terminal { file, key, before: Mutex::new(None), access: Mutex::new(Access::Open) });
        terminal.set_key();
        let (typed, lines) = mpsc::channel(1);
        let reading = Arc::clone(&terminal);
        thread::Builder::new().name("keyboard".into()).spawn(move || reading.read(&typed))?;
        Ok(Some(Self { terminal, lines, pasted: VecDeque::new() }))
    }

    /// The next thing that is typed. After [`Typed::End`] there may be more.
    pub(crate) async fn next(&mut self) -> Typed {
        match self.pasted.pop_front() {
            Some(line) => Typed::Line(line),
            None => self.lines.recv().await.unwrap_or(Typed::End),
        }
    }

    /// Has lines that came at once taken one by one.
    pub(crate) fn take_each(&mut self, lines: Vec<String>) {
        self.pasted.extend(lines);
    }

    /// Forgets what was typed so far: it is no answer to what is asked next.
    pub(crate) fn forget(&mut self) -> Untaken {
        let terminal = Arc::clone(&self.terminal);
        let _access = terminal.access();
        self.drop_typed()
    }

    /// Resets the terminal, and forgets what was typed so far. What is typed from now on is for the shell.
    pub(crate) fn close(mut self) -> Untaken {
        *self.terminal.access() = Access::Closed;
        self.drop_typed()
    }

    fn drop_typed(&mut self) -> Untaken {
        let mut untaken = self.terminal.drop_typed();
        if self.pasted.drain(..).any(|line| !line.trim().is_empty()) {
            untaken = Untaken::Dropped;
        }
        while let Ok(typed) = self.lines.try_recv() {
            let is_text = match typed {
                Typed::Line(line) => !line.trim().is_empty(),
                Typed::Lines(_) | Typed::Unended => true,
                Typed::Detach | Typed::End => false,
            };
            if is_text {
                untaken = Untaken::Dropped;
            }
        }
        untaken
    }

    /// Sets the key again: a shell that stopped us has put its own modes.
    pub(crate) fn continued(&self) {
        self.terminal.set_key();
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        *self.terminal.access() = Access::Closed;
        self.terminal.drop_typed();
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

    fn access(&self) -> MutexGuard<'_, Access> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what was typed and not read, also a line that was not ended. A terminal that is gone has nothing to drop.
    fn drop_typed(&self) -> Untaken {
        if !self.is_foreground() {
            return Untaken::Nothing;
        }
        let Ok(now) = tcgetattr(&self.file) else { return Untaken::Nothing };
        // A terminal that edits lines does not count the one that is being typed.
        let mut uncooked = now.clone();
        uncooked.local_modes.remove(LocalModes::ICANON);
        let _ = tcsetattr(&self.file, OptionalActions::Now, &uncooked);
        let count = rustix::io::ioctl_fionread(&self.file).unwrap_or(0);
        let _ = tcflush(&self.file, QueueSelector::IFlush);
        let _ = tcsetattr(&self.file, OptionalActions::Now, &now);
        if count > 0 { Untaken::Dropped } else { Untaken::Nothing }
    }

    /// Reads what there is; `None` if that is nothing, or not for us.
    fn read_now(&self, buffer: &mut [u8]) -> Option<rustix::io::Result<usize>> {
        let access = self.access();
        // It may have been dropped meanwhile, and reading would wait for more.
        let mut ready = [PollFd::new(&self.file, PollFlags::IN)];
        let found = poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        (*access == Access::Open && found != Ok(0)).then(|| rustix::io::read(&self.file, buffer))
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
            let found = match self.read_now(&mut buffer) {
                None if *self.access() == Access::Closed => return,
                None | Some(Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN)) => continue,
                Some(Ok(0)) => vec![Typed::End],
                Some(Ok(count)) => self.with_following(parse(&buffer[..count], self.key), &mut buffer),
                Some(Err(_)) => break,
            };
            // A terminal that hung up reads as ended for ever.
            let gone = ready[0].revents().contains(PollFlags::HUP);
            if found.into_iter().any(|found| typed.blocking_send(found).is_err()) || gone {
                return;
            }
        }
    }

    /// Adds the lines that come at once after a line, and what ends them.
    fn with_following(&self, first: Typed, buffer: &mut [u8]) -> Vec<Typed> {
        let mut lines = Lines::default();
        let mut next = first;
        loop {
            if let Some(last) = lines.push(next) {
                return lines.end().into_iter().chain([last]).collect();
            }
            let at_once = Timespec::try_from(AT_ONCE).ok();
            let found = poll(&mut [PollFd::new(&self.file, PollFlags::IN)], at_once.as_ref());
            next = match found {
                Ok(1..) if self.is_foreground() && lines.size < LINES_MAX => match self.read_now(buffer) {
                    Some(Ok(0)) => Typed::End,
                    Some(Ok(count)) => parse(&buffer[..count], self.key),
                    // What is wrong is found again.
                    Some(Err(_)) | None => return lines.end().into_iter().collect(),
                },
                Ok(_) | Err(_) => return lines.end().into_iter().collect(),
            };
        }
    }
}

/// Lines that came at once.
#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    /// The bytes of all.
    size: usize,
}

impl Lines {
    /// Adds a line. Returns what is none.
    fn push(&mut self, typed: Typed) -> Option<Typed> {
        match typed {
            Typed::Line(line) => {
                self.size += line.len() + 1;
                self.lines.push(line);
                None
            }
            other @ (Typed::Lines(_) | Typed::Unended | Typed::Detach | Typed::End) => Some(other),
        }
    }

    fn end(self) -> Option<Typed> {
        match <[String; 1]>::try_from(self.lines) {
            Ok([line]) => Some(Typed::Line(line)),
            Err(lines) if lines.is_empty() => None,
            Err(lines) => Some(Typed::Lines(lines)),
        }
    }
}

/// One line as the terminal hands it over.
fn parse(bytes: &[u8], key: Key) -> Typed {
    if bytes.ends_with(&[key.byte()]) {
        return Typed::Detach;
    }
    if !bytes.ends_with(b"\n") {
        return Typed::Unended;
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
        check(b"half", Typed::Unended);
        check(b"\x1d", Typed::Detach);
        check(b"half a line\x1d", Typed::Detach);
    }
}
