//! Subagents that a CLI agent reports. They can be seen, and only their agent controls them: they are no processes.

use relive_cli_agent::{Event, EventKind};
use relive_core::Timestamp;
use serde_json::{Value, json};

/// The number of subagents that are shown; the oldest of more than this is forgotten, those that have ended first.
const SHOWN_MAX: usize = 32;

/// A subagent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Subagent {
    /// The CLI's own name of it.
    pub(crate) id: String,
    /// Its kind, if the CLI says so.
    name: Option<String>,
    /// The subagent that started it.
    parent: Option<String>,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
}

/// The subagents of one agent, in the order of their starts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Subagents(Vec<Subagent>);

impl Subagents {
    pub(super) fn learn(&mut self, event: &Event, at: Timestamp) {
        if let EventKind::SubagentStarted { id, name } = &event.kind {
            self.start(id, name.as_deref(), event.subagent.as_deref(), at);
        } else if let EventKind::SubagentEnded { id } = &event.kind
            && let Some(subagent) = self.0.iter_mut().rfind(|subagent| subagent.id == *id)
        {
            subagent.ended_at.get_or_insert(at);
        }
    }

    fn start(&mut self, id: &str, name: Option<&str>, parent: Option<&str>, at: Timestamp) {
        // The agent may give one that has ended more to do.
        self.0.retain(|subagent| subagent.id != id);
        if self.0.len() == SHOWN_MAX {
            let over = self.0.iter().position(|subagent| subagent.ended_at.is_some());
            self.0.remove(over.unwrap_or(0));
        }
        self.0.push(Subagent {
            id: id.to_owned(),
            name: name.map(str::to_owned),
            parent: parent.map(str::to_owned),
            started_at: at,
            ended_at: None,
        });
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.0.iter().any(|subagent| subagent.id == id)
    }

    pub(super) fn to_json(&self) -> Value {
        let shown = |subagent: &Subagent| {
            json!({
                "id": subagent.id,
                "name": subagent.name,
                "parent": subagent.parent,
                "state": if subagent.ended_at.is_some() { "ended" } else { "running" },
                "started_at": subagent.started_at.to_string(),
                "ended_at": subagent.ended_at.map(|at| at.to_string()),
            })
        };
        self.0.iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn states(subagents: &Subagents) -> Vec<(String, bool)> {
        subagents.0.iter().map(|subagent| (subagent.id.clone(), subagent.ended_at.is_some())).collect()
    }

    #[test]
    fn those_that_have_ended_are_forgotten_first() {
        let mut subagents = Subagents::default();
        let started = |id: &str| Event::from(EventKind::SubagentStarted { id: id.to_owned(), name: None });
        let ended = |id: &str| Event::from(EventKind::SubagentEnded { id: id.to_owned() });
        for number in 0..SHOWN_MAX {
            subagents.learn(&started(&number.to_string()), at(1));
        }
        subagents.learn(&ended("3"), at(2));
        subagents.learn(&ended("unknown"), at(2));
        subagents.learn(&started("new"), at(3));
        let shown = states(&subagents);
        assert_eq!((shown.len(), shown.last()), (SHOWN_MAX, Some(&("new".to_owned(), false))));
        assert!(!subagents.contains("3") && subagents.contains("0"));
        subagents.learn(&ended("new"), at(4));
        assert_eq!(states(&subagents).last(), Some(&("new".to_owned(), true)));
        // It has more to do.
        subagents.learn(&started("new"), at(5));
        assert_eq!(states(&subagents).last(), Some(&("new".to_owned(), false)));
    }
}
