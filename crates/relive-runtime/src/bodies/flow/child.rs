//! One process of a tree: started once, and waited for.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use relive_api::{Environment, ExecRequest, ResumeRequest, RunRequest, Stdio, WorkspaceKind};
use relive_core::{Cause, ErrorCode, Limits, Uuid, Why};
use relive_flow::file::Work;
use relive_flow::{AtEnd, Definition, Event, Outcome, OwnNode, Run, Start, SupervisorFile, Task};
use relive_journal::Journal;
use relive_types::short_id;
use serde_json::json;
use tokio::sync::mpsc;

use super::NODE_EVENT;
use super::outcome::ProcessEnd;
use crate::create::NewFlow;
use crate::error::{Error, Result};
use crate::flows::Attempt;
use crate::lookup::Presence;
use crate::runtime::{ProcessRef, Runtime};

/// How long to wait until something that was refused is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(250);
/// How often an end that cannot be read is tried again.
const UNREAD_MAX: u32 = 120;
/// The exit code of a node whose end cannot be read.
const UNKNOWN_END: i32 = 1;
/// The exit code of a node whose process cannot be created.
const CANNOT_START: i32 = 126;

/// One start of a process, which is carried out at most once.
#[derive(Debug)]
pub(super) struct ChildStart {
    pub(super) parent: ProcessRef,
    pub(super) slot: String,
    pub(super) uuid: Uuid,
    pub(super) start: Start,
    pub(super) number: u64,
    /// Whether it begins paused.
    pub(super) is_paused: bool,
    pub(super) run: Run,
    /// The directory of the tree.
    pub(super) cwd: String,
    pub(super) wants_result: bool,
    /// The nodes whose changes are merged before it starts.
    pub(super) merges: Vec<OwnNode>,
    /// Told when the process has started, if another node waits for that.
    pub(super) started: Option<mpsc::UnboundedSender<ChildStarted>>,
    /// Whether nothing is started any more.
    pub(super) ending: Arc<AtomicBool>,
    /// Its start, which others may stop while it waits for room.
    pub(super) attempt: Arc<Attempt>,
    /// The journal of the tree, for events.
    pub(super) journal: Arc<dyn Journal>,
}

/// A process that has started.
#[derive(Debug)]
pub(super) struct ChildStarted {
    pub(super) slot: String,
    pub(super) uuid: Uuid,
}

/// The end of one start of a process.
#[derive(Debug)]
pub(super) struct ChildEnd {
    pub(super) slot: String,
    pub(super) uuid: Uuid,
    /// The number of the start that it is the end of.
    pub(super) number: u64,
    pub(super) outcome: Outcome,
    pub(super) result: Option<String>,
    /// Why it failed, or could not be started.
    pub(super) note: Option<String>,
    pub(super) at_end: AtEnd,
    pub(super) creation: Creation,
}

/// Whether the process of a start could be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Creation {
    Possible,
    Refused,
    /// Not before somebody resumes its tree, which has lost its environment. The start is still to be carried out.
    NoEnvironment,
}

/// The reason why a process could not be started.
enum NotStarted {
    /// Its tree has no environment left that it could be given.
    NoEnvironment,
    Refused(Error),
}

impl<E: Into<Error>> From<E> for NotStarted {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

impl ChildEnd {
    pub(super) fn event(self, at_ms: u64) -> Event {
        let Self { slot, uuid, number: _, outcome, result, note, at_end, creation: _ } = self;
        Event::Ended { slot, uuid, outcome, at_ms, result, note, at_end }
    }
}

impl ChildStart {
    /// Starts the process unless it was started, and waits for its end.
    pub(super) async fn run_to_end(self, runtime: Arc<Runtime>) -> ChildEnd {
        let (slot, uuid, number) = (self.slot.clone(), self.uuid, self.number);
        if let Err((outcome, creation, note)) = self.start_in_time(&runtime).await {
            // One that was to begin paused still is.
            let at_end = AtEnd { paused: self.is_paused, limit: false };
            return ChildEnd { slot, uuid, number, outcome, result: None, note, at_end, creation };
        }
        if let Some(started) = &self.started
            && !runtime.could_not_start(uuid).await
        {
            // Nobody waits for it any more if the tree has ended.
            let _ = started.send(ChildStarted { slot: slot.clone(), uuid });
        }
        let ProcessEnd { outcome, note, at_end } = self.end_of_process(&runtime).await;
        let result = if self.wants_result { runtime.result_of(uuid).await } else { None };
        ChildEnd { slot, uuid, number, outcome, result, note, at_end, creation: Creation::Possible }
    }

    /// Starts the process as soon as there is room for it. Fails with its end if it never starts.
    async fn start_in_time(&self, runtime: &Arc<Runtime>) -> Result<(), (Outcome, Creation, Option<String>)> {
        let (slot, uuid) = (&self.slot, self.uuid);
        let mut has_told = false;
        loop {
            if self.ending.load(Ordering::Relaxed) || !self.attempt.again() {
                let there = !matches!(runtime.presence(uuid).await, Ok(Presence::Never));
                if !there || matches!(self.start, Start::Resume { .. }) && runtime.living(uuid).is_none() {
                    return Err((if there { Outcome::Halted } else { Outcome::NeverRan }, Creation::Possible, None));
                }
            }
            let was_there = runtime.living(uuid).is_some();
            let error = match self.start(runtime).await {
                Ok(()) => {
                    if !was_there {
                        let pid = runtime.living(uuid).map(|process| process.of.pid);
                        let body = json!({"node": slot, "state": "running", "uuid": uuid, "child": pid});
                        self.journal.event(NODE_EVENT, body);
                    }
                    return Ok(());
                }
                Err(NotStarted::NoEnvironment) => return Err((Outcome::NeverRan, Creation::NoEnvironment, None)),
                Err(NotStarted::Refused(error)) => error,
            };
            if !error.is_temporary() {
                let hint = error.hint().map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
                let outcome = Outcome::Failed { code: CANNOT_START };
                return Err((outcome, Creation::Refused, Some(format!("{}{hint}", error.without_advice()))));
            }
            let why = error.without_advice();
            // A place becomes free, or the daemon stops and the next one continues.
            if !has_told {
                let body = json!({"node": slot, "state": "waiting", "uuid": uuid, "reason": why});
                self.journal.event(NODE_EVENT, body);
                has_told = true;
            }
            self.attempt.refused(why);
            tokio::time::sleep(RETRY_EVERY).await;
        }
    }

    /// Waits for the end of the process, and returns how it ended and why.
    async fn end_of_process(&self, runtime: &Arc<Runtime>) -> ProcessEnd {
        let uuid = self.uuid;
        let mut unread = 0;
        loop {
            let waited = runtime.wait(&uuid.to_string(), None).await;
            match runtime.outcome_of(uuid).await {
                Ok(Some(ended)) if waited.is_ok() && runtime.living(uuid).is_none() => return ended,
                Err(error) if error.code() == ErrorCode::NotFound => return ProcessEnd::of(Outcome::Halted, None),
                // It was resumed since.
                Ok(_) => unread = 0,
                Err(error) if runtime.living(uuid).is_none() && unread >= UNREAD_MAX => {
                    let note = format!("it has ended, and how cannot be read: {error}");
                    return ProcessEnd::of(Outcome::Failed { code: UNKNOWN_END }, Some(note));
                }
                Err(_) => unread += 1,
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
    }

    async fn start(&self, runtime: &Arc<Runtime>) -> Result<(), NotStarted> {
        let uuid = self.uuid;
        // A person may have resumed it while the tree was over.
        runtime.take_back(uuid, self.parent);
        let _paused = self.is_paused.then(|| runtime.start_paused(uuid));
        let is_new = matches!(runtime.presence(uuid).await?, Presence::Never);
        let is_resumed = matches!(self.start, Start::Resume { .. });
        if !is_new && !is_resumed {
            return Ok(());
        }
        if runtime.living(uuid).is_none() {
            runtime.merge_nodes(&self.cwd, &self.merges).await?;
        }
        match &self.start {
            Start::New => self.begin(runtime).await,
            // It could not be created when it was started, and can now.
            Start::Resume { .. } if is_new => self.begin(runtime).await,
            Start::Resume { input: None, limits } if *limits == Limits::default() && runtime.needs_no_resume(uuid) => {
                Ok(())
            }
            Start::Resume { input, limits } => {
                let env = self.environment_after(runtime, uuid).await?;
                let request = ResumeRequest { input: input.clone(), limits: *limits, env, ..ResumeRequest::default() };
                let cause = Cause::process(Why::Supervisor, self.parent.of.pid);
                let id = format!("flow-{}-{}", self.parent.uuid, self.number);
                runtime.resume_for(cause, &uuid.to_string(), request, Some(id)).await?;
                Ok(())
            }
            Start::Fork { from, from_step, input, limits } => {
                let request = ResumeRequest {
                    limits: *limits,
                    fork: Some(uuid),
                    from_step: *from_step,
                    input: input.clone(),
                    name: Some(self.name()),
                    workspace: self.fork_workspace(),
                    env: self.environment_after(runtime, *from).await?,
                    ..ResumeRequest::default()
                };
                let (runtime, parent, from) = (Arc::clone(runtime), self.parent.uuid, *from);
                let forked = {
                    let runtime = Arc::clone(&runtime);
                    async move { runtime.fork_below(Some(parent), from, uuid, request).await }
                };
                runtime.to_the_end(forked).await?;
                Ok(())
            }
        }
    }

    async fn begin(&self, runtime: &Arc<Runtime>) -> Result<(), NotStarted> {
        let env = self.environment(runtime).await?;
        match &self.run {
            Run::Task(task) => self.create(runtime, task, env).await?,
            Run::Supervisor(file) => self.supervise(runtime, file, env).await?,
        }
        Ok(())
    }

    /// Returns the environment of a new process: that of its tree, and the results that it is given.
    async fn environment(&self, runtime: &Arc<Runtime>) -> Result<Environment, NotStarted> {
        let tree = self.parent.uuid;
        if runtime.has_lost_environment(tree).await? {
            return Err(NotStarted::NoEnvironment);
        }
        let mut env = runtime.environment_of(tree);
        if let Run::Task(task) = &self.run {
            for (name, value) in &task.variables {
                env.set(name.clone(), value.clone());
            }
        }
        Ok(env)
    }

    /// Returns what a process that continues after another one, or after its own end, is given if the environment of that
    /// is lost.
    async fn environment_after(&self, runtime: &Arc<Runtime>, last: Uuid) -> Result<Environment, NotStarted> {
        if runtime.environment_of(last).is_empty() {
            return self.environment(runtime).await;
        }
        Ok(Environment::default())
    }

    /// Where a fork works: on a copy only if its node does, because nobody would merge it otherwise.
    fn fork_workspace(&self) -> Option<WorkspaceKind> {
        match &self.run {
            Run::Task(Task { workspace: Some(WorkspaceKind::Own), .. }) => None,
            Run::Task(_) | Run::Supervisor(_) => Some(WorkspaceKind::Here),
        }
    }

    /// The name of the process: that of its slot, and the id of its tree, because another tree may have the same slots.
    fn name(&self) -> String {
        format!("{}.{}", self.slot, short_id::short(self.parent.uuid))
    }

    async fn create(&self, runtime: &Arc<Runtime>, task: &Task, env: Environment) -> Result<()> {
        match &task.work {
            Work::Agent { intent, model, agent, allow } => {
                let policy = allow.iter().map(|rule| (rule.clone(), "allow".to_owned())).collect();
                let request = RunRequest { policy, ..self.agent(task, intent, (agent.clone(), model.clone())) };
                runtime.run_below(Some(self.parent), request).await.map(|_| ())
            }
            Work::Cli { cli, intent, model } => {
                let request = self.agent(task, intent, (Some(cli.clone()), model.clone()));
                runtime.run_below(Some(self.parent), request).await.map(|_| ())
            }
            Work::Exec { command } => {
                if task.result_in_command {
                    let message = "its command has a result in its text, as files of an earlier version could: list the \
                                   node in `results`, and start a new run with `relive compose up`";
                    return Err(Error::new(ErrorCode::Invalid, message));
                }
                let request = ExecRequest {
                    uuid: self.uuid,
                    name: Some(self.name()),
                    argv: command.clone(),
                    env,
                    cwd: directory_of(&self.cwd, task.cwd.as_deref()),
                    stdio: Stdio::Null,
                    gate: false,
                    namespace: relive_api::Namespace::default(),
                    isolation: task.isolation.unwrap_or_default(),
                    namespaces: Vec::new(),
                    network: task.network.clone(),
                    limits: task.limits,
                    resources: relive_api::Resources::default(),
                    foreground: false,
                    one_output: false,
                    shell: None,
                    enter: None,
                };
                let workspace = task.workspace.unwrap_or(WorkspaceKind::Here);
                runtime.exec_below(Some(self.parent), request, workspace).await.map(|_| ())
            }
        }
    }

    /// The request for an agent of that name and model.
    fn agent(&self, task: &Task, intent: &str, (agent, model): (Option<String>, Option<String>)) -> RunRequest {
        RunRequest {
            uuid: self.uuid,
            name: Some(self.name()),
            intent: intent.to_owned(),
            context: None,
            model,
            agent,
            system_prompt: None,
            cwd: directory_of(&self.cwd, task.cwd.as_deref()),
            env: Environment::default(),
            shell: None,
            limits: task.limits,
            on_in_doubt: None,
            on_budget: None,
            policy: BTreeMap::new(),
            yes: false,
            workspace: task.workspace,
            isolation: task.isolation,
            network: task.network.clone(),
            foreground: true,
            no_gateway: false,
            terminal: None,
            resources: relive_api::Resources::default(),
        }
    }

    async fn supervise(&self, runtime: &Arc<Runtime>, file: &SupervisorFile, environment: Environment) -> Result<()> {
        let flow = NewFlow {
            uuid: self.uuid,
            name: Some(self.name()),
            definition: Definition::Supervisor(file.clone()),
            intent: format!("supervise {}", self.slot),
            cwd: self.cwd.clone(),
            environment,
            shell: None,
            limits: Limits::default(),
            request: format!("{}:{}", self.parent.uuid, self.slot),
        };
        runtime.create_flow(Some(self.parent), flow).await.map(|_| ())
    }
}

/// The directory of a task, below that of its tree unless it is absolute.
pub(super) fn directory_of(tree: &str, cwd: Option<&str>) -> String {
    let joined = cwd.map_or_else(|| Path::new(tree).to_owned(), |cwd| Path::new(tree).join(cwd));
    // `.` and doubled slashes are dropped. `..` stays: what it means depends on links.
    joined.components().collect::<std::path::PathBuf>().display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_shown_without_dots_and_doubled_slashes() {
        let check = |tree: &str, cwd: Option<&str>, expect: &str| assert_eq!(directory_of(tree, cwd), expect);
        check("/work/", None, "/work");
        check("/work/.", Some("./a//b/."), "/work/a/b");
        check("/work", Some("/other/./c/"), "/other/c");
        check("/work", Some("../up"), "/work/../up");
    }
}
