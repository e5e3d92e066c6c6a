//! `relive kill`: send a signal.

use std::ffi::OsString;
use std::fmt;

use relive_api::{ListQuery, Process, SignalRequest};
use relive_core::{OsSignal, Pid, Signal};

use super::report_affected;
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::terminal::one_line;

/// Send a signal to a process
///
/// Every process knows TERM, KILL, INT, PAUSE and RESUME. A program knows all signals of the operating system besides, by name or
/// number.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive kill 5                asks it to end; after 10 s it is ended
  relive kill -9 5             ends it now; so does -s KILL
  relive kill -s HUP server    what a program makes of SIGHUP is its own affair
  relive kill --subtree -y 5   and everything below it")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
    /// A name or a number of the operating system's; `-9` and `-HUP` do as well
    #[arg(short, long, value_name = "SIGNAL", default_value = "SIGTERM", value_parser = parse_signal)]
    signal: AnySignal,
    /// Everything below as well
    #[arg(long)]
    subtree: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// A signal that a user can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnySignal {
    /// One that every process knows.
    Relive(Signal),
    /// One that programs know.
    Os(OsSignal),
}

impl fmt::Display for AnySignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relive(signal) => signal.fmt(f),
            Self::Os(signal) => signal.fmt(f),
        }
    }
}

fn parse_signal(text: &str) -> Result<AnySignal, String> {
    let named = |name: &str| {
        let relive = Signal::from_name(name).map(AnySignal::Relive);
        relive.or_else(|| OsSignal::from_name(name).map(AnySignal::Os))
    };
    // A number is the operating system's; its TERM, KILL and INT are ours as well.
    let numbered = |number: u8| named(&OsSignal::from_number(number)?.name());
    if let Ok(32..=33) = text.parse::<u8>() {
        return Err("the C library keeps this one for itself; there are 1 to 31 and 34 to 64".to_owned());
    }
    let found = match text.parse() {
        Ok(number) => numbered(number).or_else(|| OsSignal::from_number(number).map(AnySignal::Os)),
        Err(_) => named(text),
    };
    found.ok_or_else(|| {
        let bare = text.to_ascii_uppercase();
        let names: Vec<&str> = Signal::ALL.into_iter().map(Signal::name).chain(OsSignal::names()).collect();
        let meant = relive_types::suggest::closest(&bare, names.iter().flat_map(|name| [*name, &name[3..]]));
        let meant = meant.map(|meant| format!(" (did you mean `{meant}`?)")).unwrap_or_default();
        format!("there is no such signal{meant}")
    })
}

/// Spells out `kill -9` and `kill -HUP` as `kill --signal=9`, which is what clap understands.
pub(crate) fn spell_out(typed: &[OsString]) -> Vec<OsString> {
    // The one option before the verb that has a value in a word of its own.
    let is_value = |place: usize| place > 1 && typed[place - 1] == "--color";
    let is_option = |place: usize| typed[place].to_str().is_none_or(|word| word.starts_with('-'));
    let verb = (1..typed.len()).find(|place| !is_option(*place) && !is_value(*place));
    let Some(verb) = verb.filter(|place| typed[*place] == "kill") else { return typed.to_vec() };
    let is_end = |word: &&OsString| *word == "--";
    let options = typed.iter().skip(verb).take_while(|word| !is_end(word)).count();
    let spelled = |(place, word): (usize, &OsString)| {
        let signal = word.to_str().and_then(|word| word.strip_prefix('-')).filter(|signal| is_short(signal));
        match signal.filter(|_| place > verb && place < verb + options) {
            Some(signal) => OsString::from(format!("--signal={signal}")),
            None => word.clone(),
        }
    };
    typed.iter().enumerate().map(spelled).collect()
}

/// Whether this is a signal and not a row of options, which are small letters.
fn is_short(signal: &str) -> bool {
    let is_number = !signal.is_empty() && signal.bytes().all(|byte| byte.is_ascii_digit());
    is_number || signal.starts_with(|first: char| first.is_ascii_uppercase()) && parse_signal(signal).is_ok()
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
    let request = SignalRequest { signal: args.signal.to_string(), subtree: args.subtree };
    let affected = client.signal(&args.id, &request).await?;
    let subtree = if args.subtree { " --subtree" } else { "" };
    let undo = match args.signal {
        AnySignal::Relive(Signal::Term | Signal::Kill | Signal::Int) => Some(format!("relive resume {}", args.id)),
        AnySignal::Relive(Signal::Pause) => Some(format!("relive resume {}{subtree}", args.id)),
        AnySignal::Relive(Signal::Resume) => Some(format!("relive pause {}{subtree}", args.id)),
        AnySignal::Os(_) => None,
    };
    report_affected(context, &args.id, &affected, &format!("got {}", args.signal), undo.as_deref())
}

fn ends(signal: AnySignal) -> bool {
    match signal {
        AnySignal::Relive(Signal::Term | Signal::Kill | Signal::Int) => true,
        AnySignal::Relive(Signal::Pause | Signal::Resume) | AnySignal::Os(_) => false,
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
    fn a_signal_is_a_name_or_a_number_of_the_operating_system() {
        let check = |text: &str, name: &str| {
            assert_eq!(parse_signal(text).map(|signal| signal.to_string()), Ok(name.to_owned()), "{text}")
        };
        for text in ["9", "KILL", "sigkill"] {
            check(text, "SIGKILL");
            assert_eq!(parse_signal(text), Ok(AnySignal::Relive(Signal::Kill)), "{text}");
        }
        check("15", "SIGTERM");
        check("2", "SIGINT");
        check("1", "SIGHUP");
        check("usr1", "SIGUSR1");
        check("PAUSE", "SIGPAUSE");
        check("34", "SIGRTMIN");
        for text in ["32", "33"] {
            assert!(parse_signal(text).unwrap_err().contains("the C library keeps this one for itself"), "{text}");
        }
        assert!(parse_signal("TREM").unwrap_err().ends_with("(did you mean `TERM`?)"));
        assert!(parse_signal("HPU").unwrap_err().ends_with("(did you mean `HUP`?)"));
        assert!(parse_signal("0").is_err() && parse_signal("65").is_err());
    }

    #[test]
    fn a_signal_can_be_typed_as_the_system_s_kill_has_it() {
        let check = |typed: &str, expect: &str| {
            let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            let expect: Vec<OsString> = expect.split(' ').map(OsString::from).collect();
            assert_eq!(spell_out(&words), expect);
        };
        check("relive kill -9 5", "relive kill --signal=9 5");
        check("relive --json kill 5 -SIGUSR1", "relive --json kill 5 --signal=SIGUSR1");
        check("relive kill -HUP 5", "relive kill --signal=HUP 5");
        check("relive --color always kill -9 5", "relive --color always kill --signal=9 5");
        check("relive --color=always --json kill -9 5", "relive --color=always --json kill --signal=9 5");
        check("relive --color kill kill -9 5", "relive --color kill kill --signal=9 5");
        check("relive --color kill info -9", "relive --color kill info -9");
        // Not a signal that can be sent: why not is said of the value.
        check("relive kill -33 5", "relive kill --signal=33 5");
        check("relive kill -s HUP -y 5", "relive kill -s HUP -y 5");
        check("relive kill -- -9", "relive kill -- -9");
        check("relive exec -- kill -9 5", "relive exec -- kill -9 5");
        check("relive info kill", "relive info kill");
        check("relive kill -XYZ 5", "relive kill -XYZ 5");
    }
}
