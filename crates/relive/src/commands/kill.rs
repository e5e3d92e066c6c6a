//! `relive kill`: send a signal.

mod signals;

use relive_api::{Affected, ListQuery, Process, SignalRequest};
use relive_client::Error as Unreached;
use relive_core::{Body, Display, ErrorCode, Pid, Signal, SuspendReason};

pub(crate) use self::signals::spell_out;
use self::signals::{AnySignal, parse_signal};

use super::resume::raising;
use super::targets::{Batch, Scope, Target, Targets, Told, id_of, resumed_as};
use super::tell_affected;
use crate::client::{Client, is_continues};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::table::fit;
use crate::terminal::one_line;

/// How much is shown of a name, or of an intent in its place.
const NAME_MAX: usize = 60;

/// Send a signal to processes
///
/// Every process accepts TERM, KILL, INT, PAUSE and RESUME. A program also accepts every signal of the operating system,
/// by name or number.
#[derive(Debug, clap::Args)]
#[command(
    before_long_help = "\
Examples:
  relive kill 5                ask it to end, and kill it after 10 s
  relive kill -9 5             kill it now; `-s KILL` does the same
  relive kill -s HUP server    send SIGHUP to a program
  relive kill --subtree -y 5   end it and all its descendants
  relive kill 5 6 'test-*'     end several processes
  relive kill --all -y         end every process
  relive kill -l               list the signals",
    mut_arg("ids", |ids| ids.required_unless_present("list"))
)]
#[command(mut_arg("all", |all| all.help("Select all processes that have not ended")))]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// The name or number of the signal, also as -9 or -HUP; 0 only tells whether the process has ended
    #[arg(short, long, value_name = "SIGNAL", default_value = "SIGTERM", value_parser = parse_signal)]
    signal: AnySignal,
    /// List the signals; with a number or an exit code, print the name of that signal, and with a name its number
    #[arg(short, long, value_name = "SIGNAL", num_args = 0..=1, default_missing_value = "")]
    #[arg(conflicts_with_all = ["ids", "all", "signal", "subtree", "yes"])]
    list: Option<String>,
    /// Include all descendants of the process
    #[arg(long)]
    subtree: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    if let Some(signal) = &args.list {
        return signals::list(context, signal);
    }
    let mut batch = Batch::new(context, &args.targets);
    let Some(client) = args.targets.client(context).await? else { return batch.finish("no process is running") };
    let mut targets = args.targets.expand(&client, Scope::Living).await?;
    if !args.yes && ends(args.signal) && !is_wanted(context, args, &client, &mut targets).await? {
        context.say("nothing was sent");
        return Ok(0);
    }
    for target in targets {
        // What was shown is what gets the signal: another process may have its name by now.
        let shown = target.found.as_deref().map(id_of);
        let id = shown.unwrap_or_else(|| target.id.clone());
        let before = match target.found {
            Some(process) => Some(*process),
            // Only for the words: a failure to look is told by the signal itself.
            None if context.json || target.error.is_some() => None,
            None => match std::ops::Deref::deref(&client).process(&id).await {
                // Nobody would get the signal either, after as long a wait.
                Err(error @ (Unreached::Mute { .. } | Unreached::Full { .. } | Unreached::Silent(_))) => {
                    batch.failure(&target.id, error.into())?;
                    continue;
                }
                looked => looked.ok(),
            },
        };
        let request = SignalRequest { signal: args.signal.to_string(), subtree: args.subtree };
        let sent = match target.error {
            Some(error) => Err(error),
            None if args.signal == AnySignal::Nothing => {
                let looked = match client.process(&id).await {
                    Ok(process) => lives(&client, &process).await,
                    Err(error) => Err(error),
                };
                match looked {
                    Ok(()) => batch.answer(&target.id, &Affected::default(), &Told::default(), 0)?,
                    Err(error) => batch.failure(&target.id, error)?,
                }
                continue;
            }
            None => client.signal(&id, &request).await,
        };
        match sent {
            Ok(affected) => {
                // One that is frozen with another is not resumed alone.
                let undo = undo(args, &target.id, before.as_ref()).filter(|_| !affected.frozen);
                let done = format!("got {}", args.signal);
                let (told, code) = match &affected.note {
                    // It waits for the gate of the program, or for nothing.
                    Some(note) if matches!(args.signal, AnySignal::Os(_)) && !is_continues(note) => {
                        (format!("{note}\n"), 0)
                    }
                    Some(_) | None => {
                        let (told, code) = tell_affected(context, &target.id, &affected, &done, undo.as_deref());
                        (told + &unseen_stop(args.signal, &affected), code)
                    }
                };
                batch.answer(&target.id, &affected, &Told::message(told), code)?;
            }
            Err(error) => batch.failure(&target.id, error)?,
        }
    }
    batch.finish("no process is running")
}

/// Fails for a process that has ended.
async fn lives(client: &Client<'_>, process: &Process) -> Outcome<()> {
    let pid = process.pid;
    match process.dead_at {
        Some(_) => Err(match resumed_as(client, process).await {
            Some(now) => {
                CommandError::new(ErrorCode::Conflict, format!("PID {pid} has ended and was resumed as PID {now}"))
                    .with_hint(format!("relive kill -0 {now}"))
            }
            None => CommandError::new(ErrorCode::Conflict, format!("PID {pid} has ended")),
        }),
        None => Ok(()),
    }
}

/// Says that a program which the system has stopped is not shown as stopped, unlike one that is paused.
fn unseen_stop(signal: AnySignal, affected: &Affected) -> String {
    let pid = affected.pids.first();
    match (signal, pid) {
        (AnySignal::Os(signal), Some(pid)) if ["SIGSTOP", "SIGTSTP"].contains(&signal.name().as_ref()) => {
            format!("`relive ps` does not show that; to stop it visibly: relive kill -CONT {pid}; relive pause {pid}\n")
        }
        (AnySignal::Relive(_) | AnySignal::Os(_) | AnySignal::Nothing, _) => String::new(),
    }
}

/// Returns the command that takes a signal back, if there is one. A program that was ended has only a new run.
fn undo(args: &Args, id: &str, before: Option<&Process>) -> Option<String> {
    if before.is_some_and(|before| before.display == Display::Damaged.word()) {
        return None;
    }
    let subtree = if args.subtree { " --subtree" } else { "" };
    match args.signal {
        AnySignal::Relive(Signal::Term | Signal::Kill | Signal::Int) => match before.map(|before| before.body) {
            Some(Body::Exec) => None,
            Some(Body::Agent | Body::Cli | Body::Compose | Body::Supervisor) | None => {
                let is_spent = |before: &&Process| before.suspend_reason == Some(SuspendReason::BudgetExceeded);
                let raised = match before.filter(is_spent) {
                    // A plain resume would end at once.
                    Some(before) => format!(" {}", raising(before)?),
                    None => String::new(),
                };
                // It cannot be resumed before it has ended.
                Some(format!("relive wait {id}; relive resume {id}{raised}"))
            }
        },
        AnySignal::Relive(Signal::Pause) => Some(format!("relive resume {id}{subtree}")),
        AnySignal::Relive(Signal::Resume) => Some(format!("relive pause {id}{subtree}")),
        AnySignal::Os(_) | AnySignal::Nothing => None,
    }
}

/// Asks before more processes end than were named: those of a subtree, of a pattern, or all.
async fn is_wanted(context: &Context, args: &Args, client: &Client<'_>, targets: &mut [Target]) -> Outcome<bool> {
    let mut reached: Vec<Process> = targets.iter().filter_map(|target| target.found.as_deref().cloned()).collect();
    if args.subtree {
        let list = client.list(&ListQuery::default()).await?;
        let is_one = targets.len() == 1;
        for target in targets.iter_mut().filter(|target| target.error.is_none()) {
            let root = match &target.found {
                Some(process) => process.pid,
                None => match client.process(&target.id).await {
                    Ok(process) => target.found.insert(Box::new(process)).pid,
                    // It is told with the answers of the others, unless it is the only one.
                    Err(error) if is_one => return Err(error),
                    Err(error) => {
                        target.error = Some(error);
                        continue;
                    }
                },
            };
            for process in subtree(&list.processes, root) {
                if !reached.iter().any(|reached| reached.pid == process.pid) {
                    reached.push(process.clone());
                }
            }
        }
    }
    // A pattern may reach something else than was meant, also if that is one process.
    let is_named = args.targets.is_named();
    if reached.len() > 1 || !is_named && !reached.is_empty() { confirm(context, args, &reached) } else { Ok(true) }
}

fn ends(signal: AnySignal) -> bool {
    match signal {
        AnySignal::Relive(Signal::Term | Signal::Kill | Signal::Int) => true,
        AnySignal::Relive(Signal::Pause | Signal::Resume) | AnySignal::Os(_) | AnySignal::Nothing => false,
    }
}

fn confirm(context: &Context, args: &Args, reached: &[Process]) -> Outcome<bool> {
    let count = match reached.len() {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    if !context.can_ask() {
        let typed = args.targets.typed();
        let message = format!("{typed}: this would send {} to {count}", args.signal);
        let subtree = if args.subtree { "--subtree " } else { "" };
        let is_usual = args.signal == AnySignal::Relive(Signal::Term);
        let name = args.signal.to_string();
        let signal = if is_usual { String::new() } else { format!("-s {} ", name.trim_start_matches("SIG")) };
        return Err(CommandError::invalid(message).with_hint(format!("relive kill {signal}{subtree}-y {typed}")));
    }
    context.say(&format!("This sends {} to {count}:", args.signal));
    for process in reached {
        let name = fit(&one_line(process.name.as_ref().unwrap_or(&process.intent)), NAME_MAX, &context.err);
        context.say(&format!("  PID {} {} {name}", process.pid, process.display));
    }
    Ok(context.ask("Send it?"))
}

/// Returns the process and its descendants, parents first.
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
    fn only_a_stop_of_the_system_is_told_to_be_unseen() {
        let check = |signal: &str, is_told: bool| {
            let affected = Affected { affected: 1, pids: vec![Pid(5)], ..Affected::default() };
            let told = unseen_stop(parse_signal(signal).unwrap(), &affected);
            assert_eq!(told.contains("relive kill -CONT 5; relive pause 5"), is_told, "{signal}: {told}");
        };
        check("STOP", true);
        check("20", true);
        check("HUP", false);
        check("PAUSE", false);
        assert_eq!(unseen_stop(parse_signal("STOP").unwrap(), &Affected::default()), "");
    }
}
