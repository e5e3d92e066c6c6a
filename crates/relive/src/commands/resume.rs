//! `relive resume`: resume a process, or fork it.

use relive_api::{Process, ResumeRequest, Resumed, WorkspaceKind};
use relive_core::{Body, Pid, ProcessStatus, State, SuspendReason};
use relive_types::program::quote;
use relive_types::short_id::short;

use super::limits::LimitArgs;
use super::started::{self, Answer, NotStarted};
use super::targets::{Batch, Scope, Targets, Told};
use crate::client::{Client, is_continues};
use crate::context::{Context, new_uuid};
use crate::error::{CommandError, Outcome};
use crate::render::time::{as_millis, elapsed};
use crate::report;
use crate::terminal::one_line;

/// What an agent that has completed its task is told where nobody says anything else.
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

/// What can be different when a process continues.
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
    // A process that waits for an answer is resumed by the answer: `--all` and a pattern do not mean it.
    targets.retain(|target| !target.found.as_ref().is_some_and(|process| waits_for_answer(process)));
    for target in targets {
        let resumed = match target.error {
            Some(error) => Err(error),
            None => resume(context, args, &client, &target.id).await,
        };
        match resumed {
            Ok(Some((resumed, told, failed))) => {
                let told = match &failed {
                    Some(failed) => Told::message(report::as_text(&failed.error, &context.err)),
                    None => Told::message(told).with_pid(context, resumed.pid),
                };
                let code = failed.as_ref().map_or(0, |failed| failed.code);
                let error = failed.map(|failed| failed.error.detail());
                batch.answer(&target.id, &Answer { answer: resumed, error }, &told, code)?;
            }
            Ok(None) => {
                context.say("nothing was resumed");
                return Ok(0);
            }
            Err(error) => batch.failure(&target.id, error)?,
        }
    }
    batch.finish("nothing to resume")
}

fn waits_for_answer(process: &Process) -> bool {
    use SuspendReason::{Approval, InDoubt, Question};
    matches!(process.suspend_reason, Some(Approval | Question | InDoubt))
}

/// Resumes one process, or forks it; `None` if the person who was asked wants nothing.
async fn resume(
    context: &Context,
    args: &Args,
    client: &Client<'_>,
    id: &str,
) -> Outcome<Option<(Resumed, String, Option<NotStarted>)>> {
    // A failure to look is told by the resume itself.
    let before = std::ops::Deref::deref(client).process(id).await.ok();
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
            NextTask::Nothing => return Ok(None),
        }
    }
    let resumed = client.resume(id, &request).await?;
    if continues && !context.json && !context.can_ask() {
        let pid = before.as_ref().map_or(resumed.pid, |before| before.pid);
        let to = if args.fork { "the fork" } else { "it" };
        context.say(&format!(
            "PID {pid} had completed: sent {to} \"{CONTINUE}\" (use --input TEXT to send something else)"
        ));
    }
    let is_started = |before: &Process| {
        started::is_program(before.body) && (args.fork || before.state == State::Dead) && resumed.changed
    };
    let failed = match before.as_ref().is_some_and(is_started) {
        true => started::failure_of(client, resumed.pid).await,
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
    Ok(Some((resumed, told, failed)))
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

/// What only makes sense for a fork, all of it at once.
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
    let Resumed { pid, resumed_from_step: step, .. } = resumed;
    if resumed.pending.contains(pid) {
        return super::waits_for(&resumed.pending) + "\n";
    }
    let model = resumed.model.as_ref().map(|model| format!(" ({model})")).unwrap_or_default();
    if !resumed.changed {
        return format!("PID {pid} is already running: nothing changed\n");
    }
    if resumed.cancelled.contains(pid) {
        return cancelled(resumed);
    }
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
            WorkspaceKind::Own => format!("files: a copy as of step {step}, in {path}\n"),
            WorkspaceKind::Here => format!("files: unchanged, in {path}\n"),
        });
    }
    if let Some(note) = resumed.note.as_ref().filter(|note| !is_continues(note)) {
        told.push_str(&format!("note: {note}\n"));
    }
    told + &all_resumed(resumed)
}

/// Says which processes were resumed, if there are several.
fn all_resumed(resumed: &Resumed) -> String {
    match resumed.affected {
        0 | 1 => String::new(),
        count => format!("{} resumed\n", super::name_pids(count, &resumed.pids)),
    }
}

/// A tree has nodes instead of steps and a model.
fn tell_of_tree(resumed: &Resumed, kind: &str, [node, nodes]: [&str; 2]) -> String {
    let Resumed { pid, .. } = resumed;
    if resumed.pending.contains(pid) {
        return super::waits_for(&resumed.pending) + "\n";
    }
    if !resumed.changed {
        return format!("PID {pid} is already running: nothing changed\n");
    }
    if resumed.cancelled.contains(pid) {
        return cancelled(resumed);
    }
    let uuid = short(resumed.uuid);
    let starts = match resumed.nodes {
        None => String::new(),
        Some(0) => format!(": no {node} is left to start"),
        Some(1) => format!(": 1 {node} starts again"),
        Some(count) => format!(": {count} {nodes} start again"),
    };
    let told = format!("resuming {kind} {uuid} from its journal{starts}\nPID {pid} running | resumed from {uuid}\n");
    told + &all_resumed(resumed)
}

/// Says that a process was never paused, and what else was resumed.
fn cancelled(resumed: &Resumed) -> String {
    let mut told = format!("PID {} had not paused yet: its pause is cancelled\n", resumed.pid);
    let others: Vec<Pid> = resumed.pids.iter().copied().filter(|pid| *pid != resumed.pid).collect();
    if !others.is_empty() {
        told.push_str(&format!("{} resumed\n", super::name_pids(others.len(), &others)));
    }
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
    let Resumed { pid, uuid, .. } = resumed;
    if resumed.pending.contains(pid) {
        return super::waits_for(&resumed.pending) + "\n";
    }
    if !resumed.changed {
        return format!("PID {pid} is already running: nothing changed\n");
    }
    if resumed.cancelled.contains(pid) {
        return cancelled(resumed);
    }
    match before {
        State::Created | State::Running => format!("PID {pid} resumed\n"),
        State::Zombie | State::Dead => {
            let uuid = short(*uuid);
            let mut told = format!("starting {uuid} again: programs have no journal to resume from\nPID {pid} started");
            if let Some(note) = resumed.note.as_ref().filter(|note| !is_continues(note)) {
                told.push_str(&format!("; {note}"));
            }
            told.push('\n');
            told
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn resumed() -> Resumed {
        Resumed {
            pid: Pid(5),
            uuid: "0198f3c1-0000-7000-8000-00000c9d1e77".parse().unwrap(),
            origin_uuid: None,
            resumed_from_step: 12,
            max_steps: Some(20),
            model: Some("anthropic/claude".into()),
            changed: true,
            affected: 1,
            pids: vec![Pid(5)],
            pending: Vec::new(),
            cancelled: Vec::new(),
            note: None,
            workspace: None,
            nodes: None,
        }
    }

    #[test]
    fn a_tree_is_told_of_by_the_nodes_that_start_again() {
        let told = |nodes| {
            let resumed = Resumed { nodes, model: None, max_steps: None, resumed_from_step: 0, ..resumed() };
            tell_of_tree(&resumed, "run", ["node", "nodes"])
        };
        let running = "PID 5 running | resumed from 0c9d1e77\n";
        assert_eq!(told(None), format!("resuming run 0c9d1e77 from its journal\n{running}"));
        assert_eq!(told(Some(1)), format!("resuming run 0c9d1e77 from its journal: 1 node starts again\n{running}"));
        assert!(told(Some(2)).contains(": 2 nodes start again\n"));
        assert!(told(Some(0)).contains(": no node is left to start\n"));
    }

    #[test]
    fn a_program_is_resumed_or_started_again_and_says_which() {
        assert_eq!(tell_of_program(&resumed(), State::Running), "PID 5 resumed\n");
        assert_eq!(
            tell_of_program(&resumed(), State::Dead),
            "starting 0c9d1e77 again: programs have no journal to resume from\nPID 5 started\n"
        );
        let gated = Resumed { note: Some("it waits at its gate".into()), ..resumed() };
        assert!(tell_of_program(&gated, State::Dead).ends_with("\nPID 5 started; it waits at its gate\n"));
    }

    #[test]
    fn a_fork_of_a_program_is_a_new_run_of_it() {
        let origin_uuid = Some("0199a2b4-0000-7000-8000-00005f6a7b8c".parse().unwrap());
        assert_eq!(
            tell_of_forked_program(&Resumed { origin_uuid, model: None, ..resumed() }),
            "starting the program of 5f6a7b8c again, as 0c9d1e77: programs have no steps to fork from\nPID 5 started\n"
        );
    }

    #[test]
    fn new_limits_and_messages_for_a_running_process_are_named() {
        let none = Changes { input: None, model: None, limits: LimitArgs::default() };
        assert_eq!(added(&none), None);
        let limits = LimitArgs { max_steps: Some(9), timeout: Some(Duration::from_secs(60)), ..LimitArgs::default() };
        let some = Changes { input: Some("x".into()), limits, ..none };
        let expect = "it has new limits (max steps 9, timeout 1m00s), and it was sent the message";
        assert_eq!(added(&some).as_deref(), Some(expect));
    }

    #[test]
    fn resume_reports_the_step_and_the_process() {
        assert_eq!(
            tell(&resumed(), false),
            "resuming 0c9d1e77 from its journal (step 12/20)\n\
             PID 5 running (anthropic/claude) | resumed from 0c9d1e77\n"
        );
        let origin = Some("0198f3c1-0000-7000-8000-00000c9d1e77".parse().unwrap());
        let uuid = "0199a2b4-0000-7000-8000-00005f6a7b8c".parse().unwrap();
        let fork =
            Resumed { pid: Pid(6), uuid, origin_uuid: origin, resumed_from_step: 5, max_steps: None, ..resumed() };
        assert_eq!(
            tell(&fork, true),
            "forking 0c9d1e77 at step 5 -> 5f6a7b8c\nPID 6 running (anthropic/claude) | forked from 0c9d1e77\n"
        );
        let noted = Resumed { note: Some("the files differ".into()), ..fork.clone() };
        assert!(tell(&noted, true).ends_with("| forked from 0c9d1e77\nnote: the files differ\n"));
        // A fork that is resumed later is resumed, not forked again.
        assert!(tell(&fork, false).starts_with("resuming 5f6a7b8c from its journal (step 5)\n"));
        let without_model = Resumed { model: None, ..resumed() };
        assert!(tell(&without_model, false).ends_with("PID 5 running | resumed from 0c9d1e77\n"));
        let still = Resumed { changed: false, affected: 0, ..resumed() };
        assert_eq!(tell(&still, false), "PID 5 is already running: nothing changed\n");
    }
}
