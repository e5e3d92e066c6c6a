//! Ctrl-C in the foreground: the first asks the process to stop, the second kills it, the third leaves.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use relive_api::{Affected, SignalRequest, StartCancelled};
use relive_core::{ErrorCode, Pid, Signal, Uuid};
use tokio::signal::unix::Signal as Presses;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Outcome;

/// The exit code of a shell for a command that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// How long to wait for a killed process.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// How long a pressed key waits for the PID to name.
const PID_WITHIN: Duration = Duration::from_millis(300);

/// The process in the foreground.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Front<'a> {
    pub(crate) pid: Pid,
    pub(crate) uuid: &'a str,
    pub(crate) reach: Reach,
}

/// How far a pressed key reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Process,
    /// Also those below it, whose questions are asked here too: none of them is left behind without anybody to answer.
    Subtree,
}

/// Waits for a request that starts a process. Ctrl-C cancels it, also while a copy of the files is being made: then nothing is
/// started, and this returns `None`. A second Ctrl-C leaves without an answer.
pub(crate) async fn start_or_cancel<T>(
    client: &Client<'_>,
    uuid: Uuid,
    presses: &mut Presses,
    start: impl Future<Output = Outcome<T>>,
) -> Outcome<Option<T>> {
    tokio::select! {
        started = start => return started.map(Some),
        _ = presses.recv() => {}
    }
    let context = client.context();
    let cancelled = tokio::select! {
        cancelled = client.cancel_start(uuid) => cancelled.ok(),
        _ = presses.recv() => None,
    };
    match cancelled {
        Some(StartCancelled { pid: None }) => context.say("interrupted: nothing was started"),
        Some(StartCancelled { pid: Some(pid) }) => {
            // It was quicker.
            let request = SignalRequest { signal: Signal::Int.name().into(), subtree: true };
            client.signal(&uuid.to_string(), &request).await?;
            context.say(&format!("asked PID {pid} to stop (SIGINT)"));
        }
        None => {
            context.say("interrupted before the daemon answered: `relive ps` shows whether the process was created");
        }
    }
    Ok(None)
}

type Sending<'a> = Pin<Box<dyn Future<Output = Outcome<Affected>> + 'a>>;

/// How long the report of a signal is waited for after the process has ended.
const REPORTED_WITHIN: Duration = Duration::from_secs(2);

/// What was asked for by pressing keys.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    stop: Cell<bool>,
    /// A signal is being sent, or what became of it is not said yet.
    is_unreported: Cell<bool>,
}

impl Asked {
    pub(crate) fn to_stop(&self) -> bool {
        self.stop.get()
    }

    /// Lets `obey` say what became of a signal that is under way: the process may have ended of it before the answer came.
    pub(crate) async fn report(&self, mut obey: Pin<&mut impl Future<Output = ()>>) {
        let reported = std::future::poll_fn(|cx| {
            if !self.is_unreported.get() || obey.as_mut().poll(cx).is_ready() || !self.is_unreported.get() {
                return Poll::Ready(());
            }
            Poll::Pending
        });
        let _late = tokio::time::timeout(REPORTED_WITHIN, reported).await;
    }
}

/// Sends signals for pressed keys, and `SIGTERM` if it has to be passed on. Returns when it is time to leave.
pub(crate) async fn obey(
    client: &Client<'_>,
    Front { pid, uuid, reach }: Front<'_>,
    mut presses: Presses,
    mut terminations: Option<Presses>,
    asked: &Asked,
) {
    let context = client.context();
    let mut report = Report { client, uuid, pid, daemon: Daemon::Runs };
    let mut sending: Sending<'_> = Box::pin(std::future::pending());
    // Whether a signal is being sent, and whether only that prevents leaving: a requested kill is sent.
    let (mut under_way, mut leaving) = (false, false);
    let mut count = 0_u32;
    let (mut give_up, mut last): (Option<Instant>, _) = (None, Signal::Int);
    loop {
        let given_up = async {
            match give_up {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let terminated = async {
            match &mut terminations {
                Some(terminations) => terminations.recv().await,
                None => std::future::pending().await,
            }
        };
        let signal = tokio::select! {
            sent = &mut sending => {
                sending = Box::pin(std::future::pending());
                under_way = false;
                report.say_sent(last, sent, pid).await;
                asked.is_unreported.set(false);
                if leaving {
                    return;
                }
                continue;
            }
            pressed = presses.recv() => {
                count += 1;
                asked.stop.set(true);
                match count {
                    _ if pressed.is_none() => return,
                    1 => Signal::Int,
                    2 => Signal::Kill,
                    _ if under_way => {
                        leaving = true;
                        continue;
                    }
                    _ => return,
                }
            }
            _ = terminated => Signal::Term,
            () = given_up => {
                if under_way {
                    report.say_unconfirmed(last);
                }
                return;
            }
        };
        if context.err.is_terminal && signal != Signal::Term {
            // The terminal has echoed the key.
            context.say("");
        }
        asked.is_unreported.set(true);
        report.announce(signal).await;
        if signal == Signal::Kill {
            give_up = Some(Instant::now() + KILLED_WITHIN);
        }
        (under_way, last) = (true, signal);
        let subtree = reach == Reach::Subtree;
        sending =
            Box::pin(
                async move { client.signal(uuid, &SignalRequest { signal: signal.name().into(), subtree }).await },
            );
    }
}

/// Whether a daemon was there when a key was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Daemon {
    Runs,
    /// It is started to send the signal, as for `relive kill`.
    Stopped,
}

/// Reports the signals of pressed keys. That a process got one is said only after the daemon has confirmed it.
struct Report<'a> {
    client: &'a Client<'a>,
    uuid: &'a str,
    /// As known when a key was pressed last.
    pid: Pid,
    daemon: Daemon,
}

impl Report<'_> {
    /// Says what is about to be sent, and lets the request start a daemon that somebody has stopped.
    async fn announce(&mut self, signal: Signal) {
        let context = self.client.context();
        let found = pid_now(self.client, self.uuid, self.pid).await;
        self.daemon = if found.is_some() { Daemon::Runs } else { Daemon::Stopped };
        self.pid = found.unwrap_or(self.pid);
        let pid = self.pid;
        match (self.daemon, signal) {
            (Daemon::Stopped, _) => {
                self.client.set_stopped(false);
                context.say(&format!("no daemon is running: starting one to send {signal} to PID {pid}"));
            }
            (Daemon::Runs, Signal::Int) => {
                context.say(&format!("asking PID {pid} to stop (SIGINT); press Ctrl-C again to kill it"));
            }
            (Daemon::Runs, Signal::Kill) => context.say(&format!("killing PID {pid} (SIGKILL)")),
            (Daemon::Runs, Signal::Term | Signal::Pause | Signal::Resume) => {}
        }
    }

    /// Says what the daemon has answered. `first` is the PID with which the process was started.
    async fn say_sent(&self, signal: Signal, sent: Outcome<Affected>, first: Pid) {
        let Self { client, uuid, pid, daemon } = self;
        match sent {
            Ok(sent) => {
                if *daemon == Daemon::Stopped {
                    client.context().say(&format!("{signal} was sent to {uuid}"));
                }
                say_below(client, first, uuid, &sent).await;
            }
            Err(error) if error.code() == Some(ErrorCode::Unavailable) => client.context().say(&format!(
                "PID {pid} got no signal: {error}; the next daemon resumes it (to end it: relive kill {uuid})"
            )),
            Err(error) => client.context().say(&format!("PID {pid} got no signal: {error}")),
        }
    }

    fn say_unconfirmed(&self, signal: Signal) {
        let Self { client, uuid, pid, .. } = self;
        client.context().say(&format!("no daemon has confirmed {signal} to PID {pid} (to end it: relive kill {uuid})"));
    }
}

/// Returns the PID that a process has since a daemon was started again; `None` if no daemon runs. Nobody waits long for that.
async fn pid_now(client: &Client<'_>, uuid: &str, known: Pid) -> Option<Pid> {
    let look = async {
        let daemon = Client::beside(client.context()).await?;
        Some(daemon.process(uuid).await.map_or(known, |process| process.pid))
    };
    tokio::time::timeout(PID_WITHIN, look).await.unwrap_or(Some(known))
}

/// Names the processes below that got the signal too.
async fn say_below(client: &Client<'_>, pid: Pid, uuid: &str, sent: &Affected) {
    let mut below: Vec<Pid> = sent.pids.iter().copied().filter(|below| *below != pid).collect();
    if below.is_empty() {
        return;
    }
    // It has another PID since the daemon was started again.
    let now = std::ops::Deref::deref(client).process(uuid).await.map_or(pid, |process| process.pid);
    below.retain(|below| *below != now);
    if !below.is_empty() {
        client.context().say(&format!("also sent to {} below it", super::name_pids(below.len(), &below)));
    }
}
