//! `relive ps`: what runs.

use relive_api::ProcessList;

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::Outcome;
use crate::render::processes::{self, Order};

/// List processes
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive ps             what runs or is suspended
  relive ps -a --tree   those that ended too, each below its parent
  relive kill $(relive ps -q | tail -1)")]
pub(crate) struct Args {
    /// Those that have ended too
    #[arg(short, long)]
    all: bool,
    /// Each below its parent
    #[arg(long)]
    tree: bool,
    /// PIDs only, one a line, ascending
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let mut list = match Client::open(context, Start::IfHistories).await? {
        Some(client) => client.processes(args.all).await?,
        None => ProcessList { processes: Vec::new(), next: None },
    };
    list.processes.sort_by_key(|process| process.pid);
    if context.json {
        context.print_json(&list)?;
    } else if args.quiet {
        let pids: String = list.processes.iter().map(|process| format!("{}\n", process.pid)).collect();
        context.print(&pids)?;
    } else {
        let order = if args.tree { Order::Tree } else { Order::Pid };
        context.print(&processes::table(&list.processes, order, &context.out))?;
    }
    Ok(0)
}
