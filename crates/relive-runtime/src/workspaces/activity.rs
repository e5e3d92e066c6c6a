//! Who may have changed the files of a directory since they were last looked at.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use relive_core::Uuid;
use relive_workspace::Snapshot;

use super::lock;

/// A directory that nobody looked at for long is forgotten when there are more.
pub(super) const DIRECTORIES_MAX: usize = 1_024;
/// So many states of a directory are remembered: what is older counts as the work of others.
const LOOKS_MAX: usize = 64;

/// By directory.
#[derive(Debug, Default)]
pub(super) struct Activities(Mutex<HashMap<PathBuf, Activity>>);

#[derive(Debug, Default)]
struct Activity {
    /// Who has calls under way that may change files, and how many.
    writers: HashMap<Uuid, u32>,
    /// Who had such calls since the last snapshot.
    touched: HashSet<Uuid>,
    /// Those of them who had such calls since the snapshot began that is being taken: it may lack what they did, so that
    /// the next one shows it.
    touched_since: HashSet<Uuid>,
    /// The last snapshots, whoever took them.
    looks: VecDeque<Look>,
}

/// A snapshot, and who may have changed files between the one before and it.
#[derive(Debug)]
struct Look {
    snapshot: Snapshot,
    touched: HashSet<Uuid>,
}

/// What changed between two snapshots of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) from: Snapshot,
    pub(super) to: Snapshot,
    pub(super) by: Changer,
}

/// Who changed files, as far as Relive knows, seen by one of the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changer {
    Itself,
    /// Others, or it and others at the same time.
    Others,
}

impl Activities {
    fn with<T>(&self, directory: &Path, act: impl FnOnce(&mut Activity) -> T) -> T {
        act(of(&mut lock(&self.0), directory))
    }

    /// Notes that the files of a directory may have changed, and with them those of the directories above and below it.
    fn touch(&self, directory: &Path, writer: Uuid) {
        let mut all = lock(&self.0);
        let related = all.iter_mut().filter(|(known, _)| is_related(known, directory));
        related.for_each(|(_, activity)| activity.touch(writer));
    }

    pub(super) fn begin(&self, directory: &Path, writer: Uuid) {
        self.with(directory, |activity| *activity.writers.entry(writer).or_default() += 1);
        self.touch(directory, writer);
    }

    pub(super) fn end(&self, directory: &Path, writer: Uuid) {
        self.with(directory, |activity| {
            if let Some(calls) = activity.writers.get_mut(&writer) {
                *calls -= 1;
                if *calls == 0 {
                    activity.writers.remove(&writer);
                }
            }
        });
        // A call that an earlier daemon began is known only now.
        self.touch(directory, writer);
    }

    /// Notes that the files are being looked at from now on.
    pub(super) fn look(&self, directory: &Path) {
        let mut all = lock(&self.0);
        let related = all.iter().filter(|(known, _)| is_related(known, directory));
        let writers = related.flat_map(|(_, activity)| activity.writers.keys().copied()).collect();
        of(&mut all, directory).touched_since = writers;
    }

    /// Returns the last snapshot, unless this process may have changed files since.
    pub(super) fn last_seen(&self, directory: &Path, by: Uuid) -> Option<Snapshot> {
        let all = lock(&self.0);
        let activity = all.get(directory).filter(|activity| !activity.touched.contains(&by))?;
        activity.looks.back().map(|look| look.snapshot)
    }

    /// Notes a snapshot, and returns how the files came to it from `base`, the last one of the process that took it.
    pub(super) fn seen(&self, directory: &Path, by: Uuid, base: Option<Snapshot>, snapshot: Snapshot) -> Vec<Interval> {
        self.with(directory, |activity| {
            let since = std::mem::take(&mut activity.touched_since);
            let touched = std::mem::replace(&mut activity.touched, since);
            let intervals = base.map(|base| activity.since(base, by, (&touched, snapshot))).unwrap_or_default();
            if activity.looks.back().is_none_or(|last| !last.snapshot.is_same_files(&snapshot)) {
                activity.looks.push_back(Look { snapshot, touched });
            }
            if activity.looks.len() > LOOKS_MAX {
                activity.looks.pop_front();
            }
            intervals
        })
    }
}

fn of<'a>(all: &'a mut HashMap<PathBuf, Activity>, directory: &Path) -> &'a mut Activity {
    if all.len() >= DIRECTORIES_MAX && !all.contains_key(directory) {
        all.retain(|_, activity| !activity.writers.is_empty());
    }
    all.entry(directory.to_owned()).or_default()
}

/// Tells whether one of the directories is in the other, or both are the same.
fn is_related(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

impl Activity {
    fn touch(&mut self, writer: Uuid) {
        self.touched.insert(writer);
        self.touched_since.insert(writer);
    }

    fn since(&self, base: Snapshot, by: Uuid, (touched, now): (&HashSet<Uuid>, Snapshot)) -> Vec<Interval> {
        let known = self.looks.iter().rposition(|look| look.snapshot.is_same_files(&base));
        let mut from = base;
        let mut intervals = Vec::new();
        for (at, look) in self.looks.iter().enumerate().skip(known.map_or(0, |known| known + 1)) {
            // Nobody knows what happened before the first state that is remembered.
            let is_remembered = known.is_some() || at > 0;
            let is_own = is_remembered && look.touched.contains(&by) && look.touched.len() == 1;
            let changer = if is_own { Changer::Itself } else { Changer::Others };
            intervals.push(Interval { from, to: look.snapshot, by: changer });
            from = look.snapshot;
        }
        // What nobody of Relive did since the last look counts as its own.
        let is_own = touched.iter().all(|writer| *writer == by);
        intervals.push(Interval { from, to: now, by: if is_own { Changer::Itself } else { Changer::Others } });
        intervals.retain(|interval| !interval.from.is_same_files(&interval.to));
        intervals
    }
}

#[cfg(test)]
mod tests {
    use relive_workspace::{Grade, ObjectId};

    use super::*;

    fn state(number: u8) -> Snapshot {
        Snapshot { tree: ObjectId::from_array([number; 32]), extras: None, grade: Grade::Exact }
    }

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    /// Notes that each of these changed files at the same time, and that `by` then took a snapshot.
    fn look(activities: &Activities, writers: &[Uuid], by: Uuid, base: u8, now: u8) -> Vec<(u8, Changer)> {
        let directory = Path::new("/w");
        writers.iter().for_each(|writer| activities.begin(directory, *writer));
        writers.iter().for_each(|writer| activities.end(directory, *writer));
        activities.look(directory);
        let intervals = activities.seen(directory, by, Some(state(base)), state(now));
        intervals.iter().map(|interval| (interval.to.tree.as_bytes()[0], interval.by)).collect()
    }

    #[test]
    fn changes_seen_by_another_process_stay_attributed_to_their_author() {
        use Changer::{Itself, Others};
        let (one, two) = (id(1), id(2));
        let activities = Activities::default();
        assert_eq!(look(&activities, &[one], one, 0, 1), [(1, Itself)]);
        assert_eq!(look(&activities, &[one], two, 1, 2), [(2, Others)], "the first changed, the second looked");
        assert_eq!(look(&activities, &[two], two, 2, 3), [(3, Itself)]);
        assert_eq!(look(&activities, &[one], one, 1, 4), [(2, Itself), (3, Others), (4, Itself)]);
        assert_eq!(look(&activities, &[one, two], one, 4, 5), [(5, Others)], "both at the same time");
        assert_eq!(look(&activities, &[], two, 3, 5), [(4, Others), (5, Others)]);
        assert_eq!(look(&activities, &[], two, 5, 6), [(6, Itself)], "by hand");
    }

    #[test]
    fn changes_during_a_snapshot_may_be_in_the_next_one() {
        let (one, two, directory) = (id(1), id(2), Path::new("/w"));
        let activities = Activities::default();
        look(&activities, &[one], one, 0, 1);
        activities.begin(directory, two);
        activities.look(directory);
        // The file that it writes now is not in the snapshot any more.
        activities.end(directory, two);
        activities.seen(directory, one, Some(state(1)), state(2));
        assert_eq!(activities.last_seen(directory, one), Some(state(2)));
        assert_eq!(activities.last_seen(directory, two), None, "what it did since is in no snapshot");
        assert_eq!(look(&activities, &[one], one, 2, 3), [(3, Changer::Others)]);
        assert_eq!(look(&activities, &[one], one, 3, 4), [(4, Changer::Itself)]);
    }

    #[test]
    fn what_is_done_above_or_below_a_directory_is_the_work_of_others_in_it() {
        let (one, two, beside) = (id(1), id(2), id(3));
        let (directory, below) = (Path::new("/w"), Path::new("/w/sub"));
        let activities = Activities::default();
        look(&activities, &[one], one, 0, 1);
        activities.begin(below, two);
        activities.begin(Path::new("/w2"), beside);
        activities.look(directory);
        activities.seen(directory, one, Some(state(1)), state(2));
        // It is still at work.
        assert_eq!(look(&activities, &[one], one, 2, 3), [(3, Changer::Others)]);
        activities.end(below, two);
        assert_eq!(look(&activities, &[one], one, 3, 4), [(4, Changer::Others)]);
        assert_eq!(look(&activities, &[one], one, 4, 5), [(5, Changer::Itself)]);
        activities.look(below);
        assert_eq!(activities.seen(below, two, Some(state(7)), state(8))[0].by, Changer::Others, "done above");
    }

    #[test]
    fn forgotten_states_are_attributed_to_others() {
        let (one, two) = (id(1), id(2));
        let activities = Activities::default();
        look(&activities, &[one], one, 0, 1);
        let last = u8::try_from(LOOKS_MAX).unwrap() + 3;
        (2..=last).for_each(|number| drop(look(&activities, &[two], two, number - 1, number)));
        let found = look(&activities, &[one], one, 1, last + 1);
        assert!(found.len() <= LOOKS_MAX + 1);
        assert_eq!(found.iter().filter(|(_, by)| *by == Changer::Itself).count(), 1, "{found:?}");
        assert_eq!(found.last(), Some(&(last + 1, Changer::Itself)));
    }
}
