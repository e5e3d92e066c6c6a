//! `relive restore`: some files of a process as they were after a step.

use std::ffi::OsString;

use relive_api::RestoreRequest;

use crate::client::Client;
use crate::commands::merge::tell;
use crate::commands::run::current_directory;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::files::typed;
use relive_types::program::quote;

/// Put single files back to how they were after a step of a process
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive restore 5 --step 12 src/main.rs
  relive restore 5 --step 0 docs --dry-run   show what would change in docs")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// Restore the files as they were after this step
    #[arg(long, value_name = "N")]
    step: u32,
    /// Files or directories, relative to this directory if it is in the workspace, otherwise to the workspace
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Overwrite changes made by others, and accept a state that is not exact
    #[arg(long)]
    force: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let request = RestoreRequest {
        step: args.step,
        paths: args.paths.iter().map(|path| typed(path)).collect(),
        cwd: current_directory()?,
        force: args.force,
        dry_run: args.dry_run,
    };
    let changed = client.restore(&args.id, &request).await?;
    let undo = format!("relive rewind {} --undo -y", quote(&args.id));
    tell(context, &changed, "restored", "", Some(&undo))
}
