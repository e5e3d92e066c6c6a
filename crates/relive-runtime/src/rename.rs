//! Renames a process, living or ended.

use std::sync::Arc;

use relive_api::{Affected, RenameRequest};
use relive_core::{ErrorCode, Pid};
use relive_journal::record::{Body, Renamed};

use crate::error::{Error, Result};
use crate::names::check_name;
use crate::owner::{Lane, Turn};
use crate::runtime::Runtime;

impl Runtime {
    /// Renames a process. On return the new name is on the disk.
    pub async fn rename(
        self: &Arc<Self>,
        id: &str,
        request: RenameRequest,
        request_id: Option<String>,
    ) -> Result<Affected> {
        check_name(Some(&request.name))?;
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move {
            let (uuid, note) = runtime.identity_of(&runtime.look_up_to_change(&id).await?)?;
            let mut turn = runtime.turn(uuid, Lane::Verb).await?;
            let req = request_id.map(|id| format!("rename:{id}"));
            let pid = turn.last_pid().await?.unwrap_or(Pid::RUNTIME);
            if !turn.was_answered(req.as_deref()).await? {
                let _name = runtime.hold_name(Some(&request.name), uuid)?;
                turn.rename(Renamed { name: request.name, req }).await?;
            }
            Ok(Affected { affected: 1, pids: vec![pid], note, ..Affected::default() })
        })
        .await
    }
}

impl Turn {
    async fn rename(&mut self, renamed: Renamed) -> Result<()> {
        let (runtime, uuid, now) = (Arc::clone(&self.runtime), self.uuid(), self.runtime.moment());
        let name = renamed.name.clone();
        let history = match self.machine() {
            Some(machine) => {
                self.write(machine.incarnation(), now, vec![Body::Renamed(renamed)]).await?;
                self.look(Clone::clone).await?
            }
            None => {
                runtime.is_here(uuid).await?;
                let history = runtime.on_journal(move |data| data.rename_ended(uuid, renamed, now)).await?;
                history.map_err(|error| {
                    if !matches!(error, relive_journal::WriteError::Busy { .. }) {
                        return error.into();
                    }
                    let message = format!("process {uuid} is in use just now");
                    Error::new(ErrorCode::Unavailable, message).with_hint("try again in a moment")
                })?
            }
        };
        runtime.lock().table.rename(uuid, &name);
        runtime.catalog.tell(&history);
        runtime.changes.ring(uuid);
        Ok(())
    }
}
