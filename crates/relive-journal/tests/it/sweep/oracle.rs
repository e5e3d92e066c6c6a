//! What was acknowledged, remembered outside the data directory.

use std::collections::BTreeMap;

use relive_core::{Pid, Uuid};

/// Whether something was asked for, and whether it was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    Not,
    Asked,
    Acknowledged,
}

/// What is known of one process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) begun: Fact,
    pub(crate) ended: Fact,
    pub(crate) collected: Fact,
    /// The journal's beginning, as far as it was acknowledged.
    pub(crate) journal: Vec<u8>,
    /// For a fork, the original and its journal when the fork was asked for.
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

    /// All of this journal was acknowledged, and with it the process.
    pub(crate) fn acknowledge(&mut self, uuid: Uuid, journal: Vec<u8>) {
        if let Some(process) = self.processes.get_mut(&uuid) {
            process.begun = Fact::Acknowledged;
            process.journal = journal;
        }
    }

    /// The process began anew: that it ended no longer counts.
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
