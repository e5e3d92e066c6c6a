//! `relive workspace`: the copies that processes work on.

use clap::Subcommand;
use relive_api::{OwnWorkspace, OwnWorkspaces, RemoveWorkspaceRequest, WorkspaceKind};
use serde_json::json;

use relive_core::ErrorCode;
use relive_types::file_name::shown;
use relive_types::short_id;

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::size::bytes;
use crate::render::table::{Align, Cell, Column, draw};

/// List, find and remove the workspaces that processes own
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive workspace list            list the copies, and what was not merged
  cd \"$(relive workspace path 6)\"
  relive workspace rm 6            refused if changes were not merged")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the workspaces
    #[command(before_long_help = "\
Examples:
  relive workspace list
  relive workspace list --json | jq '.workspaces[].path'")]
    List,
    /// Print the directory of a process
    #[command(before_long_help = "\
Examples:
  relive workspace path 5
  cd \"$(relive workspace path 5)\"")]
    Path {
        /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
        id: String,
    },
    /// Remove the workspace of a process that has ended
    #[command(before_long_help = "\
Examples:
  relive workspace rm 5 --dry-run
  relive workspace rm 5 -y")]
    Rm {
        /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
        id: String,
        /// Remove it even if changes were not merged
        #[arg(long)]
        force: bool,
        /// Show what would be removed, and remove nothing
        #[arg(long)]
        dry_run: bool,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    match &args.verb {
        Verb::List => list(context).await,
        Verb::Path { id } => {
            let process = Client::about(context, id).await?.process(id).await?;
            let path = process.cwd;
            if !std::path::Path::new(&path).is_dir() {
                return Err(no_directory(id, &path, process.workspace.map(|workspace| workspace.kind)));
            }
            if context.json { context.print_json(&json!({ "path": path })) } else { context.print_line(&path) }?;
            Ok(0)
        }
        Verb::Rm { id, force, dry_run, yes } => {
            let request = RemoveWorkspaceRequest { id: id.clone(), force: *force, dry_run: *dry_run };
            remove(context, request, *yes || *force || *dry_run).await
        }
    }
}

/// Says how to get at the last known files of a directory that was removed.
fn no_directory(id: &str, path: &str, kind: Option<WorkspaceKind>) -> CommandError {
    let hint = match kind {
        Some(WorkspaceKind::Own) => format!("relive merge {id}"),
        Some(WorkspaceKind::Here) | None => format!("relive resume --fork --workspace own {id}"),
    };
    CommandError::new(ErrorCode::NotFound, format!("the directory of {id} was removed: {path}")).with_hint(hint)
}

async fn list(context: &Context) -> Outcome<u8> {
    let listed = match Client::open(context, Start::IfHistories).await? {
        Some(client) => client.workspaces().await?,
        None => OwnWorkspaces { workspaces: Vec::new() },
    };
    if context.json {
        context.print_json(&listed)?;
        return Ok(0);
    }
    let left = |header| Column { header, align: Align::Left };
    let right = |header| Column { header, align: Align::Right };
    let columns = [left("ID"), left("CHANGES"), right("SIZE"), left("PATH")];
    let row = |own: &OwnWorkspace| {
        let changes = match own.dirty {
            Some(true) => "not merged",
            Some(false) => "none",
            None => "unknown",
        };
        [short_id::short(own.uuid), changes.to_owned(), bytes(own.bytes), shown(&own.path).into_owned()]
            .map(Cell::plain)
            .to_vec()
    };
    let rows: Vec<Vec<Cell>> = listed.workspaces.iter().map(row).collect();
    context.print(&draw(&columns, columns.len() - 1, &rows, &context.out))?;
    Ok(0)
}

async fn remove(context: &Context, request: RemoveWorkspaceRequest, is_sure: bool) -> Outcome<u8> {
    let client = Client::open(context, Start::IfHistories).await?;
    let client = client.ok_or_else(|| CommandError::not_found(&request.id))?;
    if !is_sure {
        let found = client.remove_workspace(&RemoveWorkspaceRequest { dry_run: true, ..request.clone() }).await?;
        let path = shown(&found.path);
        if !context.can_ask() {
            let message = format!("{} would be removed, and there is no terminal to ask on", path);
            return Err(CommandError::invalid(message).with_hint(format!("relive workspace rm -y {}", request.id)));
        }
        if !context.ask(&format!("Remove {} ({})?", path, bytes(found.bytes))) {
            context.say("nothing was removed");
            return Ok(0);
        }
    }
    let removed = client.remove_workspace(&request).await?;
    if context.json {
        context.print_json(&removed)?;
    } else if request.dry_run {
        context.say(&format!("{} would be removed, {}", shown(&removed.path), bytes(removed.bytes)));
    } else {
        context.say(&format!("removed {}, {} freed", shown(&removed.path), bytes(removed.bytes)));
    }
    Ok(0)
}
