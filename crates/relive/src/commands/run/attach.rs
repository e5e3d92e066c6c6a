//! The foreground: what the agent says, as it says it, until it ends. Leaving never stops it. What it asks is put to
//! whoever watches.

use std::future::Future;
use std::pin::{Pin, pin};

use relive_api::{Affected, Created, WaitAnswer};
use relive_client::{Event, Source};
use tokio::sync::watch;

use super::prompt::Prompt;
use super::show::Show;
use crate::client::Client;
use crate::commands::interrupts::INTERRUPTED;
use crate::error::Outcome;

type Sending<'a> = Pin<Box<dyn Future<Output = Outcome<Affected>> + 'a>>;

/// Shows it until it has ended, or `leave` says that it is time to go.
pub(crate) async fn run(client: &Client<'_>, created: Created, leave: impl Future<Output = ()>) -> Outcome<u8> {
    let uuid = created.uuid.to_string();
    let (suspended, mut suspensions) = watch::channel(None);
    let mut prompt = Prompt::new(client, &uuid);
    let mut show = Show::new(client, created, suspended);
    show.begun();
    let mut last = None;
    let each = async |event: Event| show.event(&event).await;
    let ended: Option<WaitAnswer> = {
        let mut follow = pin!(client.follow(&uuid, Source::Events, &mut last, each));
        let mut leave = pin!(leave);
        let mut sending: Sending<'_> = Box::pin(std::future::pending());
        loop {
            tokio::select! {
                answer = &mut follow => break Some(answer?),
                () = &mut leave => break None,
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
                        client.context().say(&format!("the answer was not sent: {error}"));
                    }
                }
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
