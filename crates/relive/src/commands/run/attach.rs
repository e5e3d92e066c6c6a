//! The foreground: what the agent says, as it says it, until it ends. Leaving never stops it; Ctrl-C asks it to.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use relive_api::{Affected, Created, SignalRequest, WaitAnswer};
use relive_core::Signal;
use tokio::signal::unix::Signal as Interrupts;
use tokio::sync::watch;
use tokio::time::Instant;

use super::INTERRUPTED;
use super::prompt::Prompt;
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
    let (suspended, mut suspensions) = watch::channel(None);
    let mut prompt = Prompt::new(client, &uuid);
    let mut show = Show::new(client, created, suspended);
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
                Ok(()) = suspensions.changed() => {
                    let reason = *suspensions.borrow_and_update();
                    prompt.suspended(reason).await?;
                }
                answer = prompt.answer() => {
                    if let Some(request) = answer {
                        let uuid = &uuid;
                        sending = Box::pin(async move { client.resolve(uuid, &request).await });
                    }
                }
                sent = &mut sending => {
                    sending = Box::pin(std::future::pending());
                    if let Err(error) = sent {
                        context.say(&format!("it was not told: {error}"));
                    }
                }
                pressed = interrupts.recv() => {
                    presses += 1;
                    let Some((signal, said)) = pressed.and_then(|()| meaning(presses)) else { break None };
                    context.say(said);
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

/// What Ctrl-C means, pressed for the n-th time.
fn meaning(presses: u32) -> Option<(Signal, &'static str)> {
    match presses {
        1 => Some((Signal::Int, "asked to stop (SIGINT); Ctrl-C again kills it")),
        2 => Some((Signal::Kill, "killing it (SIGKILL)")),
        _ => None,
    }
}
