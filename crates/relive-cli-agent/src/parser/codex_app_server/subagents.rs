//! The threads of one server that are subagents.

use crate::ids::IdSet;

#[derive(Debug, Default)]
pub(super) struct Subagents {
    threads: IdSet,
    /// The threads whose turn has started and not ended.
    working: IdSet,
    /// The threads whose turn has ended. The agent may give them another one.
    ended: IdSet,
}

impl Subagents {
    pub(super) fn contains(&self, id: &str) -> bool {
        self.threads.contains(id)
    }

    /// Notes that a thread starts. Returns false if it has started already.
    pub(super) fn start(&mut self, id: &str) -> bool {
        self.threads.insert(id)
    }

    /// Notes that a turn starts. Returns whether the subagent starts again with it.
    pub(super) fn start_turn(&mut self, id: &str) -> bool {
        self.working.insert(id);
        self.ended.remove(id)
    }

    /// Returns whether its turn is open.
    pub(super) fn is_working(&self, id: &str) -> bool {
        self.working.contains(id)
    }

    /// Notes that a turn has ended. Returns whether the subagent ends with it, which is false if it had ended already.
    pub(super) fn end_turn(&mut self, id: &str) -> bool {
        self.working.remove(id);
        self.threads.contains(id) && self.ended.insert(id)
    }

    /// Forgets a thread that was closed. Returns whether a subagent ends with it.
    pub(super) fn close(&mut self, id: &str) -> bool {
        self.working.remove(id);
        let has_ended = self.ended.remove(id);
        self.threads.remove(id) && !has_ended
    }
}
