//! Looks up processes by the beginning or the end of their UUID.

use std::sync::Arc;

use relive_core::{Holder, Uuid};
use relive_types::short_id;

use super::{CANDIDATES_MAX, LookedUp, ambiguous};
use crate::error::Result;
use crate::runtime::Runtime;

impl Runtime {
    /// Finds the only process, living or ended, whose UUID begins or ends with this text, or whose shown id begins with it;
    /// `None` if the text is not a part of a known UUID.
    pub(super) async fn look_up_part(self: &Arc<Self>, id: &str) -> Result<Option<LookedUp>> {
        if !short_id::is_part(id) || Uuid::try_parse(id).is_ok() || self.has_name(id) {
            return Ok(None);
        }
        let listed = self.lock().table.by_uuid_part(Holder::Person, id);
        let mut found: Vec<Uuid> = listed.into_iter().map(|(uuid, _)| uuid).collect();
        found.extend(self.unrecovered.uuids().into_iter().filter(|uuid| short_id::has_part(*uuid, id)));
        match self.catalog.by_part(id, CANDIDATES_MAX + 1).await {
            Ok(ended) => found.extend(ended),
            // While the index is rebuilt, living processes can still be found.
            Err(_) if !found.is_empty() => {}
            Err(error) => return Err(error),
        }
        found.sort_unstable();
        found.dedup();
        match found[..] {
            [] => Ok(None),
            [uuid] => Box::pin(self.look_up(&uuid.to_string())).await.map(Some),
            [..] => {
                let mut lines = Vec::new();
                for uuid in found.iter().take(CANDIDATES_MAX) {
                    lines.push(self.line_of(*uuid).await);
                }
                Err(ambiguous(id, &lines, found.len()))
            }
        }
    }

    /// Describes a process in a line: `PID 151  a5555014  fixer  running`.
    async fn line_of(self: &Arc<Self>, uuid: Uuid) -> String {
        let living = self.living(uuid).and_then(|process| {
            let state = self.lock();
            let view = state.table.view(process.of.pid, self.moment())?;
            let shown = self.shown(&state, &view);
            Some((shown.pid, shown.name, shown.display))
        });
        let known = match living {
            Some(living) => Some(living),
            None => self.current_row(uuid).await.ok().flatten().and_then(|row| {
                let pid = *row.info.pids.last()?;
                Some((pid, row.info.name, "dead".to_owned()))
            }),
        };
        match known {
            Some((pid, name, display)) => {
                let name = name.as_deref().unwrap_or("-").escape_debug().to_string();
                format!("PID {pid}  {}  {name}  {display}", short_id::short(uuid))
            }
            None => uuid.to_string(),
        }
    }

    /// Returns whether a process of the table has this name. Names that look like a part of a UUID are from earlier
    /// versions.
    fn has_name(&self, name: &str) -> bool {
        self.lock().table.has_name(name)
    }
}
