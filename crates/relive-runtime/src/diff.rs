//! What changed in the files of a process.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use relive_api::{DiffQuery, FileChange, FilesDiff};
use relive_core::{ErrorCode, Uuid};
use relive_journal::files::{Activity, FileHistory};
use relive_journal::record::{FilesId, Spawned};
use relive_workspace::{Change, CopyState, EntryKind, FileState, Store, TextDiff, shown};

use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::workspace_list::{all_ignored_message, are_all_ignored, not_kept, paths};
use crate::workspaces::{Awaited, from_record};

/// How long a command waits for a snapshot that is being taken.
const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// A longer unified diff is cut.
const TEXT_MAX: usize = 4 << 20;
/// So many files are compared line by line; of the others only the names are told.
const COUNTED_MAX: usize = 5_000;

/// Two states of the files of a process.
#[derive(Debug, Clone, Copy)]
struct Sides {
    from: (u32, FilesId),
    to: (u32, FilesId),
}

impl Runtime {
    /// Compares two states of the files of a process.
    pub async fn diff(self: &Arc<Self>, id: &str, query: DiffQuery) -> Result<FilesDiff> {
        let (uuid, note) = self.identity_of(&self.look_up(id).await?)?;
        let recorded = match self.on_disk(move |data| data.history(uuid)).await? {
            Ok((recorded, _)) => recorded,
            Err(error) => return Err(self.unread_error(uuid, error).await?),
        };
        let last_step = recorded.completed_step;
        let (history, not_yet) = self.files_so_far(uuid, last_step).await?;
        let activity = self.files_activity(uuid);
        let Some(sides) = sides(&history, query, (last_step, activity)).map_err(|step| match not_yet {
            Some(first) if step >= first && step <= last_step => not_known_yet(id, step),
            Some(_) | None => unknown_step(id, step, last_step),
        })?
        else {
            // It changed nothing, or nobody looked.
            let step = query.to.or(query.from).unwrap_or(last_step);
            let note = note.or_else(|| Some(no_snapshots(id, self.workspaces.are_wanted())));
            return Ok(FilesDiff {
                from: step,
                to: step,
                trees: None,
                files: Vec::new(),
                diff: None,
                skipped: Vec::new(),
                not_kept: Vec::new(),
                note,
            });
        };
        let foreign = foreign(&history, sides.from.0, sides.to.0);
        let unknown = history.unknown_from(activity).filter(|first| *first <= sides.to.0);
        let first = sides.from.0 + 1;
        let several = query.from.filter(|step| query.to.is_none() && first < *step).map(|step| {
            format!("no snapshot was taken after step {first}, so these are the changes of steps {first} to {step}")
        });
        let (workspaces, is_copy, id) = (self.workspaces.clone(), self.workspaces.has_own(uuid), id.to_owned());
        let spawned = recorded.identity.map(|identity| identity.spawned);
        let compared = self.pools.reads.run(move || {
            let store = workspaces.store()?;
            let to = from_record(sides.to.1);
            let changes = store.diff(&from_record(sides.from.1), &to)?;
            let text = if query.text { Some(unified(&store, &changes)?) } else { None };
            let spawned = spawned.filter(|_| changes.is_empty());
            let why_none = spawned.and_then(|spawned| {
                let directory = Path::new(&spawned.cwd);
                let ignored = || are_all_ignored(&to, directory).then(|| all_ignored_message(directory));
                of_program(&store, &id, &spawned).or_else(ignored)
            });
            Ok::<_, Error>((describe(&store, &changes)?, text, not_kept(&store, &to, is_copy)?, why_none))
        });
        let (mut files, diff, not_kept, why_none) = compared.await??;
        for file in &mut files {
            file.foreign = foreign.contains(file.path.trim_end_matches('/'));
        }
        let trees = Some((sides.from.1.tree.to_string(), sides.to.1.tree.to_string()));
        let unknown = unknown.map(|step| {
            format!("no snapshot was taken after step {step}, so what it and later steps changed is not known")
        });
        let not_yet = not_yet.filter(|step| *step <= sides.to.0).map(|step| {
            format!("the snapshot after step {step} is still being taken, so what this step changed is not known yet")
        });
        let notes: Vec<String> =
            note.into_iter().chain(unknown).chain(several).chain(not_yet).chain(why_none).collect();
        let note = Some(notes.join("; ")).filter(|note| !note.is_empty());
        let (from, to, skipped) = (sides.from.0, sides.to.0, paths(&not_kept));
        Ok(FilesDiff { from, to, trees, files, diff, skipped, not_kept, note })
    }

    /// Tells whether a process may still be looking at its files.
    pub(crate) fn files_activity(&self, uuid: Uuid) -> Activity {
        let is_running = self.owners.find(uuid).is_some_and(|owner| owner.has_body());
        if is_running { Activity::Running } else { Activity::AtRest }
    }

    /// Reads the states of the files of a process up to its last step, including a snapshot that is not in its journal yet:
    /// waits for one that is being taken. Also returns the step whose snapshot does not come in time.
    pub(crate) async fn files_so_far(&self, uuid: Uuid, last_step: u32) -> Result<(FileHistory, Option<u32>)> {
        self.files_within(LOOK_WITHIN, uuid, last_step).await
    }

    /// Waits for a snapshot of the files of a process that is being taken. Called before the turn of the process is taken:
    /// a `kill` needs the turn too.
    pub(crate) async fn await_files(&self, uuid: Uuid) {
        // A failure to read is told by whoever needs the files.
        let Ok(Ok((history, _))) = self.on_disk(move |data| data.history(uuid)).await else { return };
        let _ = self.files_so_far(uuid, history.completed_step).await;
    }

    /// Reads the same as [`Self::files_so_far`], and does not wait.
    pub(crate) async fn files_by_now(&self, uuid: Uuid, last_step: u32) -> Result<(FileHistory, Option<u32>)> {
        self.files_within(Duration::ZERO, uuid, last_step).await
    }

    async fn files_within(&self, within: Duration, uuid: Uuid, last_step: u32) -> Result<(FileHistory, Option<u32>)> {
        let mut history = self.file_history(uuid).await?;
        let Some(step) = history.unseen_until(last_step) else { return Ok((history, None)) };
        match self.workspaces.await_look(uuid, step, within).await {
            Awaited::Looked(look) => {
                if look.is_seen || look.record.is_some() {
                    history.add_look(self.now(), look.after, look.record.map(|record| *record));
                }
                Ok((history, None))
            }
            Awaited::Stopped => Ok((self.file_history(uuid).await?, None)),
            Awaited::NotInTime => Ok((history, Some(step))),
        }
    }

    /// Reads the states of the files of a process, as its journal has them.
    pub(crate) async fn file_history(&self, uuid: Uuid) -> Result<FileHistory> {
        match self.on_disk(move |data| data.file_history(uuid)).await? {
            Ok(read) => Ok(read),
            Err(error) => Err(self.unread_error(uuid, error).await?),
        }
    }
}

/// The states that are asked for; the step whose files nobody knows otherwise.
fn sides(files: &FileHistory, query: DiffQuery, (last_step, activity): (u32, Activity)) -> Result<Option<Sides>, u32> {
    let (Some(first), Some(last)) = (files.first(), files.last()) else { return Ok(None) };
    let known =
        |step: u32| files.after(step, activity).filter(|_| step <= last_step).map(|state| (step, state)).ok_or(step);
    let sides = match (query.from, query.to) {
        (None, None) => {
            Sides { from: (files.snapshots().next().map_or(0, |first| first.after), first), to: (last_step, last) }
        }
        (None, Some(to)) => Sides { from: (0, first), to: known(to)? },
        (Some(from), Some(to)) => Sides { from: known(from)?, to: known(to)? },
        (Some(step), None) => {
            let changed = files.step(step, activity).filter(|_| step <= last_step).ok_or(step)?;
            Sides { from: (changed.first.saturating_sub(1), changed.from), to: (step, changed.to) }
        }
    };
    Ok(Some(sides))
}

/// Returns the paths that others changed after one step, up to another, as far as they are listed.
fn foreign(history: &FileHistory, from: u32, to: u32) -> HashSet<String> {
    let between = history.snapshots().filter(|snapshot| snapshot.after > from && snapshot.after <= to);
    between.flat_map(|snapshot| snapshot.foreign.iter().cloned()).collect()
}

/// Says that the files of a step will be known in a moment.
pub(crate) fn not_known_yet(id: &str, step: u32) -> Error {
    let message = format!("the files of {id} after step {step} are not known yet: their snapshot is still being taken");
    Error::new(ErrorCode::Conflict, message).with_hint("try again in a moment")
}

/// Says that there is no such step, or that nobody knows its files.
pub(crate) fn unknown_step(id: &str, step: u32, last_step: u32) -> Error {
    let message = match step > last_step {
        true => format!("{id} has no step {step}: its last one is {last_step}"),
        false => format!("the files of {id} after step {step} are not known"),
    };
    Error::new(ErrorCode::Conflict, message).with_hint(format!("relive steps {id}"))
}

fn no_snapshots(id: &str, are_wanted: bool) -> String {
    if are_wanted {
        format!("there are no snapshots of the files of {id}, so its changes are not known")
    } else {
        "snapshots are off: see `workspace:` in config.yaml".to_owned()
    }
}

/// Says of a program with a copy why its changes are not shown: no snapshot is taken of what a program does.
fn of_program(store: &Store, id: &str, spawned: &Spawned) -> Option<String> {
    if spawned.body != "exec" || spawned.workspace.is_none() {
        return None;
    }
    Some(match store.look_at_copy(Path::new(&spawned.cwd)) {
        CopyState::There => {
            format!("{id} is a program, and its changes are only in its copy: relive merge {id} --dry-run shows them")
        }
        CopyState::Gone | CopyState::Replaced => {
            format!("the copy on which {id} worked is gone, so its changes are unknown: {}", spawned.cwd)
        }
    })
}

fn unified(store: &Store, changes: &[Change]) -> Result<String> {
    let mut text = String::new();
    for change in changes {
        text.push_str(&store.unified_diff(std::slice::from_ref(change))?);
        if text.len() > TEXT_MAX {
            text.truncate(text.floor_char_boundary(TEXT_MAX));
            text.push_str("\n... the rest is not shown\n");
            break;
        }
    }
    Ok(text)
}

/// Changes as clients see them.
pub(crate) fn describe(store: &Store, changes: &[Change]) -> Result<Vec<FileChange>> {
    let mut files = Vec::new();
    for (at, change) in shown(changes).into_iter().enumerate() {
        let lines = match change.is_content() && at < COUNTED_MAX {
            true => Some(store.text_diff(change)?),
            false => None,
        };
        let (added, removed, binary) = match lines {
            Some(TextDiff::Text { lines, .. }) => (Some(lines.added), Some(lines.removed), false),
            Some(TextDiff::Binary) => (None, None, true),
            None => (None, None, false),
        };
        let is_file =
            |state: &Option<FileState>| state.as_ref().is_some_and(|state| state.kind != EntryKind::Directory);
        let mode = |state: &Option<FileState>| state.as_ref().map(|state| state.mode);
        let change_word = match (is_file(&change.before), is_file(&change.after)) {
            (false, false) if change.before.is_none() => "added",
            (false, false) if change.after.is_none() => "deleted",
            (false, false) => "mode",
            (false, true) => "added",
            (true, false) => "deleted",
            (true, true) if change.is_content() => "modified",
            (true, true) if mode(&change.before) == mode(&change.after) => "link",
            (true, true) => "mode",
        };
        let end = if change.is_directory() { "/" } else { "" };
        files.push(FileChange {
            path: format!("{}{end}", change.path),
            change: change_word.to_owned(),
            added,
            removed,
            binary,
            foreign: false,
        });
    }
    Ok(files)
}
