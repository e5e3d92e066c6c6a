//! `relive kill`: send a signal.

use relive_api::{ListQuery, Process, SignalRequest};
use relive_core::{Pid, Signal};

use super::report_affected;
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::terminal::one_line;

/// Send a signal to a process
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive kill 5                asks it to end; after 10 s it is ended
  relive kill -s KILL 5        ends it now
  relive kill --subtree -y 5   and everything below it")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
    /// TERM, KILL, INT, PAUSE or RESUME
    #[arg(short, long, value_name = "NAME", default_value = "SIGTERM", value_parser = parse_signal)]
    signal: Signal,
    /// Everything below as well
    #[arg(long)]
    subtree: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

fn parse_signal(name: &str) -> Result<Signal, String> {
    if let Some(signal) = Signal::from_name(name) {
        return Ok(signal);
    }
    let names = Signal::ALL.map(Signal::name);
    let bare = name.to_ascii_uppercase();
    let meant = relive_types::suggest::closest(&bare, names.iter().flat_map(|name| [*name, &name[3..]]));
    let meant = meant.map(|meant| format!(" (did you mean `{meant}`?)")).unwrap_or_default();
    Err(format!("signals go by name, and there are {}{meant}", names.join(", ")))
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    if args.subtree && !args.yes && ends(args.signal) {
        let root = client.process(&args.id).await?;
        let list = client.list(&ListQuery::default()).await?;
        let reached = subtree(&list.processes, root.pid);
        if reached.len() > 1 && !confirm(context, args, &reached)? {
            context.say("nothing was done");
            return Ok(0);
        }
    }
    let request = SignalRequest { signal: args.signal.name().into(), subtree: args.subtree };
    let affected = client.signal(&args.id, &request).await?;
    let subtree = if args.subtree { " --subtree" } else { "" };
    let undo = match args.signal {
        Signal::Term | Signal::Kill | Signal::Int => format!("relive resume {}", args.id),
        Signal::Pause => format!("relive resume {}{subtree}", args.id),
        Signal::Resume => format!("relive pause {}{subtree}", args.id),
    };
    report_affected(context, &args.id, &affected, &format!("got {}", args.signal), Some(&undo))
}

fn ends(signal: Signal) -> bool {
    match signal {
        Signal::Term | Signal::Kill | Signal::Int => true,
        Signal::Pause | Signal::Resume => false,
    }
}

fn confirm(context: &Context, args: &Args, reached: &[&Process]) -> Outcome<bool> {
    let count = reached.len();
    if !context.can_ask() {
        let message = format!("{}: this would send {} to {count} processes", args.id, args.signal);
        return Err(CommandError::invalid(message).with_hint(format!("relive kill --subtree -y {}", args.id)));
    }
    context.say(&format!("{} goes to {count} processes:", args.signal));
    for process in reached {
        let name = one_line(process.name.as_ref().unwrap_or(&process.intent));
        context.say(&format!("  PID {} {} {name}", process.pid, process.display));
    }
    Ok(context.ask("Send it?"))
}

/// The process and everything below it, parents first.
fn subtree(processes: &[Process], root: Pid) -> Vec<&Process> {
    let mut reached: Vec<&Process> = processes.iter().filter(|process| process.pid == root).collect();
    let mut next = 0;
    while let Some(parent) = reached.get(next).map(|process| process.pid) {
        reached.extend(processes.iter().filter(|process| process.ppid == parent && process.pid != parent));
        next += 1;
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::processes::tests::process;

    #[test]
    fn a_subtree_is_the_process_and_all_below_it() {
        let list = [process(1, 0), process(2, 1), process(3, 2), process(4, 0), process(5, 1)];
        let pids = |root| subtree(&list, Pid(root)).iter().map(|process| process.pid.0).collect::<Vec<_>>();
        assert_eq!(pids(1), [1, 2, 5, 3]);
        assert_eq!(pids(4), [4]);
        assert_eq!(pids(9), Vec::<u32>::new());
    }

    #[test]
    fn a_wrong_signal_names_the_right_ones() {
        assert!(parse_signal("TREM").unwrap_err().ends_with("(did you mean `TERM`?)"));
        assert!(parse_signal("9").unwrap_err().starts_with("signals go by name"));
    }
}
