//! `relive resume`: resume a process, or fork it.

use relive_api::{KeptPause, Process, ResumeRequest, Resumed, WorkspaceKind};
use relive_core::{Body, Pid, ProcessStatus, State, SuspendReason};
use relive_types::program::quote;
use relive_types::short_id::short;
use tokio::signal::unix::{Signal as Presses, SignalKind, signal};

use super::interrupts::{INTERRUPTED, start_or_cancel};
use super::limits::LimitArgs;
use super::started::{self, Answer, NotStarted};
use super::targets::{Batch, Scope, Targets, Told};
use crate::client::{Client, is_continues};
use crate::context::{Context, new_uuid};
use crate::error::{CommandError, Outcome};
use crate::render::time::{as_millis, elapsed};
use crate::report;
use crate::terminal::one_line;

/// The message to a completed agent that is resumed without one.
const CONTINUE: &str = "Continue.";

/// Resume suspended or ended processes, or fork one
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive resume 5                           continue where it stopped
  relive resume 5 --input \"now the docs\"    continue with a message
  relive resume 5 --max-tokens 200000       continue with a higher limit
  relive resume 5 --model openai/gpt-5      continue with another model
  relive resume --fork --from-step 5 fixer  fork it after its step 5
  relive resume --all                       resume every suspended process")]
#[command(mut_arg("all", |all| all.help("Select all suspended processes")))]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Create a new process that starts from the steps of this one, which does not change
    #[arg(long)]
    fork: bool,
    /// With --fork: start after this step
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    from_step: Option<u32>,
    /// Include all descendants of the process
    #[arg(long, conflicts_with = "fork")]
    subtree: bool,
    /// With --fork: `own` works on a copy of the files as they were after that step (default if they are known), `here` in the directory of the original
    #[arg(long, value_name = "own|here", value_parser = parse_workspace)]
    workspace: Option<WorkspaceKind>,
    /// With --fork: a name for the new process
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    changes: Changes,
}

/// The properties that a resume or a fork can change.
#[derive(Debug, clap::Args)]
pub(crate) struct Changes {
    /// A message to the agent
    #[arg(long, value_name = "TEXT")]
    input: Option<String>,
    /// Use this provider and model instead
    #[arg(long, value_name = "PROVIDER/MODEL")]
    model: Option<String>,
    #[command(flatten)]
    limits: LimitArgs,
}

impl Changes {
    pub(crate) fn request(&self) -> ResumeRequest {
        ResumeRequest {
            input: self.input.clone(),
            model: self.model.clone(),
            limits: self.limits.limits(),
            env: crate::environment::of_this_shell(),
            ..ResumeRequest::default()
        }
    }
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    check(args)?;
    let mut batch = Batch::new(context, &args.targets);
    let Some(client) = args.targets.client(context).await? else { return batch.finish("nothing to resume") };
    let mut targets = args.targets.expand(&client, Scope::Suspended).await?;
    // A process that waits for an answer is resumed by the answer: `--all` and a pattern mean only a pause of it.
    let is_meant =
        |process: &Process| process.pause_kept || !process.suspend_reason.is_some_and(SuspendReason::awaits_answer);
    targets.retain(|target| target.found.as_deref().is_none_or(is_meant));
    for target in targets {
        let resumed = match target.error {
            Some(error) => Err(error),
            None => resume(context, args, &client, &target.id).await,
        };
        match resumed {
            Ok(Resuming::Done { resumed, told, failed }) => {
                let told = match &failed {
                    Some(failed) => Told::message(report::as_text(&failed.error, &context.err)),
                    None => Told::message(told).with_pid(context, resumed.pid),
                };
                let code = failed.as_ref().map_or(0, |failed| failed.code);
                let error = failed.map(|failed| failed.error.detail());
                batch.answer(&target.id, &Answer { answer: resumed, error }, &told, code)?;
            }
            Ok(Resuming::Unwanted) => {
                context.say("nothing was resumed");
                return Ok(0);
            }
            Ok(Resuming::Interrupted) => return Ok(INTERRUPTED),
            Err(error) => batch.failure(&target.id, error)?,
        }
    }
    batch.finish("nothing to resume")
}

/// The result of a resume of one process.
enum Resuming {
    Done {
        resumed: Box<Resumed>,
        told: String,
        failed: Option<NotStarted>,
    },
    /// The person who was asked wants nothing.
    Unwanted,
    Interrupted,
}

/// Resumes one process, or forks it.
async fn resume(context: &Context, args: &Args, client: &Client<'_>, id: &str) -> Outcome<Resuming> {
    // A failure to look is told by the resume itself.
    let before = look(args, client, id).await;
    let mut request = args.changes.request();
    request.fork = args.fork.then(new_uuid).transpose()?;
    (request.from_step, request.subtree, request.name) = (args.from_step, args.subtree, args.name.clone());
    request.workspace = args.workspace;
    let mut continues = false;
    if let Some(before) = &before
        && request.input.is_none()
        && args.from_step.is_none()
        && has_completed(before)
    {
        match next_task(context, before) {
            NextTask::Say(text) => request.input = Some(text),
            NextTask::Continue => continues = true,
            NextTask::Nothing => return Ok(Resuming::Unwanted),
        }
    }
    // The default of the signal does not come back: each later wait of a fork has to end with it, too.
    let mut presses = match args.fork {
        true => Some(signal(SignalKind::interrupt()).map_err(cannot_listen)?),
        false => None,
    };
    let resumed = fork_or_resume(client, id, &request, presses.as_mut()).await?;
    let Some(resumed) = resumed else { return Ok(Resuming::Interrupted) };
    if continues && !context.json && !context.can_ask() {
        let pid = before.as_ref().map_or(resumed.pid, |before| before.pid);
        let to = if args.fork { "the fork" } else { "it" };
        context.say(&format!(
            "PID {pid} had completed: sent {to} \"{CONTINUE}\" (use --input TEXT to send something else)"
        ));
    }
    // One that was about to end had ended by then: the resume gave it another PID.
    let before = before.map(|before| match args.fork || before.pid == resumed.pid {
        true => before,
        false => Process { state: State::Dead, ..before },
    });
    let is_started = |before: &Process| {
        started::is_program(before.body) && (args.fork || before.state == State::Dead) && resumed.changed
    };
    let failed = match before.as_ref().is_some_and(is_started) {
        true => tokio::select! {
            failed = started::failure_of(client, resumed.pid) => failed,
            // It exists and is being started, which is said as if it had been.
            () = pressed(presses.as_mut()) => None,
        },
        false => None,
    };
    let told = match before.as_ref().map(|before| (before.body, before.state)) {
        Some((Body::Exec, _)) if args.fork => tell_of_forked_program(&resumed),
        Some((Body::Exec, state)) => tell_of_program(&resumed, state),
        Some((Body::Compose, _)) => tell_of_tree(&resumed, "run", ["node", "nodes"]),
        Some((Body::Supervisor, _)) => tell_of_tree(&resumed, "supervisor", ["child", "children"]),
        Some((Body::Agent | Body::Cli, _)) | None => tell(&resumed, args.fork),
    };
    // What was added to a process that runs is no resume of it.
    let ran = before.is_some_and(|before| before.state == State::Running && !before.paused && before.dead_at.is_none());
    let told =
        match added(&args.changes).filter(|_| ran && !args.fork && resumed.changed && resumed.cancelled.is_empty()) {
            Some(added) => format!("PID {} is already running: {added}\n", resumed.pid),
            None => told,
        };
    Ok(Resuming::Done { resumed: Box::new(resumed), told, failed })
}

/// Looks at a process before it is resumed: at its last incarnation, also if the PID of an earlier one was typed.
async fn look(args: &Args, client: &Client<'_>, id: &str) -> Option<Process> {
    let client = std::ops::Deref::deref(client);
    let found = client.process(id).await.ok()?;
    if args.fork || found.successor_pid.is_none() {
        return Some(found);
    }
    Some(client.process(&found.uuid.to_string()).await.unwrap_or(found))
}

/// Sends the request. Ctrl-C cancels a fork, whose files may take long to copy; then this returns `None`.
async fn fork_or_resume(
    client: &Client<'_>,
    id: &str,
    request: &ResumeRequest,
    presses: Option<&mut Presses>,
) -> Outcome<Option<Resumed>> {
    match request.fork.zip(presses) {
        Some((fork, presses)) => start_or_cancel(client, fork, presses, client.resume(id, request)).await,
        None => client.resume(id, request).await.map(Some),
    }
}

/// Waits until Ctrl-C is pressed; for ever where it has its default, which ends the command.
async fn pressed(presses: Option<&mut Presses>) {
    match presses {
        Some(presses) => drop(presses.recv().await),
        None => std::future::pending().await,
    }
}

fn cannot_listen(error: std::io::Error) -> CommandError {
    CommandError::internal("cannot listen for Ctrl-C").because(error)
}

/// Says what a resume adds to a process that runs.
fn added(changes: &Changes) -> Option<String> {
    let LimitArgs { max_steps, max_tokens, max_cost, timeout } = &changes.limits;
    let limits = [
        max_steps.map(|steps| format!("max steps {steps}")),
        max_tokens.map(|tokens| format!("max tokens {tokens}")),
        max_cost.map(|cost| format!("max cost ${cost}")),
        timeout.map(|timeout| format!("timeout {}", elapsed(as_millis(timeout)))),
    ];
    let limits = limits.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let limits = (!limits.is_empty()).then(|| format!("it has new limits ({limits})"));
    let message = changes.input.as_ref().map(|_| "it was sent the message".to_owned());
    let parts: Vec<String> = [limits, message].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", and "))
}

/// Tells whether an agent has done what it was asked to.
fn has_completed(process: &Process) -> bool {
    process.body == Body::Agent && matches!(process.status, Some(ProcessStatus::Exited { code: 0 }))
}

enum NextTask {
    Say(String),
    Continue,
    Nothing,
}

/// Asks what an agent that has completed its task is to do. Where nobody can be asked it is told to continue.
fn next_task(context: &Context, process: &Process) -> NextTask {
    let pid = process.pid;
    if !context.can_ask() || context.json {
        return NextTask::Continue;
    }
    match context.ask_line(&format!("PID {pid} has completed. What next? [{CONTINUE}] ")) {
        None => NextTask::Nothing,
        Some(text) if text.trim().is_empty() => NextTask::Continue,
        Some(text) => NextTask::Say(text),
    }
}

/// Returns the options that let a process continue which a limit of its own has stopped.
pub(crate) fn raising(process: &Process) -> Option<&str> {
    let hint = process.hint.as_deref().filter(|hint| !hint.contains("&&"))?;
    hint.find(" --").map(|at| &hint[at + 1..])
}

pub(crate) fn parse_workspace(text: &str) -> Result<WorkspaceKind, String> {
    match text {
        "own" => Ok(WorkspaceKind::Own),
        "here" => Ok(WorkspaceKind::Here),
        _ => Err("use `own` or `here`".to_owned()),
    }
}

/// Refuses options that only a fork has, all of them in one message.
fn check(args: &Args) -> Outcome<()> {
    let typed = args.targets.typed();
    if args.fork {
        if args.targets.is_one() {
            return Ok(());
        }
        let error = CommandError::invalid("--fork takes one process");
        return Err(match args.targets.ids.first() {
            // One of those that a pattern matches has to be chosen.
            Some(id) if id.contains(['*', '?']) => error.with_hint(format!("relive ps -a --name {}", quote(id))),
            Some(id) => error.with_hint(format!("relive resume --fork {}", quote(id))),
            None => error.with_hint("relive ps"),
        });
    }
    let wrong: Vec<&str> = [
        ("--from-step", args.from_step.is_some()),
        ("--name", args.name.is_some()),
        ("--workspace", args.workspace.is_some()),
    ]
    .into_iter()
    .filter_map(|(flag, given)| given.then_some(flag))
    .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let message = format!("{typed}: {} cannot be used without --fork", wrong.join(" and "));
    if !args.targets.is_one() {
        return Err(CommandError::invalid(message).with_hint(format!("relive resume {typed}")));
    }
    if let (Some(name), ["--name"]) = (&args.name, wrong.as_slice()) {
        return Err(CommandError::invalid(message).with_hint(format!("relive rename {typed} {}", quote(name))));
    }
    let step = args.from_step.map(|step| format!(" --from-step {step}"));
    let name = args.name.as_ref().map(|name| format!(" --name {}", quote(name)));
    let workspace = args.workspace.map(|workspace| format!(" --workspace {}", workspace.word()));
    let flags: String = [step, name, workspace].into_iter().flatten().collect();
    Err(CommandError::invalid(message).with_hint(format!("relive resume --fork{flags} {typed}")))
}

pub(crate) fn tell(resumed: &Resumed, fork: bool) -> String {
    if let Some(unchanged) = not_resumed(resumed) {
        return unchanged;
    }
    let Resumed { pid, resumed_from_step: step, .. } = resumed;
    let model = resumed.model.as_ref().map(|model| format!(" ({model})")).unwrap_or_default();
    let uuid = short(resumed.uuid);
    let mut told = match resumed.origin_uuid.filter(|_| fork) {
        Some(origin) => {
            let origin = short(origin);
            format!("forking {origin} at step {step} -> {uuid}\nPID {pid} running{model} | forked from {origin}\n")
        }
        None => {
            let of = resumed.max_steps.map(|max| format!("/{max}")).unwrap_or_default();
            format!(
                "resuming {uuid} from its journal (step {step}{of})\nPID {pid} running{model} | resumed from {uuid}\n"
            )
        }
    };
    if let Some(workspace) = resumed.workspace.as_ref().filter(|_| fork) {
        let path = one_line(&workspace.path);
        told.push_str(&match workspace.kind {
            WorkspaceKind::Own if !workspace.path.contains(&resumed.uuid.to_string()) => {
                format!("files: unchanged, in {path}, a copy of another process\n")
            }
            WorkspaceKind::Own => format!("files: a copy as of step {step}, in {path}\n"),
            WorkspaceKind::Here => format!("files: unchanged, in {path}\n"),
        });
    }
    told + &note_of(resumed) + &all_resumed(resumed)
}

/// Returns what else there is to say.
fn note_of(resumed: &Resumed) -> String {
    let note = resumed.note.as_ref().filter(|note| !is_continues(note));
    note.map(|note| format!("note: {note}\n")).unwrap_or_default()
}

/// Says which processes were resumed, if there are several.
fn all_resumed(resumed: &Resumed) -> String {
    match resumed.affected {
        0 | 1 => String::new(),
        _ => name_resumed(resumed, &resumed.pids),
    }
}

/// Names processes that were resumed, apart from those that still wait for something else.
fn name_resumed(resumed: &Resumed, pids: &[Pid]) -> String {
    let waits = |pid: &Pid| resumed.kept.iter().any(|kept| kept.pid == *pid);
    let running: Vec<Pid> = pids.iter().copied().filter(|pid| !waits(pid)).collect();
    let kept: Vec<KeptPause> = resumed.kept.iter().copied().filter(|kept| pids.contains(&kept.pid)).collect();
    let mut lines = Vec::new();
    if !running.is_empty() {
        lines.push(format!("{} resumed", super::name_pids(running.len(), &running)));
    }
    lines.extend(super::tell_kept(&kept, ["runs", "run"]));
    lines.into_iter().map(|line| line + "\n").collect()
}

/// A tree has nodes instead of steps and a model.
fn tell_of_tree(resumed: &Resumed, kind: &str, [node, nodes]: [&str; 2]) -> String {
    if let Some(unchanged) = not_resumed(resumed) {
        return unchanged;
    }
    let Resumed { pid, .. } = resumed;
    let uuid = short(resumed.uuid);
    let starts = match resumed.nodes {
        None => String::new(),
        Some(0) => format!(": no {node} is left to start"),
        Some(1) => format!(": 1 {node} starts again"),
        Some(count) => format!(": {count} {nodes} start again"),
    };
    let told = format!("resuming {kind} {uuid} from its journal{starts}\nPID {pid} running | resumed from {uuid}\n");
    told + &note_of(resumed) + &all_resumed(resumed)
}

/// Says why a process was not resumed, if it was not: it blocks the signal, runs already, or had not paused yet.
fn not_resumed(resumed: &Resumed) -> Option<String> {
    let Resumed { pid, .. } = resumed;
    if resumed.pending.contains(pid) {
        return Some(super::waits_for(&resumed.pending) + "\n");
    }
    if !resumed.changed {
        return Some(format!("PID {pid} is already running: nothing changed\n"));
    }
    resumed.cancelled.contains(pid).then(|| cancelled(resumed))
}

/// Says that a process was never paused, and what else was resumed.
fn cancelled(resumed: &Resumed) -> String {
    let mut told = format!("PID {} had not paused yet: its pause is cancelled\n", resumed.pid);
    told.push_str(&note_of(resumed));
    if resumed.kept.iter().any(|kept| kept.pid == resumed.pid) {
        return told + &name_resumed(resumed, &resumed.pids);
    }
    let others: Vec<Pid> = resumed.pids.iter().copied().filter(|pid| *pid != resumed.pid).collect();
    told.push_str(&name_resumed(resumed, &others));
    told
}

/// A fork of a program is a new run of it.
pub(crate) fn tell_of_forked_program(resumed: &Resumed) -> String {
    let Resumed { pid, uuid, origin_uuid, .. } = resumed;
    let origin =
        origin_uuid.map_or_else(|| "the program".to_owned(), |origin| format!("the program of {}", short(origin)));
    let mut told =
        format!("starting {origin} again, as {}: programs have no steps to fork from\nPID {pid} started", short(*uuid));
    if let Some(note) = resumed.note.as_ref().filter(|note| !is_continues(note)) {
        told.push_str(&format!("; {note}"));
    }
    told.push('\n');
    told
}

/// A program has only its present: it is thawed, or run once more.
fn tell_of_program(resumed: &Resumed, before: State) -> String {
    if let Some(unchanged) = not_resumed(resumed) {
        return unchanged;
    }
    let Resumed { pid, uuid, .. } = resumed;
    match before {
        State::Created | State::Running if resumed.affected > 1 => all_resumed(resumed) + &note_of(resumed),
        State::Created | State::Running => format!("PID {pid} resumed\n") + &note_of(resumed),
        State::Zombie | State::Dead => {
            let uuid = short(*uuid);
            let mut told = format!("starting {uuid} again: programs have no journal to resume from\nPID {pid} started");
            if let Some(note) = resumed.note.as_ref().filter(|note| !is_continues(note)) {
                told.push_str(&format!("; {note}"));
            }
            told.push('\n');
            told + &all_resumed(resumed)
        }
    }
}

#[cfg(test)]
mod tests;
