//! Requests of an agent that nobody can fulfil. Each is refused once, also if the daemon is replaced in between.
//!
//! An agent may use the id of a request again after the answer, so requests are counted and not known by their ids.

use std::collections::{BTreeMap, VecDeque};

use relive_cli_agent::Refusal;

/// The number of such requests that a program may make. Each is a record in the journal.
const REQUESTS_MAX: usize = 10_000;
/// The length of an id, in JSON. It is copied to the journal.
const ID_MAX_BYTES: usize = 1024;

/// The requests of a program that were read and are not refused yet, by their ids in JSON.
#[derive(Debug, Default)]
pub(super) struct Unsupported {
    open: VecDeque<(String, Refusal)>,
    count: usize,
}

impl Unsupported {
    /// Takes in a request. Returns why the program cannot be spoken to any more, if that is so.
    pub(super) fn ask(&mut self, id: &str, refusal: Refusal) -> Option<String> {
        if id.len() > ID_MAX_BYTES {
            let length = id.len();
            return Some(format!("a request of the agent has an id of {length} bytes; the limit is {ID_MAX_BYTES}"));
        }
        if self.count == REQUESTS_MAX {
            return Some(format!(
                "the agent asked more than {REQUESTS_MAX} times for things that Relive does not offer"
            ));
        }
        self.count += 1;
        self.open.push_back((id.to_owned(), refusal));
        None
    }

    /// Returns the oldest request. It stays until [`refused`](Self::refused).
    pub(super) fn first(&self) -> Option<(&str, Refusal)> {
        self.open.front().map(|(id, refusal)| (id.as_str(), *refusal))
    }

    /// Removes the oldest request: its refusal is recorded.
    pub(super) fn refused(&mut self) {
        self.open.pop_front();
    }
}

/// The refusals that an earlier daemon has recorded, by the ids of the requests. The output is read again from its
/// beginning, so each is found there, unless that part is lost.
#[derive(Debug)]
pub(super) enum RefusedBefore {
    Counting(BTreeMap<String, usize>),
    /// All of that output was compared. Every other refusal is this daemon's own.
    Compared,
}

impl RefusedBefore {
    pub(super) fn new() -> Self {
        Self::Counting(BTreeMap::new())
    }

    /// Takes in a recorded refusal.
    pub(super) fn add(&mut self, id: &str) {
        if let Self::Counting(counts) = self {
            *counts.entry(id.to_owned()).or_default() += 1;
        }
    }

    /// Forgets the refusals of an earlier program.
    pub(super) fn clear(&mut self) {
        if let Self::Counting(counts) = self {
            counts.clear();
        }
    }

    /// Removes the requests that were refused. Only the first call does: it follows all output of the earlier daemon.
    pub(super) fn remove_from(&mut self, requests: &mut Unsupported) {
        let Self::Counting(mut counts) = std::mem::replace(self, Self::Compared) else { return };
        requests.open.retain(|(id, _)| match counts.get_mut(id) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            Some(_) | None => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSAL: Refusal = Refusal::Decline;

    fn ids(requests: &Unsupported) -> Vec<&str> {
        requests.open.iter().map(|(id, _)| id.as_str()).collect()
    }

    fn asked(ids: &[&str]) -> Unsupported {
        let mut requests = Unsupported::default();
        for id in ids {
            assert_eq!(requests.ask(id, REFUSAL), None);
        }
        requests
    }

    #[test]
    fn every_request_is_refused_once_also_if_its_id_was_used_before() {
        let check = |recorded: &[&str], read: &[&str], expect: &[&str]| {
            let (mut before, mut requests) = (RefusedBefore::new(), asked(read));
            recorded.iter().for_each(|id| before.add(id));
            before.remove_from(&mut requests);
            assert_eq!(ids(&requests), expect);
            // Its own refusals change nothing, and neither do those of requests whose output is lost.
            requests = asked(read);
            recorded.iter().for_each(|id| before.add(id));
            before.remove_from(&mut requests);
            assert_eq!(ids(&requests), read);
        };
        check(&[], &["1", "1"], &["1", "1"]);
        check(&["1"], &["1", "2", "1"], &["2", "1"]);
        check(&["1", "1"], &["1", "1"], &[]);
        check(&["7", "1"], &["1", "1"], &["1"]);
    }

    #[test]
    fn a_request_stays_until_its_refusal_is_recorded() {
        let mut requests = asked(&["1", "2"]);
        assert_eq!((requests.first(), requests.first()), (Some(("1", REFUSAL)), Some(("1", REFUSAL))));
        requests.refused();
        assert_eq!(requests.first(), Some(("2", REFUSAL)));
    }

    #[test]
    fn the_number_of_requests_and_the_length_of_an_id_are_limited() {
        let mut requests = Unsupported::default();
        let long = requests.ask(&"1".repeat(ID_MAX_BYTES + 1), REFUSAL).unwrap();
        assert_eq!(long, "a request of the agent has an id of 1025 bytes; the limit is 1024");
        assert_eq!(requests.first(), None);
        assert_eq!(requests.ask(&"1".repeat(ID_MAX_BYTES), REFUSAL), None);
        for _ in 1..REQUESTS_MAX {
            assert_eq!(requests.ask("1", REFUSAL), None);
            requests.refused();
        }
        assert!(requests.ask("1", REFUSAL).unwrap().starts_with("the agent asked more than 10000 times"));
    }
}
