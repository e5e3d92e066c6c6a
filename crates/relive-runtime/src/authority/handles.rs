//! Handles, as one caller may give, list and release them.

use relive_api::{GrantRequest, Handle, HandleList, ReleaseRequest};
use relive_core::{ErrorCode, Pid, Rights};

use super::{Access, Caller, Scope};
use crate::error::{Error, Result};
use crate::lookup::LookedUp;

impl Access {
    /// Gives a process a handle to another one.
    pub async fn grant(&self, request: GrantRequest, request_id: Option<String>) -> Result<Handle> {
        self.runtime.recall_ended().await;
        let target = self.find(&request.target, Rights::Owner).await?;
        if let Some(process) = self.process()?
            && self.is(process, &target).await?
        {
            // What it may not do to itself, the holder could do for it.
            self.person("giving a handle to oneself")?;
        }
        let to = self.find(&request.to, Rights::Observer).await?;
        self.runtime.grant(self.process()?, GrantRequest { target, to, ..request }, request_id).await
    }

    /// Gives up a handle: of the process that asks, or of one that it owns.
    pub async fn release(&self, request: ReleaseRequest, request_id: Option<String>) -> Result<HandleList> {
        self.runtime.recall_ended().await;
        let holder = match &request.of {
            None => self.myself().map_err(|_| {
                let message =
                    "the process that holds the handle is not named: only inside a process it is that process";
                Error::new(ErrorCode::Invalid, message).with_hint("relive handle list")
            })?,
            Some(id) => {
                let found = self.runtime.look_up_to_change(&self.find(id, Rights::Owner).await?).await?;
                let LookedUp::Living { process, .. } = found else {
                    return Err(Error::new(ErrorCode::Conflict, format!("`{id}` has ended and holds no handles")));
                };
                process
            }
        };
        // Whoever sees the handle sees its target.
        let target = match self.find(&request.target, Rights::Observer).await {
            Err(error) if self.caller != Caller::Person => {
                let named = self.runtime.look_up(&request.target).await;
                let named = named.and_then(|found| self.runtime.identity_of(&found)).ok().map(|(uuid, _)| uuid);
                let held = match named {
                    Some(uuid) if request.of.is_some() && self.runtime.holds(holder, uuid).await? => Some(uuid),
                    // A repeat: it was seen by the handle that the first request released.
                    Some(uuid) if self.runtime.was_released(holder, uuid, request_id.as_deref()).await? => Some(uuid),
                    // It may be to one that was removed.
                    Some(_) | None => self.runtime.held_by_part(holder, &request.target).await?,
                };
                held.ok_or(error)?.to_string()
            }
            found => found?,
        };
        self.runtime.release_handle(holder, ReleaseRequest { target, ..request }, request_id).await
    }

    /// Lists the handles of those that the caller may see, to those that it may see.
    pub async fn handles(&self) -> Result<HandleList> {
        self.runtime.recall_ended().await;
        Ok(match self.scope()? {
            Scope::All => self.runtime.handles(None),
            Scope::Only(visible) => {
                let me = self.process()?.map(|process| process.of.pid);
                let is_own_to_removed = |handle: &Handle| handle.target == Pid::RUNTIME && me == Some(handle.holder);
                let is_seen = |handle: &Handle| visible.contains(&handle.target) || is_own_to_removed(handle);
                let mut list = self.runtime.handles(Some(&visible));
                list.handles.retain(is_seen);
                list
            }
        })
    }
}
