//! The loop: the terminal, the daemon's stream and the commands that are run.

use std::future::Future;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use relive_api::Change;
use relive_client::{Client, Error, Pulse};
use relive_types::{ErrorCode, Timestamp, Uuid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::attached::{Attached, end_of};
use crate::content::{Compared, Content, Outcome, Part, Tab};
use crate::keyboard::{Heard, Held, Keyboard};
use crate::runner::Runner;
use crate::signals::{InterruptsIgnored, KeySignals, Signals, Told};
use crate::state::{Drawn, Effect, Finished, Input, Look, Output, State};
use crate::terminal::{RestoreTerminal, give_terminal_back, take_terminal, unmark_pastes_at_panic};
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
/// How often it is checked whether the daemon answers, and how long it may take.
const PULSE_EVERY: Duration = Duration::from_secs(2);
const PULSE_WITHIN: Duration = Duration::from_secs(2);

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
    let (mut signals, key_signals) = (Signals::listen()?, KeySignals::listen()?);
    // From here on every way out gives the terminal back, a panic too.
    unmark_pastes_at_panic();
    let _restore = RestoreTerminal;
    let terminal = take_terminal()?;
    let (sender, inputs) = mpsc::channel(INPUTS_MAX);
    let mut dashboard = Dashboard {
        terminal,
        state: State::new(options.look),
        inputs,
        sender: sender.clone(),
        keyboard: Keyboard::open(sender.clone()),
        key_signals,
        runner: Runner::default(),
        reading: None,
        comparing: None,
        finding: None,
        attached: None,
        begun: Instant::now(),
        options: &options,
    };
    let feed = feed(options.client, sender.clone());
    let pulse = feel_pulse(options.client, sender);
    let left = tokio::select! {
        left = dashboard.go() => left.map_err(Failure::Terminal),
        code = signals.next() => Ok(code),
        error = feed => Err(Failure::Daemon(error)),
        () = pulse => Ok(0),
    };
    if let Some(attached) = dashboard.attached.take() {
        attached.end().await;
    }
    left
}

/// Looks for ever whether the daemon answers: of one that hangs, the stream tells nothing.
async fn feel_pulse(client: &Client, sender: mpsc::Sender<Heard>) {
    let mut is_silent = false;
    loop {
        tokio::time::sleep(PULSE_EVERY).await;
        let input = match client.pulse(PULSE_WITHIN).await {
            Pulse::Silent { os_pid } => Input::Silent { os_pid },
            Pulse::Answers | Pulse::Gone if is_silent => Input::Answers,
            Pulse::Answers | Pulse::Gone => continue,
        };
        is_silent = matches!(input, Input::Silent { .. });
        let _ = sender.send(Heard::Input(input)).await;
    }
}

/// Follows all processes for ever; returns only what cannot be mended.
async fn feed(client: &Client, sender: mpsc::Sender<Heard>) -> Error {
    let mut last = None;
    // Whoever stopped the daemon starts it again: one that is gone for another reason is started here.
    let mut stopped = false;
    loop {
        let read = client.follow_all(&mut last, async |event| {
            stopped = false;
            let input = match event.name.as_str() {
                "reset" => Some(Input::Reset),
                "ready" => Some(ready(&event.data)),
                _ => serde_json::from_str::<Change>(&event.data).ok().map(|change| Input::Change(Box::new(change))),
            };
            if let Some(input) = input {
                let _ = sender.send(Heard::Input(input)).await;
            }
            Ok::<_, Error>(())
        });
        let ended = read.await;
        // A daemon that goes away on purpose ends its streams, or says that it does so.
        stopped |= match &ended {
            Ok(()) => true,
            Err(error) => error.code() == Some(ErrorCode::Unavailable),
        };
        let _ = sender.send(Heard::Input(Input::Disconnected { stopped })).await;
        match ended {
            Ok(()) | Err(Error::Silent(_)) => {}
            Err(error) if !error.is_transient() => return error,
            Err(_) if stopped => {}
            Err(_) => {
                // It was lost: this starts it, where it may be started.
                if let Err(error) = client.daemon().await
                    && !error.is_transient()
                {
                    return error;
                }
            }
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// What comes with `ready`.
#[derive(serde::Deserialize)]
struct Ready {
    #[serde(default)]
    incomplete: bool,
}

fn ready(data: &str) -> Input {
    Input::Ready { incomplete: serde_json::from_str(data).is_ok_and(|Ready { incomplete }| incomplete) }
}

/// A tab that is being read.
struct Reading<'a> {
    uuid: Uuid,
    tab: Tab,
    parts: mpsc::Receiver<Part>,
    work: Pin<Box<dyn Future<Output = ()> + 'a>>,
    is_over: bool,
}

/// An item that was answered elsewhere.
struct Finding<'a> {
    id: String,
    work: Outcome<'a>,
}

/// An item that is compared with the disk.
struct Comparing<'a> {
    id: String,
    work: Compared<'a>,
}

struct Dashboard<'a> {
    terminal: DefaultTerminal,
    state: State,
    inputs: mpsc::Receiver<Heard>,
    sender: mpsc::Sender<Heard>,
    keyboard: Keyboard,
    key_signals: KeySignals,
    runner: Runner,
    reading: Option<Reading<'a>>,
    comparing: Option<Comparing<'a>>,
    finding: Option<Finding<'a>>,
    attached: Option<Attached>,
    begun: Instant,
    options: &'a Options<'a>,
}

impl Dashboard<'_> {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn go(&mut self) -> io::Result<u8> {
        loop {
            let effects = self.state.settle();
            if let Some(code) = self.carry_out(effects).await? {
                return Ok(code);
            }
            let mut shown = Drawn::default();
            self.terminal.draw(|frame| shown = draw(&self.state, frame))?;
            self.state.note_drawn(shown);
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
            told = self.key_signals.next() => match told {
                Told::Key(key) => {
                    if let Some(code) = self.take(Heard::Input(Input::Key(key))).await? {
                        return Ok(Some(code));
                    }
                }
                Told::Continued => {
                    let held = self.release().await;
                    self.take_back(held).await?;
                }
            },
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
            input = compared(&mut self.comparing) => {
                let now = self.now_ms();
                self.state.apply(input, now);
            }
            input = found(&mut self.finding) => {
                let now = self.now_ms();
                self.state.apply(input, now);
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
                Effect::Run { commands, output } => {
                    let (sender, runner) = (self.sender.clone(), self.runner.clone());
                    tokio::spawn(async move {
                        let finished = runner.run(&commands, output).await;
                        let _ = sender.send(Heard::Input(Input::Finished(finished))).await;
                    });
                }
                Effect::Attach { words } => self.attach(words).await?,
                Effect::Suspend => self.suspend().await?,
                Effect::Load { uuid, tab } => {
                    let (lines, parts) = mpsc::channel(16);
                    let work = self.options.content.read(uuid, tab, lines);
                    self.reading = Some(Reading { uuid, tab, parts, work, is_over: false });
                }
                Effect::FindOutcome { item, generation } => {
                    let id = item.id.clone();
                    let work = self.options.content.outcome(*item, generation);
                    self.finding = Some(Finding { id, work });
                }
                Effect::Compare { id, process } => {
                    let work = self.options.content.compare(*process);
                    self.comparing = Some(Comparing { id, work });
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

    /// Gives the terminal away. What was typed before belongs to whoever has it next, and is not acted on here.
    async fn release(&mut self) -> Held {
        let now = self.now_ms();
        let held = {
            let Self { keyboard, inputs, state, .. } = self;
            let mut holding = std::pin::pin!(keyboard.hold());
            // The thread may wait for a place for the key that it has read.
            loop {
                tokio::select! {
                    held = &mut holding => break held,
                    Some(heard) = inputs.recv() => hear_without_keys(state, heard, now),
                }
            }
        };
        while let Ok(heard) = self.inputs.try_recv() {
            hear_without_keys(&mut self.state, heard, now);
        }
        // Restoring leaves the cursor hidden, which whoever has the terminal next needs. A terminal that is gone needs nothing.
        let _ = self.terminal.show_cursor();
        give_terminal_back();
        held
    }

    /// Takes the terminal again, and nothing of what was typed meanwhile.
    async fn take_back(&mut self, held: Held) -> io::Result<()> {
        self.terminal = take_terminal()?;
        self.key_signals.forget().await;
        drop(held);
        Ok(())
    }

    /// Gives the terminal to a command until it ends.
    async fn attach(&mut self, words: Vec<String>) -> io::Result<()> {
        let held = self.release().await;
        let status = self.run_attached(&words).await;
        self.attached = None;
        self.take_back(held).await?;
        let (ok, text) = status.map_or_else(|error| (false, error.to_string()), end_of);
        let finished = Finished { command: actions::shown(&[words]), ok, text, output: Output::StatusLine };
        let now = self.now_ms();
        self.state.apply(Input::Finished(finished), now);
        Ok(())
    }

    /// Runs a command that has the terminal. Ctrl-Z stops both, as the shell expects of a foreground job.
    async fn run_attached(&mut self, words: &[String]) -> io::Result<ExitStatus> {
        let mut children = signal(SignalKind::child())?;
        let Self { attached, key_signals, .. } = self;
        let attached = attached.insert(Attached::start(words)?);
        let _ignored = InterruptsIgnored::begin();
        loop {
            let ended = attached.ended_or_stopped(&mut children).await;
            attached.restore_modes();
            if let Some(status) = ended? {
                return Ok(status);
            }
            key_signals.stop().await?;
            // The shell continues both, another program may not.
            attached.send(rustix::process::Signal::CONT);
        }
    }

    /// Stops until the shell continues it.
    async fn suspend(&mut self) -> io::Result<()> {
        let held = self.release().await;
        self.key_signals.stop().await?;
        self.take_back(held).await
    }
}

/// Takes in everything but keys.
fn hear_without_keys(state: &mut State, heard: Heard, now_ms: u64) {
    match heard {
        Heard::Resized | Heard::Input(Input::Key(_) | Input::Keys { .. } | Input::Paste(_)) => {}
        Heard::Input(input) => drop(state.apply(input, now_ms)),
    }
}

/// Waits for the next lines of a tab; for ever if none is read, or all were.
async fn next_part(reading: &mut Option<Reading<'_>>) -> Option<(Uuid, Tab, Part)> {
    let Some(Reading { uuid, tab, parts, work, is_over }) = reading else { return std::future::pending().await };
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

/// Waits until an item was compared with the disk; for ever if none is.
async fn compared(comparing: &mut Option<Comparing<'_>>) -> Input {
    let Some(Comparing { work, .. }) = comparing else { return std::future::pending().await };
    let lines = work.as_mut().await;
    let id = comparing.take().map(|Comparing { id, .. }| id).unwrap_or_default();
    Input::Compared { id, lines }
}

/// Waits until it is known how an item was answered; for ever if that is not asked.
async fn found(finding: &mut Option<Finding<'_>>) -> Input {
    let Some(Finding { work, .. }) = finding else { return std::future::pending().await };
    let text = work.as_mut().await;
    let id = finding.take().map(|Finding { id, .. }| id).unwrap_or_default();
    Input::Outcome { id, text }
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
