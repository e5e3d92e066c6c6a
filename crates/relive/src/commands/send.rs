//! `relive send`: a message to an agent, or a line to a program.

use relive_api::InputRequest;

use crate::client::Client;
use crate::context::{Context, new_uuid};
use crate::error::Outcome;

/// Send a message to an agent, or a line to a program
///
/// An agent reads it at its next step. A program reads it from its standard input, if that is open: `exec -d -i` keeps it
/// open, and a program with a terminal has it typed. The message is on the disk when this returns. It is not read twice; a
/// program that ends or closes its input before it has read it never does.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive send 5 \"leave the public API as it is\"
  relive send fixer \"$(cat notes.md)\"
  relive send calc \"6 * 7\"               to a program that was started with exec -d -i")]
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
        context.print_line(&format!("sent to {}", args.id))?;
    }
    Ok(0)
}
