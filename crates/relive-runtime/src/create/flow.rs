//! Trees: the process that drives one.

use std::sync::Arc;

use relive_api::{Created, Environment, FlowKind, FlowRequest, Inherited, Isolated};
use relive_core::{ErrorCode, Limits, Pid, Uuid};
use relive_flow::file::FILE_MAX;
use relive_flow::{ComposeFile, Definition, FileError, SupervisorFile};
use relive_journal::payload::Json;
use relive_journal::policy::Policy;
use relive_journal::record::{Body, FlowRecord, OnBudget, Spawned};

use super::{Draft, check_directory, check_environment, request_hash};
use crate::error::{Error, Result};
use crate::lookup::Presence;
use crate::names::check_name;
use crate::runtime::{ProcessRef, Runtime};

/// A tree whose file was understood.
#[derive(Debug)]
pub(crate) struct NewFlow {
    pub(crate) uuid: Uuid,
    pub(crate) name: Option<String>,
    pub(crate) definition: Definition,
    /// What it is, for people.
    pub(crate) intent: String,
    pub(crate) cwd: String,
    pub(crate) environment: Environment,
    /// The settings of the shell in which its command was typed; if absent those of the process above.
    pub(crate) shell: Option<Inherited>,
    pub(crate) limits: Limits,
    /// Tells one request from another.
    pub(crate) request: String,
}

impl Runtime {
    /// Starts a tree, below the process that asks for it. Asking again with the same UUID starts nothing.
    pub(crate) async fn start_flow(
        self: &Arc<Self>,
        parent: Option<ProcessRef>,
        request: FlowRequest,
    ) -> Result<Created> {
        let runtime = Arc::clone(self);
        self.to_the_end(async move { runtime.read_flow(parent, request).await }).await
    }

    async fn read_flow(self: &Arc<Self>, parent: Option<ProcessRef>, request: FlowRequest) -> Result<Created> {
        check_directory(&request.cwd)?;
        let hash = request_hash(&FlowRequest { env: Environment::default(), ..request.clone() });
        let FlowRequest { uuid, name, kind, file, text, cwd, env, shell, limits } = request;
        if text.len() > FILE_MAX {
            return Err(Error::new(ErrorCode::Invalid, format!("{file} is longer than {FILE_MAX} bytes")));
        }
        // A long file takes its time.
        let parsed = self.pools.reads.run(move || parse(kind, &file, &text)).await?;
        let (definition, intent) = parsed.map_err(|error| Error::new(ErrorCode::Invalid, error.to_string()))?;
        let flow = NewFlow { uuid, name, definition, intent, cwd, environment: env, shell, limits, request: hash };
        self.write_flow(parent, flow).await
    }

    pub(crate) async fn create_flow(self: &Arc<Self>, parent: Option<ProcessRef>, flow: NewFlow) -> Result<Created> {
        let runtime = Arc::clone(self);
        self.to_the_end(async move { runtime.write_flow(parent, flow).await }).await
    }

    async fn write_flow(self: &Arc<Self>, parent: Option<ProcessRef>, flow: NewFlow) -> Result<Created> {
        let NewFlow { uuid, name, definition, intent, cwd, environment, shell, limits, request } = flow;
        self.reload_settings().await;
        check_name(name.as_deref())?;
        check_environment(&environment)?;
        let body = match definition {
            Definition::Compose(_) => "compose",
            Definition::Supervisor(_) => "supervisor",
        };
        let above = self.above(parent).await?;
        let cwd = self.directory_below(&above, uuid, cwd).await?;
        if matches!(self.presence(uuid).await?, Presence::Never) {
            self.has_room_for(&definition, above.depth)?;
        }
        let internal = |error: serde_json::Error| Error::new(ErrorCode::Internal, error.to_string());
        let definition = serde_json::to_string(&definition).and_then(|text| Json::parse(&text)).map_err(internal)?;
        let record = FlowRecord { definition: Some(definition), event: None, req: None };
        let draft = Draft {
            spawned: Spawned {
                uuid,
                name,
                parent_uuid: parent.map(|parent| parent.uuid),
                budget_uuid: None,
                origin: None,
                body: body.to_owned(),
                intent: intent.into(),
                program: None,
                cwd,
                isolated: above.isolated(Isolated::default()),
                limits,
                on_in_doubt: self.live.now().on_in_doubt,
                on_budget: OnBudget::End,
                env_names: environment.names().map(str::to_owned).collect(),
                policy: Policy::default(),
                root_uuid: above.root_uuid,
                depth: above.depth,
                workspace: None,
                shell: above.shell(shell),
                request: Some(request),
            },
            meta: None,
            environment,
            first: None,
            parent: Pid::RUNTIME,
            records: vec![Body::Flow(record)],
            creation: None,
            is_new: false,
        };
        self.create_below(above.parent, draft).await
    }

    /// Refuses a tree that could never run as a whole.
    fn has_room_for(&self, definition: &Definition, depth: u32) -> Result<()> {
        let limits = self.live.now().trees;
        let invalid = |message| Error::new(ErrorCode::Invalid, message).with_hint("relive config edit");
        definition.fits(limits.children_max).map_err(|crowded| invalid(crowded.to_string()))?;
        let deepest = depth.saturating_add(definition.levels());
        if deepest > limits.depth_max {
            let max = limits.depth_max;
            return Err(invalid(format!(
                "its processes would be {deepest} levels deep, but limits.max_depth is {max}"
            )));
        }
        Ok(())
    }
}

/// Returns what a file says, and what the tree is, for people.
fn parse(kind: FlowKind, file: &str, text: &str) -> Result<(Definition, String), FileError> {
    match kind {
        FlowKind::Compose => {
            let parsed = ComposeFile::parse(file, text)?;
            let intent = format!("compose {file} ({})", counted(parsed.nodes.len(), "node"));
            Ok((Definition::Compose(parsed), intent))
        }
        FlowKind::Supervisor => {
            let parsed = SupervisorFile::parse(file, text)?;
            let intent = format!("supervise {file} ({})", counted(parsed.children.len(), "process"));
            Ok((Definition::Supervisor(parsed), intent))
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    let end = match (count, what.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{count} {what}{end}")
}
