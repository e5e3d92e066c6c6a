//! Agents that an agent spawns.

use std::sync::Arc;

use relive_agent::tool::ChildRequest;
use relive_core::{ErrorCode, Limits};
use relive_journal::ProcessMeta;
use relive_journal::record::Spawned;

use super::Draft;
use crate::error::{Error, Result};
use crate::names::check_name;
use crate::runtime::{ProcessRef, Runtime};
use crate::subtree::Creation;
use crate::trees::TreePlace;

impl Runtime {
    /// Creates a child of an agent: with what that has, and on its model unless another is named.
    pub(crate) async fn spawn_child(self: &Arc<Self>, parent: ProcessRef, request: ChildRequest) -> Result<()> {
        let runtime = Arc::clone(self);
        let creation = self.begin_creation(parent, request.uuid)?;
        self.to_the_end(async move { runtime.create_child(parent, request, creation).await }).await
    }

    async fn create_child(
        self: &Arc<Self>,
        parent: ProcessRef,
        request: ChildRequest,
        creation: Creation,
    ) -> Result<()> {
        check_name(request.name.as_deref())?;
        let directory = self.data.directory(parent.uuid);
        let mut meta = self.pools.journal.run(move || ProcessMeta::read(&directory)).await??;
        let (history, _) = self.on_journal(move |data| data.history(parent.uuid)).await??;
        let Some(identity) = history.identity else {
            return Err(Error::new(ErrorCode::Internal, "the parent's journal does not describe a process"));
        };
        let inherited = identity.spawned;
        if let Some(model) = request.model {
            let area = self.area_of(Some(parent.uuid)).await?;
            meta.model = self.model_in(area, model, &inherited.cwd).await?;
        } else if let Some(model) = history.model.clone() {
            meta.model = model;
        }
        let spawned = Spawned {
            uuid: request.uuid,
            name: request.name,
            parent_uuid: Some(parent.uuid),
            origin: None,
            intent: request.intent.clone().into(),
            // What it spends is its ancestors' spending, and their limits hold for it.
            limits: Limits { max_tokens: None, max_cost_usd: None, ..history.limits },
            budget_uuid: None,
            root_uuid: Some(inherited.root_uuid.unwrap_or(parent.uuid)),
            depth: inherited.depth + 1,
            request: None,
            ..inherited
        };
        if let Some(place) = TreePlace::of(&spawned) {
            self.lock().trees.take(place, self.live.now().trees)?;
        }
        let draft = Draft {
            spawned,
            meta: Some(meta),
            environment: self.environment_of(parent.uuid),
            first: Some(request.intent),
            parent: parent.of.pid,
            records: Vec::new(),
            creation: Some(creation),
            is_new: false,
        };
        let created = self.create(draft).await.map(|_| ());
        if self.living(request.uuid).is_none() {
            // It was not created, or has ended already.
            self.lock().trees.leave(request.uuid);
        }
        created
    }
}
