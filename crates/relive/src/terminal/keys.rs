//! Single keys for a command that draws on the whole screen: nothing that is typed is shown, and a key needs no Enter.
//!
//! However the command ends, dropping the value resets the terminal.

use std::io::{self, IsTerminal as _};
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal as Number, getpgrp, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// What a shell adds to the number of the signal that ended a command.
const SIGNALED: u8 = 128;

const ESCAPE: u8 = 0x1b;
/// Ctrl-D.
const END_OF_INPUT: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7f;

/// What ended a wait for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressed {
    Key(u8),
    /// The command is asked to end, with this exit code: 128+N for signal N.
    Signal(u8),
    /// The command was stopped, and a shell has continued it: what was asked is not on the last line any more.
    Continued,
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
    pressed: mpsc::Receiver<u8>,
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
        let keys = Self { before, pressed, ending, stopping, continued };
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
                Pressed::Key(_) | Pressed::Continued => {}
                Pressed::Signal(code) => return Ok(code),
            }
        }
    }

    /// Asks for a line that is shown as it is typed; `None` after Esc or Ctrl-D, or an error for a signal.
    pub(crate) async fn line(&mut self, prompt: &str) -> io::Result<Result<Option<String>, u8>> {
        let mut typed: Vec<u8> = Vec::new();
        echo(prompt.as_bytes());
        loop {
            let key = match self.press().await? {
                Pressed::Signal(code) => return Ok(Err(code)),
                Pressed::Continued => {
                    echo(prompt.as_bytes());
                    echo(&typed);
                    continue;
                }
                Pressed::Key(key) => key,
            };
            match key {
                b'\r' | b'\n' => {
                    echo(b"\r\n");
                    return Ok(Ok(Some(String::from_utf8_lossy(&typed).into_owned())));
                }
                ESCAPE | END_OF_INPUT => {
                    echo(b"\r\n");
                    return Ok(Ok(None));
                }
                BACKSPACE | DELETE => {
                    // A character of several bytes goes as one.
                    while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
                    echo(b"\x08 \x08");
                }
                0..b' ' => {}
                b' '.. => {
                    typed.push(key);
                    echo(&[key]);
                }
            }
        }
    }

    /// Drops every key for a time. Returns an exit code if a signal asks the command to end.
    pub(crate) async fn ignore(&mut self, time: Duration) -> io::Result<Option<u8>> {
        let until = tokio::time::Instant::now() + time;
        loop {
            match tokio::time::timeout_at(until, self.press()).await {
                Err(_) => return Ok(None),
                Ok(pressed) => match pressed? {
                    Pressed::Key(_) | Pressed::Continued => {}
                    Pressed::Signal(code) => return Ok(Some(code)),
                },
            }
        }
    }

    /// Drops every key until none was pressed for a time. Returns an exit code if a signal asks the command to end.
    pub(crate) async fn ignore_until_quiet(&mut self, time: Duration) -> io::Result<Option<u8>> {
        loop {
            match tokio::time::timeout(time, self.press()).await {
                Err(_) => return Ok(None),
                Ok(pressed) => match pressed? {
                    Pressed::Key(_) | Pressed::Continued => {}
                    Pressed::Signal(code) => return Ok(Some(code)),
                },
            }
        }
    }

    /// Waits for a command that uses the same terminal. Ctrl-Z stops both: a shell waits until all of a job has stopped.
    pub(crate) async fn during<T>(&mut self, command: impl Future<Output = T>) -> T {
        let mut command = pin!(command);
        loop {
            tokio::select! {
                done = &mut command => return done,
                _ = self.stopping.recv() => {
                    self.leave();
                    let _ = kill_process(getpid(), Number::STOP);
                    let _ = self.enter();
                }
            }
        }
    }

    /// Waits for a key, or for a signal that asks the command to end or has continued it.
    pub(crate) async fn press(&mut self) -> io::Result<Pressed> {
        loop {
            let asked = std::future::poll_fn(|cx| {
                for (number, signal) in &mut self.ending {
                    if signal.poll_recv(cx).is_ready() {
                        return Poll::Ready(Some(Pressed::Signal(SIGNALED + *number)));
                    }
                }
                if self.stopping.poll_recv(cx).is_ready() {
                    return Poll::Ready(None);
                }
                if self.continued.poll_recv(cx).is_ready() {
                    return Poll::Ready(Some(Pressed::Continued));
                }
                match self.pressed.poll_recv(cx) {
                    Poll::Ready(Some(key)) => Poll::Ready(Some(Pressed::Key(key))),
                    Poll::Ready(None) | Poll::Pending => Poll::Pending,
                }
            })
            .await;
            match asked {
                Some(Pressed::Continued) => {
                    // The shell has set its own modes meanwhile.
                    self.enter()?;
                    return Ok(Pressed::Continued);
                }
                Some(pressed) => return Ok(pressed),
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
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &silent)?)
    }

    fn leave(&self) {
        if let Some(before) = &self.before {
            // What was typed meanwhile is not for the shell. A terminal that is gone needs nothing.
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.leave();
    }
}

fn read(sender: &mpsc::Sender<u8>) {
    let mut key = [0];
    loop {
        match rustix::io::read(io::stdin(), &mut key) {
            Ok(0) => return,
            Ok(_) if sender.blocking_send(key[0]).is_err() => return,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
