//! `relive supervise`: keeps processes running.

use std::path::PathBuf;

use relive_api::FlowKind;
use relive_flow::SupervisorFile;
use relive_types::program::quote;
use serde_json::json;

use super::compose::{FlowLimits, read_file, start};
use crate::context::Context;
use crate::environment::EnvironmentArgs;
use crate::error::{CommandError, Outcome};

/// Keep processes running
///
/// A file lists children: agents (`intent`) and programs (`command`). A supervisor is a process that starts them and resumes
/// each one that ends from its journal, as its `restart` says; a child that you end with `kill` stays ended. If children
/// end too often, the supervisor ends them all and fails.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive supervise -d keep.yaml     start the processes in the background
  relive compose status 5           show them
  relive compose down 5             end the supervisor and its processes

A file:
  children:
    server: {command: [./server]}
    worker: {intent: 'work off the queue', restart: transient}")]
pub(crate) struct Args {
    /// The file; `-` reads standard input
    file: PathBuf,
    /// Run in the background and print the PID
    #[arg(short, long)]
    detach: bool,
    /// Check the file, and start nothing
    #[arg(long, conflicts_with = "detach")]
    dry_run: bool,
    /// A name for the supervisor
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    limits: FlowLimits,
    #[command(flatten)]
    environment: EnvironmentArgs,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let file = read_file(&args.file)?;
    let tree =
        SupervisorFile::parse(&file.name, &file.text).map_err(|error| CommandError::invalid(error.to_string()))?;
    if args.dry_run {
        if context.json {
            let children: Vec<_> = tree.children.iter().map(|child| json!({"name": child.name})).collect();
            context.print_json(&json!({ "children": children }))?;
        } else {
            for child in &tree.children {
                context.print_line(&child.name)?;
            }
        }
        return Ok(0);
    }
    let env = args.environment.environment(&format!("relive supervise --env NAME=VALUE {}", quote(&file.name)))?;
    let request = file.request(FlowKind::Supervisor, args.name.clone(), env, &args.limits)?;
    start(context, request, args.detach).await
}
