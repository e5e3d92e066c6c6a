//! What to type instead of a command line that clap refuses.
//!
//! Clap's own tips fail when they are typed (`rm -f prog`: "use '-- -f'"), and its closest name for a habit from another
//! tool is nonsense (`stop`: "restore").

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _};
use relive_types::program::quote;

use super::Cli;

/// Better words for an error of clap; what is missing stays as clap says it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) message: Option<String>,
    pub(crate) hint: Option<String>,
    /// Whether clap's own tip is wrong as well.
    pub(crate) no_tip: bool,
}

/// Commands of other tools, and ours. `ID` is what was typed after the command; with a `TEXT`, only the first word of it.
const COMMANDS: &[(&str, &str)] = &[
    ("stop halt", "relive pause ID` or `relive kill ID"),
    ("start unpause continue", "relive resume ID"),
    ("restart", "relive kill ID; relive wait ID; relive resume ID"),
    ("status inspect show describe", "relive info ID"),
    ("ls list", "relive ps"),
    ("htop watch", "relive top"),
    ("tail follow", "relive logs -f ID"),
    ("remove delete del", "relive rm ID"),
    ("prune clean cleanup", "relive gc --dry-run"),
    ("cancel end terminate", "relive kill ID"),
    ("approve allow", "relive resolve ID --allow"),
    ("reject deny", "relive resolve ID --deny"),
    ("undo", "relive rewind ID --undo"),
    ("cost costs stats", "relive usage"),
    ("fork clone branch", "relive resume --fork ID"),
    ("freeze suspend", "relive pause ID"),
    ("thaw unfreeze wake", "relive resume ID"),
    ("jobs tasks agents processes", "relive ps"),
    ("tree pstree", "relive ps --tree"),
    ("log history", "relive logs ID"),
    ("events trace", "relive strace ID"),
    ("answer reply", "relive resolve ID --answer TEXT"),
    ("message msg say tell", "relive send ID TEXT"),
    ("notifications todo", "relive inbox"),
    ("check setup", "relive doctor"),
];

const COMPOSE: &[(&str, &str)] = &[
    ("ps ls list show info", "relive compose status ID"),
    ("stop rm kill delete remove", "relive compose down ID"),
    ("start run create", "relive compose up ID"),
];

/// Options of other tools, and ours.
const OPTIONS: &[(&str, &str, &str)] = &[
    ("rm", "-f", "-y"),
    ("rm", "--force", "-y"),
    ("logs", "--tail", "-n"),
    ("ps", "-A", "-a"),
    ("ps", "-e", "-a"),
    ("run", "-m", "--model"),
    ("resume", "-m", "--model"),
    ("exec", "-e", "--env"),
    ("exec", "-w", "--cwd"),
    ("enter", "-e", "--env"),
];

/// Returns what to say instead of clap's words.
#[expect(clippy::wildcard_enum_match_arm, reason = "clap's enum may grow, and its own words are kept for the rest")]
pub(crate) fn advise(error: &clap::Error, typed: &[OsString]) -> Advice {
    let words: Vec<String> = typed.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let line = Line::of(&words);
    match error.kind() {
        ErrorKind::InvalidSubcommand => known_command(&line, &text(error, ContextKind::InvalidSubcommand)),
        ErrorKind::UnknownArgument => unknown_argument(&line, &text(error, ContextKind::InvalidArg)),
        ErrorKind::ValueValidation => Advice { message: number(&error.render().to_string()), ..Advice::default() },
        ErrorKind::MissingRequiredArgument => missing(&line),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Advice { message: Some("a command is missing".to_owned()), ..Advice::default() }
        }
        _ => Advice::default(),
    }
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(_) | None => String::new(),
    }
}

/// A command line in its parts.
struct Line<'a> {
    words: &'a [String],
    /// Where the command is, if there is one.
    verb: usize,
    command: Command,
}

impl<'a> Line<'a> {
    fn of(words: &'a [String]) -> Self {
        let mut root = Cli::command();
        root.build();
        let mut line = Self { words, verb: words.len(), command: root };
        let Some(verb) = line.positionals(0).first().copied() else { return line };
        line.verb = verb;
        if let Some(command) = line.command.find_subcommand(&words[verb]) {
            line.command = command.clone();
        }
        line
    }

    fn name(&self) -> &str {
        self.words.get(self.verb).map_or("", String::as_str)
    }

    /// Returns whether an option has its value in the next word.
    fn takes_value(&self, word: &str) -> bool {
        let is_it = |arg: &&clap::Arg| match word.strip_prefix("--") {
            Some(long) => arg.get_long() == Some(long),
            None => word.strip_prefix('-').is_some_and(|short| arg.get_short().is_some_and(|own| short.ends_with(own))),
        };
        let found = self.command.get_arguments().filter(|arg| !arg.is_positional()).find(is_it);
        found.is_some_and(|arg| arg.get_action().takes_values())
    }

    /// Returns the places of the words from `start` that are neither options nor their values.
    fn positionals(&self, start: usize) -> Vec<usize> {
        let mut places = Vec::new();
        let mut place = start;
        while place < self.words.len() {
            let word = &self.words[place];
            if !word.starts_with('-') {
                places.push(place);
            } else if self.takes_value(word) {
                place += 1;
            }
            place += 1;
        }
        places
    }

    /// Returns the words after the command that are no options.
    fn rest(&self) -> Vec<&str> {
        self.positionals(self.verb + 1).into_iter().map(|place| self.words[place].as_str()).collect()
    }
}

fn known_command(line: &Line<'_>, unknown: &str) -> Advice {
    let rest = line.rest();
    let (table, ids) = match (line.name(), rest.as_slice()) {
        ("compose", [_, ids @ ..]) => (COMPOSE, ids),
        _ => (COMMANDS, rest.as_slice()),
    };
    if line.name() != unknown && line.name() != "compose" {
        return Advice { message: Some(no_command(line, unknown)), ..Advice::default() };
    }
    let Some((_, meant)) = table.iter().find(|(habits, _)| habits.split(' ').any(|habit| habit == unknown)) else {
        return Advice { message: Some(no_command(line, unknown)), ..Advice::default() };
    };
    let meant = match (unknown, ids) {
        ("status", []) => "relive ps",
        _ => meant,
    };
    let (ids, text) = match ids.split_first() {
        Some((id, text)) if meant.contains("TEXT") => (std::slice::from_ref(id), text.join(" ")),
        Some(_) | None => (ids, String::new()),
    };
    let ids = ids.iter().map(|id| quote(id)).collect::<Vec<_>>().join(" ");
    let placeholder = match meant {
        _ if !ids.is_empty() => ids.as_str(),
        _ if meant.starts_with("relive compose up") => "FILE",
        _ if line.name() == "compose" => "RUN",
        _ => "ID",
    };
    let text = if text.is_empty() { "TEXT".to_owned() } else { quote(&text) };
    // Neither replaces a part of the other.
    let hint = meant.replace("TEXT", "\0").replace("ID", placeholder).replace('\0', &text);
    let hint = if hint.contains('`') { format!("`{hint}`") } else { hint };
    Advice { message: Some(no_command(line, unknown)), hint: Some(hint), no_tip: true }
}

fn no_command(line: &Line<'_>, unknown: &str) -> String {
    let named = if line.name() == unknown { unknown.to_owned() } else { format!("{} {unknown}", line.name()) };
    format!("there is no command `{named}`")
}

fn unknown_argument(line: &Line<'_>, unknown: &str) -> Advice {
    let place = line.words.iter().position(|word| word == unknown || word.starts_with(&format!("{unknown}=")));
    let before = place.and_then(|place| place.checked_sub(1)).map(|place| line.words[place].as_str());
    if let Some(option) = before.filter(|word| word.starts_with('-') && line.takes_value(word)) {
        let message = match unknown.parse::<i64>() {
            Ok(_) => format!("{option} needs a number of at least {}", least(line, option)),
            Err(_) => format!("{option} needs a value, and `{unknown}` looks like an option"),
        };
        return Advice { message: Some(message), hint: None, no_tip: true };
    }
    let retyped = |words: Vec<String>| {
        let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
        format!("relive {}", words.join(" "))
    };
    let is_lines = |place: usize| line.words.get(place + 1).is_some_and(|word| word.parse::<u64>().is_ok());
    if let ("logs", "--tail", Some(place)) = (line.name(), unknown, place)
        && line.words[place] == unknown
        && !is_lines(place)
    {
        // Without a number it is the last lines, and those that come.
        let mut words = line.words.to_vec();
        words[place] = "-f".to_owned();
        return Advice { message: None, hint: Some(retyped(words)), no_tip: true };
    }
    if line.name() == "ps"
        && ["aux", "ax", "-ef", "-aux"].iter().any(|habit| line.words.iter().any(|word| word == habit))
    {
        return Advice { message: None, hint: Some("relive ps -a".to_owned()), no_tip: true };
    }
    if line.name() == "ps" && !unknown.starts_with('-') {
        return Advice { message: None, hint: Some(format!("relive info {}", quote(unknown))), no_tip: true };
    }
    let known = OPTIONS.iter().find(|(command, habit, _)| *command == line.name() && *habit == unknown);
    if let (Some((_, _, ours)), Some(place)) = (known, place) {
        let mut words = line.words.to_vec();
        words[place] = words[place].replacen(unknown, ours, 1);
        return Advice { message: None, hint: Some(retyped(words)), no_tip: true };
    }
    if let ("ps", "--filter", Some(place)) = (line.name(), unknown, place)
        && let Some(words) = without_filter(line.words, place)
    {
        return Advice { message: None, hint: Some(retyped(words)), no_tip: true };
    }
    if line.name() == "run" && !unknown.starts_with('-') {
        let places = line.positionals(line.verb + 1);
        let task = line.rest().join(" ");
        let options = line.words.iter().enumerate().filter(|(place, _)| !places.contains(place));
        let options: Vec<String> = options.map(|(_, word)| quote(word)).collect();
        let task = if quote(&task).starts_with('\'') && !task.contains(['"', '$', '`', '\\', '!']) {
            format!("\"{task}\"")
        } else {
            quote(&task)
        };
        let hint = format!("relive {} {task}", options.join(" "));
        return Advice {
            message: Some("the intent is more than one word: quote it".to_owned()),
            hint: Some(hint),
            no_tip: true,
        };
    }
    Advice::default()
}

/// Rewrites docker's `--filter name=x` as our `--name x`.
fn without_filter(words: &[String], place: usize) -> Option<Vec<String>> {
    let (filter, rest) = match words[place].strip_prefix("--filter=") {
        Some(filter) => (filter, place + 1),
        None => (words.get(place + 1)?.as_str(), place + 2),
    };
    let (key, value) = filter.split_once('=')?;
    let option = match key {
        "name" => "--name",
        "status" | "state" => "--state",
        _ => return None,
    };
    let ours = [option.to_owned(), value.to_owned()];
    Some(words[..place].iter().cloned().chain(ours).chain(words[rest..].iter().cloned()).collect())
}

/// Returns the smallest value of an option that is a number.
fn least(line: &Line<'_>, option: &str) -> u32 {
    const FROM_ONE: [&str; 5] = ["--max-steps", "--max-tokens", "--pids", "-n", "--node"];
    let is_lines = line.name() == "logs";
    u32::from(FROM_ONE.contains(&option) && !is_lines)
}

/// Rewrites what the standard library says about a number.
fn number(rendered: &str) -> Option<String> {
    let first = rendered.lines().next()?.strip_prefix("error: ")?;
    let (about, cause) = first.rsplit_once(": ")?;
    if let Some((value, range)) = cause.split_once(" is not in ") {
        let (low, high) = range.split_once("..")?;
        let high: Option<u64> = high.trim_start_matches('=').parse().ok();
        let is_large = |high| value.parse::<u128>().is_ok_and(|value| value > u128::from(high));
        if let Some(high) = high.filter(|high| *high >= u64::from(u32::MAX) && is_large(*high)) {
            return Some(format!("{about}: the number is too large, use at most {high}"));
        }
        let high = high.filter(|high| *high < u64::from(u32::MAX));
        let wanted = match high {
            Some(high) => format!("use a whole number from {low} to {high}"),
            None if low == "0" => "use a whole number, 0 or more".to_owned(),
            None => format!("use a whole number of at least {low}"),
        };
        return Some(format!("{about}: {wanted}"));
    }
    let wanted = match cause {
        "invalid digit found in string" | "cannot parse integer from empty string" => "use a whole number",
        "number too large to fit in target type" => "the number is too large",
        _ => return None,
    };
    Some(format!("{about}: {wanted}"))
}

fn missing(line: &Line<'_>) -> Advice {
    let name = line.name();
    let takes_all = line.command.get_arguments().any(|arg| arg.get_long() == Some("all"));
    let rest = line.rest();
    if takes_all && rest.is_empty() {
        let message = format!("`relive {name}` needs a process");
        let list = if name == "rm" { "relive ps -a" } else { "relive ps" };
        let hint = format!("`relive {name} ID` or `relive {name} --all`; `{list}` lists the processes");
        return Advice { message: Some(message), hint: Some(hint), no_tip: true };
    }
    if let ("rewind", [id]) = (name, rest.as_slice()) {
        let id = quote(id);
        let hint = format!("`relive rewind {id} --to-step N`, or `relive rewind {id} --undo` for the last rewind");
        let message = Some("`relive rewind` needs --to-step N or --undo".to_owned());
        return Advice { message, hint: Some(hint), no_tip: true };
    }
    Advice::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, message: Option<&str>, hint: Option<&str>) {
        let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
        let error = super::super::parse(&words).unwrap_err();
        let advice = advise(&error, &words);
        assert_eq!((advice.message.as_deref(), advice.hint.as_deref()), (message, hint), "{typed}: {error}");
    }

    #[test]
    fn options_of_other_tools_are_replaced_by_ours() {
        check("relive rm -f prog", None, Some("relive rm -y prog"));
        check("relive rm --force prog", None, Some("relive rm -y prog"));
        check("relive ps -a --filter name=x", None, Some("relive ps -a --name x"));
        check("relive ps --filter state=dead", None, Some("relive ps --state dead"));
        check("relive ps --filter=name=x", None, Some("relive ps --name x"));
        check("relive logs --tail 10 x", None, Some("relive logs -n 10 x"));
        check("relive logs --tail=10 x", None, Some("relive logs -n=10 x"));
        check("relive ps -A", None, Some("relive ps -a"));
        check("relive logs --tail x", None, Some("relive logs -f x"));
        check("relive ps aux", None, Some("relive ps -a"));
        check("relive ps -ef", None, Some("relive ps -a"));
        check("relive ps work", None, Some("relive info work"));
        check("relive run --max-steps -1 x", Some("--max-steps needs a number of at least 1"), None);
        check("relive run --name -x y", Some("--name needs a value, and `-x` looks like an option"), None);
        check("relive run --name --all y", Some("--name needs a value, and `--all` looks like an option"), None);
        check("relive ps --tre", None, None);
    }

    #[test]
    fn commands_of_other_tools_are_replaced_by_ours() {
        let check = |typed: &str, command: &str, hint: &str| {
            check(typed, Some(&format!("there is no command `{command}`")), Some(hint));
        };
        check("relive stop 3", "stop", "`relive pause 3` or `relive kill 3`");
        check("relive --json start a b", "start", "relive resume a b");
        check("relive status 3", "status", "relive info 3");
        check("relive status", "status", "relive ps");
        check("relive inspect", "inspect", "relive info ID");
        check("relive ls", "ls", "relive ps");
        check("relive tail web", "tail", "relive logs -f web");
        check("relive fork work", "fork", "relive resume --fork work");
        check("relive suspend work", "suspend", "relive pause work");
        check("relive tree", "tree", "relive ps --tree");
        check("relive log work", "log", "relive logs work");
        check("relive answer 5 the second ID", "answer", "relive resolve 5 --answer 'the second ID'");
        check("relive message 5", "message", "relive send 5 TEXT");
        check("relive compose ps", "compose ps", "relive compose status RUN");
        check("relive compose stop 5", "compose stop", "relive compose down 5");
        check("relive compose start", "compose start", "relive compose up FILE");
    }

    #[test]
    fn the_commands_that_are_proposed_exist() {
        for (habits, meant) in COMMANDS.iter().chain(COMPOSE) {
            for part in meant.replace("; ", "` or `").split("` or `") {
                let part = part.replace("ID", "x");
                let words: Vec<OsString> = part.split(' ').map(OsString::from).collect();
                assert!(super::super::parse(&words).is_ok(), "{habits}: {part}");
            }
            let root = Cli::command();
            let is_ours = |habit: &str| root.find_subcommand(habit).is_some();
            assert!(meant.starts_with("relive compose") || !habits.split(' ').any(is_ours), "{habits}");
        }
    }

    #[test]
    fn missing_arguments_are_named_with_every_form_that_works() {
        let all = "`relive pause ID` or `relive pause --all`; `relive ps` lists the processes";
        check("relive pause", Some("`relive pause` needs a process"), Some(all));
        let ended = "`relive rm ID` or `relive rm --all`; `relive ps -a` lists the processes";
        check("relive rm", Some("`relive rm` needs a process"), Some(ended));
        let rewind = "`relive rewind 5 --to-step N`, or `relive rewind 5 --undo` for the last rewind";
        check("relive rewind 5 -y", Some("`relive rewind` needs --to-step N or --undo"), Some(rewind));
        let quote = Some("the intent is more than one word: quote it");
        check("relive run hi there", quote, Some("relive run \"hi there\""));
        check("relive run -d --name a hi there you", quote, Some("relive run -d --name a \"hi there you\""));
        check("relive run it's $HOME", quote, Some("relive run 'it'\\''s $HOME'"));
    }

    #[test]
    fn numbers_are_asked_for_in_plain_words() {
        let about = |value: &str| format!("invalid value '{value}' for '--max-steps <N>': ");
        let check = |value: &str, wanted: &str| {
            check(&format!("relive run --max-steps {value} x"), Some(&(about(value) + wanted)), None);
        };
        check("0", "use a whole number of at least 1");
        check("abc", "use a whole number");
        check("99999999999999999999999", "the number is too large");
        check("4294967296", "the number is too large, use at most 4294967295");
    }
}
