//! Programs.

use std::sync::Arc;

use relive_api::{Created, Environment, ExecRequest, ExecStarted, Isolated, WorkspaceKind};
use relive_core::{ErrorCode, Limits, Pid, Program};
use relive_journal::policy::Policy;
use relive_journal::record::{OnBudget, Spawned};

use super::{Above, Draft, check_directory, check_environment, request_hash};
use crate::error::{Error, Result};
use crate::names::check_name;
use crate::runtime::{ProcessRef, Runtime};

impl Runtime {
    pub(super) async fn create_program(
        self: &Arc<Self>,
        parent: Option<ProcessRef>,
        request: ExecRequest,
        workspace: WorkspaceKind,
    ) -> Result<ExecStarted> {
        let hash = request_hash(&ExecRequest { env: Environment::default(), ..request.clone() });
        if request.enter.is_some()
            && let Some(created) = self.created_before(request.uuid, &hash).await?
        {
            // Before its session is looked for again: that may have ended.
            return self.started(created).await;
        }
        let above = self.above(parent).await?;
        let (request, entered) = self.find_entered(request, &above).await?;
        check_exec(&request)?;
        let held = self.workspaces.hold_creation(request.uuid).await;
        let ((), before) = tokio::join!(self.reload_settings(), self.created_before(request.uuid, &hash));
        if let Some(created) = before? {
            return self.started(created).await;
        }
        let cwd = self.directory_below(&above, request.uuid, request.cwd).await?;
        let request = ExecRequest { cwd, ..request };
        let mut draft = self.draft_of_program(&above, parent, request, workspace).await?;
        draft.spawned.request = Some(hash);
        draft.is_new = true;
        if let Some(program) = &mut draft.spawned.program {
            program.enter = entered;
        }
        let created = self.create_below(above.parent, draft).await?;
        drop(held);
        self.started(created).await
    }

    async fn draft_of_program(
        self: &Arc<Self>,
        above: &Above,
        parent: Option<ProcessRef>,
        request: ExecRequest,
        workspace: WorkspaceKind,
    ) -> Result<Draft> {
        let program = program_of(&request, above);
        let ExecRequest { uuid, name, env, cwd, isolation, namespaces, network, limits, resources, .. } = request;
        let network = self.network(isolation, network);
        let allow_degraded = resources.allow_degraded;
        let mut isolated = above.isolated(Isolated { isolation, namespaces, network, within: None, allow_degraded });
        let place = self.place_for_program(uuid, cwd, workspace, &mut isolated).await?;
        Ok(Draft {
            spawned: Spawned {
                uuid,
                name,
                parent_uuid: parent.map(|parent| parent.uuid),
                budget_uuid: None,
                origin: None,
                body: "exec".to_owned(),
                intent: program.command_line().into(),
                program: Some(program),
                cwd: place.cwd,
                isolated,
                limits: Limits { timeout_ms: limits.timeout_ms, ..Limits::default() },
                on_in_doubt: self.live.now().on_in_doubt,
                on_budget: OnBudget::End,
                env_names: env.names().map(str::to_owned).collect(),
                policy: Policy::default(),
                root_uuid: above.root_uuid,
                depth: above.depth,
                workspace: place.own,
                shell: None,
                request: None,
            },
            meta: None,
            environment: env,
            first: None,
            parent: Pid::RUNTIME,
            records: place.records,
            creation: None,
            is_new: false,
        })
    }

    /// Answers when the session of a program does, or it has ended.
    async fn started(&self, created: Created) -> Result<ExecStarted> {
        let Created { pid, uuid } = created;
        let directory = match self.live_session(uuid).await {
            Some(live) => live.folder,
            None => self.last_session(uuid).await?.unwrap_or_default(),
        };
        Ok(ExecStarted { pid, uuid, folder: directory.display().to_string() })
    }
}

fn program_of(request: &ExecRequest, above: &Above) -> Program {
    Program {
        argv: request.argv.clone(),
        stdio: request.stdio,
        gate: request.gate,
        namespace: request.namespace,
        resources: request.resources,
        foreground: request.foreground,
        one_output: request.one_output,
        shell: above.shell(request.shell.clone()),
        enter: None,
    }
}

/// Reports the mistakes in a request to run a program.
fn check_exec(request: &ExecRequest) -> Result<()> {
    check_name(request.name.as_deref())?;
    check_environment(&request.env)?;
    check_directory(&request.cwd)?;
    if request.argv.first().is_none_or(String::is_empty) {
        return Err(Error::new(ErrorCode::Invalid, "there is no program to run"));
    }
    if let Some(message) = relive_api::too_many_arguments(&request.argv) {
        return Err(Error::new(ErrorCode::Invalid, message));
    }
    if request.argv.iter().any(|word| word.contains('\0')) {
        return Err(Error::new(ErrorCode::Invalid, "an argument cannot contain a NUL byte"));
    }
    Ok(())
}
