//! The acknowledged facts, remembered outside the data directory.

use std::collections::BTreeMap;

use relive_core::{Pid, Uuid};

/// Whether something was requested, and whether it was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    Not,
    Asked,
    Acknowledged,
}

/// The facts about one process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) begun: Fact,
    pub(crate) ended: Fact,
    pub(crate) collected: Fact,
    /// The acknowledged prefix of the journal.
    pub(crate) journal: Vec<u8>,
    /// For a fork, the origin and its journal when the fork was requested.
    pub(crate) fork_of: Option<(Uuid, Vec<u8>)>,
}

/// Everything that was acknowledged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Oracle {
    pub(crate) pids: Vec<Pid>,
    pub(crate) processes: BTreeMap<Uuid, Process>,
}

impl Oracle {
    pub(crate) fn begin(&mut self, uuid: Uuid, name: &'static str, fork_of: Option<(Uuid, Vec<u8>)>) {
        let (ended, collected) = (Fact::Not, Fact::Not);
        let process = Process { name, begun: Fact::Asked, ended, collected, journal: Vec::new(), fork_of };
        self.processes.insert(uuid, process);
    }

    /// Records that all of this journal, and the process, was acknowledged.
    pub(crate) fn acknowledge(&mut self, uuid: Uuid, journal: Vec<u8>) {
        if let Some(process) = self.processes.get_mut(&uuid) {
            process.begun = Fact::Acknowledged;
            process.journal = journal;
        }
    }

    /// Records that the process was resumed: its end no longer counts.
    pub(crate) fn reopen(&mut self, uuid: Uuid, journal: Vec<u8>) {
        self.acknowledge(uuid, journal);
        self.set_ended(uuid, Fact::Not);
    }

    pub(crate) fn set_ended(&mut self, uuid: Uuid, fact: Fact) {
        if let Some(process) = self.processes.get_mut(&uuid) {
            process.ended = fact;
        }
    }

    pub(crate) fn set_collected(&mut self, uuid: Uuid, fact: Fact) {
        if let Some(process) = self.processes.get_mut(&uuid) {
            process.collected = fact;
        }
    }
}
