//! Forks: a new process that starts from a prefix of another.

use std::sync::Arc;

use relive_api::{Affected, ResumeRequest, Resumed, Workspace};
use relive_core::{ErrorCode, Uuid};
use relive_journal::data::{ForkPoint, ForkRequest};
use relive_journal::record::{Body, Input, NewModel, OpenedBy, Snapshot};
use relive_journal::{Hash, Opening, Writer};

use crate::bodies::{DeliveryTime, Verb};
use crate::error::{Error, Result};
use crate::own_workspace::{MadeCopy, begun_here};
use crate::owner::Lane;
use crate::resume::at_gate;
use crate::runtime::{ProcessRef, Runtime};
use crate::send::FORK_ID;
use crate::spec::{self, body_of, model_of, raised};
use crate::workspace_list::works_in;

impl Runtime {
    pub(crate) async fn fork(self: &Arc<Self>, source: Uuid, uuid: Uuid, request: ResumeRequest) -> Result<Resumed> {
        self.fork_below(None, source, uuid, request).await
    }

    /// Forks a process; the fork is below `parent`.
    pub(crate) async fn fork_below(
        self: &Arc<Self>,
        parent: Option<Uuid>,
        source: Uuid,
        uuid: Uuid,
        request: ResumeRequest,
    ) -> Result<Resumed> {
        let hash = request_hash(source, &request);
        let _creation = self.workspaces.hold_creation(uuid).await;
        let turn = self.turn(uuid, Lane::Verb).await?;
        if let Some(forked) = self.forked_before(source, uuid, &hash).await? {
            // Before anything of the source is needed: it may have been collected.
            return Ok(forked);
        }
        drop(turn);
        self.reload_settings().await;
        self.admit_one_more()?;
        crate::names::check_name(request.name.as_deref())?;
        let reason = self.living(source).and_then(|process| {
            let state = self.lock();
            state.table.machine(process.of.pid)?.pause().map(|(_, reason)| reason)
        });
        let model = self
            .on_journal(move |data| Some(spec::keyed_model_of(data, source, &data.history(source).ok()?.0)))
            .await?;
        let model = request.model.clone().or(model.flatten());
        if let Some(model) = &request.model {
            self.check_model(source, model, &request).await?;
        }
        let environment = self.credentials.choose(source, uuid, reason, model.as_deref(), &request.env).await?;
        // What its owner has synced is copied; nothing after that.
        let within = self.sync_and_get_end(source).await?;
        let mut turn = self.turn(uuid, Lane::Verb).await?;
        if let Some(forked) = self.forked_before(source, uuid, &hash).await? {
            return Ok(forked);
        }
        let _name = self.hold_name(request.name.as_deref(), uuid)?;
        let environment = environment.unwrap_or_default();
        let (pid, writer, workspace) =
            self.write_fork((source, parent), uuid, within, hash, request, environment).await?;
        let history = writer.history().clone();
        // Before the fork itself can change anything.
        let note = if workspace.is_some() { None } else { self.compare_files(source, &history).await };
        let note = at_gate(&history, pid).or(note);
        let forked = history.clone();
        let model = self.on_journal(move |data| model_of(data, uuid, &forked)).await?;
        let spec = spec::from_history(&history, pid, self.parent_of(&history), model)?;
        let process = ProcessRef { of: relive_core::Incarnation { pid, generation: spec.generation }, uuid };
        turn.publish_new(spec, writer).await?;
        self.restore_handles(vec![(uuid, history.handles.iter().map(|(target, rights)| (*target, *rights)).collect())]);
        drop(turn);
        let affected = Affected { affected: 1, pids: vec![pid], note, ..Affected::default() };
        let workspace = workspace.or_else(|| works_in(&history));
        Ok(Resumed { workspace, ..self.resumed(process, Some(source), affected) })
    }

    /// Returns the source of a fork that is there.
    pub(crate) async fn origin_of(&self, fork: Uuid) -> Option<Uuid> {
        let (history, _) = self.on_journal(move |data| data.history(fork)).await.ok()?.ok()?;
        Some(history.identity?.spawned.origin?.uuid)
    }

    /// Returns the process below which one was made.
    pub(crate) async fn parent_uuid_of(&self, uuid: Uuid) -> Option<Uuid> {
        let (history, _) = self.on_journal(move |data| data.history(uuid)).await.ok()?.ok()?;
        history.identity?.spawned.parent_uuid
    }

    /// Returns the answer of the request that this one repeats.
    async fn forked_before(&self, source: Uuid, uuid: Uuid, hash: &str) -> Result<Option<Resumed>> {
        let Some(created) = self.created_before(uuid, hash).await? else { return Ok(None) };
        let process = self.living(uuid).unwrap_or(ProcessRef {
            of: relive_core::Incarnation { pid: created.pid, generation: relive_core::Generation(1) },
            uuid,
        });
        let affected = Affected { affected: 1, pids: vec![created.pid], ..Affected::default() };
        Ok(Some(self.resumed(process, Some(source), affected)))
    }

    /// Returns how far the journal of a process that is being written is on the disk.
    async fn sync_and_get_end(self: &Arc<Self>, uuid: Uuid) -> Result<Option<u64>> {
        let mut turn = self.turn(uuid, Lane::Verb).await?;
        let Some(journal) = &mut turn.state.journal else { return Ok(None) };
        let synced = journal.with(|writer| writer.sync().map(|()| writer.synced_end())).await?;
        Ok(Some(synced?))
    }

    /// Returns what is known of the files where a fork works that has no copy.
    async fn files_here(&self, source: Uuid, last_step: u32, step: u32) -> Result<Option<Box<Snapshot>>> {
        let (files, _) = self.files_so_far(source, last_step).await?;
        Ok(begun_here(&files, step, self.files_activity(source)))
    }

    async fn write_fork(
        self: &Arc<Self>,
        (source, parent): (Uuid, Option<Uuid>),
        uuid: Uuid,
        within: Option<u64>,
        hash: String,
        request: ResumeRequest,
        environment: relive_api::Environment,
    ) -> Result<(relive_core::Pid, Writer, Option<Workspace>)> {
        let environments = Arc::clone(&self.environments);
        let (boot_id, now) = (self.clock.boot_id(), self.moment());
        let point = request.from_step.map_or(ForkPoint::End, ForkPoint::Step);
        // As of that byte: the files are copied of the step that is the last one there, whatever the origin does meanwhile.
        let (origin, _) = match self.on_journal(move |data| data.history_within(source, within)).await? {
            Ok(read) => read,
            Err(error) => return Err(self.unread_error(source, error).await?),
        };
        let kind = origin.identity.as_ref().and_then(|identity| body_of(&identity.spawned.body));
        let body = kind.and_then(|kind| self.bodies.of(kind)).ok_or_else(crate::resume::unknown_body)?;
        body.accepts(Verb::Fork)?;
        body.accepts_fork(&origin, request.from_step)?;
        if request.input.is_some() {
            body.accepts_message(source, DeliveryTime::NextRun).await?;
        }
        let step = request.from_step.unwrap_or(origin.completed_step);
        // A step that is not there is refused below, with the last step there is.
        let spawned = origin.identity.as_ref().filter(|_| step <= origin.completed_step);
        let copy = match spawned.map(|identity| &identity.spawned) {
            Some(spawned) => self.copy_for_fork(spawned, uuid, step, request.workspace, parent).await?,
            None => None,
        };
        let (view, has_copy) = (copy.as_ref().map(MadeCopy::view), copy.is_some());
        let here = match has_copy {
            true => None,
            false => self.files_here(source, origin.completed_step, step).await?,
        };
        let runtime = Arc::clone(self);
        let forked = self.in_bulk(move |data| {
            let pid = data.next_pid()?;
            data.note_pid(pid, uuid);
            environments.put(uuid, &environment)?;
            let say = |text: &str| Input { id: FORK_ID.to_owned(), from: None, text: text.into() };
            let told = request.input.is_some();
            let fork = ForkRequest {
                uuid,
                opening: Opening { pid, by: OpenedBy::Spawn, boot_id, now, req: None, seen: None, cause: None },
                source,
                point,
                name: request.name.clone(),
                parent_uuid: parent,
                limits: Some(raised(origin.limits, request.limits)),
                input: request.input.as_deref().map(say),
                workspace: copy.as_ref().map(|copy| copy.place.clone()),
                within,
                request: Some(hash),
            };
            let forked = data.fork_with(fork, |history| {
                runtime.workspaces.check_start(uuid)?;
                let body = kind.and_then(|kind| runtime.bodies.of(kind)).filter(|_| !told);
                let first = body.and_then(|body| body.first_message(history)).map(say);
                if copy.is_some() && history.completed_step != step {
                    return Err(overtaken(source));
                }
                let model = request.model.clone().map(|model| Body::Model(NewModel { model, req: None }));
                let here = here.filter(|here| is_news(here, history, step)).map(Body::Snapshot);
                let records = copy.map(|copy| copy.records).unwrap_or_default().into_iter().chain(here);
                Ok(model.into_iter().chain(records).chain(first.map(Body::Input)).collect())
            });
            let writer = forked.inspect_err(|_| {
                environments.remove(uuid);
                if has_copy {
                    let _ = runtime.workspaces.remove_own(uuid);
                }
            })?;
            Ok::<_, Error>((pid, writer, view))
        });
        forked.await?
    }
}

fn overtaken(source: Uuid) -> Error {
    let message = format!("process {source} completed another step while it was forked");
    Error::new(ErrorCode::Conflict, message).with_hint("try again")
}

/// Returns whether the files that a fork begins with are those of its step, and not in its journal.
fn is_news(here: &relive_journal::record::Snapshot, history: &relive_journal::History, step: u32) -> bool {
    let known = &history.files;
    history.completed_step == step && (known.last != Some(here.files) || known.has_unseen_effect)
}

fn request_hash(source: Uuid, request: &ResumeRequest) -> String {
    let mut told = serde_json::json!({
        "source": source, "from_step": request.from_step, "input": request.input, "name": request.name,
        "limits": request.limits,
    });
    if let Some(model) = &request.model {
        told["model"] = model.as_str().into();
    }
    let told = match request.workspace {
        // As it was before there was a choice.
        None => told,
        Some(kind) => serde_json::json!({"fork": told, "workspace": kind}),
    };
    Hash::of(told.to_string().as_bytes()).to_string()
}
