//! Whether there is an order of the verbs to a process that explains what became of it.

use std::collections::HashSet;

use crate::ledger::Entry;
use crate::model::{Item, State};
use crate::verb::{Seen, Told, Verb};

/// No process gets more verbs: each is a bit, or two.
pub(crate) const VERBS_MAX: usize = 48;
/// So many states are looked at before the search is given up.
const STATES_MAX: usize = 2_000_000;

/// What is known of one process.
pub(crate) struct Known<'a> {
    pub(crate) entries: &'a [&'a Entry],
    pub(crate) items: &'a [Item],
    pub(crate) last: &'a Seen,
}

/// Searches for an order in which every verb that was answered takes place between its request and its answer, some of
/// the others do, the whole journal is accounted for, and the process ends as it was seen last.
pub(crate) fn explain(known: &Known<'_>) -> Result<(), String> {
    let resumed_again = resumed_again(known.entries);
    let entries: Vec<&Entry> = known.entries.iter().copied().chain(&resumed_again).collect();
    let entries = entries.as_slice();
    let answered = entries.iter().enumerate().filter(|(_, entry)| entry.told != Told::Nothing);
    let must: u128 = answered.map(|(number, _)| 1 << number).sum();
    let (mut open, mut visited) = (vec![(0_u128, State::FIRST)], HashSet::new());
    let mut furthest = State::FIRST;
    while let Some((done, state)) = open.pop() {
        if !visited.insert((done, state)) {
            continue;
        }
        if visited.len() > STATES_MAX {
            return Err(format!("not decided after {STATES_MAX} states{}", describe(known, furthest)));
        }
        if done & must == must && state.items == known.items.len() && state.ends_as(known.last) {
            return Ok(());
        }
        if state.items >= furthest.items {
            furthest = state;
        }
        open.extend(state.by_itself(known.items).map(|state| (done, state)));
        for (number, entry) in entries.iter().enumerate().filter(|(number, _)| done & (1 << number) == 0) {
            let earlier = before(entries, entry);
            // One that was answered before this was asked has to come first.
            if earlier & must & !done != 0 {
                continue;
            }
            let next = state.after(known.items, &entry.verb, &entry.told);
            open.extend(next.into_iter().map(|state| (done | earlier | 1 << number, state)));
        }
    }
    Err(describe(known, furthest))
}

/// The ends of the pauses for verbs about files that were not done.
fn resumed_again(entries: &[&Entry]) -> Vec<Entry> {
    let not_done = |entry: &&&Entry| {
        matches!(entry.verb, Verb::PutBack(_)) && matches!(entry.told, Told::Nothing | Told::Refused(_))
    };
    let resumed = |entry: &&Entry| Entry { verb: Verb::ResumeAgain, told: Told::Nothing, ..Entry::clone(entry) };
    entries.iter().filter(not_done).map(resumed).collect()
}

/// The verbs that can only have taken place before this one was asked for.
fn before(entries: &[&Entry], entry: &Entry) -> u128 {
    let earlier = entries.iter().enumerate().filter(|(_, other)| other.latest < entry.sent);
    earlier.map(|(number, _)| 1 << number).sum()
}

fn describe(known: &Known<'_>, furthest: State) -> String {
    let mut text = String::new();
    for entry in known.entries {
        let Entry { verb, sent, latest, told, .. } = entry;
        text += &format!("\n    {sent:>9}..{latest:<9} us {verb:?}: {told:?}");
    }
    format!("{text}\n    journal: {:?}\n    seen last: {:?}; explained as far as {furthest:?}", known.items, known.last)
}

#[cfg(test)]
mod tests {
    use relive_core::Uuid;

    use super::*;
    use crate::verb::{Decision, PutBack};

    const DONE: Told = Told::Done { changed: true };
    const UNCHANGED: Told = Told::Done { changed: false };

    /// Verbs, each with its interval and what its client was told.
    fn check(verbs: &[(u64, u64, Verb, Told)], items: &[Item], last: &Seen) -> bool {
        let entry = |(sent, latest, verb, told): &(u64, u64, Verb, Told)| Entry {
            uuid: Uuid::nil(),
            verb: verb.clone(),
            sent: *sent,
            latest: *latest,
            told: told.clone(),
        };
        let entries: Vec<Entry> = verbs.iter().map(entry).collect();
        let entries: Vec<&Entry> = entries.iter().collect();
        explain(&Known { entries: &entries, items, last }).is_ok()
    }

    fn created() -> (u64, u64, Verb, Told) {
        (0, 1, Verb::Create, DONE)
    }

    #[test]
    fn an_acknowledged_kill_needs_an_end() {
        let kill = (2, 3, Verb::Signal("KILL"), DONE);
        let items = [Item::Created, Item::Ended];
        assert!(check(&[created(), kill.clone()], &items, &Seen::Dead));
        assert!(!check(&[created(), kill.clone()], &items[..1], &Seen::Running));
        assert!(!check(&[created()], &items, &Seen::Dead), "nobody killed it");
        let unanswered = (2, 9, Verb::Signal("KILL"), Told::Nothing);
        assert!(check(&[created(), unanswered.clone()], &items[..1], &Seen::Running));
        assert!(check(&[created(), unanswered], &items, &Seen::Dead));
        let resumed = (2, 9, Verb::Resume, DONE);
        let revived = [Item::Created, Item::Signalled, Item::Ended, Item::Revived];
        assert!(check(&[created(), kill.clone(), resumed.clone()], &revived, &Seen::Running));
        let earlier = (2, 2, Verb::Resume, UNCHANGED);
        assert!(!check(&[created(), earlier, kill], &revived, &Seen::Running), "the resume came before");
    }

    #[test]
    fn only_the_first_answer_to_an_approval_counts() {
        let allow = (2, 5, Verb::Resolve(Decision::Allow), DONE);
        let deny = (3, 6, Verb::Resolve(Decision::Deny), Told::Refused(409));
        let items = [Item::Created, Item::Asked, Item::Answered(Decision::Allow), Item::Asked];
        assert!(check(&[created(), allow.clone(), deny], &items, &Seen::Asking));
        let both = (3, 6, Verb::Resolve(Decision::Deny), DONE);
        assert!(!check(&[created(), allow, both], &items, &Seen::Asking), "one of them was not recorded");
    }

    #[test]
    fn the_words_of_an_answer_bind_and_a_repeat_is_recorded_once() {
        let answer = |text: &str, told| (2, 5, Verb::Answer(text.to_owned()), told);
        let told = |text: &str| Item::Told(text.to_owned());
        let items = [Item::Created, Item::Asked, told("left"), Item::Asked];
        let lost = answer("right", Told::Refused(409));
        assert!(check(&[created(), answer("left", DONE), lost], &items, &Seen::Asking));
        assert!(!check(&[created(), answer("right", DONE)], &items, &Seen::Asking), "another one was recorded");
        let twice = [Item::Created, Item::Asked, told("left"), Item::Asked, told("left")];
        assert!(!check(&[created(), answer("left", DONE)], &twice, &Seen::Running), "it was given once");
        let kill = (2, 3, Verb::Signal("KILL"), DONE);
        let ended = [Item::Created, Item::Ended];
        let ack = |told| (4, 5, Verb::Ack, told);
        assert!(check(&[created(), kill.clone(), ack(UNCHANGED)], &ended, &Seen::Dead));
        assert!(!check(&[created(), kill, ack(DONE)], &ended, &Seen::Dead), "whoever ended it has seen it");
    }

    #[test]
    fn the_checker_rejects_observations_that_fit_no_order() {
        let pause = (2, 3, Verb::Pause, DONE);
        let look = |seen| (4, 5, Verb::Look, Told::Saw(seen));
        let items = [Item::Created];
        assert!(check(&[created(), pause.clone(), look(Seen::Suspended)], &items, &Seen::Suspended));
        assert!(!check(&[created(), pause.clone(), look(Seen::Running)], &items, &Seen::Suspended));
        assert!(!check(&[created(), pause], &items, &Seen::Running), "the pause was forgotten");
        let unanswered = (0, 3, Verb::Create, Told::Nothing);
        assert!(!check(&[unanswered.clone(), look(Seen::Absent)], &items, &Seen::Running), "it started by itself");
        assert!(check(&[unanswered, look(Seen::Absent)], &[], &Seen::Absent));
    }

    #[test]
    fn a_refused_rewind_resumes_what_nobody_else_paused() {
        let refused = (2, 9, Verb::PutBack(PutBack::Undo), Told::Refused(409));
        let look = (3, 4, Verb::Look, Told::Saw(Seen::Suspended));
        let items = [Item::Created];
        assert!(check(&[created(), refused.clone(), look.clone()], &items, &Seen::Running));
        assert!(!check(&[created(), look], &items, &Seen::Running), "nobody paused it");
        let pause = (3, 4, Verb::Pause, UNCHANGED);
        assert!(check(&[created(), refused.clone(), pause.clone()], &items, &Seen::Suspended));
        assert!(!check(&[created(), refused, pause], &items, &Seen::Running), "the pause was forgotten");
    }

    #[test]
    fn each_message_is_heard_once() {
        let text = "hello".to_owned();
        let send = (2, 3, Verb::Send(text.clone()), DONE);
        let heard = Item::Heard(text);
        assert!(check(&[created(), send.clone()], &[Item::Created, heard.clone()], &Seen::Running));
        assert!(!check(&[created(), send.clone()], &[Item::Created], &Seen::Running));
        assert!(!check(&[created(), send], &[Item::Created, heard.clone(), heard], &Seen::Running));
    }
}
