//! Ctrl-C in the foreground: the first asks the process to stop, the second kills it, one more leaves.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use relive_api::{Affected, SignalRequest};
use relive_core::Signal;
use tokio::signal::unix::Signal as Presses;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Outcome;

/// What a shell gives for a command that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// How long a killed process is waited for.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

type Sending<'a> = Pin<Box<dyn Future<Output = Outcome<Affected>> + 'a>>;

/// Sends what was pressed, and `SIGTERM` where that is to be passed on. Returns when it is time to leave.
pub(crate) async fn obey(client: &Client<'_>, uuid: &str, mut presses: Presses, mut terminations: Option<Presses>) {
    let context = client.context();
    let mut sending: Sending<'_> = Box::pin(std::future::pending());
    // Whether something is being sent, and whether that is all that keeps us: a kill that was asked for is sent.
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
        match signal {
            Signal::Int => context.say("asked to stop (SIGINT); Ctrl-C again kills it"),
            Signal::Kill => {
                context.say("killing it (SIGKILL)");
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
