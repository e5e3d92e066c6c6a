//! `relive supervise`: keeps processes running.

use std::path::PathBuf;

use relive_api::FlowKind;
use relive_flow::file::SupervisedChild;
use relive_flow::{Run, SupervisorFile};
use relive_types::program::quote;
use serde_json::{Value, json};

use super::compose::{FlowLimits, read_file, start};
use crate::context::Context;
use crate::environment::EnvironmentArgs;
use crate::error::{CommandError, Outcome};

/// Keep processes running
///
/// A file lists children: agents (`intent`) and programs (`command`). A supervisor is a process that starts them all. When a
/// child ends, it is restarted as its `restart` says, and continues from its journal; one that you end with `kill` stays
/// ended. If children have to be restarted too often, the supervisor ends them all and fails.
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
    /// Show what would be started, and start nothing
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
            context.print_json(&children_of(&tree))?;
        } else {
            context.print_line(&tree.plan())?;
        }
        return Ok(0);
    }
    let env = args.environment.environment(&format!("relive supervise --env NAME=VALUE {}", quote(&file.name)))?;
    let request = file.request(FlowKind::Supervisor, args.name.clone(), env, &args.limits)?;
    start(context, request, args.detach).await
}

/// Returns the children of a supervisor; those that are supervisors have children of their own.
fn children_of(tree: &SupervisorFile) -> Value {
    let child = |child: &SupervisedChild| match &child.run {
        Run::Task(_) => json!({"name": child.name}),
        Run::Supervisor(below) => {
            let mut supervisor = children_of(below);
            supervisor["name"] = json!(child.name);
            supervisor
        }
    };
    json!({ "children": tree.children.iter().map(child).collect::<Vec<_>>() })
}
