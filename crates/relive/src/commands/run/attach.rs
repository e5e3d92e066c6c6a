//! The foreground: what the agent says, as it says it, until it ends. Leaving never stops it; Ctrl-C asks it to.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use relive_api::{Affected, Created, SignalRequest, WaitAnswer};
use relive_core::Signal;
use tokio::signal::unix::Signal as Interrupts;
use tokio::time::Instant;

use super::INTERRUPTED;
use super::show::Show;
use crate::client::sse::Event;
use crate::client::{Client, Source};
use crate::error::Outcome;

/// How long a killed process is waited for.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

type Sending<'a> = Pin<Box<dyn Future<Output = Outcome<Affected>> + 'a>>;

pub(super) async fn run(client: &Client<'_>, created: Created, mut interrupts: Interrupts) -> Outcome<u8> {
    let context = client.context();
    let uuid = created.uuid.to_string();
    let mut show = Show::new(client, created);
    show.begun();
    let mut last = None;
    let each = async |event: Event| show.event(&event).await;
    let ended: Option<WaitAnswer> = {
        let mut follow = pin!(client.follow(&uuid, Source::Events, &mut last, each));
        let mut sending: Sending<'_> = Box::pin(std::future::pending());
        let mut presses = 0_u32;
        let mut give_up: Option<Instant> = None;
        loop {
            let given_up = async {
                match give_up {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                answer = &mut follow => break Some(answer?),
                sent = &mut sending => {
                    sending = Box::pin(std::future::pending());
                    if let Err(error) = sent {
                        context.say(&format!("the signal was not sent: {error}"));
                    }
                }
                pressed = interrupts.recv() => {
                    presses += 1;
                    let signal = match presses {
                        _ if pressed.is_none() => break None,
                        1 => Signal::Int,
                        2 => Signal::Kill,
                        _ => break None,
                    };
                    context.say(match signal {
                        Signal::Int => "asked to stop (SIGINT); Ctrl-C again kills it",
                        Signal::Kill | Signal::Term | Signal::Pause | Signal::Resume => "killing it (SIGKILL)",
                    });
                    if signal == Signal::Kill {
                        give_up = Some(Instant::now() + KILLED_WITHIN);
                    }
                    let uuid = &uuid;
                    sending = Box::pin(async move {
                        client.signal(uuid, &SignalRequest { signal: signal.name().into(), subtree: false }).await
                    });
                }
                () = given_up => break None,
            }
        }
    };
    match ended {
        Some(answer) => {
            show.ended(&answer)?;
            Ok(answer.exit_code)
        }
        None => {
            show.left();
            Ok(INTERRUPTED)
        }
    }
}
