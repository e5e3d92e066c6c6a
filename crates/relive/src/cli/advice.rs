//! What to type instead of a command line that clap refuses.
//!
//! Clap's own tips fail when they are typed (`rm -f prog`: "use '-- -f'"), and its closest name for a habit from another
//! tool is nonsense (`stop`: "restore").

mod habits;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _};
use relive_types::program::quote;
use relive_types::suggest::closest;

use super::Cli;
use habits::{COMMANDS, DROPPED, GROUPS, OPTIONS};

/// Better words for an error of clap; what is missing stays as clap says it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) message: Option<String>,
    pub(crate) hint: Option<String>,
    /// Whether clap's own tip is wrong as well.
    pub(crate) no_tip: bool,
}

/// Returns what to say instead of clap's words.
#[expect(clippy::wildcard_enum_match_arm, reason = "clap's enum may grow, and its own words are kept for the rest")]
pub(crate) fn advise(error: &clap::Error, typed: &[OsString]) -> Advice {
    let words: Vec<String> = typed.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let line = Line::of(&words);
    match error.kind() {
        ErrorKind::InvalidSubcommand => known_command(&line, &text(error, ContextKind::InvalidSubcommand)),
        ErrorKind::UnknownArgument => unknown_argument(&line, &text(error, ContextKind::InvalidArg)),
        ErrorKind::ValueValidation => Advice { message: number(&error.render().to_string()), ..Advice::default() },
        ErrorKind::ArgumentConflict => without_terminal(&line).unwrap_or_default(),
        ErrorKind::MissingRequiredArgument => without_terminal(&line).unwrap_or_else(|| missing(&line)),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Advice { message: Some(format!("`{}` needs a command", command_of(&line))), ..Advice::default() }
        }
        _ => Advice::default(),
    }
}

/// Returns the command as it was typed, without options: `relive config`.
fn command_of(line: &Line<'_>) -> String {
    format!("relive {}", line.name()).trim_end().to_owned()
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
    if line.name() == "help" {
        return unknown_help(unknown, &rest);
    }
    let group = GROUPS.iter().find(|(group, _)| *group == line.name() && *group != unknown);
    let (table, ids) = match (group, rest.as_slice()) {
        (Some((_, table)), [_, ids @ ..]) => (*table, ids),
        (Some(_) | None, _) => (COMMANDS, rest.as_slice()),
    };
    let is_habit = group.is_some() || line.name() == unknown;
    let found = table.iter().find(|(habits, _)| is_habit && habits.split(' ').any(|habit| habit == unknown));
    let Some((_, meant)) = found else {
        return Advice { message: Some(no_command(line, unknown)), hint: closest_command(line, unknown), no_tip: true };
    };
    let meant = match (unknown, ids) {
        ("status", []) if group.is_none() => "relive ps",
        _ => meant,
    };
    let (ids, text) = match ids.split_first() {
        Some((id, text)) if meant.contains("TEXT") && meant.contains("ID") => {
            (std::slice::from_ref(id), text.join(" "))
        }
        Some(_) if meant.contains("TEXT") => (&[][..], ids.join(" ")),
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

/// Puts the command that was probably meant in the place of a mistyped one.
fn closest_command(line: &Line<'_>, unknown: &str) -> Option<String> {
    let place = line.words.iter().position(|word| word == unknown)?;
    let root = Cli::command();
    let commands = if line.name() == unknown { &root } else { &line.command };
    let known: Vec<&str> =
        commands.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name).collect();
    let meant = closest(unknown, known)?;
    let mut words = line.words.to_vec();
    words[place] = meant.to_owned();
    Some(retyped(&words))
}

/// Says which help there is: that of the command that was probably meant.
fn unknown_help(unknown: &str, rest: &[&str]) -> Advice {
    let before: Vec<&str> = rest.iter().copied().take_while(|word| *word != unknown).collect();
    let mut root = Cli::command();
    root.build();
    let parent = before.iter().try_fold(&root, |command, word| command.find_subcommand(word)).unwrap_or(&root);
    let known: Vec<&str> =
        parent.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name).collect();
    let named = [before.as_slice(), &[unknown]].concat().join(" ");
    let mut words = vec!["help"];
    words.extend(&before);
    words.extend(closest(unknown, known));
    let hint = words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
    Advice {
        message: Some(format!("there is no command `{named}`")),
        hint: Some(format!("relive {hint}")),
        no_tip: true,
    }
}

fn retyped(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
    format!("relive {}", words.join(" "))
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
    let is_lines = |place: usize| line.words.get(place + 1).is_some_and(|word| word.parse::<u64>().is_ok());
    if let ("logs", "--tail", Some(place)) = (line.name(), unknown, place)
        && line.words[place] == unknown
        && !is_lines(place)
    {
        // Without a number it is the last lines, and those that come.
        let mut words = line.words.to_vec();
        words[place] = "-f".to_owned();
        return Advice { message: None, hint: Some(retyped(&words)), no_tip: true };
    }
    if line.name() == "ps"
        && ["aux", "ax", "-ef", "-aux"].iter().any(|habit| line.words.iter().any(|word| word == habit))
    {
        return Advice { message: None, hint: Some("relive ps -a".to_owned()), no_tip: true };
    }
    if line.name() == "ps" && !unknown.starts_with('-') {
        return Advice { message: None, hint: Some(format!("relive info {}", quote(unknown))), no_tip: true };
    }
    if let Some(hint) = dropped(line, unknown) {
        return Advice { message: None, hint: Some(hint), no_tip: true };
    }
    let whole = match (line.name(), unknown) {
        ("", "-v") => Some("relive --version"),
        _ => None,
    };
    if let Some(hint) = whole {
        return Advice { message: None, hint: Some(hint.to_owned()), no_tip: true };
    }
    let known = OPTIONS.iter().find(|(command, habit, _)| *command == line.name() && *habit == unknown);
    if let (Some((_, _, ours)), Some(place)) = (known, place) {
        let mut words = line.words.to_vec();
        words[place] = words[place].replacen(unknown, ours, 1);
        return Advice { message: None, hint: Some(retyped(&words)), no_tip: true };
    }
    if let ("ps", "--filter", Some(place)) = (line.name(), unknown, place)
        && let Some(words) = without_filter(line.words, place)
    {
        return Advice { message: None, hint: Some(retyped(&words)), no_tip: true };
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

/// Leaves out an option of another tool that is not needed here, or puts ours in the place of it and its value.
fn dropped(line: &Line<'_>, unknown: &str) -> Option<String> {
    let (_, _, instead) = DROPPED.iter().find(|(command, habit, _)| *command == line.name() && *habit == unknown)?;
    let letter = unknown.strip_prefix('-').filter(|letter| letter.len() == 1);
    // Several letters may be one word: `-it`.
    let is_group =
        |word: &str| word.starts_with('-') && !word.starts_with("--") && word.contains(letter.unwrap_or("-"));
    let is_it = |word: &String| word.split('=').next() == Some(unknown) || letter.is_some() && is_group(word);
    let place = line.words.iter().position(is_it)?;
    let takes_next = instead.contains("VALUE") && !line.words[place].contains('=');
    let rest = line.words.get(place + 1 + usize::from(takes_next)..).unwrap_or_default();
    let others: String =
        line.words[place].chars().filter(|other| letter.is_some() && !"-it".contains(*other)).collect();
    let others = (!others.is_empty()).then(|| format!("-{others}"));
    let ours = instead.trim_end_matches("VALUE").split_whitespace().map(str::to_owned).chain(others);
    let words: Vec<String> = line.words[..place].iter().cloned().chain(ours).chain(rest.iter().cloned()).collect();
    Some(retyped(&words))
}

/// Leaves out docker's `-t`, which only a CLI agent has here.
fn without_terminal(line: &Line<'_>) -> Option<Advice> {
    let is_agent = |word: &String| word == "--agent" || word.starts_with("--agent=");
    if line.rest().is_empty() || line.words.iter().any(is_agent) {
        return None;
    }
    Some(Advice { message: None, hint: Some(dropped(line, "-t")?), no_tip: true })
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
fn least(line: &Line<'_>, option: &str) -> &'static str {
    const FROM_ONE: [&str; 5] = ["--max-steps", "--max-tokens", "--pids", "-n", "--node"];
    let is_lines = line.name() == "logs";
    match option {
        "--cpu" => "0.01",
        _ if FROM_ONE.contains(&option) && !is_lines => "1",
        _ => "0",
    }
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
    let is_of_one = line.command.get_positionals().next().is_some_and(|arg| arg.get_id() == "id");
    if is_of_one && rest.is_empty() {
        let message = format!("`relive {name}` needs a process");
        let others = line.command.get_positionals().skip(1).filter(|arg| arg.is_required_set());
        let options = line.command.get_arguments().filter(|arg| arg.is_required_set() && !arg.is_positional());
        // What else is missing is in the usage.
        let is_enough = others.chain(options).next().is_none() && name != "rewind";
        let more = if is_enough { "" } else { " ..." };
        let hint = format!("`relive {name} ID{more}`; `relive ps -a` lists the processes");
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
mod tests;
