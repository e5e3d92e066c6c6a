//! The loop: the terminal, the daemon's stream and the commands that are run.

use std::future::Future;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event};
use ratatui::DefaultTerminal;
use relive_api::Change;
use relive_client::{Client, Error};
use relive_types::{Timestamp, Uuid};
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::content::{Content, Part, Tab};
use crate::key::Key;
use crate::state::{Effect, Finished, Input, Look, State};
use crate::{actions, draw};

/// How many inputs may wait: a stream that is faster waits itself.
const INPUTS_MAX: usize = 1_024;
/// How many inputs are taken in before the screen is drawn.
const BATCH: usize = 4_096;
/// How often a clock that runs is drawn.
const TICK: Duration = Duration::from_secs(1);
/// How long a screen stays at least.
const FRAME: Duration = Duration::from_millis(40);
/// How long the loop waits before it looks for a daemon that is gone.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
/// How long a key may wait while another program has the terminal.
const POLL: Duration = Duration::from_millis(200);
/// How much of a command's output is kept.
const OUTPUT_MAX: usize = 256 << 10;

/// What the loop needs.
pub struct Options<'a> {
    pub client: &'a Client,
    pub content: &'a dyn Content,
    pub look: Look,
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("look", &self.look).finish_non_exhaustive()
    }
}

/// Why the loop ends with an error.
#[derive(Debug)]
pub enum Failure {
    Terminal(io::Error),
    Daemon(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Terminal(error)
    }
}

/// Runs the dashboard until the person leaves. Returns the exit code: 128+N for signal N.
pub async fn run(options: Options<'_>) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    // From here on every way out gives the terminal back, a panic too.
    let terminal = ratatui::try_init()?;
    let _restored = Restored;
    let (sender, inputs) = mpsc::channel(INPUTS_MAX);
    let held = Arc::new(AtomicBool::new(false));
    read_keys(sender.clone(), Arc::clone(&held));
    let mut running = Running {
        terminal,
        state: State::new(options.look),
        inputs,
        sender: sender.clone(),
        held,
        reading: None,
        begun: Instant::now(),
        options: &options,
    };
    let feed = feed(options.client, sender);
    tokio::select! {
        left = running.go() => left.map_err(Failure::Terminal),
        code = signals.next() => Ok(code),
        error = feed => Err(Failure::Daemon(error)),
    }
}

/// Gives the terminal back.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// The signals that end the dashboard.
struct Signals(Vec<(u8, Signal)>);

impl Signals {
    fn listen() -> io::Result<Self> {
        let kinds = [
            (2, SignalKind::interrupt()),
            (1, SignalKind::hangup()),
            (3, SignalKind::quit()),
            (15, SignalKind::terminate()),
        ];
        kinds.into_iter().map(|(number, kind)| Ok((number, signal(kind)?))).collect::<io::Result<_>>().map(Self)
    }

    async fn next(&mut self) -> u8 {
        std::future::poll_fn(|cx| {
            let number =
                self.0.iter_mut().find_map(|(number, signal)| signal.poll_recv(cx).is_ready().then_some(*number));
            number.map_or(std::task::Poll::Pending, |number| std::task::Poll::Ready(128 + number))
        })
        .await
    }
}

/// Follows all processes for ever; returns only what cannot be mended.
async fn feed(client: &Client, sender: mpsc::Sender<Heard>) -> Error {
    let mut last = None;
    loop {
        let read = client.follow_all(&mut last, async |event| {
            let input = match event.name.as_str() {
                "reset" => Some(Input::Reset),
                "ready" => Some(Input::Ready),
                _ => serde_json::from_str::<Change>(&event.data).ok().map(|change| Input::Change(Box::new(change))),
            };
            if let Some(input) = input {
                let _ = sender.send(Heard::Input(input)).await;
            }
            Ok::<_, Error>(())
        });
        let ended = read.await;
        let _ = sender.send(Heard::Input(Input::Disconnected)).await;
        match ended {
            // It was stopped, and whoever stopped it starts it again.
            Ok(()) | Err(Error::Silent(_)) => {}
            Err(error) if error.is_transient() => {
                // It was lost: this starts it, where it may be started.
                if let Err(error) = client.daemon().await
                    && !error.is_transient()
                {
                    return error;
                }
            }
            Err(error) => return error,
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// What the loop hears.
enum Heard {
    Input(Input),
    Resized,
}

/// Reads keys in a thread of its own, which ends with the program.
fn read_keys(sender: mpsc::Sender<Heard>, held: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        loop {
            if held.load(Ordering::Relaxed) {
                std::thread::sleep(POLL);
                continue;
            }
            match event::poll(POLL) {
                Ok(true) if !held.load(Ordering::Relaxed) => {}
                Ok(_) => continue,
                Err(_) => return,
            }
            let heard = match event::read() {
                Ok(Event::Key(key)) => Key::of(key).map(|key| Heard::Input(Input::Key(key))),
                Ok(Event::Resize(..)) => Some(Heard::Resized),
                Ok(Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_)) => None,
                Err(_) => return,
            };
            if let Some(heard) = heard
                && sender.blocking_send(heard).is_err()
            {
                return;
            }
        }
    });
}

/// A tab that is being read.
type Reading<'a> = (Uuid, Tab, mpsc::Receiver<Part>, Pin<Box<dyn Future<Output = ()> + 'a>>, bool);

struct Running<'a> {
    terminal: DefaultTerminal,
    state: State,
    inputs: mpsc::Receiver<Heard>,
    sender: mpsc::Sender<Heard>,
    /// Whether another program has the terminal.
    held: Arc<AtomicBool>,
    reading: Option<Reading<'a>>,
    begun: Instant,
    options: &'a Options<'a>,
}

impl Running<'_> {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn go(&mut self) -> io::Result<u8> {
        loop {
            let effects = self.state.settle();
            if let Some(code) = self.carry_out(effects).await? {
                return Ok(code);
            }
            self.terminal.draw(|frame| draw(&self.state, frame))?;
            let drawn = Instant::now();
            if let Some(code) = self.listen().await? {
                return Ok(code);
            }
            // Many changes at once are one screen; a key is shown at once.
            let rest = FRAME.saturating_sub(drawn.elapsed());
            tokio::time::sleep(rest).await;
        }
    }

    /// Waits for something to happen, and takes in all that has.
    async fn listen(&mut self) -> io::Result<Option<u8>> {
        let ticks = self.state.ticks();
        tokio::select! {
            heard = self.inputs.recv() => {
                let Some(heard) = heard else { return Ok(Some(0)) };
                if let Some(code) = self.take(heard).await? {
                    return Ok(Some(code));
                }
            }
            part = next_part(&mut self.reading) => {
                if let Some((uuid, tab, part)) = part {
                    let now = self.now_ms();
                    self.state.apply(Input::Lines { uuid, tab, part }, now);
                }
            }
            () = tokio::time::sleep(TICK), if ticks => {
                let now = self.now_ms();
                self.state.tick(now);
            }
        }
        for _ in 0..BATCH {
            let Ok(heard) = self.inputs.try_recv() else { break };
            if let Some(code) = self.take(heard).await? {
                return Ok(Some(code));
            }
        }
        Ok(None)
    }

    async fn take(&mut self, heard: Heard) -> io::Result<Option<u8>> {
        self.state.set_wall(Timestamp::now());
        let now = self.now_ms();
        match heard {
            Heard::Resized => Ok(None),
            Heard::Input(input) => {
                let effects = self.state.apply(input, now);
                self.carry_out(effects).await
            }
        }
    }

    async fn carry_out(&mut self, effects: Vec<Effect>) -> io::Result<Option<u8>> {
        for effect in effects {
            match effect {
                Effect::Quit => return Ok(Some(0)),
                Effect::Run { words, wanted } => {
                    let sender = self.sender.clone();
                    tokio::spawn(async move {
                        let finished = finish(words, wanted).await;
                        let _ = sender.send(Heard::Input(Input::Finished(finished))).await;
                    });
                }
                Effect::Attach { words } => self.attach(words).await?,
                Effect::Load { uuid, tab } => {
                    let (lines, parts) = mpsc::channel(16);
                    self.reading = Some((uuid, tab, parts, self.options.content.read(uuid, tab, lines), false));
                }
                Effect::Copy(text) => {
                    // The terminal's own clipboard, also over ssh.
                    write!(io::stdout(), "\x1b]52;c;{}\x07", base64(text.as_bytes()))?;
                    io::stdout().flush()?;
                }
            }
        }
        Ok(None)
    }

    /// Gives the terminal to a command until it ends.
    async fn attach(&mut self, words: Vec<String>) -> io::Result<()> {
        self.held.store(true, Ordering::Relaxed);
        ratatui::restore();
        let status = Command::new("/proc/self/exe").args(&words).status().await;
        self.terminal = ratatui::try_init()?;
        self.held.store(false, Ordering::Relaxed);
        let finished = Finished {
            command: actions::shown(&words),
            ok: status.as_ref().is_ok_and(std::process::ExitStatus::success),
            output: status.err().map(|error| error.to_string()).unwrap_or_default(),
            wanted: false,
        };
        let now = self.now_ms();
        self.state.apply(Input::Finished(finished), now);
        Ok(())
    }
}

/// Waits for the next lines of a tab; for ever if none is read, or all were.
async fn next_part(reading: &mut Option<Reading<'_>>) -> Option<(Uuid, Tab, Part)> {
    let Some((uuid, tab, parts, work, is_over)) = reading else { return std::future::pending().await };
    loop {
        tokio::select! {
            biased;
            part = parts.recv() => match part {
                Some(part) => return Some((*uuid, *tab, part)),
                None => return std::future::pending().await,
            },
            () = work.as_mut(), if !*is_over => *is_over = true,
        }
    }
}

/// Runs a command of Relive to its end.
async fn finish(words: Vec<String>, wanted: bool) -> Finished {
    let command = actions::shown(&words);
    let output = Command::new("/proc/self/exe").args(&words).stdin(Stdio::null()).kill_on_drop(true).output().await;
    match output {
        Ok(output) => {
            // A command that acts prints at most PIDs, for scripts, and says what it did on stderr.
            let has_data = output.stdout.iter().any(|byte| !byte.is_ascii_digit() && *byte != b'\n');
            let mut bytes = if output.status.success() && has_data { output.stdout } else { output.stderr };
            bytes.truncate(OUTPUT_MAX);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Finished { command, ok: output.status.success(), output: text, wanted }
        }
        Err(error) => Finished { command, ok: false, output: error.to_string(), wanted },
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let number = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..4 {
            let digit = (number >> (18 - 6 * place)) & 63;
            text.push(if place <= chunk.len() { char::from(DIGITS[digit as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn the_clipboard_gets_base64() {
        let check = |text: &str, expect: &str| assert_eq!(base64(text.as_bytes()), expect);
        check("", "");
        check("a", "YQ==");
        check("ab", "YWI=");
        check("cb4714aa", "Y2I0NzE0YWE=");
    }
}
