//! New processes.

use std::path::Path;
use std::sync::Arc;

use relive_agent::model::Model;
use relive_agent::tool::ChildRequest;
use relive_api::{Created, Environment, RunRequest};
use relive_core::{Effects, ErrorCode, Generation, Limits, Pid, Spec, Uuid};
use relive_journal::data::{Known, SpawnRequest};
use relive_journal::record::{Input, OnBudget, OpenedBy, Spawned};
use relive_journal::{History, Opening, ProcessMeta, Writer};

use crate::error::{Error, Result};
use crate::instructions::{self, Asked, Told};
use crate::resume::raised;
use crate::runtime::{Runtime, State, Who};
use crate::trees::Kin;

const NAME_MAX: usize = 64;
const MODEL_HINT: &str = "name one: relive run --model anthropic/claude-sonnet-4-5 \"...\", or set default_model in \
                          config.yaml; `relive demo` needs none";

impl Runtime {
    /// Begins an agent. Asking again with the same UUID begins nothing.
    pub async fn run(self: &Arc<Self>, request: RunRequest) -> Result<Created> {
        check_name(request.name.as_deref())?;
        if request.intent.trim().is_empty() {
            return Err(Error::new(ErrorCode::Invalid, "the intent is empty: say what the agent is to do"));
        }
        let on_in_doubt = parse_word(request.on_in_doubt.as_deref(), "on_in_doubt")?;
        let on_budget = parse_word(request.on_budget.as_deref(), "on_budget")?;
        let policy = crate::policy::resolve(&self.settings.policy, &request)?;
        check_environment(&request.env)?;
        if !Path::new(&request.cwd).is_absolute() {
            let message = format!("the working folder `{}` is not an absolute path", request.cwd);
            return Err(Error::new(ErrorCode::Invalid, message));
        }
        if request.agent.is_some()
            && let Some(created) = self.begun_before(request.uuid).await?
        {
            // Before its files are read again: they may have gone.
            return Ok(created);
        }
        let asked = Asked {
            cwd: request.cwd.clone().into(),
            config: self.config.clone(),
            agent: request.agent,
            system_prompt: request.system_prompt,
        };
        let Told { model, system_prompt, tools, limits, files, warning } =
            self.pool.run(move || instructions::gather(asked)).await??;
        if let Some(warning) = warning {
            self.warn_once(warning);
        }
        let model = request.model.or(model).or_else(|| self.settings.default_model.clone());
        let model = model.ok_or_else(|| Error::new(ErrorCode::Invalid, "no model is set").with_hint(MODEL_HINT))?;
        let mut meta = ProcessMeta::new(model, system_prompt, tools);
        meta.instructions = files;
        let begin = Begin {
            spawned: Spawned {
                uuid: request.uuid,
                name: request.name,
                parent_uuid: None,
                origin: None,
                body: "agent".to_owned(),
                program: None,
                intent: request.intent.clone().into(),
                cwd: request.cwd,
                limits: raised(limits, request.limits),
                on_in_doubt: on_in_doubt.unwrap_or(self.settings.on_in_doubt),
                on_budget: on_budget.unwrap_or(OnBudget::End),
                env_names: request.env.names().map(str::to_owned).collect(),
                policy,
                root_uuid: None,
                depth: 0,
            },
            meta: Some(meta),
            environment: request.env,
            intent: request.intent,
            parent: Pid::KERNEL,
        };
        self.begin(begin).await
    }

    /// Begins a child of an agent: with what that has, and on its model unless another is named.
    pub(crate) async fn spawn_child(self: &Arc<Self>, parent: Who, request: ChildRequest) -> Result<()> {
        check_name(request.name.as_deref())?;
        let folder = self.data.folder(parent.uuid);
        let mut meta = self.pool.run(move || ProcessMeta::read(&folder)).await??;
        if let Some(model) = request.model {
            meta.model = model;
        }
        let (history, _) = self.on_disk(move |data| data.history(parent.uuid)).await??;
        let Some(identity) = history.identity else {
            return Err(Error::new(ErrorCode::Internal, "the parent's journal does not say what it is"));
        };
        let inherited = identity.spawned;
        let spawned = Spawned {
            uuid: request.uuid,
            name: request.name,
            parent_uuid: Some(parent.uuid),
            origin: None,
            intent: request.intent.clone().into(),
            // What it spends is its ancestors' spending, and their limits hold for it.
            limits: Limits { max_tokens: None, max_cost_usd: None, ..history.limits },
            root_uuid: Some(inherited.root_uuid.unwrap_or(parent.uuid)),
            depth: inherited.depth + 1,
            ..inherited
        };
        if let Some(kin) = Kin::of(&spawned) {
            self.lock().trees.take(kin, self.settings.trees)?;
        }
        let begin = Begin {
            spawned,
            meta: Some(meta),
            environment: self.environment_of(parent.uuid).await?,
            intent: request.intent,
            parent: parent.of.pid,
        };
        let begun = self.begin(begin).await.map(|_| ());
        if self.is_over(request.uuid) {
            // It was not begun, or has ended before, or already.
            self.lock().trees.leave(request.uuid);
        }
        begun
    }

    pub(crate) async fn begin(self: &Arc<Self>, begin: Begin) -> Result<Created> {
        let Begin { spawned, meta, environment, intent, parent } = begin;
        let uuid = spawned.uuid;
        let _turn = self.turn(uuid).lock().await;
        if let Some(created) = self.begun_before(uuid).await? {
            return Ok(created);
        }
        self.admit_one_more()?;
        if let Some(meta) = &meta {
            let model = self.model(&meta.model, spawned.cwd.as_ref(), uuid, &environment).await?;
            self.can_be_paid(&meta.model, model.as_ref(), &spawned).await?;
        }
        let model = meta.as_ref().map(|meta| meta.model.clone());
        // A program is told nothing.
        let input =
            meta.is_some().then(|| Input { id: "intent".to_owned(), from: spawned.parent_uuid, text: intent.into() });
        let (boot_id, at) = (self.clock.boot_id(), self.now());
        let environments = Arc::clone(&self.environments);
        let writer = self
            .on_disk(move |data| {
                let pid = data.next_pid()?;
                data.note_pid(pid, uuid);
                // First, so that a process that is there has it.
                environments.put(uuid, &environment)?;
                let opening = Opening { pid, by: OpenedBy::Spawn, boot_id, at };
                let files = meta.as_ref().map(|meta| meta.instructions.clone()).unwrap_or_default();
                let spawned = data.spawn(SpawnRequest { opening, spawned, meta, input });
                let mut writer = spawned.inspect_err(|_| {
                    let _ = environments.remove(uuid);
                })?;
                for file in files {
                    // An event that is not written is missed by nobody who has the meta file.
                    let _ = writer.events().append(at, 0, "instructions", &file);
                }
                Ok::<_, Error>((pid, writer))
            })
            .await?;
        let (pid, writer) = writer?;
        let spec = spec(writer.history(), pid, parent, model)?;
        self.insert(spec, writer)?;
        Ok(Created { pid, uuid })
    }

    /// A limit of dollars, its own or an ancestor's, holds only where the price is known.
    async fn can_be_paid(&self, name: &str, model: &dyn Model, spawned: &Spawned) -> Result<()> {
        if name.starts_with("script/") || model.cost(1, 1).is_some() {
            return Ok(());
        }
        let mut limited = spawned.limits.max_cost_usd.is_some();
        let mut above = spawned.parent_uuid;
        while let Some(uuid) = above.filter(|_| !limited) {
            let (history, _) = self.on_disk(move |data| data.history(uuid)).await??;
            limited = history.limits.max_cost_usd.is_some();
            above = history.identity.and_then(|identity| identity.spawned.parent_uuid);
        }
        if limited {
            let message = format!("the price of {name} is not known, so a limit of dollars could not be held");
            let hint = "say it under `prices:` in config.yaml (relive daemon restart), or use --max-tokens";
            return Err(Error::new(ErrorCode::Invalid, message).with_hint(hint));
        }
        Ok(())
    }

    /// Puts a process into the table with a writer in its hand, and starts it.
    pub(crate) fn insert(self: &Arc<Self>, spec: Spec, writer: Writer) -> Result<()> {
        let mut state = self.lock();
        let effects = self.admit(&mut state, spec, writer)?;
        self.carry_out(&mut state, effects);
        Ok(())
    }

    /// Puts a process into the table, running, with a writer in its hand. It is launched by the effects.
    pub(crate) fn admit(&self, state: &mut State, spec: Spec, writer: Writer) -> Result<Effects> {
        let pid = spec.pid;
        let now = self.now();
        let adopted = if spec.parent == Pid::KERNEL
            || state.table.view(spec.parent, now).is_some_and(|view| view.dead_at.is_none())
        {
            spec
        } else {
            Spec { parent: Pid::KERNEL, ..spec }
        };
        state.table.spawn(adopted)?;
        if let Some(kin) = writer.history().identity.as_ref().and_then(|identity| Kin::of(&identity.spawned)) {
            state.trees.join(kin);
        }
        state.ready.insert(pid, writer);
        Ok(state.table.start(pid, now)?)
    }

    pub(crate) async fn begun_before(&self, uuid: Uuid) -> Result<Option<Created>> {
        let known = self.on_disk(move |data| data.known(uuid)).await??;
        match known {
            Known::Never => Ok(None),
            Known::Collected(_) => {
                Err(Error::new(ErrorCode::Conflict, format!("{uuid} was used before and garbage collected")))
            }
            Known::Here(folder) => {
                let info = self.pool.run(move || relive_journal::ProcInfo::read(&folder)).await??;
                let pid = info.and_then(|info| info.pids.last().copied());
                Ok(pid.map(|pid| Created { pid, uuid }))
            }
        }
    }

    pub(crate) fn admit_one_more(&self) -> Result<()> {
        let state = self.lock();
        if state.stopping {
            return Err(Error::new(ErrorCode::Unavailable, "the daemon is stopping").with_hint("ask again in a moment"));
        }
        let max = self.settings.processes_max;
        if state.table.len() >= max {
            let message = format!("there are {max} processes, the limit");
            return Err(
                Error::new(ErrorCode::Exhausted, message).with_hint("raise limits.max_processes in config.yaml")
            );
        }
        Ok(())
    }
}

pub(crate) struct Begin {
    pub(crate) spawned: Spawned,
    pub(crate) meta: Option<ProcessMeta>,
    pub(crate) environment: Environment,
    pub(crate) intent: String,
    pub(crate) parent: Pid,
}

/// A process as the table wants it, from what its journal says.
pub(crate) fn spec(history: &History, pid: Pid, parent: Pid, model: Option<String>) -> Result<Spec> {
    let Some(identity) = &history.identity else {
        return Err(Error::new(ErrorCode::Internal, "the journal does not say what it is"));
    };
    let spawned = &identity.spawned;
    let unknown = || Error::new(ErrorCode::Internal, format!("it runs `{}`, which is not known here", spawned.body));
    let body = body_of(&spawned.body).ok_or_else(unknown)?;
    Ok(Spec {
        pid,
        uuid: spawned.uuid,
        generation: history.epoch,
        parent,
        parent_uuid: spawned.parent_uuid,
        origin: spawned.origin,
        body,
        name: spawned.name.clone(),
        intent: spawned.intent.head(200).to_owned(),
        cwd: spawned.cwd.clone(),
        model,
        limits: history.limits,
        usage: crate::drive::usage(history),
        created_at: identity.created_at,
    })
}

/// What a journal says a process runs; absent where only a later Relive knows it.
pub(crate) fn body_of(word: &str) -> Option<relive_core::Body> {
    serde_json::from_value(serde_json::Value::String(word.to_owned())).ok()
}

/// The same process in its next incarnation, which has not been recorded yet.
pub(crate) fn next_generation(spec: Spec) -> Spec {
    Spec { generation: Generation(spec.generation.0 + 1), ..spec }
}

pub(crate) fn check_environment(environment: &Environment) -> Result<()> {
    match environment.impossible() {
        Some(name) => {
            let message = format!("env: no program can be given the variable `{}`", name.escape_debug());
            Err(Error::new(ErrorCode::Invalid, message))
        }
        None => Ok(()),
    }
}

pub(crate) fn check_name(name: Option<&str>) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    let all_digits = name.bytes().all(|byte| byte.is_ascii_digit());
    let plain = name.chars().all(|letter| letter.is_alphanumeric() || "._-".contains(letter));
    if name.is_empty() || name.len() > NAME_MAX || all_digits || !plain {
        let message = format!(
            "`{name}` cannot be a name: letters, digits, `.`, `_` and `-`, at most {NAME_MAX}, not digits alone"
        );
        return Err(Error::new(ErrorCode::Invalid, message));
    }
    Ok(())
}

fn parse_word<T: serde::de::DeserializeOwned>(word: Option<&str>, field: &str) -> Result<Option<T>> {
    let Some(word) = word else { return Ok(None) };
    let parsed = serde_json::from_value(serde_json::Value::String(word.to_owned()));
    parsed.map(Some).map_err(|error| Error::new(ErrorCode::Invalid, format!("{field}: {error}")))
}
