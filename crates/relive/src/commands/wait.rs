//! `relive wait`: waits for the end of a process and exits with its code. It does not affect the process.

mod needs_me;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use relive_api::{Process, WaitAnswer};
use relive_client::Waited;
use relive_core::{Body, Display, ErrorCode, Pid, SuspendReason};
use serde::Serialize;

use super::targets::{Batch, Scope, Target, Targets, Told};
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render;
use crate::render::time::{as_millis, elapsed};
use crate::session::output::MissingOutput;
use crate::terminal::one_line;

/// How often to look whether a process waits for a person, who could otherwise wait for hours without knowing.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What `--json` prints of a process.
#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    daemon: WaitAnswer,
    /// Whether output of a program is missing from its log.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    output_lost: bool,
}

/// Wait for a process to end, and exit with its code
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive wait 5
  relive wait fixer --timeout 10m || echo \"not done, or failed: $?\"
  relive wait 5 6 'test-*'      wait for all, also ended ones; 0 if none failed
  relive wait --needs-me        wait until something is in the inbox")]
#[command(mut_arg("ids", |ids| ids.required_unless_present("needs_me")))]
#[command(mut_arg("all", |all| all.help("Select all processes that have not ended")))]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Wait until one of them, or any process, needs you: see `relive inbox`
    #[arg(long)]
    needs_me: bool,
    /// Give up after this time with exit code 124; the process keeps running
    #[arg(long, value_name = "DURATION", value_parser = relive_types::duration::parse)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    if args.needs_me {
        return needs_me::run(context, &args.targets, args.timeout).await;
    }
    let mut batch = Batch::new(context, &args.targets);
    let Some(client) = args.targets.client(context).await? else { return batch.finish("no process is running") };
    let deadline = args.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut targets = args.targets.expand(&client, Scope::Named).await?;
    if refuse_unknown(&client, &mut targets, &mut batch).await? {
        return batch.finish("");
    }
    for target in targets {
        // One after the other takes as long as the longest of them.
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let waited = match target.error {
            Some(error) => Err(error),
            None => wait(context, args, &client, &target.id, left).await,
        };
        match waited {
            Ok(answer) => {
                let told = told(context, args, &answer.daemon);
                batch.answer(&target.id, &answer, &told, answer.daemon.exit_code)?;
            }
            Err(error) => batch.failure(&target.id, error)?,
        }
    }
    batch.finish("no process is running")
}

/// Looks up all of them before the first wait: mistyped names and patterns are told at once, and not after hours. Returns
/// whether there are any.
async fn refuse_unknown(client: &Client<'_>, targets: &mut [Target], batch: &mut Batch<'_>) -> Outcome<bool> {
    // One is looked up by its wait.
    if targets.len() < 2 {
        return Ok(false);
    }
    let mut is_refused = false;
    for target in targets {
        let error = match (target.error.take(), &target.found) {
            (Some(error), _) => error,
            (None, Some(_)) => continue,
            (None, None) => match client.process(&target.id).await {
                Ok(_) => continue,
                Err(error) => error,
            },
        };
        batch.failure(&target.id, error)?;
        is_refused = true;
    }
    Ok(is_refused)
}

async fn wait(
    context: &Context,
    args: &Args,
    client: &Client<'_>,
    id: &str,
    left: Option<Duration>,
) -> Outcome<Answer> {
    let process = client.process(id).await?;
    let uuid = process.uuid.to_string();
    let waited = tokio::select! {
        waited = client.wait(id, &uuid, left) => waited?,
        never = say_what_it_waits_for(client, &process, id) => match never {},
    };
    let answer = match waited {
        Waited::Answer(answer) => *answer,
        Waited::TimedOut => timed_out(&process),
    };
    if answer.timed_out && !context.json {
        let timeout = elapsed(args.timeout.map_or(0, as_millis));
        // It may wait for something else by now.
        let process = client.process(&process.uuid.to_string()).await.unwrap_or(process);
        let message = format!("PID {} has not ended after {timeout}", process.pid);
        let error = |message| CommandError::new(ErrorCode::Timeout, message);
        return Err(match blocked(&process, id) {
            Some(Blocked { why, next }) => error(format!("{message}: it {why}")).with_hint(next),
            None => error(format!("{message}, and keeps running")).with_hint(format!("relive wait {id}")),
        });
    }
    let missing = missing_output(client, &process).await;
    if let Some(missing) = missing.as_ref().filter(|_| !context.json) {
        context.say(&format!("output of PID {}: {}", answer.pid, missing.in_row()));
    }
    Ok(Answer { daemon: answer, output_lost: missing.is_some() })
}

/// Returns which output of a program is missing: its exit code does not tell that.
async fn missing_output(client: &Client<'_>, process: &Process) -> Option<MissingOutput> {
    if !matches!(process.body, Body::Exec | Body::Cli) {
        return None;
    }
    // It has ended whatever becomes of this.
    let ended = std::ops::Deref::deref(client).process(&process.uuid.to_string()).await.ok()?;
    ended.session.as_ref().and_then(MissingOutput::of_session)
}

/// Why a process cannot end before a person has done something, and the command that does it.
pub(super) struct Blocked {
    pub(super) why: String,
    pub(super) next: String,
}

/// Says what a process waits for, unless it continues by itself.
pub(super) fn blocked(process: &Process, id: &str) -> Option<Blocked> {
    // One that was told to end never passes its gate.
    if process.display == "ready" && process.ending.is_none() {
        return Some(Blocked { why: "waits at its gate".to_owned(), next: format!("relive proceed {id}") });
    }
    if process.display == Display::Damaged.word() {
        return Some(Blocked { why: "is damaged".to_owned(), next: format!("relive info {id}") });
    }
    let reason = process.suspend_reason?;
    let why = match render::processes::wanted_from_you(reason) {
        Some(wanted) => format!("waits for your {wanted}"),
        None => format!("is suspended ({})", render::processes::suspension_of(process, reason)),
    };
    let next = match (&process.hint, reason) {
        (Some(hint), _) => one_line(hint),
        (None, SuspendReason::Approval | SuspendReason::Question | SuspendReason::InDoubt) => {
            format!("relive resolve {id}")
        }
        (None, SuspendReason::User | SuspendReason::IoError) => format!("relive resume {id}"),
        (
            None,
            SuspendReason::BudgetExceeded
            | SuspendReason::DiskFull
            | SuspendReason::CrashLoop
            | SuspendReason::Quota
            | SuspendReason::NeedsCredentials
            | SuspendReason::DaemonStop
            | SuspendReason::Stalled,
        ) => return None,
    };
    Some(Blocked { why, next })
}

/// Says that a process cannot end before a person has done something, each time that this is something else; also in the
/// log of a script, which would wait for ever without a word.
async fn say_what_it_waits_for(client: &Client<'_>, process: &Process, id: &str) -> Infallible {
    let (context, uuid) = (client.context(), process.uuid.to_string());
    if context.json {
        return std::future::pending().await;
    }
    let (mut said, mut told_below) = (None, BTreeMap::new());
    let mut now = process.clone();
    loop {
        let blocked = blocked(&now, id).map(|Blocked { why, next }| format!("PID {} {why}: {next}", now.pid));
        if blocked != said {
            blocked.iter().for_each(|blocked| context.say(blocked));
            said = blocked;
        }
        let is_tree = matches!(now.body, Body::Compose | Body::Supervisor);
        // No daemon is started for this: the wait itself does that.
        if is_tree
            && said.is_none()
            && !now.suspended.is_empty()
            && let Some(daemon) = Client::beside(context).await
        {
            told_below = say_what_waits_below(context, &daemon, &now, told_below).await;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(daemon) = Client::beside(context).await {
            now = daemon.process(&uuid).await.unwrap_or(now);
        }
    }
}

/// Says which processes of a run or a supervisor it waits for that cannot end before a person has done something. Returns
/// what was said of each; of those in `told` it is not said again.
async fn say_what_waits_below(
    context: &Context,
    client: &relive_client::Client,
    tree: &Process,
    told: BTreeMap<Pid, String>,
) -> BTreeMap<Pid, String> {
    let mut now = BTreeMap::new();
    for below in &tree.suspended {
        let Ok(process) = client.process(&below.pid.to_string()).await else { continue };
        let Some(Blocked { why, next }) = blocked(&process, &process.pid.to_string()) else { continue };
        let name = process.name.as_deref().map(|name| format!(" ({})", one_line(name))).unwrap_or_default();
        let (above, pid) = (tree.pid, process.pid);
        let said = format!("PID {above} waits for PID {pid}{name}, which {why}: {next}");
        if told.get(&pid) != Some(&said) {
            context.say(&said);
        }
        now.insert(pid, said);
    }
    now
}

/// Reports an end: if several processes are waited for, with the PID; if only one, only on a terminal.
fn told(context: &Context, args: &Args, answer: &WaitAnswer) -> Told {
    let Some(exit) = &answer.exit else { return Told::default() };
    let reason = render::exit::reason(answer.status.as_ref(), &exit.reason);
    let line = format!("PID {}: {reason} ({})", answer.pid, answer.exit_code);
    if !args.targets.is_one() {
        return Told { data: format!("{line}\n"), ..Told::default() };
    }
    if context.err.is_terminal { Told::message(format!("{line}\n")) } else { Told::default() }
}

fn timed_out(process: &Process) -> WaitAnswer {
    WaitAnswer {
        pid: process.pid,
        uuid: process.uuid,
        status: None,
        why: None,
        exit: None,
        timed_out: true,
        exit_code: ErrorCode::Timeout.exit_code(),
        note: None,
    }
}

#[cfg(test)]
mod tests {
    use relive_core::Signal;

    use super::*;
    use crate::render::processes::tests::process;

    #[test]
    fn a_program_at_its_gate_waits_for_nobody_once_it_is_told_to_end() {
        let check = |ending, expect: Option<&str>| {
            let at_gate = Process { display: "ready".to_owned(), ending, ..process(3, 0) };
            assert_eq!(blocked(&at_gate, "gt").map(|blocked| blocked.next).as_deref(), expect);
        };
        check(None, Some("relive proceed gt"));
        check(Some(Signal::Term), None);
    }
}
