//! The files that processes work on, as one caller may use them. Lists and authors name every process there is: they are
//! for the person alone.

use relive_api::{
    Blame, BlameRequest, DiffQuery, FilesChanged, FilesDiff, MergeRequest, OwnWorkspace, OwnWorkspaces,
    RemoveWorkspaceRequest, RestoreRequest, RewindRequest, Rewound, StartCancelled,
};
use relive_core::{ErrorCode, Rights, Uuid};

use super::Access;
use crate::area::Area;
use crate::error::{Error, Result};

impl Access {
    /// Compares the files of a process at two steps.
    pub async fn diff(&self, id: &str, query: DiffQuery) -> Result<FilesDiff> {
        self.runtime.diff(&self.find(id, Rights::Observer).await?, query).await
    }

    /// Puts the files of a process, and its conversation, back to a step.
    pub async fn rewind(&self, id: &str, request: RewindRequest, request_id: Option<String>) -> Result<Rewound> {
        let found = self.find(id, Rights::Owner).await?;
        if !request.dry_run {
            self.is_not_itself("rewind", &found).await?;
        }
        self.reaches_files_of(&found).await?;
        let caller = (self.cause(&found).await?, self.area().await?);
        self.runtime.rewind_for(caller, &found, request, request_id).await
    }

    /// Puts single files of a process back to a step.
    pub async fn restore(&self, id: &str, request: RestoreRequest, request_id: Option<String>) -> Result<FilesChanged> {
        let found = self.find(id, Rights::Owner).await?;
        if !request.dry_run {
            self.is_not_itself("restore", &found).await?;
        }
        self.reaches_files_of(&found).await?;
        let caller = (self.cause(&found).await?, self.area().await?);
        self.runtime.restore_for(caller, &found, request, request_id).await
    }

    /// Returns what the caller reaches through the daemon; everything if absent.
    pub(super) async fn area(&self) -> Result<Option<Area>> {
        let process = self.process()?;
        self.runtime.area_of(process.map(|process| process.uuid)).await
    }

    /// Refuses to change the files of a process that works outside of the directory of an isolated caller. On a copy of its own
    /// it does so for the caller.
    async fn reaches_files_of(&self, found: &str) -> Result<()> {
        let Some(area) = self.area().await? else { return Ok(()) };
        let (uuid, _) = self.runtime.identity_of(&self.runtime.look_up(found).await?)?;
        let (history, _) = self.runtime.on_journal(move |data| data.history(uuid)).await??;
        let here = history.identity.map(|identity| identity.spawned).filter(|spawned| spawned.workspace.is_none());
        match here {
            Some(spawned) => self.runtime.directory_in(Some(area), &spawned.cwd).await.map(drop),
            None => Ok(()),
        }
    }

    /// Refuses a verb that pauses its target, and whoever asks for it with it: it would never be answered.
    async fn is_not_itself(&self, verb: &str, found: &str) -> Result<()> {
        let Some(process) = self.process()? else { return Ok(()) };
        if !self.is(process, found).await? {
            return Ok(());
        }
        let message = format!("a process cannot {verb} its own files: it would be paused before they are changed");
        let hint = "run it in a terminal outside of the process, or from the process that spawned it";
        Err(Error::new(ErrorCode::Conflict, message).with_hint(hint))
    }

    /// Merges the files of a process with a workspace of its own into the directory that they come from.
    pub async fn merge(&self, id: &str, request: MergeRequest, request_id: Option<String>) -> Result<FilesChanged> {
        let found = self.find(id, Rights::Owner).await?;
        self.runtime.merge_for(self.area().await?, &found, request, request_id).await
    }

    /// Says which process wrote each line of a file.
    pub async fn blame(&self, request: BlameRequest) -> Result<Blame> {
        self.person("asking who wrote a file")?;
        self.runtime.blame(request).await
    }

    /// Cancels the creation of a process that this caller has asked for: nobody else knows its UUID.
    pub async fn cancel_start(&self, uuid: Uuid) -> Result<StartCancelled> {
        self.process()?;
        let cancelled = self.runtime.cancel_start(uuid).await?;
        if cancelled.pid.is_some() {
            self.find(&uuid.to_string(), Rights::Observer).await?;
        }
        Ok(cancelled)
    }

    /// Lists the workspaces of all processes.
    pub async fn own_workspaces(&self) -> Result<OwnWorkspaces> {
        self.person("listing workspaces")?;
        self.runtime.own_workspaces().await
    }

    /// Removes the workspace of a process.
    pub async fn remove_workspace(&self, request: RemoveWorkspaceRequest) -> Result<OwnWorkspace> {
        self.person("removing a workspace")?;
        self.runtime.remove_workspace(request).await
    }
}
