//! Lines typed on the terminal while something else writes to it, and the key that detaches.
//!
//! The terminal keeps editing lines itself. It is only told that the key ends a line too, so that the key arrives at once.
//! Lines are read by a thread of its own, which nobody waits for: the end of an agent needs no key to be pressed. What was
//! typed until the keyboard is closed is not left to the shell; what is typed later is.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use relive_top::AT_ONCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcgetpgrp, tcsetattr,
};
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior};

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
    /// A line that the terminal may have cut: it drops what exceeds its buffer without a word.
    TooLong,
    /// The key that detaches, and what became of the text before it on its line.
    Detach(Untaken),
    /// The end of input, or a terminal that is gone.
    End,
}

/// The keyboard. However it is dropped, the terminal is as it was.
#[derive(Debug)]
pub(crate) struct Keyboard {
    terminal: Arc<Terminal>,
    /// Lines that came at once, and are taken one by one.
    pasted: VecDeque<String>,
    /// Set while the key is not set, because a shell has continued us in the background: when to look again.
    background: Option<Interval>,
}

#[derive(Debug)]
struct Terminal {
    file: OwnedFd,
    key: Key,
    /// How it was before the key was set.
    before: Mutex<Option<Termios>>,
    /// Locked while a line is read, so that everything that was typed so far can be dropped: it is either still in the
    /// terminal or here.
    pending: Mutex<Pending>,
    /// Told when something can be taken.
    is_ready: Notify,
    /// Told when everything was taken.
    is_taken: Condvar,
}

/// What was read from the terminal and not taken.
#[derive(Debug, Default)]
struct Pending {
    /// Lines that came at once, until it is known that no more follow.
    lines: Lines,
    ready: VecDeque<Typed>,
    is_closed: bool,
    /// Whether the terminal is gone.
    is_over: bool,
}

impl Pending {
    /// Adds what was read. Returns whether lines may follow at once.
    fn push(&mut self, typed: Typed) -> bool {
        let Some(last) = self.lines.push(typed) else { return self.lines.size < LINES_MAX };
        self.end_lines();
        self.ready.push_back(last);
        false
    }

    /// No more lines followed at once.
    fn end_lines(&mut self) {
        self.ready.extend(std::mem::take(&mut self.lines).end());
    }

    fn drop_all(&mut self) -> Untaken {
        self.end_lines();
        let is_text = |typed| match typed {
            Typed::Line(line) => !line.trim().is_empty(),
            Typed::Lines(_) | Typed::Unended | Typed::TooLong => true,
            Typed::Detach(untaken) => untaken == Untaken::Dropped,
            Typed::End => false,
        };
        Untaken::of(self.ready.drain(..).map(is_text).fold(false, |any, text| any | text))
    }
}

/// What became of text that was typed and not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untaken {
    Nothing,
    /// There was some, perhaps a line that was not ended; it is gone.
    Dropped,
}

impl Untaken {
    fn of(is_dropped: bool) -> Self {
        if is_dropped { Self::Dropped } else { Self::Nothing }
    }

    /// Returns what became of two texts together.
    fn or(self, other: Self) -> Self {
        if self == Self::Dropped { self } else { other }
    }
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
        let terminal = Arc::new(Terminal::new(file, key));
        terminal.set_key();
        let reading = Arc::clone(&terminal);
        thread::Builder::new().name("keyboard".into()).spawn(move || reading.read())?;
        Ok(Some(Self { terminal, pasted: VecDeque::new(), background: None }))
    }

    /// The next thing that is typed. After [`Typed::End`] there may be more.
    pub(crate) async fn next(&mut self) -> Typed {
        if let Some(line) = self.pasted.pop_front() {
            return Typed::Line(line);
        }
        loop {
            if let Some(typed) = self.terminal.take() {
                return typed;
            }
            tokio::select! {
                () = self.terminal.is_ready.notified() => {}
                () = tick(&mut self.background) => self.continued(),
            }
        }
    }

    /// Has lines that came at once taken one by one.
    pub(crate) fn take_each(&mut self, lines: Vec<String>) {
        self.pasted.extend(lines);
    }

    /// Forgets what was typed so far: it is no answer to what is asked next.
    pub(crate) fn forget(&mut self) -> Untaken {
        let pasted = self.pasted.drain(..).filter(|line| !line.trim().is_empty()).count();
        Untaken::of(pasted > 0).or(self.terminal.forget(&mut self.terminal.pending()))
    }

    /// Resets the terminal, and forgets what was typed so far. What is typed from now on is for the shell.
    pub(crate) fn close(mut self) -> Untaken {
        self.forget().or(self.terminal.close())
    }

    /// Sets the key again: a shell that stopped us has put its own modes. In the background it is set later.
    pub(crate) fn continued(&mut self) {
        if self.terminal.is_foreground() {
            self.background = None;
            self.terminal.set_key();
        } else if self.background.is_none() {
            let mut interval = tokio::time::interval(LOOK_EVERY);
            // While this process is stopped, nothing is to be made up for.
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            self.background = Some(interval);
        }
    }
}

/// Waits until it is time to look again; for ever if there is nothing to look for.
async fn tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.terminal.close();
    }
}

impl Terminal {
    fn new(file: OwnedFd, key: Key) -> Self {
        let (before, pending) = (Mutex::new(None), Mutex::new(Pending::default()));
        Self { file, key, before, pending, is_ready: Notify::new(), is_taken: Condvar::new() }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was typed; [`Typed::End`] if the terminal is gone.
    fn take(&self) -> Option<Typed> {
        let mut pending = self.pending();
        let typed = pending.ready.pop_front();
        self.is_taken.notify_one();
        typed.or_else(|| pending.is_over.then_some(Typed::End))
    }

    fn forget(&self, pending: &mut Pending) -> Untaken {
        let read = pending.drop_all();
        self.is_taken.notify_one();
        read.or(self.drop_typed())
    }

    /// Forgets what was typed and resets the terminal, once: what is typed later is for the shell.
    fn close(&self) -> Untaken {
        let mut pending = self.pending();
        if std::mem::replace(&mut pending.is_closed, true) {
            return Untaken::Nothing;
        }
        let untaken = self.forget(&mut pending);
        self.restore();
        untaken
    }

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
        Untaken::of(count > 0)
    }

    /// Reads what there is, unless that is nothing, or not for us. Returns whether lines may follow at once.
    fn read_now(&self, buffer: &mut [u8]) -> rustix::io::Result<bool> {
        let mut pending = self.pending();
        // It may have been dropped meanwhile, and reading would wait for more.
        let mut ready = [PollFd::new(&self.file, PollFlags::IN)];
        let found = poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        if pending.is_closed || found == Ok(0) {
            return Ok(false);
        }
        let typed = match rustix::io::read(&self.file, &mut *buffer)? {
            0 => Typed::End,
            count => parse(&buffer[..count], self.key),
        };
        Ok(pending.push(typed))
    }

    fn restore(&self) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(before) = before.filter(|_| self.is_foreground()) {
            // A terminal that is gone needs nothing.
            let _ = tcsetattr(&self.file, OptionalActions::Now, &before);
        }
    }

    fn read(&self) {
        while !self.is_foreground() {
            thread::sleep(LOOK_EVERY);
        }
        self.set_key();
        self.read_until_gone();
        self.pending().is_over = true;
        self.is_ready.notify_one();
    }

    fn read_until_gone(&self) {
        let mut buffer = [0; LINE_MAX];
        loop {
            let mut ready = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            }
            if !self.is_foreground() {
                thread::sleep(LOOK_EVERY);
                continue;
            }
            match self.read_with_following(&mut buffer) {
                Ok(()) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(_) => return,
            }
            self.is_ready.notify_one();
            // A terminal that hung up reads as ended for ever.
            let gone = ready[0].revents().contains(PollFlags::HUP);
            let is_full = |pending: &mut Pending| !pending.ready.is_empty() && !pending.is_closed;
            let pending = self.is_taken.wait_while(self.pending(), is_full).unwrap_or_else(PoisonError::into_inner);
            if pending.is_closed || gone {
                return;
            }
        }
    }

    /// Reads what there is, with the lines that come at once after it.
    fn read_with_following(&self, buffer: &mut [u8]) -> rustix::io::Result<()> {
        let mut read = self.read_now(buffer);
        while read == Ok(true) {
            let at_once = Timespec::try_from(AT_ONCE).ok();
            let found = poll(&mut [PollFd::new(&self.file, PollFlags::IN)], at_once.as_ref());
            read = match found {
                Ok(1..) if self.is_foreground() => self.read_now(buffer),
                Ok(_) | Err(_) => Ok(false),
            };
        }
        self.pending().end_lines();
        read.map(drop)
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
            other @ (Typed::Lines(_) | Typed::Unended | Typed::TooLong | Typed::Detach(_) | Typed::End) => Some(other),
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
    if let Some(before) = bytes.strip_suffix(&[key.byte()]) {
        return Typed::Detach(Untaken::of(!before.trim_ascii().is_empty()));
    }
    if !bytes.ends_with(b"\n") {
        return Typed::Unended;
    }
    if bytes.len() >= LINE_MAX {
        return Typed::TooLong;
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
        let line = |length: usize| format!("{}\n", "x".repeat(length));
        check(line(LINE_MAX - 2).as_bytes(), Typed::Line("x".repeat(LINE_MAX - 2)));
        check(line(LINE_MAX - 1).as_bytes(), Typed::TooLong);
        check(b"\x1d", Typed::Detach(Untaken::Nothing));
        check(b"half a line\x1d", Typed::Detach(Untaken::Dropped));
    }

    fn line(text: &str) -> Typed {
        Typed::Line(text.into())
    }

    /// The line may not be taken yet, and more lines may follow it at once.
    #[test]
    fn a_line_that_was_read_before_a_question_does_not_answer_it() {
        let mut pending = Pending::default();
        assert!(pending.push(line("y")), "another line may follow");
        assert_eq!(pending.drop_all(), Untaken::Dropped);
        pending.end_lines();
        assert_eq!(pending.ready, []);
        pending.push(line("y"));
        assert!(!pending.push(Typed::Detach(Untaken::Nothing)));
        assert_eq!(pending.drop_all(), Untaken::Dropped);
        assert_eq!((pending.ready.len(), pending.drop_all()), (0, Untaken::Nothing));
        pending.push(line("no"));
        pending.end_lines();
        assert_eq!(pending.ready, [line("no")], "what is typed later counts");
    }

    /// Somebody else's terminal, whose modes stay as they are.
    fn terminal() -> (Terminal, OwnedFd) {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).and_then(|()| unlockpt(&ours)).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let theirs = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
        (Terminal::new(theirs, parse_key(DETACH).unwrap()), ours)
    }

    #[test]
    fn a_keyboard_that_was_closed_leaves_what_is_typed_to_the_shell() {
        let (terminal, person) = terminal();
        rustix::io::write(&person, b"y\n").unwrap();
        assert!(terminal.read_now(&mut [0; LINE_MAX]).unwrap());
        assert_eq!(terminal.close(), Untaken::Dropped, "it was read, and may have been followed by more");
        rustix::io::write(&person, b"ls\n").unwrap();
        assert!(!terminal.read_now(&mut [0; LINE_MAX]).unwrap());
        assert_eq!((terminal.close(), terminal.take()), (Untaken::Nothing, None));
        let mut typed = [0; LINE_MAX];
        let count = rustix::io::read(&terminal.file, &mut typed).unwrap();
        assert_eq!(&typed[..count], b"ls\n");
    }
}
