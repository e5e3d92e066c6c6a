//! The verbs, one file each.

pub(crate) mod abort;
pub(crate) mod agent_events;
pub(crate) mod attach;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod gc;
pub(crate) mod incarnations;
pub(crate) mod info;
pub(crate) mod interrupts;
pub(crate) mod kill;
pub(crate) mod lineage;
pub(crate) mod list_resumable;
pub(crate) mod logs;
pub(crate) mod paths;
pub(crate) mod pause;
pub(crate) mod proceed;
pub(crate) mod ps;
pub(crate) mod resolve;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod signals;
pub(crate) mod steps;
pub(crate) mod strace;
pub(crate) mod wait;

use std::future::Future;

use relive_api::{Affected, Paths};
use relive_core::{ErrorCode, Pid};

use crate::cli::{Cli, Command};
use crate::client::is_continues;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::terminal::Look;

/// Does what was typed; the exit code.
pub(crate) fn run(cli: Cli) -> Outcome<u8> {
    // Reads one file, also where there can be no data directory.
    if let Command::AgentEvents(args) = &cli.command {
        return agent_events::run(args);
    }
    let paths = Paths::from_env().map_err(|error| CommandError::invalid("no directory for the data").because(error))?;
    let context = Context { json: cli.json, out: Look::of_stdout(cli.color), err: Look::of_stderr(cli.color), paths };
    let context = &context;
    match cli.command {
        Command::Run(args) => block_on(run::run(context, &args)),
        Command::Exec(args) => block_on(exec::run(context, &args)),
        Command::Proceed(args) => block_on(proceed::run(context, &args)),
        Command::Abort(args) => block_on(abort::run(context, &args)),
        Command::Attach(args) => block_on(attach::run(context, &args)),
        Command::Ps(args) => block_on(ps::run(context, &args)),
        Command::Info(args) => block_on(info::run(context, &args)),
        Command::Wait(args) => block_on(wait::run(context, &args)),
        Command::Logs(args) => block_on(logs::run(context, &args)),
        Command::Strace(args) => block_on(strace::run(context, &args)),
        Command::Steps(args) => block_on(steps::run(context, &args)),
        Command::Signals(args) => block_on(signals::run(context, &args)),
        Command::Send(args) => block_on(send::run(context, &args)),
        Command::Pause(args) => block_on(pause::run(context, &args)),
        Command::Resume(args) => block_on(resume::run(context, &args)),
        Command::Kill(args) => block_on(kill::run(context, &args)),
        Command::Resolve(args) => block_on(resolve::run(context, &args)),
        Command::Lineage(args) => block_on(lineage::run(context, &args)),
        Command::ListResumable(_) => block_on(list_resumable::run(context)),
        Command::Gc(args) => block_on(gc::run(context, &args)),
        Command::Daemon(args) => daemon::run(context, &args),
        Command::Config(args) => config::run(context, &args),
        Command::Paths(_) => paths::run(context),
        Command::Doctor(_) => block_on(doctor::run(context)),
        Command::Demo(_) => block_on(demo::run()),
        Command::AgentEvents(args) => agent_events::run(&args),
    }
}

fn block_on(command: impl Future<Output = Outcome<u8>>) -> Outcome<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::internal("cannot begin").because(error))?;
    runtime.block_on(command)
}

/// Says who changed: `done` is the verb in its past form, `undo` the command that takes it back.
fn report_affected(context: &Context, id: &str, affected: &Affected, done: &str, undo: Option<&str>) -> Outcome<u8> {
    let code = if affected.failed.is_empty() { 0 } else { ErrorCode::Exhausted.exit_code() };
    if context.json {
        context.print_json(affected)?;
        return Ok(code);
    }
    for failed in &affected.failed {
        context.say(&format!("error: PID {}: {}", failed.pid, failed.message));
    }
    let undo = undo.map(|undo| format!(" (undo: {undo})")).unwrap_or_default();
    // Said already.
    let note = affected.note.as_ref().filter(|note| !is_continues(note));
    let line = match (affected.affected, note) {
        (0, Some(note)) => note.clone(),
        (0, None) => format!("{id}: nothing changed"),
        (count, note) => {
            let note = note.map(|note| format!("; {note}")).unwrap_or_default();
            format!("{} {done}{note}{undo}", name_pids(count, &affected.pids))
        }
    };
    context.print_line(&line)?;
    Ok(code)
}

/// `PID 5`, or `3 processes (PID 5, 6, 7)`.
fn name_pids(count: usize, pids: &[Pid]) -> String {
    const SHOWN_MAX: usize = 10;
    let mut names: Vec<String> = pids.iter().take(SHOWN_MAX).map(Pid::to_string).collect();
    if pids.len() > SHOWN_MAX {
        names.push("...".into());
    }
    let names = names.join(", ");
    if count == 1 { format!("PID {names}") } else { format!("{count} processes (PID {names})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pids_are_named_and_many_are_not_all_named() {
        let pids: Vec<Pid> = (1..=12).map(Pid).collect();
        assert_eq!(name_pids(1, &pids[..1]), "PID 1");
        assert_eq!(name_pids(2, &pids[..2]), "2 processes (PID 1, 2)");
        assert_eq!(name_pids(12, &pids), "12 processes (PID 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...)");
    }
}
