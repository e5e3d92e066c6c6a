//! Ctrl-C in the foreground: the first asks the process to stop, the second kills it, the third leaves.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use relive_api::{Affected, SignalRequest};
use relive_core::{Pid, Signal};
use tokio::signal::unix::Signal as Presses;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Outcome;

/// The exit code of a shell for a command that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// How long to wait for a killed process.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

type Sending<'a> = Pin<Box<dyn Future<Output = Outcome<Affected>> + 'a>>;

/// Sends signals for pressed keys, and `SIGTERM` if it has to be passed on. Returns when it is time to leave.
/// `pressed_any` reports whether anything was pressed.
pub(crate) async fn obey(
    client: &Client<'_>,
    (pid, uuid): (Pid, &str),
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
                if let Err(error) = sent {
                    context.say(&format!("the signal was not sent: {error}"));
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
        match signal {
            Signal::Int => context.say(&format!("asked PID {pid} to stop (SIGINT); press Ctrl-C again to kill it")),
            Signal::Kill => {
                context.say(&format!("killing PID {pid} (SIGKILL)"));
                give_up = Some(Instant::now() + KILLED_WITHIN);
            }
            Signal::Term | Signal::Pause | Signal::Resume => {}
        }
        under_way = true;
        sending = Box::pin(async move {
            client.signal(uuid, &SignalRequest { signal: signal.name().into(), subtree: false }).await
        });
    }
}
