//! The candidates of the Tab key.
//!
//! The shell's script, from `relive completions`, calls this program again with [`VARIABLE`] set. Ids are completed with
//! the processes of a daemon that is running: pressing Tab never starts one, and never waits long for one.

use std::collections::HashSet;
use std::time::Duration;

use clap::{Command, CommandFactory as _};
use clap_complete::CompletionCandidate;
use clap_complete::engine::ArgValueCandidates;
use clap_complete::env::CompleteEnv;
use relive_api::{ListQuery, Paths, Process};
use relive_client::{Client, Retry};
use relive_config::Config;
use relive_core::{Body, OsSignal, Signal, SuspendReason};
use relive_llm::Prices;

use crate::cli::Cli;
use crate::client::OwnSocket;
use crate::terminal::without_controls;

/// Set by the shell's script to its own name.
pub(crate) const VARIABLE: &str = "RELIVE_COMPLETE";

/// How long to wait for the daemon after Tab was pressed.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
const CANDIDATES_MAX: usize = 200;
const INTENT_MAX: usize = 60;

/// The commands that do not apply to ended processes.
const OF_LIVE_ONLY: [&str; 8] = ["abort", "attach", "kill", "pause", "proceed", "resolve", "send", "signals"];

/// Answers the shell and exits, if the shell's script called this program.
pub(crate) fn answer_the_shell() {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Returns the definition of the command line, with the processes as candidates for every id.
pub(crate) fn command() -> Command {
    let names: Vec<String> = Cli::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    names.iter().fold(Cli::command(), |command, name| command.mut_subcommand(name, with_candidates))
}

/// What is typed for an option that takes one of a few words, or one of them as its beginning.
const WORDS: [(&str, &[&str]); 4] = [
    ("isolation", &["none", "confined", "sealed"]),
    ("net", &["full", "none", "allow:"]),
    ("workspace", &["own", "here"]),
    ("agent", &["claude", "codex", "gemini", "opencode", "qwen", "acp:"]),
];

/// The arguments that are a process.
const IDS: [&str; 5] = ["id", "ids", "run", "to", "of"];

fn with_candidates(verb: Command) -> Command {
    let names: Vec<String> = verb.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let verb = names.iter().fold(verb, |verb, name| verb.mut_subcommand(name, with_candidates));
    let verb_name = verb.get_name().to_owned();
    let query = ListQuery {
        all: !OF_LIVE_ONLY.contains(&verb.get_name()),
        newest: true,
        limit: Some(CANDIDATES_MAX),
        ..ListQuery::default()
    };
    verb.mut_args(|arg| match arg.get_id().as_str() {
        id if IDS.contains(&id) => arg.add(ArgValueCandidates::new({
            let (query, name) = (query.clone(), verb_name.clone());
            move || candidates(&list(&query), &name)
        })),
        "signal" => arg.add(ArgValueCandidates::new(signals)),
        "model" => arg.add(ArgValueCandidates::new(models)),
        id => match WORDS.iter().find(|(of, _)| *of == id) {
            Some((_, words)) => {
                arg.add(ArgValueCandidates::new(|| words.iter().map(CompletionCandidate::new).collect()))
            }
            None => arg,
        },
    })
}

/// Offers the names of signals, those that every process accepts first.
fn signals() -> Vec<CompletionCandidate> {
    let names = Signal::ALL.into_iter().map(Signal::name).chain(OsSignal::names());
    let mut offered = HashSet::new();
    let bare = names.map(|name| name.strip_prefix("SIG").unwrap_or(name)).filter(|name| offered.insert(*name));
    bare.map(CompletionCandidate::new).collect()
}

/// Offers the default model, the models of the latest processes, those of config.yaml and those with a built-in price.
fn models() -> Vec<CompletionCandidate> {
    let config = Paths::from_env().ok().and_then(|paths| Config::load(&paths.config).ok()).unwrap_or_default();
    let latest = ListQuery { all: true, newest: true, limit: Some(CANDIDATES_MAX), ..ListQuery::default() };
    let used =
        list(&latest).into_iter().filter(|process| process.body == Body::Agent).filter_map(|process| process.model);
    let configured = config.prices.into_keys().chain(config.context_window.into_keys());
    let builtin = Prices::builtin().names().map(str::to_owned).collect::<Vec<_>>();
    let names = config.default_model.into_iter().chain(used).chain(configured).chain(builtin);
    let names = names.chain(["script/demo".to_owned()]);
    let mut offered = HashSet::new();
    names
        .map(|name| without_controls(&name).into_owned())
        .filter(|name| offered.insert(name.clone()))
        .map(CompletionCandidate::new)
        .collect()
}

/// Lists processes; without a daemon there are none to offer.
fn list(query: &ListQuery) -> Vec<Process> {
    let Ok(paths) = Paths::from_env() else { return Vec::new() };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let own = OwnSocket::from_env();
    let socket = own.as_ref().map_or(Some(paths.socket.as_path()), |own| own.of(&paths));
    let Some(socket) = socket else { return Vec::new() };
    let client = Client::new(socket).with_retry(Retry::NEVER);
    let answer = runtime.block_on(async { tokio::time::timeout(ANSWER_WITHIN, client.list(query)).await });
    match answer {
        Ok(Ok(list)) => list.processes,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Offers the processes that a command can act on. A name that several had is offered once, for the newest.
fn candidates(processes: &[Process], verb: &str) -> Vec<CompletionCandidate> {
    let fits = |process: &&Process| match verb {
        "rm" => process.dead_at.is_some(),
        "resolve" => needs_answer(process),
        "pause" => process.can_be_paused(),
        "resume" => process.pause_kept || !needs_answer(process),
        "proceed" | "abort" => process.display == "ready",
        "down" => process.dead_at.is_none() && process.body == Body::Compose,
        "status" | "graph" => process.body == Body::Compose,
        _ => true,
    };
    let mut offered = HashSet::new();
    let fitting = processes.iter().filter(fits).map(candidate);
    fitting.filter(|candidate| offered.insert(candidate.get_value().to_owned())).collect()
}

fn needs_answer(process: &Process) -> bool {
    process.suspend_reason.is_some_and(SuspendReason::awaits_answer)
}

/// Offers a process by its name, or by its PID where it has none.
fn candidate(process: &Process) -> CompletionCandidate {
    let intent = process.intent.lines().next().unwrap_or_default();
    let intent: String = without_controls(intent).chars().take(INTENT_MAX).collect();
    let value = process.name.clone().unwrap_or_else(|| process.pid.to_string());
    CompletionCandidate::new(value).help(Some(format!("{}: {intent}", process.display).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_offered_what_it_can_act_on_and_each_name_once() {
        let mut list = [1, 2, 3, 4, 5].map(|pid| crate::render::processes::tests::process(pid, 0));
        list[0].dead_at = Some(list[0].created_at);
        (list[1].suspend_reason, list[1].paused) = (Some(SuspendReason::Approval), true);
        list[3].name = list[2].name.clone();
        list[4] = Process { pause_kept: true, name: Some("p5".to_owned()), ..list[1].clone() };
        let check = |verb: &str, expect: &[&str]| {
            let offered: Vec<_> = candidates(&list, verb).iter().map(|one| one.get_value().to_owned()).collect();
            assert_eq!(offered, expect, "{verb}");
        };
        check("rm", &["p1"]);
        check("resolve", &["p2", "p5"]);
        check("info", &["p1", "p2", "p3", "p5"]);
        check("pause", &["p2", "p3"]);
        check("resume", &["p1", "p3", "p5"]);
        check("proceed", &[]);
    }

    #[test]
    fn signals_are_offered_by_the_name_that_kill_takes() {
        let offered = signals();
        let names: Vec<&str> = offered.iter().filter_map(|signal| signal.get_value().to_str()).collect();
        assert!(names.starts_with(&["TERM", "KILL", "INT"]) && names.contains(&"HUP"), "{names:?}");
        assert_eq!(names.iter().filter(|name| **name == "TERM").count(), 1, "{names:?}");
    }

    #[test]
    fn every_id_has_candidates_and_no_command_is_misspelt() {
        let command = command();
        for name in OF_LIVE_ONLY {
            assert!(command.find_subcommand(name).is_some(), "there is no command `{name}`");
        }
        let mut verbs: Vec<_> = command.get_subcommands().collect();
        while let Some(verb) = verbs.pop() {
            for arg in verb.get_arguments().filter(|arg| IDS.contains(&arg.get_id().as_str())) {
                assert!(arg.get::<ArgValueCandidates>().is_some(), "{} {}", verb.get_name(), arg.get_id());
            }
            verbs.extend(verb.get_subcommands());
        }
        for (id, _) in WORDS {
            let is_of_run = |arg: &&clap::Arg| arg.get_id() == id && arg.get::<ArgValueCandidates>().is_some();
            assert!(command.find_subcommand("run").unwrap().get_arguments().any(|arg| is_of_run(&arg)), "{id}");
        }
    }
}
