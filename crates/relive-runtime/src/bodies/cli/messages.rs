//! Which messages a program was told, and which of them it has begun to answer: pure.
//!
//! A message counts as heard with the first word, call or end of the turn that took it. One that a program took and died
//! with, before it said anything, is for the next program.

use std::collections::{BTreeMap, VecDeque};

use relive_cli_agent::EventKind;
use relive_core::Uuid;

/// The bits of an id that are the number of a message.
const NUMBER: u128 = 0xffff_ffff_ffff;

/// Returns the id of a message, by its number. A message that is written to another program has another number: claude ignores a
/// message whose id its conversation has already.
pub(super) fn message_id(process: Uuid, number: u64) -> String {
    Uuid::from_u128(process.as_u128() & !NUMBER | u128::from(number) & NUMBER).to_string()
}

fn number_of(id: &str) -> Option<u64> {
    u64::try_from(id.parse::<Uuid>().ok()?.as_u128() & NUMBER).ok()
}

/// The messages of one program.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Whether it was told any, perhaps by an earlier daemon.
    is_told: bool,
    /// Written to it and not taken.
    waiting: VecDeque<Waiting>,
    /// The record of the last one that it took, if it has said nothing since.
    taken: Option<u64>,
    /// What it says became of its messages, by their numbers. Empty if it does not say so: then each turn is taken for the answer
    /// to the next message.
    named: BTreeMap<u64, Fate>,
    /// The turns in its output that began before it was known here which messages were written.
    unclaimed: usize,
    is_turn_open: bool,
    /// Whether it has said something since its last turn began.
    has_answered: bool,
}

/// A message that was written to a program which has not taken it.
#[derive(Debug)]
struct Waiting {
    number: u64,
    record: u64,
    /// Whether the program is expected to take it.
    is_expected: bool,
}

/// What became of a message, as its program says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nothing was said since.
    Taken,
    Answered,
    /// It was not taken before.
    Dropped,
}

/// What became of a message that an earlier daemon has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claimed {
    /// It is not in a turn.
    Waiting,
    /// It was taken, and nothing was said since.
    Taken,
    Answered,
    /// The program has not taken it, and will not.
    Dropped,
}

impl Messages {
    /// Begins with what the journal says: whether the program was told a message, and whether it has begun a turn that is not
    /// known to answer one.
    pub(super) fn new(is_told: bool, has_unclaimed_turn: bool) -> Self {
        Self { is_told, unclaimed: usize::from(has_unclaimed_turn), ..Self::default() }
    }

    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Tells whether the program is known to have a message that it will take.
    pub(super) fn is_expecting(&self) -> bool {
        !self.named.is_empty() && self.waiting.iter().any(|message| message.is_expected)
    }

    /// Tells whether the program has begun a turn that it has not ended, by its output.
    pub(super) fn is_turn_open(&self) -> bool {
        self.is_turn_open
    }

    /// Expects the program to take no message of those that wait. One that it takes later counts all the same.
    pub(super) fn give_up(&mut self) {
        self.waiting.iter_mut().for_each(|message| message.is_expected = false);
    }

    /// Tells whether the program has said something in its turn, or has begun none.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Notes a message that is written to the program.
    pub(super) fn wrote(&mut self, number: u64, record: u64) {
        self.is_told = true;
        self.waiting.push_back(Waiting { number, record, is_expected: true });
    }

    /// Notes that output was lost, in which the program has said something.
    pub(super) fn lose_output(&mut self, is_turn_open: bool) {
        (self.is_turn_open, self.has_answered) = (is_turn_open, true);
    }

    /// Takes in what the program itself says. `is_unrecorded` is whether the event begins a turn that is not in the journal.
    /// Returns the message that it has begun to answer.
    pub(super) fn take_in(&mut self, event: &EventKind, is_unrecorded: bool) -> Option<u64> {
        if let EventKind::MessageTaken { id } = event {
            self.take_named(number_of(id)?);
            return None;
        }
        let is_end = is_end(event);
        let is_answer = is_end || is_word(event);
        let begins = matches!(event, EventKind::TurnStarted { .. });
        if !is_answer && !begins {
            return None;
        }
        if !self.is_turn_open && (!is_end || !self.waiting.is_empty()) {
            self.begin_turn(is_unrecorded);
        }
        if !is_answer {
            return None;
        }
        self.is_turn_open = !is_end;
        self.answer()
    }

    /// Notes that the program says something, and returns the message that it has begun to answer.
    fn answer(&mut self) -> Option<u64> {
        self.has_answered = true;
        self.named.values_mut().filter(|fate| **fate == Fate::Taken).for_each(|fate| *fate = Fate::Answered);
        self.taken.take()
    }

    fn take_named(&mut self, number: u64) {
        if self.named.contains_key(&number) {
            return;
        }
        self.named.insert(number, Fate::Taken);
        self.has_answered = false;
        self.taken = self.taken.max(self.remove_waiting(number));
    }

    /// Takes in that a program of this process drops a message. Returns whether it had not taken it: then it was not heard.
    pub(super) fn drop_message(&mut self, process: Uuid, id: &str) -> bool {
        let Some(number) = number_of(id).filter(|number| message_id(process, *number) == id) else { return false };
        if self.named.contains_key(&number) {
            return false;
        }
        self.named.insert(number, Fate::Dropped);
        self.remove_waiting(number);
        true
    }

    /// Returns the record of the message that waited.
    fn remove_waiting(&mut self, number: u64) -> Option<u64> {
        let place = self.waiting.iter().position(|message| message.number == number)?;
        self.waiting.remove(place).map(|message| message.record)
    }

    fn begin_turn(&mut self, is_unrecorded: bool) {
        self.is_turn_open = true;
        if !self.named.is_empty() {
            return;
        }
        self.has_answered = false;
        match self.waiting.pop_front() {
            Some(message) => self.taken = self.taken.max(Some(message.record)),
            None => self.unclaimed += usize::from(is_unrecorded),
        }
    }

    /// Finds out what became of a message that an earlier daemon has written, after the output was read. It waits otherwise.
    pub(super) fn claim(&mut self, number: u64, record: u64) -> Claimed {
        self.is_told = true;
        let is_answered = match self.named.get(&number) {
            Some(Fate::Dropped) => return Claimed::Dropped,
            Some(fate) => *fate == Fate::Answered,
            None if self.unclaimed == 0 || !self.named.is_empty() => return Claimed::Waiting,
            None => {
                self.unclaimed -= 1;
                // An earlier turn than the last one is over.
                self.unclaimed > 0 || self.has_answered
            }
        };
        if is_answered {
            return Claimed::Answered;
        }
        self.taken = self.taken.max(Some(record));
        Claimed::Taken
    }
}

/// Tells whether an event is work on a message.
fn is_word(event: &EventKind) -> bool {
    is_in_step(event) || matches!(event, EventKind::ApprovalAsked(_) | EventKind::Question { .. })
}

/// Tells whether an event is a part of a step, so that a turn begins with it in the journal.
pub(super) fn is_in_step(event: &EventKind) -> bool {
    matches!(event, EventKind::Text { .. } | EventKind::Thinking { .. } | EventKind::ToolStarted { .. })
}

/// Tells whether an event ends a turn of this program.
pub(super) fn is_end(event: &EventKind) -> bool {
    if let EventKind::TurnEnded { outcome, .. } = event {
        *outcome != relive_cli_agent::TurnOutcome::Replayed
    } else {
        matches!(event, EventKind::Error { .. })
    }
}

#[cfg(test)]
mod tests {
    use relive_cli_agent::TurnOutcome;

    use super::*;

    fn begins() -> EventKind {
        EventKind::TurnStarted { turn_id: None }
    }

    fn says() -> EventKind {
        EventKind::Text { text: "x".into(), delta: false }
    }

    fn ends() -> EventKind {
        EventKind::TurnEnded { outcome: TurnOutcome::Completed, message: None }
    }

    fn takes(number: u64) -> EventKind {
        EventKind::MessageTaken { id: message_id(Uuid::nil(), number) }
    }

    /// Takes events in, and returns the messages that were heard.
    fn heard(messages: &mut Messages, events: &[EventKind]) -> Vec<u64> {
        events.iter().filter_map(|event| messages.take_in(event, true)).collect()
    }

    #[test]
    fn a_message_is_heard_with_the_first_word_of_its_turn() {
        let mut messages = Messages::new(false, false);
        messages.wrote(2, 1);
        assert!(heard(&mut messages, &[begins()]).is_empty());
        assert_eq!(heard(&mut messages, &[says(), says(), ends()]), [1]);
        messages.wrote(9, 8);
        // It failed at once.
        assert_eq!(heard(&mut messages, &[begins(), ends()]), [8]);
    }

    #[test]
    fn each_turn_answers_the_next_message() {
        let mut messages = Messages::new(false, false);
        messages.wrote(2, 1);
        messages.wrote(4, 3);
        assert_eq!(heard(&mut messages, &[begins(), says(), ends()]), [1]);
        assert_eq!(heard(&mut messages, &[begins(), says(), ends()]), [3]);
    }

    #[test]
    fn a_message_that_the_program_names_is_heard_in_the_turn_of_another_one() {
        let mut messages = Messages::new(false, false);
        messages.wrote(2, 1);
        assert_eq!(heard(&mut messages, &[takes(2), begins(), says()]), [1]);
        messages.wrote(4, 3);
        assert!(messages.is_expecting());
        assert!(heard(&mut messages, &[takes(4)]).is_empty());
        assert!(!messages.is_expecting());
        assert_eq!(heard(&mut messages, &[says(), ends()]), [3]);
        // A turn of its own, as after a command in the background.
        messages.wrote(6, 5);
        assert!(heard(&mut messages, &[begins(), says(), ends()]).is_empty());
        assert!(messages.is_expecting());
    }

    #[test]
    fn a_message_that_the_program_drops_is_not_heard() {
        let mut messages = Messages::new(false, false);
        let drops =
            |messages: &mut Messages, number| messages.drop_message(Uuid::nil(), &message_id(Uuid::nil(), number));
        messages.wrote(2, 1);
        messages.wrote(4, 3);
        assert!(drops(&mut messages, 4));
        assert!(messages.is_expecting());
        assert_eq!(heard(&mut messages, &[takes(2), begins(), says(), ends()]), [1]);
        assert!(!messages.is_expecting());
        assert!(heard(&mut messages, &[begins(), says(), ends()]).is_empty());
        assert_eq!(messages.claim(4, 3), Claimed::Dropped);
        // Claude says so, too, of a message whose turn was interrupted.
        messages.wrote(6, 5);
        assert!(heard(&mut messages, &[takes(6), begins()]).is_empty());
        assert!(!drops(&mut messages, 6));
        assert_eq!(heard(&mut messages, &[ends()]), [5]);
        let foreign = message_id(Uuid::from_u128(7 << 64), 8);
        assert!(!messages.drop_message(Uuid::nil(), &foreign));
    }

    #[test]
    fn a_message_that_was_given_up_counts_when_it_is_taken() {
        let mut messages = Messages::new(false, false);
        messages.wrote(2, 1);
        assert_eq!(heard(&mut messages, &[takes(2), begins(), says(), ends()]), [1]);
        messages.wrote(4, 3);
        messages.give_up();
        assert!(!messages.is_expecting());
        messages.wrote(6, 5);
        assert!(messages.is_expecting());
        assert_eq!(heard(&mut messages, &[takes(4), begins(), says(), ends()]), [3]);
    }

    #[test]
    fn what_an_earlier_daemon_has_written_is_found_in_the_output() {
        let check = |has_unclaimed, events: &[EventKind], expect: Claimed| {
            let mut messages = Messages::new(true, has_unclaimed);
            assert!(heard(&mut messages, events).is_empty());
            assert_eq!(messages.claim(4, 3), expect, "{events:?}");
        };
        check(false, &[], Claimed::Waiting);
        check(false, &[begins()], Claimed::Taken);
        check(true, &[], Claimed::Taken);
        check(false, &[begins(), says()], Claimed::Answered);
        check(false, &[begins(), says(), ends(), begins()], Claimed::Answered);
        check(false, &[takes(2), begins(), says(), ends()], Claimed::Waiting);
        check(false, &[takes(2), begins(), takes(4)], Claimed::Taken);
        check(false, &[takes(2), begins(), takes(4), says()], Claimed::Answered);
    }

    #[test]
    fn ids_differ_by_process_and_number() {
        let process = Uuid::from_u128(7 << 64);
        assert_eq!(number_of(&message_id(process, 12)), Some(12));
        assert_ne!(message_id(process, 12), message_id(Uuid::nil(), 12));
        assert_eq!(number_of("s1"), None);
    }
}
