//! `relive send`: a message to an agent.

use relive_api::InputRequest;

use crate::client::Client;
use crate::context::{Context, new_uuid};
use crate::error::Outcome;

/// Send a message to an agent
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive send 5 \"leave the public API as it is\"
  relive send fixer \"$(cat notes.md)\"")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
    /// What to say
    text: String,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let request = InputRequest { id: new_uuid()?.to_string(), text: args.text.clone() };
    let answer = client.input(&args.id, &request).await?;
    if context.json {
        context.print_json(&answer)?;
    } else {
        context.print_line(&format!("sent to {}: it reads it at its next step", args.id))?;
    }
    Ok(0)
}
