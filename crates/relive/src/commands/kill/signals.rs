//! The signals that `kill` sends: their names, numbers and list.

use std::ffi::OsString;
use std::fmt;

use relive_core::{OsSignal, Signal};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::table::{Align, Cell, Column, draw};

/// A signal that a user can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnySignal {
    /// A signal that every process accepts.
    Relive(Signal),
    /// A signal that programs accept.
    Os(OsSignal),
    /// No signal: only tells whether the process has ended.
    Nothing,
}

impl fmt::Display for AnySignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relive(signal) => signal.fmt(f),
            Self::Os(signal) => signal.fmt(f),
            Self::Nothing => f.write_str("0"),
        }
    }
}

pub(super) fn parse_signal(text: &str) -> Result<AnySignal, String> {
    let named = |name: &str| {
        let relive = Signal::from_name(name).map(AnySignal::Relive);
        relive.or_else(|| OsSignal::from_name(name).map(AnySignal::Os))
    };
    // A number is that of the operating system; its TERM, KILL and INT are also Relive's.
    let numbered = |number: u8| named(&OsSignal::from_number(number)?.name());
    if text == "0" {
        return Ok(AnySignal::Nothing);
    }
    if let Ok(32..=33) = text.parse::<u8>() {
        return Err("the C library reserves this signal; use 1 to 31 or 34 to 64".to_owned());
    }
    let found = match text.parse() {
        Ok(number) => numbered(number).or_else(|| OsSignal::from_number(number).map(AnySignal::Os)),
        Err(_) => named(text),
    };
    found.ok_or_else(|| {
        let bare = text.to_ascii_uppercase();
        let names: Vec<&str> = Signal::ALL.into_iter().map(Signal::name).chain(OsSignal::names()).collect();
        let meant = relive_types::suggest::closest(&bare, names.iter().flat_map(|name| [*name, &name[3..]]));
        match meant {
            Some(meant) => format!("unknown signal (did you mean `{meant}`?)"),
            None => {
                "unknown signal: use a name such as TERM or HUP, or a number; `relive kill -l` lists them".to_owned()
            }
        }
    })
}

/// Rewrites `kill -9` and `kill -HUP` as `kill --signal=9`, which clap understands.
pub(crate) fn spell_out(typed: &[OsString]) -> Vec<OsString> {
    // The only option before the command that has its value in a separate word.
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

/// Returns whether this is a signal and not a group of options, which are small letters.
fn is_short(signal: &str) -> bool {
    let is_number = !signal.is_empty() && signal.bytes().all(|byte| byte.is_ascii_digit());
    // Also one that does not exist: the error is about the value.
    let is_name = signal.len() > 1 && signal.starts_with(|first: char| first.is_ascii_uppercase());
    // In small letters only one that exists or begins like one: `-hup`, `-sigkill`, but not `-sterm`, which is `-s term`.
    let is_known = signal.len() > 1 && (parse_signal(signal).is_ok() || signal.starts_with("sig"));
    is_number || is_name || is_known
}

/// Prints all signals; of a number the name, and of a name the number, as the `kill` of a shell does.
pub(super) fn list(context: &Context, typed: &str) -> Outcome<u8> {
    if typed.is_empty() {
        let signals = all();
        if context.json {
            context
                .print_json(&json!({ "signals": signals.iter().map(|signal| as_json(*signal)).collect::<Vec<_>>() }))?;
        } else {
            context.print(&table(context, &signals))?;
        }
        return Ok(0);
    }
    let signal = named(typed).map_err(|error| CommandError::invalid(format!("`{typed}`: {error}")))?;
    if context.json {
        context.print_json(&as_json(signal))?;
        return Ok(0);
    }
    let is_number = typed.bytes().all(|byte| byte.is_ascii_digit());
    let text = match number(signal).filter(|_| !is_number) {
        Some(number) => number.to_string(),
        None if is_number => signal.to_string().trim_start_matches("SIG").to_owned(),
        None => return Err(CommandError::invalid(format!("{signal} is a signal of Relive and has no number"))),
    };
    context.print_line(&text)?;
    Ok(0)
}

/// Finds a signal, also by the exit code of a program that it ended.
fn named(typed: &str) -> Result<AnySignal, String> {
    let of_code = typed.parse::<u8>().ok().and_then(|code| code.checked_sub(128)).filter(|number| *number > 0);
    match parse_signal(&of_code.map_or_else(|| typed.to_owned(), |number| number.to_string()))? {
        AnySignal::Nothing => Err("0 is no signal: it only tells whether a process has ended".to_owned()),
        signal @ (AnySignal::Relive(_) | AnySignal::Os(_)) => Ok(signal),
    }
}

/// Returns the signals that every process accepts, and then the others of the operating system by number.
fn all() -> Vec<AnySignal> {
    let others = OsSignal::names().filter(|name| Signal::from_name(name).is_none()).filter_map(OsSignal::from_name);
    Signal::ALL.into_iter().map(AnySignal::Relive).chain(others.map(AnySignal::Os)).collect()
}

/// Returns the number of a signal for the operating system.
fn number(signal: AnySignal) -> Option<u8> {
    match signal {
        AnySignal::Relive(signal) => OsSignal::from_name(signal.name()).map(OsSignal::number),
        AnySignal::Os(signal) => Some(signal.number()),
        AnySignal::Nothing => Some(0),
    }
}

fn accepted_by(signal: AnySignal) -> &'static str {
    match signal {
        AnySignal::Relive(_) | AnySignal::Nothing => "every process",
        AnySignal::Os(_) => "programs",
    }
}

fn as_json(signal: AnySignal) -> Value {
    json!({ "name": signal.to_string(), "number": number(signal), "accepted_by": accepted_by(signal) })
}

fn table(context: &Context, signals: &[AnySignal]) -> String {
    let column = |header, align| Column { header, align };
    let columns = [column("SIGNAL", Align::Left), column("NUMBER", Align::Right), column("ACCEPTED BY", Align::Left)];
    let row = |signal: &AnySignal| {
        let number = number(*signal).map_or("-".to_owned(), |number| number.to_string());
        vec![Cell::plain(signal.to_string()), Cell::plain(number), Cell::plain(accepted_by(*signal))]
    };
    draw(&columns, 2, &signals.iter().map(row).collect::<Vec<_>>(), &context.out)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(parse_signal(text).unwrap_err().contains("the C library reserves this signal"), "{text}");
        }
        assert!(parse_signal("TREM").unwrap_err().ends_with("(did you mean `TERM`?)"));
        assert!(parse_signal("HPU").unwrap_err().ends_with("(did you mean `HUP`?)"));
        assert_eq!(parse_signal("0"), Ok(AnySignal::Nothing));
        assert!(parse_signal("65").is_err());
    }

    #[test]
    fn a_signal_can_be_typed_like_for_the_kill_of_the_system() {
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
        // Not a signal that can be sent: the error is about the value.
        check("relive kill -33 5", "relive kill --signal=33 5");
        check("relive kill -s HUP -y 5", "relive kill -s HUP -y 5");
        check("relive kill -- -9", "relive kill -- -9");
        check("relive exec -- kill -9 5", "relive exec -- kill -9 5");
        check("relive info kill", "relive info kill");
        check("relive kill -XYZ 5", "relive kill --signal=XYZ 5");
        check("relive kill -V", "relive kill -V");
        check("relive kill -sigkill 5", "relive kill --signal=sigkill 5");
        check("relive kill -SigKill 5", "relive kill --signal=SigKill 5");
        check("relive kill -sigfoo 5", "relive kill --signal=sigfoo 5");
        check("relive kill -hup 5", "relive kill --signal=hup 5");
        check("relive kill -sterm 5", "relive kill -sterm 5");
        check("relive kill -y 5", "relive kill -y 5");
        check("relive kill -l 9", "relive kill -l 9");
    }

    #[test]
    fn the_list_translates_numbers_exit_codes_and_names() {
        let check = |typed: &str, name: &str, at: Option<u8>| {
            let signal = named(typed).unwrap();
            assert_eq!((signal.to_string().as_str(), number(signal)), (name, at), "{typed}");
        };
        check("9", "SIGKILL", Some(9));
        check("137", "SIGKILL", Some(9));
        check("hup", "SIGHUP", Some(1));
        check("PAUSE", "SIGPAUSE", None);
        for bad in ["0", "128", "65", "TREM"] {
            assert!(named(bad).is_err(), "{bad}");
        }
        assert_eq!(all().len(), 33, "31 of the operating system, and PAUSE and RESUME");
    }
}
