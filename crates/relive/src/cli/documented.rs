//! Tests that the list of commands in docs/interface.md has the options that the commands have, and no others.

use std::collections::{BTreeMap, BTreeSet};

use super::groups;

const PAGE: &str = include_str!("../../../../docs/interface.md");
/// Commands that are not for users.
const LEFT_OUT: [&str; 3] = ["daemon serve", "man", "self watch"];

type Options = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_documentation_lists_the_options_of_every_command() {
    let (documented, defined) = (documented(), defined());
    let names: BTreeSet<&String> = documented.keys().chain(defined.keys()).collect();
    let differing: Vec<String> = names
        .into_iter()
        .filter(|name| documented.get(*name) != defined.get(*name))
        .map(|name| format!("{name}: documented {:?}, defined {:?}", documented.get(name), defined.get(name)))
        .collect();
    assert!(differing.is_empty(), "docs/interface.md differs from the commands:\n{}", differing.join("\n"));
}

/// Returns the options of each command as clap has them: the short form, or the long one if there is none.
fn defined() -> Options {
    let mut found = Options::new();
    let mut command = groups::command();
    command.build();
    let mut commands: Vec<(String, &clap::Command)> =
        command.get_subcommands().map(|child| (child.get_name().to_owned(), child)).collect();
    while let Some((name, command)) = commands.pop() {
        if LEFT_OUT.contains(&name.as_str()) {
            continue;
        }
        let children = command.get_subcommands().filter(|child| child.get_name() != "help" && name != "help");
        commands.extend(children.map(|child| (format!("{name} {}", child.get_name()), child)));
        let own = command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_global_set());
        let own = own.filter(|arg| arg.get_id() != "help").filter_map(|arg| match (arg.get_short(), arg.get_long()) {
            (Some(short), _) => Some(format!("-{short}")),
            (None, long) => long.map(|long| format!("--{long}")),
        });
        found.insert(name, own.collect());
    }
    found
}

/// Reads the block below "## Commands". A command begins a line behind `relive`, or stands behind several spaces; a
/// subcommand is one of its words. Capital letters stand for something else: `-N` is a number.
fn documented() -> Options {
    let root = {
        let mut command = groups::command();
        command.build();
        command
    };
    let block = PAGE.split("## Commands\n").nth(1).unwrap().split("\n\n`ID` is").next().unwrap();
    let mut found = Options::new();
    let mut current = Vec::<String>::new();
    for line in block.lines() {
        let starts = line.trim_start().starts_with("relive ");
        for (place, part) in line.split("  ").filter(|part| !part.trim().is_empty()).enumerate() {
            let part = part.trim().trim_start_matches("relive ");
            let first = part.split(' ').next().unwrap_or_default();
            if (starts || place > 0) && root.find_subcommand(first).is_some() {
                current = vec![first.to_owned()];
                found.entry(first.to_owned()).or_default();
            }
            // A choice such as `own|here` is the value of an option, and one such as `list|path ID` is of commands.
            for word in part.split([' ', '[', ']', '|', '=']).filter(|word| !word.is_empty()) {
                let Some(verb) = current.first().cloned() else { continue };
                if root
                    .find_subcommand(&verb)
                    .is_some_and(|verb| word != "help" && verb.find_subcommand(word).is_some())
                {
                    current = vec![verb, word.to_owned()];
                    found.entry(current.join(" ")).or_default();
                } else if word.starts_with('-') && word.trim_start_matches('-').starts_with(char::is_lowercase) {
                    found.entry(current.join(" ")).or_default().insert(word.to_owned());
                }
            }
        }
    }
    found
}
