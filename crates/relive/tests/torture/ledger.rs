//! What every client asked and was told, remembered outside the daemon.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use relive_core::Uuid;

use crate::verb::{Told, Verb};

/// A verb and its interval, in microseconds since the round began.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) uuid: Uuid,
    pub(crate) verb: Verb,
    /// Not before this it can have taken place.
    pub(crate) sent: u64,
    /// And not after this: the answer came, or there was no daemon any more that could do it.
    pub(crate) latest: u64,
    pub(crate) told: Told,
}

/// What a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its model never answers.
    Idle,
    /// One effect after the other.
    Worker,
    /// Asks before each effect.
    Asker,
    /// Asks one question after the other.
    Questioner,
    Program,
    /// A run of a compose file, or a supervisor, with one program that never ends.
    Tree,
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) entries: Vec<Entry>,
    /// In the order in which they were asked for.
    pub(crate) processes: Vec<(Uuid, Kind)>,
    /// The messages that were sent.
    pub(crate) texts: HashSet<String>,
    pub(crate) contradictions: Vec<String>,
    /// When daemons were killed, and when the round was over.
    stops: Vec<u64>,
}

/// The memory of a round.
#[derive(Debug)]
pub(crate) struct Ledger {
    begun: Instant,
    book: Mutex<Book>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), book: Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn at(&self, moment: Instant) -> u64 {
        u64::try_from(moment.duration_since(self.begun).as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn contradiction(&self, text: String) {
        self.lock().contradictions.push(text);
    }

    /// A daemon is gone: what it has not done by now it will not do.
    pub(crate) fn stopped(&self) {
        let now = self.at(Instant::now());
        self.lock().stops.push(now);
    }

    /// A verb that was answered.
    pub(crate) fn answered(&self, uuid: Uuid, verb: Verb, sent: u64, answered: Instant, told: Told) {
        let latest = self.at(answered);
        self.lock().entries.push(Entry { uuid, verb, sent, latest, told });
    }

    /// A verb that was not answered, sent for the first time at `sent` and for the last time at `last_sent`. How long it
    /// can have taken is known when the round is over.
    pub(crate) fn unanswered(&self, uuid: Uuid, verb: Verb, sent: u64, last_sent: u64) {
        if verb != Verb::Look {
            self.lock().entries.push(Entry { uuid, verb, sent, latest: last_sent, told: Told::Nothing });
        }
    }

    /// Everything, once nobody asks any more.
    pub(crate) fn close(&self) -> Book {
        let mut book = std::mem::take(&mut *self.lock());
        for entry in book.entries.iter_mut().filter(|entry| entry.told == Told::Nothing) {
            let stop = book.stops.iter().filter(|stop| **stop >= entry.latest).min();
            entry.latest = stop.copied().unwrap_or(u64::MAX);
        }
        book
    }
}
