//! The verbs, one file each.

pub(crate) mod abort;
pub(crate) mod agent_events;
mod answered;
pub(crate) mod attach;
pub(crate) mod blame;
pub(crate) mod completions;
pub(crate) mod compose;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod enter;
pub(crate) mod exec;
pub(crate) mod gc;
pub(crate) mod handle;
pub(crate) mod inbox;
pub(crate) mod incarnations;
pub(crate) mod info;
pub(crate) mod interrupts;
pub(crate) mod kill;
mod limits;
pub(crate) mod lineage;
pub(crate) mod list_resumable;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod merge;
pub(crate) mod myself;
pub(crate) mod output;
pub(crate) mod paths;
pub(crate) mod pause;
pub(crate) mod pool;
pub(crate) mod proceed;
pub(crate) mod ps;
pub(crate) mod rename;
pub(crate) mod resolve;
pub(crate) mod restore;
pub(crate) mod resume;
pub(crate) mod retry;
pub(crate) mod rewind;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod signals;
mod started;
pub(crate) mod steps;
pub(crate) mod strace;
pub(crate) mod supervise;
pub(crate) mod targets;
pub(crate) mod top;
pub(crate) mod usage;
pub(crate) mod version;
pub(crate) mod wait;
pub(crate) mod watched;
pub(crate) mod workspace;

use std::future::Future;

use relive_api::{Affected, KeptPause, Paths, PathsError};
use relive_core::{ErrorCode, Pid, SuspendReason};

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
    let paths = paths_for(&cli.command)?;
    let global = &cli.global;
    let context =
        Context { json: global.json, out: Look::of_stdout(global.color), err: Look::of_stderr(global.color), paths };
    let context = &context;
    match cli.command {
        Command::Run(args) => block_on(run::run(context, &args)),
        Command::Exec(args) => block_on(exec::run(context, &args)),
        Command::Enter(args) => block_on(enter::run(context, &args)),
        Command::Proceed(args) => block_on(proceed::run(context, &args)),
        Command::Abort(args) => block_on(abort::run(context, &args)),
        Command::Attach(args) => block_on(attach::run(context, &args)),
        Command::Ps(args) => block_on(ps::run(context, &args)),
        Command::Top(_) => block_on(top::run(context)),
        Command::Inbox(args) => block_on(inbox::run(context, &args)),
        Command::Next(args) => block_on(inbox::next(context, &args)),
        Command::Info(args) => block_on(info::run(context, &args)),
        Command::Wait(args) => block_on(wait::run(context, &args)),
        Command::Logs(args) => block_on(logs::run(context, &args)),
        Command::Strace(args) => block_on(strace::run(context, &args)),
        Command::Steps(args) => block_on(steps::run(context, &args)),
        Command::Signals(args) => block_on(signals::run(context, &args)),
        Command::MySelf(args) => block_on(myself::run(context, &args)),
        Command::Send(args) => block_on(send::run(context, &args)),
        Command::Pause(args) => block_on(pause::run(context, &args)),
        Command::Resume(args) => block_on(resume::run(context, &args)),
        Command::Kill(args) => block_on(kill::run(context, &args)),
        Command::Retry(args) => block_on(retry::run(context, &args)),
        Command::Rename(args) => block_on(rename::run(context, &args)),
        Command::Rm(args) => block_on(rm::run(context, &args)),
        Command::Usage(args) => block_on(usage::run(context, &args)),
        Command::Pool(args) => block_on(pool::run(context, &args)),
        Command::Version(_) => version::run(context),
        Command::Resolve(args) => block_on(resolve::run(context, &args)),
        Command::Lineage(args) => block_on(lineage::run(context, &args)),
        Command::ListResumable(_) => block_on(list_resumable::run(context)),
        Command::Handle(args) => block_on(handle::run(context, &args)),
        Command::Gc(args) => block_on(gc::run(context, &args)),
        Command::Diff(args) => block_on(diff::run(context, &args)),
        Command::Rewind(args) => block_on(rewind::run(context, &args)),
        Command::Restore(args) => block_on(restore::run(context, &args)),
        Command::Merge(args) => block_on(merge::run(context, &args)),
        Command::Blame(args) => block_on(blame::run(context, &args)),
        Command::Workspace(args) => block_on(workspace::run(context, &args)),
        Command::Compose(args) => block_on(compose::run(context, &args)),
        Command::Supervise(args) => block_on(supervise::run(context, &args)),
        Command::Daemon(args) => daemon::run(context, &args),
        Command::Completions(args) => completions::run(context, &args),
        Command::Man(args) => man::run(context, &args),
        Command::Config(args) => config::run(context, &args),
        Command::Paths(_) => paths::run(context),
        Command::Doctor(_) => block_on(doctor::run(context)),
        Command::Demo(_) => block_on(demo::run(context)),
        Command::AgentEvents(args) => agent_events::run(&args),
    }
}

/// Sets `HOME` to the directory of the user that types it.
const HOME_HINT: &str = "export HOME=\"$(getent passwd \"$(id -u)\" | cut -d: -f6)\"";

/// Returns the paths. The commands that use none also work where they cannot be determined.
fn paths_for(command: &Command) -> Outcome<Paths> {
    let uses_none = matches!(command, Command::Version(_) | Command::Completions(_) | Command::Man(_));
    match Paths::from_env() {
        Ok(paths) => Ok(paths),
        Err(_) if uses_none => {
            let nowhere = std::path::PathBuf::new;
            Ok(Paths { data: nowhere(), config: nowhere(), socket: nowhere(), log: nowhere() })
        }
        Err(error) => Err(no_paths(error)),
    }
}

fn no_paths(error: PathsError) -> CommandError {
    let hint = match &error {
        PathsError::NoHome { .. } => HOME_HINT,
        PathsError::SocketTooLong(_) => "export RELIVE_SOCKET=~/.relive-socket",
    };
    CommandError::invalid(error.to_string()).with_hint(hint)
}

fn block_on(command: impl Future<Output = Outcome<u8>>) -> Outcome<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::internal("cannot start the async runtime").because(error))?;
    runtime.block_on(command)
}

/// Says who changed: `done` is the verb in its past form, `undo` the command that takes it back.
fn report_affected(context: &Context, id: &str, affected: &Affected, done: &str, undo: Option<&str>) -> Outcome<u8> {
    let (told, code) = tell_affected(context, id, affected, done, undo);
    if context.json {
        context.print_json(affected)?;
    } else {
        context.say_on(&told);
    }
    Ok(code)
}

/// Returns the results as text, with the exit code of the command. Failures are reported at once.
fn tell_affected(context: &Context, id: &str, affected: &Affected, done: &str, undo: Option<&str>) -> (String, u8) {
    let code = if affected.failed.is_empty() { 0 } else { ErrorCode::Exhausted.exit_code() };
    if !context.json {
        for failed in &affected.failed {
            context.say(&format!("error: PID {}: {}", failed.pid, failed.message));
        }
    }
    let undo = undo.map(|undo| format!(" (undo: {undo})")).unwrap_or_default();
    // Said already.
    let note = affected.note.as_ref().filter(|note| !is_continues(note));
    let Affected { pids, pending, handled, kept, .. } = affected;
    let is_kept = |pid: &Pid| kept.iter().any(|kept| kept.pid == *pid);
    let reached = pids.iter().filter(|pid| !pending.contains(pid) && !handled.contains(pid) && !is_kept(pid));
    let reached: Vec<Pid> = reached.copied().collect();
    let mut lines = Vec::new();
    match (reached.len(), note) {
        (0, _) if !pending.is_empty() || !handled.is_empty() || !kept.is_empty() => {}
        (0, Some(note)) => lines.push(note.clone()),
        (0, None) => lines.push(format!("{}: nothing changed", spoken(id))),
        (_, note) => {
            let note = note.map(|note| format!("; {note}")).unwrap_or_default();
            lines.push(format!("{}{note}{undo}", tell_done(&reached, &affected.pausing, done)));
        }
    }
    if !pending.is_empty() {
        lines.push(waits_for(pending));
    }
    lines.extend(tell_kept(kept, ["pauses", "pause"]));
    if !handled.is_empty() {
        let handle = if handled.len() > 1 { "handle the signal themselves" } else { "handles the signal itself" };
        lines.push(format!("{} {handle}", name_pids(handled.len(), handled)));
    }
    (lines.join("\n") + "\n", code)
}

/// `PID 5`, or what else was typed.
fn spoken(id: &str) -> String {
    if id.bytes().all(|byte| byte.is_ascii_digit()) { format!("PID {id}") } else { id.to_owned() }
}

/// `PID 5 paused`, or what has not happened yet.
fn tell_done(pids: &[Pid], pausing: &[Pid], done: &str) -> String {
    let named = name_pids(pids.len(), pids);
    match pausing.len() {
        0 => format!("{named} {done}"),
        1 if pids.len() == 1 => format!("{named} is pausing"),
        some if some == pids.len() => format!("{named} are pausing"),
        some => format!("{named} {done}, except {}, still pausing", name_pids(some, pausing)),
    }
}

/// Says what processes wait for, and that they do something `then`: of one, and of several.
fn tell_kept(kept: &[KeptPause], then: [&str; 2]) -> Vec<String> {
    let mut groups: Vec<([&str; 2], Vec<Pid>)> = Vec::new();
    for KeptPause { pid, reason } in kept {
        let Some(what) = awaited(*reason) else { continue };
        match groups.iter_mut().find(|(other, _)| *other == what) {
            Some((_, pids)) => pids.push(*pid),
            None => groups.push((what, vec![*pid])),
        }
    }
    let tell = |([what, end], pids): ([&str; 2], Vec<Pid>)| {
        let names = name_pids(pids.len(), &pids);
        let [waits, then] = if pids.len() > 1 { ["wait", then[1]] } else { ["waits", then[0]] };
        format!("{names} {waits} for {what} and {then} {end}")
    };
    groups.into_iter().map(tell).collect()
}

/// Names what a process waits for that is suspended for a reason which ends without a resume, and the moment at which that
/// has come. A process that is suspended for another reason keeps no pause.
fn awaited(reason: SuspendReason) -> Option<[&'static str; 2]> {
    match reason {
        SuspendReason::Approval | SuspendReason::Question | SuspendReason::InDoubt => {
            Some(["your answer", "after the answer"])
        }
        SuspendReason::Quota => Some(["the quota of its provider", "after that"]),
        SuspendReason::NeedsCredentials => Some(["a key", "after that"]),
        SuspendReason::DaemonStop => Some(["the daemon", "after its next start"]),
        SuspendReason::User
        | SuspendReason::BudgetExceeded
        | SuspendReason::DiskFull
        | SuspendReason::IoError
        | SuspendReason::CrashLoop
        | SuspendReason::Stalled => None,
    }
}

/// Says that processes block the signal that they were sent.
fn waits_for(pending: &[Pid]) -> String {
    let first = pending.first().copied().unwrap_or(Pid::RUNTIME);
    let block = if pending.len() > 1 { "block" } else { "blocks" };
    let names = name_pids(pending.len(), pending);
    format!("{names} {block} the signal: it is pending until it is unblocked (relive signals {first})")
}

/// `PID 5`, or `3 processes (PIDs 5, 6, 7)`.
fn name_pids(count: usize, pids: &[Pid]) -> String {
    const SHOWN_MAX: usize = 10;
    let mut names: Vec<String> = pids.iter().take(SHOWN_MAX).map(Pid::to_string).collect();
    if pids.len() > SHOWN_MAX {
        names.push("...".into());
    }
    let names = names.join(", ");
    if count == 1 { format!("PID {names}") } else { format!("{count} processes (PIDs {names})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pids_are_named_and_many_are_not_all_named() {
        let pids: Vec<Pid> = (1..=12).map(Pid).collect();
        assert_eq!(name_pids(1, &pids[..1]), "PID 1");
        assert_eq!(name_pids(2, &pids[..2]), "2 processes (PIDs 1, 2)");
        assert_eq!(name_pids(12, &pids), "12 processes (PIDs 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...)");
    }

    #[test]
    fn only_a_suspension_that_ends_without_a_resume_keeps_a_pause() {
        use SuspendReason::{Approval, BudgetExceeded, DaemonStop, DiskFull, Quota, User};
        for reason in [Approval, BudgetExceeded, DaemonStop, DiskFull, Quota, User] {
            assert_eq!(awaited(reason).is_some(), reason.ends_without_resume(), "{reason:?}");
        }
    }

    #[test]
    fn processes_that_have_not_stopped_are_not_called_paused() {
        let check = |pids: u32, pausing: &[u32], expect: &str| {
            let pids: Vec<Pid> = (1..=pids).map(Pid).collect();
            let pausing: Vec<Pid> = pausing.iter().copied().map(Pid).collect();
            assert_eq!(tell_done(&pids, &pausing, "paused"), expect);
        };
        check(1, &[], "PID 1 paused");
        check(1, &[1], "PID 1 is pausing");
        check(2, &[1, 2], "2 processes (PIDs 1, 2) are pausing");
        check(3, &[2], "3 processes (PIDs 1, 2, 3) paused, except PID 2, still pausing");
    }
}
