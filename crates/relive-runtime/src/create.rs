//! New processes: agents, programs, and the children of agents.
//!
//! A process is keyed by the UUID that its client chose: asking again reaches the same owner and gets the process that
//! is there. It is in the table only when its directory is on the disk, and from then on it runs whether or not its
//! client waits for the answer.

mod below;
mod child;
mod cli;
mod flow;
mod program;
mod publish;

pub(crate) use below::Above;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_api::{Created, Environment, ExecRequest, ExecStarted, RunRequest, StartCancelled, WorkspaceKind};
use relive_core::{ErrorCode, Limits, Pid, Uuid};
use relive_journal::data::SpawnRequest;
use relive_journal::record::{Body, Input, OnBudget, OpenedBy, Spawned};
use relive_journal::recovery::OnInDoubt;
use relive_journal::{Hash, Opening, ProcInfo, ProcessMeta};
use relive_llm::Model;

use crate::bodies::Prepared;
use crate::error::{Error, Result};
use crate::instructions::{self, Gathered, Named, Sources};
use crate::lookup::Presence;
use crate::names::check_name;
use crate::owner::Lane;
use crate::pools::FILE_WITHIN;
use crate::runtime::{ProcessRef, Runtime};
use crate::send::INTENT_ID;
use crate::spec::{self, raised};
use crate::subtree::Creation;

pub(crate) use cli::model_of_cli;
pub(crate) use flow::NewFlow;

const MODEL_HINT: &str = "name one: relive run --model anthropic/claude-sonnet-4-5 \"...\", or set default_model in \
                          config.yaml; `relive demo` needs none";

/// A process to be created.
struct Draft {
    spawned: Spawned,
    meta: Option<ProcessMeta>,
    environment: Environment,
    /// What it is told first; a program is told nothing.
    first: Option<String>,
    parent: Pid,
    /// What else its journal begins with.
    records: Vec<Body>,
    /// Set for a child: signals to the subtree of its parent reach it from then on.
    creation: Option<Creation>,
    /// Whether it was checked that no process has its UUID, by a request that keeps others from making the same one.
    is_new: bool,
}

impl Runtime {
    /// Creates an agent. Asking again with the same UUID creates nothing.
    pub async fn run(self: &Arc<Self>, request: RunRequest) -> Result<Created> {
        self.run_below(None, request).await
    }

    /// Creates an agent, below the process that asks for it.
    pub(crate) async fn run_below(
        self: &Arc<Self>,
        parent: Option<ProcessRef>,
        request: RunRequest,
    ) -> Result<Created> {
        let runtime = Arc::clone(self);
        self.to_the_end(async move { runtime.create_agent(parent, request).await }).await
    }

    /// Creates a program, and answers when its session does or it has ended. Asking again with the same UUID creates
    /// nothing.
    pub async fn exec(self: &Arc<Self>, request: ExecRequest) -> Result<ExecStarted> {
        self.exec_below(None, request, WorkspaceKind::Here).await
    }

    /// Creates a program, below the process that asks for it.
    pub(crate) async fn exec_below(
        self: &Arc<Self>,
        parent: Option<ProcessRef>,
        request: ExecRequest,
        workspace: WorkspaceKind,
    ) -> Result<ExecStarted> {
        let runtime = Arc::clone(self);
        self.to_the_end(async move { runtime.create_program(parent, request, workspace).await }).await
    }

    /// Cancels the creation of a process, whether or not the request for it has arrived. Returns the process if it exists: then
    /// it was created before.
    pub(crate) async fn cancel_start(&self, uuid: Uuid) -> Result<StartCancelled> {
        self.workspaces.cancel_start(uuid);
        // Until the work for it has ended.
        drop(self.workspaces.hold_creation(uuid).await);
        let created = match self.presence(uuid).await? {
            Presence::Here => self.created_before(uuid, "").await?,
            Presence::Never | Presence::Collected => None,
        };
        Ok(StartCancelled { pid: created.map(|created| created.pid) })
    }

    async fn create_agent(self: &Arc<Self>, parent: Option<ProcessRef>, request: RunRequest) -> Result<Created> {
        self.reload_settings().await;
        check_run(&request)?;
        let (on_in_doubt, on_budget) = words_of(&request)?;
        let above = self.above(parent).await?;
        // Mistakes in the request are told before any file is read.
        policy_below(&above, &self.live.now().policy, &request)?;
        let hash = request_hash(&RunRequest { env: Environment::default(), ..request.clone() });
        let _held = self.workspaces.hold_creation(request.uuid).await;
        if let Some(created) = self.created_before(request.uuid, &hash).await? {
            // Before its files are read again: they may have gone.
            return Ok(created);
        }
        // Before anything in the directory is read.
        let request = self.run_in_area(&above, request).await?;
        let (file, files) = match self.find_agent(&request).await? {
            Named::Native(native) => {
                check_native(&request)?;
                *native
            }
            Named::Cli(cli) => return self.create_cli(above, parent, request, *cli, hash).await,
        };
        let (cwd, system_prompt) = (request.cwd.clone().into(), request.system_prompt.clone());
        let asked = Sources { cwd, file, files, system_prompt };
        let Gathered { model, system_prompt, tools, allow, isolation, network, limits, files, warning } =
            self.pools.files.run_within(FILE_WITHIN, move || instructions::gather(asked)).await??;
        let policy = policy_below(&above, &crate::policy::with_agent(&self.live.now().policy, &allow), &request)?;
        warning.into_iter().for_each(|warning| self.warn_once(warning));
        let mut isolated = self.agent_isolation(&above, &request, (isolation, network)).await?;
        let model = self.model_below(&above, request.model.or(model), &request.cwd).await?;
        self.check_cost_of_script(request.limits, &model, request.cwd.as_ref(), (request.uuid, &request.env)).await?;
        let mut meta = ProcessMeta::new(model, system_prompt, tools);
        meta.instructions = files;
        meta.note_isolation(isolated.as_ref());
        let place = self.place_for_run(request.uuid, request.cwd, request.workspace, (parent, &mut isolated)).await?;
        let shell = above.shell(request.shell);
        let environment = above.environment.unwrap_or(request.env);
        self.create_with_copy(
            above.parent,
            Draft {
                spawned: Spawned {
                    uuid: request.uuid,
                    name: request.name,
                    parent_uuid: parent.map(|parent| parent.uuid),
                    budget_uuid: None,
                    origin: None,
                    body: "agent".to_owned(),
                    program: None,
                    intent: request.intent.clone().into(),
                    cwd: place.cwd,
                    isolated,
                    limits: raised(limits, request.limits),
                    on_in_doubt: on_in_doubt.unwrap_or(self.live.now().on_in_doubt),
                    on_budget: on_budget.unwrap_or(OnBudget::End),
                    env_names: environment.names().map(str::to_owned).collect(),
                    policy,
                    root_uuid: above.root_uuid,
                    depth: above.depth,
                    workspace: place.own,
                    shell,
                    request: Some(hash),
                },
                meta: Some(meta),
                environment,
                first: Some(instructions::with_context(&request.intent, request.context.as_deref(), request.uuid)),
                parent: Pid::RUNTIME,
                records: place.records,
                creation: None,
                is_new: true,
            },
        )
        .await
    }

    async fn run_in_area(&self, above: &Above, request: RunRequest) -> Result<RunRequest> {
        let cwd = self.directory_below(above, request.uuid, request.cwd).await?;
        Ok(RunRequest { cwd, ..request })
    }

    async fn model_below(&self, above: &Above, chosen: Option<String>, cwd: &str) -> Result<String> {
        let model = self.model_or_default(chosen)?;
        self.model_in(above.area(&self.bodies.agent.isolations), model, cwd).await
    }

    fn model_or_default(&self, chosen: Option<String>) -> Result<String> {
        let model = chosen.or_else(|| self.live.now().default_model.clone());
        model.ok_or_else(|| Error::new(ErrorCode::Invalid, "no model is set").with_hint(MODEL_HINT))
    }

    async fn find_agent(&self, request: &RunRequest) -> Result<Named> {
        let (cwd, config, name) = (PathBuf::from(&request.cwd), self.config.clone(), request.agent.clone());
        let least = self.live.now().isolation.clone();
        let find = move || instructions::find(&cwd, &config, &least, name.as_deref());
        self.pools.files.run_within(FILE_WITHIN, find).await?
    }

    /// Creates an agent, or removes the copy that was made for it.
    async fn create_with_copy(self: &Arc<Self>, parent: Option<ProcessRef>, draft: Draft) -> Result<Created> {
        let (uuid, has_copy) = (draft.spawned.uuid, draft.spawned.workspace.is_some());
        let created = self.create_below(parent, draft).await;
        if created.is_err() && has_copy {
            self.discard_copy(uuid).await;
        }
        created
    }

    async fn create(self: &Arc<Self>, draft: Draft) -> Result<Created> {
        let Draft { spawned, meta, environment, first, parent, records, creation, is_new } = draft;
        let uuid = spawned.uuid;
        self.admit_one_more()?;
        // Prepared before the turn: keys may take their time.
        let prepared_model = match &meta {
            Some(meta) => {
                let model = self.credentials.model(&meta.model, spawned.cwd.as_ref(), uuid, &environment).await?;
                self.can_be_paid(&meta.model, model.as_ref(), &spawned).await?;
                Some(model)
            }
            None => None,
        };
        let mut turn = self.turn(uuid, Lane::Verb).await?;
        let hash = spawned.request.clone().unwrap_or_default();
        if !is_new && let Some(created) = self.created_before(uuid, &hash).await? {
            return Ok(created);
        }
        let _name = self.hold_name(spawned.name.as_deref(), uuid)?;
        self.workspaces.check_start(uuid)?;
        let model = meta.as_ref().map(|meta| meta.model.clone());
        let input = first.map(|text| Input { id: INTENT_ID.to_owned(), from: spawned.parent_uuid, text: text.into() });
        let (boot_id, now) = (self.clock.boot_id(), self.moment());
        let environments = Arc::clone(&self.environments);
        let inherited = creation.as_ref().and_then(Creation::inherited).and_then(|inherited| inherited.record(now.at));
        let starts = inherited.is_none();
        let own_socket = starts && has_socket(&spawned);
        let runtime = Arc::clone(self);
        let written = self.on_journal(move |data| {
            if data.is_here(uuid) {
                // Before anything of that process is replaced.
                return Err(Error::new(ErrorCode::Conflict, format!("{uuid} exists")));
            }
            let pid = data.next_pid()?;
            data.note_pid(pid, uuid);
            // First, so that a process that is there has it.
            environments.put(uuid, &environment)?;
            let opening = Opening { pid, by: OpenedBy::Spawn, boot_id, now, req: None, seen: None, cause: None };
            let files = meta.as_ref().map(|meta| meta.instructions.clone()).unwrap_or_default();
            let records = records.into_iter().chain(inherited).collect();
            let spawned = data.spawn(SpawnRequest { opening, spawned, meta, input, records });
            let mut writer = spawned.inspect_err(|_| {
                environments.remove(uuid);
            })?;
            for file in files {
                // An event that is not written is missed by nobody who has the meta file.
                let _ = writer.append_event(now.at, 0, "instructions", &file);
            }
            let spec = spec::from_history(writer.history(), pid, parent, model)?;
            let body = runtime.bodies.of(spec.body).filter(|_| starts);
            let prepared = body.map(|body| body.read_ahead(&mut writer)).unwrap_or_default();
            Ok::<_, Error>((spec, writer, prepared))
        });
        // While it is written: the program needs it at once.
        let open = async { own_socket.then(|| self.self_sockets.open(uuid, None).ok()).flatten() };
        let (written, socket) = tokio::join!(written, open);
        let (spec, writer, prepared) = match written.map_err(Error::from).and_then(|written| written) {
            Ok(written) => written,
            Err(error) => {
                drop(socket);
                self.self_sockets.remove(uuid);
                return Err(error);
            }
        };
        let pid = spec.pid;
        turn.state.prepared = Prepared { model: prepared_model, socket, ..prepared };
        if starts {
            turn.publish_new(spec, writer).await?;
        } else {
            turn.publish_stopped(spec, writer).await?;
        }
        drop(turn);
        drop(creation);
        Ok(Created { pid, uuid })
    }

    /// Refuses a limit of dollars, its own or an ancestor's, where the price is not known.
    pub(crate) async fn can_be_paid(&self, name: &str, model: &dyn Model, spawned: &Spawned) -> Result<()> {
        // The calls of a script cost nothing, which is within all limits.
        if name.starts_with("script/") || model.has_price() {
            return Ok(());
        }
        let mut limited = spawned.limits.max_cost_usd.is_some();
        let mut above = spawned.payer();
        while let Some(uuid) = above.filter(|_| !limited) {
            // One that was collected has no limits any more.
            let Ok((history, _)) = self.on_journal(move |data| data.history(uuid)).await? else { break };
            limited = history.limits.max_cost_usd.is_some();
            above = history.identity.and_then(|identity| identity.spawned.payer());
        }
        if limited {
            let message = format!("the price of {name} is not known, so a limit in dollars cannot be enforced");
            let hint = "set it under `prices:` in config.yaml, or use --max-tokens";
            return Err(Error::new(ErrorCode::Invalid, message).with_hint(hint));
        }
        Ok(())
    }

    /// Refuses a limit in dollars that somebody asks for, if no call of the script has a cost.
    pub(crate) async fn check_cost_of_script(
        &self,
        limits: Limits,
        model: &str,
        cwd: &Path,
        (uuid, environment): (Uuid, &Environment),
    ) -> Result<()> {
        if limits.max_cost_usd.is_none() || !model.starts_with("script/") {
            return Ok(());
        }
        if self.credentials.model(model, cwd, uuid, environment).await?.has_price() {
            return Ok(());
        }
        let message = format!("no turn of {model} has a `cost_usd`, so a limit in dollars cannot be enforced");
        let hint = "use --max-tokens, or add `usage: {cost_usd: 0.01}` to its turns";
        Err(Error::new(ErrorCode::Invalid, message).with_hint(hint))
    }

    /// Returns the process that this request created before; refuses a different request with the same UUID.
    pub(crate) async fn created_before(&self, uuid: Uuid, hash: &str) -> Result<Option<Created>> {
        match self.presence(uuid).await? {
            Presence::Here => {}
            Presence::Never => return Ok(None),
            Presence::Collected => {
                let message = format!("{uuid} was used before and garbage collected");
                return Err(Error::new(ErrorCode::Conflict, message));
            }
        }
        let (history, _) = self.on_journal(move |data| data.history(uuid)).await??;
        let first = history.identity.as_ref().and_then(|identity| identity.spawned.request.as_deref());
        if first.is_some_and(|first| !hash.is_empty() && first != hash) {
            let message = format!("{uuid} was created by a different request");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive info {uuid}")));
        }
        let last = ProcInfo::of(&history).and_then(|info| info.pids.last().copied());
        let pid = self.living(uuid).map(|process| process.of.pid).or(last);
        Ok(pid.map(|pid| Created { pid, uuid }))
    }

    pub(crate) fn refuse_if_stopping(&self) -> Result<()> {
        if self.is_stopping() {
            return Err(Error::new(ErrorCode::Unavailable, "the daemon is stopping").with_hint("try again in a moment"));
        }
        Ok(())
    }

    pub(crate) fn admit_one_more(&self) -> Result<()> {
        self.refuse_if_stopping()?;
        let state = self.lock();
        let max = self.live.now().processes_max;
        if state.table.len() >= max {
            let message = format!("the limit of {max} processes is reached");
            return Err(
                Error::new(ErrorCode::Exhausted, message).with_hint("raise limits.max_processes in config.yaml")
            );
        }
        Ok(())
    }
}

/// Tells whether the programs of a new process have a socket in a directory of its own.
fn has_socket(spawned: &Spawned) -> bool {
    spawned.program.as_ref().is_some_and(|program| program.enter.is_none())
}

/// Tells one request from another. Its environment is left out: it may hold keys.
fn request_hash(request: &impl serde::Serialize) -> String {
    Hash::of(&serde_json::to_vec(request).unwrap_or_default()).to_string()
}

/// Returns what an agent may do: no more than the process above it, or as configured if there is none.
fn policy_below(
    above: &Above,
    configured: &relive_journal::policy::Policy,
    request: &RunRequest,
) -> Result<relive_journal::policy::Policy> {
    match &above.policy {
        None => crate::policy::resolve(configured, request),
        Some(inherited) => crate::policy::resolve_below(inherited, request),
    }
}

fn check_run(request: &RunRequest) -> Result<()> {
    check_name(request.name.as_deref())?;
    if request.intent.trim().is_empty() {
        return Err(Error::new(ErrorCode::Invalid, "the intent is empty: say what the agent is to do"));
    }
    check_environment(&request.env)?;
    check_directory(&request.cwd)
}

/// Refuses what only CLI agents can do.
fn check_native(request: &RunRequest) -> Result<()> {
    if request.terminal.is_some() {
        let message = "-t needs a CLI agent, which has a full-screen interface of its own";
        return Err(Error::new(ErrorCode::Invalid, message).with_hint("relive run --agent claude -t"));
    }
    if request.resources.has_limits() {
        let message = "--memory, --pids and --cpu are limits of CLI agents and programs";
        return Err(Error::new(ErrorCode::Invalid, message).with_hint("relive exec --memory 2G -- make test"));
    }
    Ok(())
}

fn check_directory(cwd: &str) -> Result<()> {
    if Path::new(cwd).is_absolute() {
        return Ok(());
    }
    Err(Error::new(ErrorCode::Invalid, format!("the working directory `{cwd}` is not an absolute path")))
}

pub(crate) fn check_environment(environment: &Environment) -> Result<()> {
    match environment.impossible() {
        Some(name) => {
            let message = format!("`{}` is not a valid environment variable", name.escape_debug());
            Err(Error::new(ErrorCode::Invalid, message))
        }
        None => Ok(()),
    }
}

fn words_of(request: &RunRequest) -> Result<(Option<OnInDoubt>, Option<OnBudget>)> {
    let on_in_doubt = parse_word(request.on_in_doubt.as_deref(), "on_in_doubt")?;
    Ok((on_in_doubt, parse_word(request.on_budget.as_deref(), "on_budget")?))
}

fn parse_word<T: serde::de::DeserializeOwned>(word: Option<&str>, field: &str) -> Result<Option<T>> {
    let Some(word) = word else { return Ok(None) };
    let parsed = serde_json::from_value(serde_json::Value::String(word.to_owned()));
    parsed.map(Some).map_err(|error| Error::new(ErrorCode::Invalid, format!("{field}: {error}")))
}
