//! The turns that are open on the threads of one server.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use crate::ids::shorten;

/// A server holds a few threads.
const MAX_TURNS: usize = 64;

/// The open turn of each thread: a thread has one at a time.
#[derive(Debug, Default)]
pub(super) struct OpenTurns {
    turns: BTreeMap<String, String>,
    /// How many turns started beyond the limit. They count as open until the process ends: their ends look the same as
    /// those of turns whose start was not seen.
    forgotten: usize,
    /// The turns that were completed last. Some of their lines may still arrive.
    completed: VecDeque<String>,
}

impl OpenTurns {
    /// Returns whether this is the only open turn.
    pub(super) fn start(&mut self, thread_id: &str, turn_id: &str) -> bool {
        let thread_id = shorten(thread_id);
        let is_only = self.forgotten == 0 && self.turns.keys().all(|open| *open == thread_id);
        if self.turns.len() < MAX_TURNS || self.turns.contains_key(thread_id.as_ref()) {
            self.turns.insert(thread_id.into_owned(), shorten(turn_id).into_owned());
        } else {
            self.forgotten = self.forgotten.saturating_add(1);
        }
        is_only
    }

    /// Notes a turn whose start was not seen, if there is room.
    pub(super) fn join(&mut self, thread_id: &str, turn_id: &str) {
        if self.turns.len() < MAX_TURNS && !self.contains(thread_id) {
            self.turns.insert(shorten(thread_id).into_owned(), shorten(turn_id).into_owned());
        }
    }

    /// Removes a turn that has ended. Without a thread id it may be on any thread; without a turn id it may be any turn
    /// of the thread. Returns whether no turn is open afterwards, even if there was none to remove, because the start
    /// of a turn may not have been seen.
    pub(super) fn end(&mut self, thread_id: Option<&str>, turn_id: Option<&str>) -> bool {
        let (thread_id, turn_id) = (thread_id.map(shorten), turn_id.map(shorten));
        let is_other = |id: &Option<Cow<'_, str>>, open: &str| id.as_deref().is_some_and(|id| id != open);
        self.turns.retain(|thread, turn| is_other(&thread_id, thread) || is_other(&turn_id, turn));
        self.is_empty()
    }

    /// Notes that a turn is over for good. An error may end a turn that then continues.
    pub(super) fn note_completed(&mut self, turn_id: &str) {
        if self.completed.len() == MAX_TURNS {
            self.completed.pop_front();
        }
        self.completed.push_back(shorten(turn_id).into_owned());
    }

    /// Returns whether a turn is over for good.
    pub(super) fn is_completed(&self, turn_id: &str) -> bool {
        let turn_id = shorten(turn_id);
        let is_open = self.turns.values().any(|open| *open == turn_id);
        !is_open && self.completed.iter().any(|completed| *completed == turn_id)
    }

    /// Returns whether a turn is open on this thread.
    pub(super) fn contains(&self, thread_id: &str) -> bool {
        self.turns.contains_key(shorten(thread_id).as_ref())
    }

    /// Returns whether this turn is the open one of the thread.
    pub(super) fn is_open(&self, thread_id: &str, turn_id: &str) -> bool {
        self.turns.get(shorten(thread_id).as_ref()).is_some_and(|open| *open == shorten(turn_id))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.forgotten == 0
    }
}
