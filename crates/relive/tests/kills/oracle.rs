//! What was acknowledged, remembered outside the daemon.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use relive_api::WaitAnswer;
use relive_core::{Pid, ProcessStatus, Uuid};

/// Everything the daemon ever said yes to.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    known: Mutex<Known>,
}

/// What a program does besides writing its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trait {
    /// It waits at the gate.
    Gated,
    /// It reads messages, and ends after [`crate::programs::MESSAGES`] of them.
    Listens,
    /// It writes an exit record into its own session's directory.
    Forges,
    /// It stops its shim.
    StopsItsShim,
}

/// A process we asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    /// The PIDs that were answered for it.
    pub(crate) pids: Vec<Pid>,
    /// The step it was forked at, if that was said.
    pub(crate) from_step: Option<u32>,
    /// Records seen, each with its id.
    pub(crate) records: BTreeMap<(u64, u64), String>,
    /// The ids of messages to it, and whether they were acknowledged.
    pub(crate) messages: BTreeMap<String, bool>,
    /// Whether it asks questions.
    pub(crate) asks: bool,
    /// The answers to its questions, and whether they were acknowledged.
    pub(crate) answers: BTreeMap<String, bool>,
    /// How often it was acknowledged that its end was seen, for the first time.
    pub(crate) seen: usize,
    /// The ends that were answered: PID, status.
    pub(crate) ends: Vec<(Pid, ProcessStatus)>,
    /// The code it exits with, if it is a program.
    pub(crate) program: Option<u64>,
    pub(crate) trait_of: Option<Trait>,
    /// Whether somebody wanted it to end.
    pub(crate) signalled: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) asked: HashMap<Uuid, Asked>,
    pub(crate) violations: Vec<String>,
    pub(crate) acknowledged: usize,
    /// The sessions whose shims were killed.
    pub(crate) shims_lost: HashSet<String>,
}

impl Oracle {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }

    pub(crate) fn violation(&self, text: String) {
        self.lock().violations.push(text);
    }

    /// A process exists, under this PID.
    pub(crate) fn exists(&self, uuid: Uuid, pid: Pid) {
        let mut known = self.lock();
        known.acknowledged += 1;
        known.asked.entry(uuid).or_default().pids.push(pid);
    }

    /// Somebody is about to ask for a program that exits with this code.
    pub(crate) fn program(&self, uuid: Uuid, code: u64, trait_of: Option<Trait>) {
        let mut known = self.lock();
        let asked = known.asked.entry(uuid).or_default();
        (asked.program, asked.trait_of) = (Some(code), trait_of);
    }

    /// Somebody is about to end it.
    pub(crate) fn signalled(&self, uuid: Uuid) {
        self.lock().asked.entry(uuid).or_default().signalled = true;
    }

    pub(crate) fn forked(&self, uuid: Uuid, from_step: Option<u32>) {
        self.lock().asked.entry(uuid).or_default().from_step = from_step;
    }

    /// A record was shown with its id. The same id never has two texts.
    pub(crate) fn record(&self, uuid: Uuid, id: &str, line: &str) {
        let parsed = id.split_once('.').and_then(|(epoch, seq)| Some((epoch.parse().ok()?, seq.parse().ok()?)));
        let Some(id) = parsed else { return self.violation(format!("A: {uuid}: `{id}` is no id")) };
        let mut known = self.lock();
        known.acknowledged += 1;
        let seen = known.asked.entry(uuid).or_default().records.insert(id, line.to_owned());
        if seen.is_some_and(|seen| seen != line) {
            known.violations.push(format!("A: {uuid}: record {id:?} was shown with two texts"));
        }
    }

    /// The id of the last record seen.
    pub(crate) fn last_seen(&self, uuid: Uuid) -> Option<String> {
        let known = self.lock();
        let last = known.asked.get(&uuid).and_then(|asked| asked.records.keys().next_back().copied());
        last.map(|(epoch, seq)| format!("{epoch}.{seq}"))
    }

    pub(crate) fn message(&self, uuid: Uuid, id: &str, acknowledged: bool) {
        let mut known = self.lock();
        known.acknowledged += usize::from(acknowledged);
        *known.asked.entry(uuid).or_default().messages.entry(id.to_owned()).or_default() |= acknowledged;
    }

    /// An answer was given to a question.
    pub(crate) fn answer(&self, uuid: Uuid, words: &str, acknowledged: bool) {
        let mut known = self.lock();
        known.acknowledged += usize::from(acknowledged);
        *known.asked.entry(uuid).or_default().answers.entry(words.to_owned()).or_default() |= acknowledged;
    }

    /// Somebody has seen its end; `changed` if nobody had before.
    pub(crate) fn seen(&self, uuid: Uuid, changed: bool) {
        let mut known = self.lock();
        known.acknowledged += 1;
        known.asked.entry(uuid).or_default().seen += usize::from(changed);
    }

    /// An end was answered.
    pub(crate) fn ended(&self, uuid: Uuid, answer: &WaitAnswer) {
        if answer.timed_out {
            return;
        }
        let mut known = self.lock();
        known.acknowledged += 1;
        match answer.status.clone() {
            Some(status) => known.asked.entry(uuid).or_default().ends.push((answer.pid, status)),
            None => known.violations.push(format!("A: {uuid}: a wait was answered with no end: {answer:?}")),
        }
    }
}
