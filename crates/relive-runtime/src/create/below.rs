//! Processes that a program inside of another process asks for: they are below that one.

use std::sync::Arc;

use relive_api::{Created, Environment, Isolated};
use relive_core::{ErrorCode, Uuid};
use relive_journal::policy::Policy;

use super::Draft;
use crate::error::{Error, Result};
use crate::runtime::{ProcessRef, Runtime};
use crate::trees::TreePlace;

/// How many ancestors are looked through for the policy that holds.
const ANCESTORS_MAX: usize = 256;

/// What a new process has from the one that asks for it; nothing if a person does.
#[derive(Debug, Default)]
pub(crate) struct Above {
    pub(super) parent: Option<ProcessRef>,
    pub(super) root_uuid: Option<Uuid>,
    pub(super) depth: u32,
    /// What the nearest agent above may do without asking: nobody below it may do more.
    pub(super) policy: Option<Policy>,
    /// What the one that asks may reach, and its working directory: nobody below it reaches more.
    pub(super) isolated: Option<(Isolated, String)>,
    /// The environment of the one that asks, in which the keys are. A tool does not have them, and cannot say what they
    /// are used for.
    pub(super) environment: Option<Environment>,
}

impl Above {
    /// Returns whether there is an agent above.
    pub(crate) fn has_agent(&self) -> bool {
        self.policy.is_some()
    }

    pub(crate) fn is_isolated(&self) -> bool {
        self.isolated.is_some()
    }

    /// Returns the isolation of a process that is to have this one; absent if it reaches everything.
    pub(crate) fn isolated(&self, wanted: Isolated) -> Option<Isolated> {
        let isolated = match &self.isolated {
            Some((above, cwd)) => wanted.below(above, cwd),
            None => wanted,
        };
        Some(isolated).filter(|isolated| !isolated.is_none())
    }
}

impl Runtime {
    pub(super) async fn above(&self, parent: Option<ProcessRef>) -> Result<Above> {
        let Some(parent) = parent else { return Ok(Above::default()) };
        let uuid = parent.uuid;
        let (history, _) = self.on_journal(move |data| data.history(uuid)).await??;
        let untold = || Error::new(ErrorCode::Internal, "the parent's journal does not describe a process");
        let spawned = history.identity.ok_or_else(untold)?.spawned;
        let environment = Some(self.environment_of(uuid)).filter(|environment| !environment.is_empty());
        let (root_uuid, depth) = (Some(spawned.root_uuid.unwrap_or(uuid)), spawned.depth + 1);
        let isolated = spawned.isolated.clone().map(|isolated| (isolated, spawned.cwd.clone()));
        let (mut policy, mut here) = (None, Some(spawned));
        for _ in 0..ANCESTORS_MAX {
            let Some(spawned) = here else { break };
            if spawned.body == "agent" {
                policy = Some(spawned.policy);
                break;
            }
            here = None;
            if let Some(above) = spawned.parent_uuid {
                let read = self.on_journal(move |data| data.history(above)).await?;
                // One that was collected had ended: what it was allowed is nobody's any more.
                here = read.ok().and_then(|(history, _)| history.identity).map(|identity| identity.spawned);
            }
        }
        Ok(Above { parent: Some(parent), root_uuid, depth, policy, isolated, environment })
    }

    /// Creates a process; below another one with a place in its tree.
    pub(super) async fn create_below(
        self: &Arc<Self>,
        parent: Option<ProcessRef>,
        mut draft: Draft,
    ) -> Result<Created> {
        let Some(parent) = parent else { return self.create(draft).await };
        let uuid = draft.spawned.uuid;
        draft.creation = Some(self.begin_creation(parent, uuid)?);
        draft.parent = parent.of.pid;
        if let Some(place) = TreePlace::of(&draft.spawned) {
            self.lock().trees.take(place, self.live.now().trees)?;
        }
        let created = match self.own_child(parent, uuid).await {
            Ok(()) => self.create(draft).await,
            Err(error) => Err(error),
        };
        if self.living(uuid).is_none() {
            // It was not created, or has ended already.
            self.lock().trees.leave(uuid);
        }
        created
    }
}
