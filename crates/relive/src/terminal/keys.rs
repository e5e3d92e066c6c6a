//! Single keys for a command that draws on the whole screen: nothing that is typed is shown, and a key needs no Enter.
//!
//! However the command ends, dropping the value resets the terminal.

use std::io::{self, IsTerminal as _};
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use relive_top::AT_ONCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal as Number, getpgrp, getpid, kill_process};
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::line::Line;
use super::pasted::{self, Parser, Typed};

/// What a shell adds to the number of the signal that ended a command.
const SIGNALED: u8 = 128;

const ESCAPE: u8 = 0x1b;
/// Ctrl-D.
const END_OF_INPUT: u8 = 0x04;

/// What stands for a key that types no character.
const NO_CHARACTER: u8 = 0;
/// How much is taken in at once.
const AT_ONCE_MAX: usize = 64 << 10;

/// What was heard from the terminal.
enum Heard {
    Typed(Typed),
    /// See [`Pressed::Signal`].
    Signal(u8),
    /// See [`Pressed::Continued`].
    Continued,
}

/// What ended a wait for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pressed {
    Key(u8),
    /// Text that came at once, which is no key: it was pasted.
    Text,
    /// The command is asked to end, with this exit code: 128+N for signal N.
    Signal(u8),
    /// The command was stopped, and a shell has continued it: what was asked is not on the last line any more.
    Continued,
}

/// Which keys are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ignored {
    For(Duration),
    /// All until none was pressed for this time.
    UntilQuietFor(Duration),
}

/// Shows what was typed. A terminal that is gone needs nothing.
fn echo(bytes: &[u8]) {
    use std::io::Write as _;
    let mut out = io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// The keyboard, and the signals that end or stop the command.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Absent if stdin is no terminal, or one that another program uses.
    before: Option<Termios>,
    pressed: mpsc::Receiver<Typed>,
    /// Whether the command was stopped and continued since somebody asked.
    was_continued: bool,
    ending: Vec<(u8, Signal)>,
    stopping: Signal,
    continued: Signal,
}

impl Keys {
    pub(crate) fn open() -> io::Result<Self> {
        let ending = [
            (2, SignalKind::interrupt()),
            (1, SignalKind::hangup()),
            (3, SignalKind::quit()),
            (15, SignalKind::terminate()),
        ];
        let ending = ending.into_iter().map(|(number, kind)| Ok((number, signal(kind)?))).collect::<io::Result<_>>()?;
        let stopping = signal(SignalKind::from_raw(Number::TSTP.as_raw()))?;
        let continued = signal(SignalKind::from_raw(Number::CONT.as_raw()))?;
        let stdin = io::stdin();
        let is_ours = stdin.is_terminal() && tcgetpgrp(&stdin).is_ok_and(|foreground| foreground == getpgrp());
        let before = if is_ours { Some(tcgetattr(&stdin)?) } else { None };
        let (sender, pressed) = mpsc::channel(1);
        let keys = Self { before, pressed, was_continued: false, ending, stopping, continued };
        keys.enter()?;
        if is_ours {
            // Nobody waits for this thread: it ends with the command.
            thread::Builder::new().name("keys".into()).spawn(move || read(&sender))?;
        }
        Ok(keys)
    }

    /// Waits until the command is asked to end. Returns its exit code: 0 for the key `q`, 128+N for signal N.
    pub(crate) async fn quit(&mut self) -> io::Result<u8> {
        loop {
            match self.press().await? {
                Pressed::Key(b'q' | b'Q') => return Ok(0),
                Pressed::Key(_) | Pressed::Text | Pressed::Continued => {}
                Pressed::Signal(code) => return Ok(code),
            }
        }
    }

    /// Asks for a text that is shown as it is typed; `None` after Esc or Ctrl-D, or an error for a signal. Only the key Enter
    /// ends it, not a line break that was pasted. The text begins with `typed`. After a stop, `above` is shown again, and the
    /// prompt below it.
    pub(crate) async fn line(
        &mut self,
        above: &str,
        prompt: &str,
        typed: String,
    ) -> io::Result<Result<Option<String>, u8>> {
        let mut line = Line::from(typed);
        echo(format!("{prompt}{}", line.shown()).as_bytes());
        loop {
            match self.heard().await? {
                Heard::Signal(code) => return Ok(Err(code)),
                Heard::Continued => {
                    echo(format!("\r\n{above}{prompt}{}", line.shown()).as_bytes());
                    self.was_continued = false;
                }
                Heard::Typed(Typed::Key(b'\r' | b'\n')) => {
                    echo(b"\r\n");
                    return Ok(Ok(Some(line.into_text())));
                }
                Heard::Typed(Typed::Key(ESCAPE | END_OF_INPUT)) => {
                    echo(b"\r\n");
                    return Ok(Ok(None));
                }
                Heard::Typed(Typed::Key(key)) => echo(line.edit(&[key], prompt).as_bytes()),
                Heard::Typed(Typed::NoCharacter) => {}
                Heard::Typed(Typed::Pasted(text)) => echo(line.push(&text).as_bytes()),
                Heard::Typed(Typed::Text(text)) => {
                    // Enter that was pressed right after a letter comes with it.
                    let (text, is_ended) = match text.as_slice() {
                        [text @ .., b'\r', b'\n'] | [text @ .., b'\r' | b'\n'] => (text, true),
                        text => (text, false),
                    };
                    echo(line.edit(text, prompt).as_bytes());
                    if is_ended {
                        echo(b"\r\n");
                        return Ok(Ok(Some(line.into_text())));
                    }
                }
            }
        }
    }

    /// Tells whether the command was stopped and continued since this was asked last: what it has printed may be gone.
    pub(crate) fn take_continued(&mut self) -> bool {
        std::mem::take(&mut self.was_continued)
    }

    /// Drops every key. Returns an exit code if a signal asks the command to end.
    pub(crate) async fn ignore(&mut self, ignored: Ignored) -> io::Result<Option<u8>> {
        let begun = tokio::time::Instant::now();
        loop {
            let until = match ignored {
                Ignored::For(time) => begun + time,
                Ignored::UntilQuietFor(time) => tokio::time::Instant::now() + time,
            };
            match tokio::time::timeout_at(until, self.press()).await {
                Err(_) => return Ok(None),
                Ok(pressed) => match pressed? {
                    Pressed::Key(_) | Pressed::Text | Pressed::Continued => {}
                    Pressed::Signal(code) => return Ok(Some(code)),
                },
            }
        }
    }

    /// Waits for something that needs no key, such as a command that uses the same terminal; an exit code if a signal asks
    /// the command to end first. Ctrl-Z stops both: a shell waits until all of a job has stopped.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, u8> {
        enum Told {
            End(u8),
            Stop,
        }
        let mut work = pin!(work);
        loop {
            let told = std::future::poll_fn(|cx| {
                for (number, signal) in &mut self.ending {
                    if signal.poll_recv(cx).is_ready() {
                        return Poll::Ready(Told::End(SIGNALED + *number));
                    }
                }
                self.stopping.poll_recv(cx).map(|_| Told::Stop)
            });
            let told = tokio::select! {
                done = &mut work => return Ok(done),
                told = told => told,
            };
            match told {
                Told::End(code) => return Err(code),
                Told::Stop => {
                    self.leave();
                    let _ = kill_process(getpid(), Number::STOP);
                    self.was_continued = true;
                    let _ = self.enter();
                }
            }
        }
    }

    /// Waits for a key, or for a signal that asks the command to end or has continued it.
    pub(crate) async fn press(&mut self) -> io::Result<Pressed> {
        Ok(match self.heard().await? {
            Heard::Typed(Typed::Key(key)) => Pressed::Key(key),
            Heard::Typed(Typed::NoCharacter) => Pressed::Key(NO_CHARACTER),
            Heard::Typed(Typed::Text(_) | Typed::Pasted(_)) => Pressed::Text,
            Heard::Signal(code) => Pressed::Signal(code),
            Heard::Continued => Pressed::Continued,
        })
    }

    async fn heard(&mut self) -> io::Result<Heard> {
        loop {
            let asked = std::future::poll_fn(|cx| {
                for (number, signal) in &mut self.ending {
                    if signal.poll_recv(cx).is_ready() {
                        return Poll::Ready(Some(Heard::Signal(SIGNALED + *number)));
                    }
                }
                if self.stopping.poll_recv(cx).is_ready() {
                    return Poll::Ready(None);
                }
                if self.continued.poll_recv(cx).is_ready() {
                    return Poll::Ready(Some(Heard::Continued));
                }
                match self.pressed.poll_recv(cx) {
                    Poll::Ready(Some(typed)) => Poll::Ready(Some(Heard::Typed(typed))),
                    Poll::Ready(None) | Poll::Pending => Poll::Pending,
                }
            })
            .await;
            match asked {
                Some(Heard::Continued) => {
                    self.was_continued = true;
                    // The shell has set its own modes meanwhile.
                    self.enter()?;
                    return Ok(Heard::Continued);
                }
                Some(heard) => return Ok(heard),
                None => {
                    self.leave();
                    kill_process(getpid(), Number::STOP)?;
                }
            }
        }
    }

    fn enter(&self) -> io::Result<()> {
        let Some(before) = &self.before else { return Ok(()) };
        let mut silent = before.clone();
        // Ctrl-C and Ctrl-Z stay signals.
        silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        // A pasted CR LF is one line break, and would be two.
        silent.input_modes.remove(InputModes::ICRNL);
        tcsetattr(io::stdin(), OptionalActions::Now, &silent)?;
        self.mark_pastes(pasted::MARK);
        Ok(())
    }

    fn leave(&self) {
        if let Some(before) = &self.before {
            self.mark_pastes(pasted::UNMARK);
            // What was typed meanwhile is not for the shell. A terminal that is gone needs nothing.
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }

    /// Writes a sequence to a terminal that understands it.
    fn mark_pastes(&self, sequence: &[u8]) {
        if self.before.is_some() && io::stdout().is_terminal() && !super::is_dumb() {
            echo(sequence);
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Passes on what is typed, as it comes: all that comes within a moment together.
fn read(sender: &mpsc::Sender<Typed>) {
    let (mut parser, mut bytes) = (Parser::default(), Vec::new());
    // How long nothing had come when the last bytes were taken in.
    let mut quiet = AT_ONCE;
    loop {
        bytes.clear();
        let begun = Instant::now();
        let (mut wait, mut silence) = (None, quiet);
        quiet = Duration::ZERO;
        while bytes.len() < AT_ONCE_MAX {
            if !is_ready(wait) {
                quiet = AT_ONCE;
                break;
            }
            if bytes.is_empty() {
                silence += begun.elapsed();
            }
            let mut part = [0; 1024];
            match rustix::io::read(io::stdin(), &mut part) {
                // A terminal that hung up is always ready, and has nothing.
                Ok(0) if bytes.is_empty() => return,
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&part[..count]),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            wait = Some(AT_ONCE);
        }
        let typed = parser.parse(&bytes, silence);
        for typed in if quiet == Duration::ZERO { without_end(typed) } else { typed } {
            if sender.blocking_send(typed).is_err() {
                return;
            }
        }
    }
}

/// Turns unmarked text that was cut into pasted text: a line break at the cut must not send it.
fn without_end(typed: Vec<Typed>) -> Vec<Typed> {
    let as_pasted = |typed| match typed {
        Typed::Text(text) => Typed::Pasted(text),
        other @ (Typed::Key(_) | Typed::NoCharacter | Typed::Pasted(_)) => other,
    };
    typed.into_iter().map(as_pasted).collect()
}

/// Waits until something was typed, for ever or for a time.
fn is_ready(wait: Option<Duration>) -> bool {
    let timeout = wait.and_then(|wait| Timespec::try_from(wait).ok());
    loop {
        match poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], timeout.as_ref()) {
            Ok(count) => return count > 0,
            Err(rustix::io::Errno::INTR) => {}
            // Reading tells what is wrong.
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_break_where_a_long_text_is_cut_does_not_send_it() {
        let cut = Parser::default().parse(b"first part\r", AT_ONCE);
        assert_eq!(cut, [Typed::Text(b"first part\r".to_vec())]);
        assert_eq!(without_end(cut), [Typed::Pasted(b"first part\r".to_vec())]);
    }
}
