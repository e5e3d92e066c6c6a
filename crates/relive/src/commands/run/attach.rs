//! The foreground: what the agent says, as it says it, until it ends. Leaving never stops it.

use std::future::Future;
use std::pin::pin;

use relive_api::{Created, WaitAnswer};

use super::show::Show;
use crate::client::sse::Event;
use crate::client::{Client, Source};
use crate::commands::interrupts::INTERRUPTED;
use crate::error::Outcome;

/// Shows it until it has ended, or `leave` says that it is time to go.
pub(crate) async fn run(client: &Client<'_>, created: Created, leave: impl Future<Output = ()>) -> Outcome<u8> {
    let uuid = created.uuid.to_string();
    let mut show = Show::new(client, created);
    show.begun();
    let mut last = None;
    let each = async |event: Event| show.event(&event).await;
    let ended: Option<WaitAnswer> = {
        let mut follow = pin!(client.follow(&uuid, Source::Events, &mut last, each));
        tokio::select! {
            answer = &mut follow => Some(answer?),
            () = leave => None,
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
