//! What the processes do. None of them ends by itself, and every effect has a text of its own within its process.

use std::fs;

use crate::daemon::Places;
use crate::ledger::Kind;

/// The model of an agent.
pub(crate) fn model(kind: Kind) -> &'static str {
    match kind {
        Kind::Idle | Kind::Program | Kind::Tree => "script/idle.yaml",
        Kind::Worker => "script/worker.yaml",
        Kind::Asker => "script/asker.yaml",
        Kind::Questioner => "script/questioner.yaml",
    }
}

/// A program that leaves one line for each session it runs in.
pub(crate) fn argv(places: &Places) -> [String; 3] {
    let command = format!("echo $RELIVE_SESSION >> {}; exec sleep 1000", places.lines.display());
    ["/bin/sh".into(), "-c".into(), command]
}

/// The node that a tree has.
pub(crate) const NODE: &str = "work";

/// A tree of that program: what is asked for, and the file.
pub(crate) fn tree(places: &Places, kind: &str) -> String {
    let [shell, option, command] = argv(places);
    let section = if kind == "compose" { "nodes" } else { "children" };
    format!("{section}: {{{NODE}: {{command: [{shell}, {option}, '{command}']}}}}")
}

pub(crate) fn write(places: &Places) {
    let world = places.world.display();
    let effects = |delay: &str, more: &str| {
        let call = format!("{{name: append_outside, args: {{path: '{world}', text: 'e{{{{step}}}}'}}}}");
        format!("turns:\n  - delay: {delay}\n    calls: [{call}{more}]\n    repeat: 100000\n")
    };
    // Something to rewind and to merge.
    let file = ", {name: write, args: {path: 'file-{{uuid}}', content: 'e{{step}}'}}";
    let put = |name: &str, text: String| fs::write(places.work.join(name), text).unwrap();
    put("idle.yaml", "turns: [{hang: true}]".to_owned());
    put("worker.yaml", effects("40ms", file));
    put("asker.yaml", effects("1ms", ""));
    let ask = "{name: ask, args: {question: 'which in step {{step}}?'}}";
    put("questioner.yaml", format!("turns:\n  - delay: 1ms\n    calls: [{ask}]\n    repeat: 100000\n"));
}
