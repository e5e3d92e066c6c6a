//! Subagents that a CLI agent reports: shown below it, although they are no processes.

use relive_api::Process;
use relive_core::Timestamp;
use serde::Deserialize;

use super::Column;
use crate::render::table::Cell;
use crate::render::time::{Clock, age};
use crate::terminal::one_line;

/// Something that a list shows.
pub(super) enum Listed<'a> {
    Process(&'a Process),
    Observed(Observed),
}

/// A subagent.
#[derive(Debug, Deserialize)]
pub(super) struct Observed {
    id: String,
    name: Option<String>,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
}

/// Returns the subagents of a process.
pub(super) fn of(process: &Process) -> impl Iterator<Item = Observed> + use<> {
    let listed = process.agent.as_ref().map(|agent| agent["subagents"].clone());
    listed.and_then(|listed| serde_json::from_value::<Vec<Observed>>(listed).ok()).unwrap_or_default().into_iter()
}

impl Observed {
    pub(super) fn is_running(&self) -> bool {
        self.ended_at.is_none()
    }

    fn name(&self) -> String {
        one_line(self.name.as_deref().unwrap_or("subagent"))
    }

    pub(super) fn cell(&self, column: Column, branch: &str, now: Timestamp) -> Cell {
        Cell::plain(match column {
            Column::State => "observed".to_owned(),
            Column::Name => format!("{branch}{}", self.name()),
            Column::Intent => format!("subagent {}", one_line(&self.id)),
            Column::Age => age(self.started_at, now),
            Column::Pid
            | Column::Id
            | Column::Body
            | Column::Step
            | Column::Tokens
            | Column::Cost
            | Column::Elapsed
            | Column::Model
            | Column::Directory
            | Column::Exit
            | Column::Why
            | Column::Doing
            | Column::Detail
            | Column::Parent
            | Column::Uuid => "-".to_owned(),
        })
    }

    /// `general-purpose, toolu_1: since 12:00:00, only observed`.
    pub(super) fn in_words(&self, clock: &Clock) -> String {
        let when = match self.ended_at {
            Some(ended_at) => format!("{} to {}", clock.second(self.started_at), clock.second(ended_at)),
            None => format!("since {}", clock.second(self.started_at)),
        };
        format!("{}, {}: {when}, only observed", self.name(), one_line(&self.id))
    }
}
