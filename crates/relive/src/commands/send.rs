//! `relive send`: a message to an agent, or a line to a program.

use relive_api::InputRequest;

use crate::client::Client;
use crate::context::{Context, new_uuid};
use crate::error::Outcome;

/// Send a message to an agent, or a line to a program
///
/// An agent reads the message at its next step. A program reads it from its standard input, which `exec -d -i` keeps
/// open; a program with a terminal receives it as typed keys. When this command returns, the message is on the disk and a
/// crash does not lose it. It is delivered at most once: a program that ends or closes its input first never reads it.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive send 5 \"leave the public API as it is\"
  relive send fixer \"$(cat notes.md)\"
  relive send calc \"6 * 7\"         to a program started with `exec -d -i`
  relive send calc --eof           end its input")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// The message
    #[arg(required_unless_present = "eof")]
    text: Option<String>,
    /// Close the input of a program, after the message if there is one; the program then reads end-of-file
    #[arg(long)]
    eof: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let mut answer = None;
    if let Some(text) = &args.text {
        let request = InputRequest { id: new_uuid()?.to_string(), text: text.clone(), eof: false };
        answer = Some(client.input(&args.id, &request).await?);
    }
    if args.eof {
        let request = InputRequest { id: new_uuid()?.to_string(), text: String::new(), eof: true };
        answer = Some(client.input(&args.id, &request).await?);
    }
    if context.json {
        if let Some(answer) = answer {
            context.print_json(&answer)?;
        }
        return Ok(0);
    }
    let id = &args.id;
    context.say(&match (&args.text, args.eof) {
        (Some(_), true) => format!("sent to {id}, and closed its input"),
        (Some(_), false) => format!("sent to {id}"),
        (None, _) => format!("closed the input of {id}"),
    });
    Ok(0)
}
