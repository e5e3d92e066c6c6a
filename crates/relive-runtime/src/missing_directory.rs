//! Agents whose directory is gone: they are told so once, and not by every tool they call.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_core::{Body, ErrorCode, Uuid};
use relive_workspace::CopyState;

use crate::error::{Error, Result};
use crate::owner::Turn;
use crate::pools::FILE_WITHIN;
use crate::runtime::Runtime;
use crate::spec;
use crate::workspaces::{check_no_link, no_copy};

impl Runtime {
    /// Returns the command that continues a process in a fork: that of a node takes the place of the node.
    pub(crate) async fn fork_command(self: &Arc<Self>, uuid: Uuid) -> String {
        let alone = format!("relive resume --fork {uuid}");
        let Some(tree) = self.tree_of(uuid).await else { return alone };
        let (Ok(run), Ok(recorded)) = (self.process_in_brief(&tree.to_string()).await, self.recorded_flow(tree).await)
        else {
            return alone;
        };
        // One that has had the node before has no place any more.
        let node = recorded.flow.slots().find(|slot| slot.uuid == Some(uuid)).map(|slot| slot.name.to_owned());
        node.map_or(alone, |node| format!("relive compose resume {} --node {node} --fork", run.pid))
    }
}

impl Turn {
    /// Refuses to resume a process where a change of files is half done, and an agent that has no directory to work in.
    pub(crate) async fn check_directory(&mut self) -> Result<()> {
        let uuid = self.uuid();
        let spawned = self.look(|history| history.identity.as_ref().map(|identity| identity.spawned.clone())).await?;
        let Some(spawned) = spawned else { return Ok(()) };
        if spawned.workspace.is_some() {
            let (workspaces, directory) = (self.runtime.workspaces.clone(), PathBuf::from(&spawned.cwd));
            let looked = self.runtime.pools.files.run_within(FILE_WITHIN, move || {
                check_no_link(&directory).and_then(|()| workspaces.look_at_copy(&directory))
            });
            if let state @ (CopyState::Gone | CopyState::Replaced) = looked.await?? {
                let why = no_copy(uuid, Path::new(&spawned.cwd), state);
                let refused = Error::new(ErrorCode::Conflict, format!("process {uuid} cannot be resumed: {why}"));
                return Err(refused.with_hint(self.runtime.fork_command(uuid).await));
            }
        }
        if spec::body_of(&spawned.body) != Some(Body::Agent) {
            return self.runtime.check_settled(Path::new(&spawned.cwd)).await;
        }
        let directory = PathBuf::from(&spawned.cwd);
        let looked = self.runtime.pools.files.run_within(FILE_WITHIN, move || {
            // What cannot be looked at is told by the tool that needs it.
            check_no_link(&directory).map(|()| !matches!(directory.try_exists(), Ok(false)))
        });
        if looked.await?? {
            return self.runtime.check_settled(Path::new(&spawned.cwd)).await;
        }
        let message = format!("process {uuid} cannot be resumed: its directory {} was removed", spawned.cwd);
        let hint = format!("mkdir -p {}", relive_types::program::quote(&spawned.cwd));
        Err(Error::new(ErrorCode::Conflict, message).with_hint(hint))
    }
}
