//! `relive steps`: one line a step.

use relive_client::{Error, Event, Source};
use serde_json::json;

use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::steps::{fold, table};

/// List the steps of a process
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive steps 5                          find the step to go back to
  relive resume --fork --from-step 12 5   and fork from its end")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let uuid = client.process(&args.id).await?.uuid.to_string();
    let mut steps = Vec::new();
    let each = async |event: Event| {
        fold(&mut steps, &event.data);
        Ok::<_, Error>(())
    };
    client.read(&uuid, Source::Journal, &mut None, each).await?;
    if context.json {
        context.print_json(&json!({ "steps": steps }))?;
    } else {
        context.print(&table(&steps, &context.out))?;
    }
    Ok(0)
}
