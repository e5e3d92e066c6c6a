//! What an agent may ask of the runtime.

use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_agent::Watcher;
use relive_agent::tool::{ChildEnd, ChildRequest, Host};
use relive_core::{Caller, Refusal, Rights, Signal, SignalSet, Timestamp, Usd, Uuid};
use relive_journal::History;
use relive_journal::conversation::Message;

use crate::clock::Clock;
use crate::environment::for_tools;
use crate::ledger::{Page, Sum};
use crate::runtime::{Runtime, Who};

/// The runtime, as one agent sees it.
#[derive(Debug)]
pub(crate) struct RuntimeHost {
    /// Weak, so that a body does not keep the runtime.
    runtime: Weak<Runtime>,
    clock: Clock,
    who: Who,
}

impl RuntimeHost {
    pub(crate) fn new(runtime: &Arc<Runtime>, who: Who) -> Self {
        Self { runtime: Arc::downgrade(runtime), clock: runtime.clock.clone(), who }
    }
}

const GONE: &str = "the daemon is stopping";

impl Host for RuntimeHost {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn new_uuid(&self) -> Uuid {
        self.clock.new_uuid()
    }

    fn environment(&self) -> BoxFuture<'static, Result<Vec<(String, String)>, String>> {
        let (runtime, uuid) = (self.runtime.upgrade(), self.who.uuid);
        async move {
            let runtime = runtime.ok_or(GONE)?;
            let environment = runtime.environment_of(uuid).await.map_err(|error| error.to_string())?;
            Ok(for_tools(&environment, &runtime.settings.tool_env))
        }
        .boxed()
    }

    fn spawn_agent(&self, request: ChildRequest) -> BoxFuture<'static, Result<(), String>> {
        let (runtime, who) = (self.runtime.upgrade(), self.who);
        async move {
            let runtime = runtime.ok_or(GONE)?;
            runtime.spawn_child(who, request).await.map_err(|error| error.to_string())
        }
        .boxed()
    }

    fn exists(&self, uuid: Uuid) -> BoxFuture<'static, bool> {
        let runtime = self.runtime.upgrade();
        async move {
            let Some(runtime) = runtime else { return false };
            let known = runtime.on_disk(move |data| data.known(uuid)).await;
            !matches!(known, Ok(Ok(relive_journal::data::Known::Never)) | Err(_))
        }
        .boxed()
    }

    fn wait_agent(&self, _caller: Uuid, uuid: Uuid) -> BoxFuture<'static, Result<ChildEnd, String>> {
        let (runtime, who) = (self.runtime.upgrade(), self.who);
        async move {
            let runtime = runtime.ok_or(GONE)?;
            let refused = runtime.may_not_observe(who, uuid);
            if let Some((refusal, parent)) = refused
                && !runtime.began(who.uuid, parent).await
            {
                return Err(refusal.to_string());
            }
            let answer = runtime.wait(&uuid.to_string(), None).await.map_err(|error| error.to_string())?;
            let last_text = runtime.on_disk(move |data| last_text(data, uuid)).await.ok().flatten();
            let reason = answer.exit.map(|exit| exit.reason).unwrap_or_default();
            Ok(ChildEnd { code: answer.exit_code, reason, last_text })
        }
        .boxed()
    }
}

impl Watcher for RuntimeHost {
    fn progressed(&self, history: &History) {
        if let Some(runtime) = self.runtime.upgrade() {
            runtime.ledger.progressed(self.who.uuid, history);
            let usage = crate::drive::usage(history);
            let _ = runtime.lock().table.progress(self.who.of, usage, runtime.now());
        }
    }

    fn reserve(&self, history: &History, tokens: u64, cost: Usd) -> BoxFuture<'static, bool> {
        let runtime = self.runtime.upgrade().zip(Page::of(self.who.uuid, history));
        async move {
            let Some((runtime, page)) = runtime else { return false };
            runtime.reserve(page, Sum { tokens, cost }).await
        }
        .boxed()
    }

    fn changing_files(&self, changing: bool) {
        let Some(runtime) = self.runtime.upgrade() else { return };
        let held: SignalSet = [Signal::Term, Signal::Int, Signal::Pause].into_iter().collect();
        let mask = if changing { held } else { SignalSet::EMPTY };
        let mut state = runtime.lock();
        if let Ok(effects) = state.table.set_mask(self.who.of.pid, mask, runtime.now()) {
            runtime.carry_out(&mut state, effects);
        }
    }
}

impl Runtime {
    /// Why the table does not let one process observe another, and whose child that other one is.
    fn may_not_observe(&self, who: Who, uuid: Uuid) -> Option<(Refusal, Option<Uuid>)> {
        let state = self.lock();
        let pid = state.table.resolve(Caller::Person, &uuid.to_string()).ok()?;
        let refusal = state.table.authorize(Caller::Process(who.of.pid), pid, Rights::Observer).err()?;
        Some((refusal, state.table.view(pid, self.now()).and_then(|view| view.parent_uuid)))
    }

    /// Whether a child of `parent` is one that this history began: as an earlier incarnation, whose children went to
    /// the runtime, or as the original of a fork.
    async fn began(&self, uuid: Uuid, parent: Option<Uuid>) -> bool {
        let Some(parent) = parent else { return false };
        if parent == uuid {
            return true;
        }
        let lineage = self.on_disk(move |data| data.lineage(uuid)).await;
        matches!(lineage, Ok(Ok(ancestors)) if ancestors.iter().any(|ancestor| ancestor.uuid == parent))
    }
}

/// The last thing a model said.
fn last_text(data: &relive_journal::DataFolder, uuid: Uuid) -> Option<String> {
    let folder = data.folder(uuid);
    let (history, _) = data.history(uuid).ok()?;
    let journal = std::fs::File::open(folder.steps()).ok()?;
    let blobs = relive_journal::payload::Blobs::new(data.io().disk.clone(), folder.path());
    let said = history.conversation(&journal).ok()?.into_iter().rev().find_map(|message| match message {
        Message::Model { text, .. } => text,
        Message::User { .. } | Message::Summary { .. } | Message::Tool { .. } => None,
    });
    blobs.text(&said?).ok()
}
