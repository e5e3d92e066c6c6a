//! KILL for a process whose journal cannot be read or written: its programs end all the same.
//!
//! A program can damage the journal of its own process. Its end cannot be recorded then; that it can be killed does not
//! depend on that.

use std::sync::Arc;

use relive_api::Affected;
use relive_core::{Pid, Uuid};

use crate::error::{Error, Result};
use crate::lookup::LookedUp;
use crate::runtime::Runtime;

impl Runtime {
    /// Kills the programs of a process whose KILL could not be recorded. Returns the refusal if nothing of it runs.
    pub(crate) async fn kill_unrecorded(self: &Arc<Self>, id: &str, refused: Error) -> Result<Affected> {
        let Some(uuid) = self.without_writer(id).await else { return Err(refused) };
        let (sessions, folder) = (&self.bodies.exec.sessions, self.data.directory(uuid).sessions());
        if !sessions.running_in(&folder).await.is_ok_and(|running| !running.is_empty()) {
            return Err(refused);
        }
        if let Err(error) = sessions.end_all(&folder).await {
            self.warn(format!("{uuid} cannot be killed: {error}"));
            return Err(refused);
        }
        let shown = self.unrecovered.get(uuid).map(|failure| failure.shown(uuid).pid);
        let shown = shown.filter(|pid| *pid != Pid::RUNTIME);
        let pids = Vec::from_iter(shown.or_else(|| Some(self.living(uuid)?.of.pid)));
        let remove = if self.unrecovered.get(uuid).is_some_and(|failure| failure.is_damage()) {
            format!(" (to remove it: relive rm -y {uuid})")
        } else {
            String::new()
        };
        let note = Some(format!("its program was killed, and its end cannot be recorded: {refused}{remove}"));
        Ok(Affected { affected: 1, pids, note, ..Affected::default() })
    }

    /// Returns a process that nobody in this daemon runs, if it has not ended.
    async fn without_writer(self: &Arc<Self>, id: &str) -> Option<Uuid> {
        match self.look_up(id).await.ok()? {
            LookedUp::Unrecovered(uuid) => Some(uuid),
            LookedUp::Living { process, note: _ } => {
                let has_body = self.owners.find(process.uuid).is_some_and(|owner| owner.has_body());
                (!has_body).then_some(process.uuid)
            }
            LookedUp::Remembered(_) | LookedUp::OnDisk(_) => None,
        }
    }
}
