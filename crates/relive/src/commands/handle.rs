//! `relive handle`: what a process may do to processes that are not below it.

use relive_api::{GrantRequest, Handle, HandleList, ReleaseRequest};
use relive_core::Pid;
use relive_core::Rights;
use relive_types::short_id;

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::Outcome;
use crate::render::table::{Align, Cell, Column, draw};

/// Let a process see or control another one
///
/// A process sees itself and its descendants. A handle lets it also see another process (`observer`), or also signal,
/// pause, resume and message it (`controller`). A process owns the processes that it spawns (`owner`). As long as a process has
/// a handle to another one, it can ask how that one ended.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive handle grant build --to lead --as observer  let `lead` wait for `build`
  relive handle list
  relive handle release build --of lead")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Give a process a handle to another one
    #[command(before_long_help = "\
Examples:
  relive handle grant 5 --to 7 --as observer
  relive handle grant tests --to fixer --as controller")]
    Grant {
        /// The process that the handle refers to
        id: String,
        /// The process that receives the handle
        #[arg(long, value_name = "ID")]
        to: String,
        /// `observer` may see and wait; `controller` may also signal, pause, resume and send
        #[arg(long = "as", value_name = "observer|controller", value_enum, hide_possible_values = true)]
        rights: GivenRights,
    },
    /// List the handles of processes that have not ended
    #[command(before_long_help = "\
Examples:
  relive handle list
  relive handle list --json | jq '.handles[].target'")]
    List,
    /// Release a handle; inside a process, one of its own
    #[command(before_long_help = "\
Examples:
  relive handle release 5 --of 7
  relive handle release tests --of fixer")]
    Release {
        /// The process that the handle refers to
        id: String,
        /// The process that holds the handle
        #[arg(long, value_name = "ID")]
        of: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum GivenRights {
    Observer,
    Controller,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    match &args.verb {
        Verb::Grant { id, to, rights } => {
            let rights = match rights {
                GivenRights::Observer => Rights::Observer,
                GivenRights::Controller => Rights::Controller,
            };
            let request = GrantRequest { target: id.clone(), to: to.clone(), rights };
            let handle = Client::about(context, id).await?.grant(&request).await?;
            if context.json {
                context.print_json(&handle)?;
            } else {
                let Handle { holder, target, .. } = handle;
                let undo = format!("relive handle release {target} --of {holder}");
                let has = word(handle.rights);
                let line = if handle.rights == rights {
                    format!("PID {holder} is {has} of PID {target} (undo: {undo})")
                } else {
                    format!(
                        "PID {holder} is already {has} of PID {target}: nothing to do (to reduce: {undo}, then grant)"
                    )
                };
                context.say(&line);
            }
        }
        Verb::List => {
            let client = Client::open(context, Start::IfHistories).await?;
            let list = match &client {
                Some(client) => client.handles().await?,
                None => HandleList::default(),
            };
            if context.json {
                context.print_json(&list)?;
            } else {
                context.print(&table(context, &list))?;
            }
        }
        Verb::Release { id, of } => {
            let request = ReleaseRequest { target: id.clone(), of: of.clone() };
            let released = Client::about(context, id).await?.release(&request).await?;
            if context.json {
                context.print_json(&released)?;
                return Ok(0);
            }
            let line = match released.handles.first() {
                Some(Handle { holder, .. }) => format!("released the handle of PID {holder} to {id}"),
                None => format!("there is no handle to {id}: nothing to do"),
            };
            context.say(&line);
        }
    }
    Ok(0)
}

fn word(rights: Rights) -> &'static str {
    match rights {
        Rights::Observer => "observer",
        Rights::Controller => "controller",
        Rights::Owner => "owner",
    }
}

fn table(context: &Context, list: &HandleList) -> String {
    let column = |header, align| Column { header, align };
    let columns = [column("HOLDER", Align::Right), column("TARGET", Align::Right), column("AS", Align::Left)];
    let row = |handle: &Handle| {
        // One that was removed has no PID any more.
        let target = match handle.target {
            Pid::RUNTIME => short_id::short(handle.target_uuid),
            pid => pid.to_string(),
        };
        [handle.holder.to_string(), target, word(handle.rights).to_owned()].map(Cell::plain).to_vec()
    };
    let rows: Vec<Vec<Cell>> = list.handles.iter().map(row).collect();
    draw(&columns, 2, &rows, &context.out)
}
