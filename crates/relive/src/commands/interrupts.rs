//! Ctrl-C in the foreground: the first asks the process to stop, the second kills it, the third leaves.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use relive_api::{Affected, SignalRequest, StartCancelled};
use relive_core::{Pid, Signal, Uuid};
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

/// Sends signals for pressed keys, and `SIGTERM` if it has to be passed on. Returns when it is time to leave.
/// `pressed_any` reports whether anything was pressed.
pub(crate) async fn obey(
    client: &Client<'_>,
    Front { pid, uuid, reach }: Front<'_>,
    mut presses: Presses,
    mut terminations: Option<Presses>,
    pressed_any: &Cell<bool>,
) {
    let context = client.context();
    let mut sending: Sending<'_> = Box::pin(std::future::pending());
    // Whether a signal is being sent, and whether only that prevents leaving: a requested kill is sent.
    let (mut under_way, mut leaving) = (false, false);
    let mut count = 0_u32;
    let mut give_up: Option<Instant> = None;
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
                match sent {
                    Ok(sent) => say_below(client, pid, uuid, &sent).await,
                    Err(error) => context.say(&format!("the signal was not sent: {error}")),
                }
                if leaving {
                    return;
                }
                continue;
            }
            pressed = presses.recv() => {
                count += 1;
                pressed_any.set(true);
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
            () = given_up => return,
        };
        if context.err.is_terminal && signal != Signal::Term {
            // The terminal has echoed the key.
            context.say("");
        }
        let pid = pid_now(client, uuid, pid).await;
        match signal {
            Signal::Int => context.say(&format!("asked PID {pid} to stop (SIGINT); press Ctrl-C again to kill it")),
            Signal::Kill => {
                context.say(&format!("killing PID {pid} (SIGKILL)"));
                give_up = Some(Instant::now() + KILLED_WITHIN);
            }
            Signal::Term | Signal::Pause | Signal::Resume => {}
        }
        under_way = true;
        let subtree = reach == Reach::Subtree;
        sending =
            Box::pin(
                async move { client.signal(uuid, &SignalRequest { signal: signal.name().into(), subtree }).await },
            );
    }
}

/// Returns the PID that a process has since a daemon was started again. Nobody waits long for that.
async fn pid_now(client: &Client<'_>, uuid: &str, known: Pid) -> Pid {
    let look = async { Client::beside(client.context()).await?.process(uuid).await.ok() };
    let found = tokio::time::timeout(PID_WITHIN, look).await;
    found.ok().flatten().map_or(known, |process| process.pid)
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
