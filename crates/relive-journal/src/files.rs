//! The files at each step, as recorded in a journal.

use std::io;

use relive_core::{Generation, Timestamp, Uuid};
use serde::Deserialize;

use crate::data::DataDirectory;
use crate::record::{FilesId, FilesVerb, Rewound, Snapshot};
use crate::recovery::Recovery;
use crate::regular;
use crate::scan::for_each_record;

/// The states of the files of a process, first to last.
#[derive(Debug, Clone)]
pub struct FileHistory {
    /// The states of the files, in order.
    pub states: Vec<FileState>,
    /// The merges of its changes into other directories.
    pub merges: Vec<Merge>,
    /// Everything in the store that the journal names.
    pub named: Vec<FilesId>,
    /// The files as they were seen last, also by a merge.
    seen_last: Option<FilesId>,
    /// When a merge saw them last.
    merge_saw_at: Option<Timestamp>,
    /// Whether a merge has begun, and seen them, and is not known to be done.
    is_merging: bool,
    /// The first line that could not be read. What it names is not known, so nothing may be collected.
    pub unread: Option<u64>,
    /// The calls that may have changed files, in their order.
    effects: Vec<Effect>,
    /// The epoch that is read, and where its calls begin.
    epoch: (Generation, usize),
}

/// A call that may have changed files. Where a snapshot found no change nothing is recorded, so it is told from what
/// followed whether anybody looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Effect {
    step: u32,
    looked: Looked,
}

/// Whether the files are known to have been looked at after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    No,
    /// When the body stopped, which it does after it said so.
    AtStop,
    /// Before the next call of another step that may change files.
    BeforeNextCall,
}

/// Whether a process has a body that may still be looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each name says it")]
pub enum Activity {
    Running,
    AtRest,
}

/// Why the last rewind or restore cannot be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoUndo {
    /// There was none.
    NothingToUndo,
    /// The process has changed files after it.
    ChangedSince,
}

/// A merge that is done.
#[derive(Debug, Clone)]
pub struct Merge {
    pub at: Timestamp,
    /// The directory that the changes were merged into.
    pub into: String,
    /// The files there after it, where they were recorded.
    pub merged: Option<FilesId>,
}

/// The state of the files at one moment.
#[derive(Debug, Clone)]
pub struct FileState {
    pub at: Timestamp,
    pub files: FilesId,
    /// The snapshot; absent where a verb put the files back.
    pub snapshot: Option<Snapshot>,
    /// Whether a verb that undid another one put the files back.
    pub is_undo: bool,
    /// The last step when a verb put the files back, where that is known.
    put_back_after: Option<u32>,
    /// Whether the record stands before the last `spawned`: a fork has copies of its original's.
    pub is_of_origin: bool,
}

impl FileState {
    /// The first step that ended with these files, as far as nothing changed them; `None` for a state of no step.
    fn begin(&self) -> Option<u32> {
        match &self.snapshot {
            Some(snapshot) => Some(snapshot.after).filter(|_| !snapshot.before_verb),
            None => self.put_back_after.map(|after| after + 1),
        }
    }

    /// The last step whose changes are in it, or were undone by it.
    fn last_step(&self) -> u32 {
        self.snapshot.as_ref().map(|snapshot| snapshot.after).or(self.put_back_after).unwrap_or(0)
    }

    fn is_unseen(&self) -> bool {
        self.snapshot.as_ref().is_some_and(Snapshot::is_unseen)
    }
}

/// The changes of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepFiles {
    /// The first step whose changes these are: an earlier one where nobody looked between the two.
    pub first: u32,
    pub from: FilesId,
    pub to: FilesId,
}

#[derive(Deserialize)]
struct Intent {
    recovery: Recovery,
}

impl DataDirectory {
    /// Reads the states of the files of a process.
    pub fn file_history(&self, uuid: Uuid) -> io::Result<FileHistory> {
        let mut history = FileHistory::default();
        let unread = for_each_record(&regular::open(&self.directory(uuid).steps())?, |head, line| match &*head.kind {
            "spawned" => history.states.iter_mut().for_each(|state| state.is_of_origin = true),
            "snapshot" => match serde_json::from_slice::<Snapshot>(line) {
                Ok(snapshot) => history.push(head.at, snapshot.files, Some(snapshot), None),
                Err(_) => _ = history.unread.get_or_insert(head.seq),
            },
            "rewound" => match serde_json::from_slice::<Rewound>(line) {
                Ok(rewound) => history.add(head.at, rewound),
                Err(_) => _ = history.unread.get_or_insert(head.seq),
            },
            "call_started" => {
                // A child is no change of files: it takes snapshots of its own.
                if let Ok(Intent { recovery }) = serde_json::from_slice(line)
                    && !matches!(recovery, Recovery::Rerun | Recovery::Lookup { .. })
                {
                    history.intend(head.epoch, head.step);
                }
            }
            "paused" | "ended" => history.stop(head.epoch),
            _ => {}
        })?;
        history.unread = unread.or(history.unread);
        Ok(history)
    }
}

impl Default for FileHistory {
    fn default() -> Self {
        Self {
            states: Vec::new(),
            merges: Vec::new(),
            named: Vec::new(),
            seen_last: None,
            merge_saw_at: None,
            is_merging: false,
            unread: None,
            effects: Vec::new(),
            epoch: (Generation(0), 0),
        }
    }
}

impl FileHistory {
    /// The next call waits for the snapshot of the step before; so where there is none, nothing had changed.
    fn intend(&mut self, epoch: Generation, step: u32) {
        let first = self.effects_of(epoch);
        for effect in self.effects[first..].iter_mut().filter(|effect| effect.step < step) {
            effect.looked = Looked::BeforeNextCall;
        }
        self.effects.push(Effect { step, looked: Looked::No });
    }

    fn stop(&mut self, epoch: Generation) {
        let first = self.effects_of(epoch);
        for effect in self.effects[first..].iter_mut().filter(|effect| effect.looked == Looked::No) {
            effect.looked = Looked::AtStop;
        }
    }

    /// Returns the index of this epoch's first call. Changes that an earlier writer did not see stay unknown.
    fn effects_of(&mut self, epoch: Generation) -> usize {
        if self.epoch.0 != epoch {
            self.epoch = (epoch, self.effects.len());
        }
        self.epoch.1
    }

    fn push(&mut self, at: Timestamp, files: FilesId, snapshot: Option<Snapshot>, put_back_after: Option<u32>) {
        self.named.push(files);
        self.named.extend(snapshot.as_ref().and_then(|snapshot| snapshot.since));
        // A snapshot is recorded with the next record of its process, which may stand after a merge that saw more.
        let taken = snapshot.as_ref().and_then(|snapshot| snapshot.taken).unwrap_or(at);
        if self.merge_saw_at.is_none_or(|saw| saw < taken) {
            self.seen_last = Some(files);
        }
        self.states.push(FileState { at, files, snapshot, is_undo: false, put_back_after, is_of_origin: false });
    }

    fn add(&mut self, at: Timestamp, rewound: Rewound) {
        let Rewound { verb, done, files, into, merged, after, undo, .. } = rewound;
        match (verb, done) {
            (FilesVerb::Merge, false) => {
                (self.seen_last, self.merge_saw_at, self.is_merging) = (Some(files), Some(at), true);
                self.named.push(files);
            }
            (FilesVerb::Rewind | FilesVerb::Restore, false) => self.named.push(files),
            (FilesVerb::Rewind | FilesVerb::Restore, true) => {
                self.push(at, files, None, after);
                self.states.iter_mut().last().into_iter().for_each(|state| state.is_undo = undo);
            }
            (FilesVerb::Merge, true) => {
                // Where something was left out, this is where the next merge begins, and not what was seen.
                if !std::mem::take(&mut self.is_merging) {
                    (self.seen_last, self.merge_saw_at) = (Some(files), Some(at));
                }
                self.named.push(files);
                self.named.extend(merged);
                self.merges.extend(into.map(|into| Merge { at, into, merged }));
            }
        }
    }

    /// Returns the last step up to `last` that may have changed files and whose snapshot was not recorded.
    #[must_use]
    pub fn unseen_until(&self, last: u32) -> Option<u32> {
        let seen = self.states.last().map_or(0, FileState::last_step);
        let is_unseen = |effect: &&Effect| effect.looked == Looked::No && effect.step > seen && effect.step <= last;
        self.effects.iter().filter(is_unseen).map(|effect| effect.step).max()
    }

    /// Tells whether a call up to a step may have changed files.
    #[must_use]
    pub fn may_have_changed(&self, step: u32) -> bool {
        self.effects.iter().any(|effect| effect.step <= step)
    }

    /// Adds a look at the files after a step that the journal does not have yet. Without a snapshot, nothing had changed.
    pub fn add_look(&mut self, at: Timestamp, after: u32, snapshot: Option<Snapshot>) {
        self.effects.iter_mut().filter(|effect| effect.step <= after).for_each(|effect| {
            effect.looked = Looked::BeforeNextCall;
        });
        let is_known =
            |found: &Snapshot| self.snapshots().any(|known| (known.after, known.files) == (after, found.files));
        if let Some(snapshot) = snapshot.filter(|snapshot| !is_known(snapshot)) {
            self.push(at, snapshot.files, Some(snapshot), None);
        }
    }

    /// The snapshots of steps, first to last; also those that say only that nobody looked.
    fn of_steps(&self) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.snapshots().filter(|snapshot| !snapshot.before_verb)
    }

    /// The snapshots, first to last.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.states.iter().filter_map(|state| state.snapshot.as_ref())
    }

    /// The files when the process began to work.
    #[must_use]
    pub fn first(&self) -> Option<FilesId> {
        self.snapshots().next().map(|snapshot| snapshot.files)
    }

    /// The files as they are known last.
    #[must_use]
    pub fn last(&self) -> Option<FilesId> {
        self.states.last().map(|state| state.files)
    }

    /// The files as they were seen last: by a snapshot, or by a merge, which looks at them too.
    #[must_use]
    pub fn seen_last(&self) -> Option<FilesId> {
        self.seen_last
    }

    /// The files as they were after a step; `None` where nobody looked in time.
    #[must_use]
    pub fn after(&self, step: u32, activity: Activity) -> Option<FilesId> {
        let effects =
            |from: u32, to: u32| self.effects.iter().filter(move |effect| effect.step > from && effect.step <= to);
        let is_unseen = |effect: &Effect| match (effect.looked, activity) {
            (Looked::No, _) | (Looked::AtStop, Activity::Running) => true,
            (Looked::AtStop, Activity::AtRest) | (Looked::BeforeNextCall, _) => false,
        };
        let begins_with = |state: &FileState| state.begin().is_some_and(|begin| begin <= step);
        let before = self.states.iter().rfind(|state| begins_with(state)).filter(|state| !state.is_unseen());
        let known = before.filter(|state| !effects(state.last_step(), step).any(is_unseen));
        // Until the first change the files are what they were before it.
        let known = known.or_else(|| {
            let next = self.states.iter().find(|state| state.begin().is_some_and(|begin| begin > step))?;
            let is_same = next.snapshot.is_some() && !next.is_unseen();
            Some(next).filter(|next| is_same && effects(step, next.last_step()).next().is_none())
        });
        known.map(|state| state.files)
    }

    /// The first step, after the files were last seen, that may have changed them unseen.
    #[must_use]
    pub fn unknown_from(&self, activity: Activity) -> Option<u32> {
        let seen = self.states.iter().rposition(|state| !state.is_unseen());
        let later = &self.states[seen.map_or(0, |seen| seen + 1)..];
        if let Some(unseen) = later.iter().find_map(|state| state.snapshot.as_ref()) {
            return Some(unseen.after);
        }
        let seen = self.states.last().map_or(0, FileState::last_step);
        let is_lost = |effect: &&Effect| effect.looked == Looked::No && effect.step > seen;
        self.effects.iter().find(is_lost).map(|effect| effect.step).filter(|_| activity == Activity::AtRest)
    }

    /// The step after which the files were these, the last one if there are several.
    #[must_use]
    pub fn step_with(&self, files: FilesId) -> Option<u32> {
        let is_same = |snapshot: &&Snapshot| {
            (snapshot.files.tree, snapshot.files.extras) == (files.tree, files.extras) && !snapshot.is_unseen()
        };
        self.of_steps().rfind(is_same).map(|snapshot| snapshot.after)
    }

    /// The files as they were before the last rewind or restore.
    pub fn before_last_verb(&self) -> Result<FilesId, NoUndo> {
        let is_put_back = |state: &FileState| state.snapshot.is_none() && !state.is_of_origin;
        let last = self.states.iter().rposition(is_put_back).ok_or(NoUndo::NothingToUndo)?;
        if self.states[last + 1..].iter().any(|state| state.snapshot.as_ref().is_some_and(|taken| !taken.before_verb)) {
            return Err(NoUndo::ChangedSince);
        }
        let before = last.checked_sub(1).and_then(|before| self.states.get(before));
        before.map(|state| state.files).ok_or(NoUndo::NothingToUndo)
    }

    /// Returns the state of the files before and after a step; the same if nothing changed.
    #[must_use]
    pub fn step(&self, step: u32, activity: Activity) -> Option<StepFiles> {
        let is_of_step = |state: &FileState| {
            let is_of_step = |found: &Snapshot| found.after == step && !found.before_verb && !found.is_unseen();
            state.snapshot.as_ref().is_some_and(is_of_step)
        };
        let (Some(first), Some(last)) =
            (self.states.iter().position(is_of_step), self.states.iter().rfind(|state| is_of_step(state)))
        else {
            let files = self.after(step, activity)?;
            return Some(StepFiles { first: step, from: files, to: files });
        };
        let from =
            first.checked_sub(1).and_then(|before| self.states.get(before)).map_or(last.files, |state| state.files);
        let unseen = self.states[..first].iter().rev().take_while(|state| state.is_unseen());
        let first = unseen.last().map_or(step, |state| state.last_step().min(step));
        Some(StepFiles { first, from, to: last.files })
    }
}
