//! Snapshots of the help of every command, so that a change of its words is seen and read.
//!
//! After a change: `INSTA_UPDATE=always cargo test -p relive --bin relive help`, then read the diff as prose.

use clap::Command;

use super::{HELP_WIDTH_MAX, groups};

const COLUMNS: [usize; 2] = [80, 200];
/// Commands that only Relive itself runs.
const HIDDEN: [&str; 2] = ["relive daemon serve", "relive self watch"];

#[test]
fn the_help_of_every_command_reads_as_in_its_snapshot() {
    let mut names = Vec::new();
    let mut differing = Vec::new();
    collect_names(&built(COLUMNS[0]), "relive", &mut names);
    for name in &names {
        let text: String = COLUMNS.iter().map(|columns| help(name, *columns)).collect();
        // All of them are compared before the test fails, so that one run updates or names them all.
        let compared = std::panic::catch_unwind(|| {
            let mut settings = insta::Settings::new();
            settings.set_snapshot_path("snapshots");
            settings.set_prepend_module_to_snapshot(false);
            settings.set_omit_expression(true);
            settings.bind(|| insta::assert_snapshot!(name.replace(' ', "-"), text));
        });
        if compared.is_err() {
            differing.push(name);
        }
    }
    assert!(differing.is_empty(), "the help of these commands differs from its snapshot: {differing:?}");
}

#[test]
fn the_help_of_every_command_has_examples() {
    let mut names = Vec::new();
    collect_names(&built(COLUMNS[0]), "relive", &mut names);
    let shown = names.iter().filter(|name| !HIDDEN.contains(&name.as_str()));
    let without: Vec<&String> = shown.filter(|name| !help(name, COLUMNS[0]).contains("Examples:\n")).collect();
    assert!(without.is_empty(), "{without:?}");
}

/// Returns the definition as it renders on a terminal with so many columns.
fn built(columns: usize) -> Command {
    groups::in_plain_words(groups::command().term_width(columns.min(HELP_WIDTH_MAX)))
}

fn collect_names(command: &Command, name: &str, names: &mut Vec<String>) {
    names.push(name.to_owned());
    for child in command.get_subcommands().filter(|child| child.get_name() != "help") {
        collect_names(child, &format!("{name} {}", child.get_name()), names);
    }
}

fn help(name: &str, columns: usize) -> String {
    let mut root = built(columns);
    let mut command = &mut root;
    for word in name.split(' ').skip(1) {
        command = command.find_subcommand_mut(word).unwrap();
    }
    let (short, long) = (command.render_help(), command.render_long_help());
    format!("### {name} -h, {columns} columns\n\n{short}\n### {name} --help, {columns} columns\n\n{long}\n")
}
