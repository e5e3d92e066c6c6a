//! The changes of an own workspace, brought back to where it came from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_api::{FileConflict, FilesChanged, MergeRequest};
use relive_core::{ErrorCode, Uuid};
use relive_journal::History;
use relive_journal::files::Activity;
use relive_journal::history::{Files, OpenCall};
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::record::{Body, FilesId, FilesVerb, NOT_KEPT_MAX, Rewound as Record, Spawned};
use relive_journal::recovery::Recovery;
use relive_workspace::{Conflict, ConflictKind, CopyState, FilePath, Force, Grade, Snapshot};

use crate::area::Area;
use crate::diff::describe;
use crate::error::{Error, Result};
use crate::owner::{Lane, Turn};
use crate::rewind::is_left;
use crate::runtime::Runtime;
use crate::workspaces::{
    Changed, Lacks, OnInterrupted, Planned, Take, Taken, Whose, check_no_link, from_record, named, to_record,
};

/// How many forks of one node are looked at, from the last one back.
const ORIGINS_MAX: u32 = 1000;

/// What is merged, and where to.
#[derive(Debug)]
struct Sides {
    base: Snapshot,
    theirs: Snapshot,
    /// Files of the copy that are not in `theirs`.
    left_out: Vec<FilePath>,
    /// Pipes, sockets and devices of the copy.
    special: Vec<FilePath>,
    lacks: Lacks,
    /// How the copy was looked at; absent where it is gone.
    take: Option<Take>,
    into: PathBuf,
    /// What is to be said of the copy, such as what became of a change that was interrupted.
    note: Option<String>,
}

/// The copy of a process as it is now.
struct Theirs {
    snapshot: Snapshot,
    left_out: Vec<FilePath>,
    special: Vec<FilePath>,
    lacks: Lacks,
    take: Option<Take>,
    note: Option<String>,
}

type Plan = Result<(Planned, Vec<relive_api::FileChange>), Vec<Conflict>>;

impl Runtime {
    /// Brings the changes of an own workspace to the directory that it is a copy of, or to another one; for an isolated caller
    /// to one in its own area.
    pub(crate) async fn merge_for(
        self: &Arc<Self>,
        caller: Option<Area>,
        id: &str,
        request: MergeRequest,
        request_id: Option<String>,
    ) -> Result<FilesChanged> {
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move {
            let (uuid, note) = runtime.identity_of(&runtime.look_up_to_change(&id).await?)?;
            let mut turn = runtime.turn(uuid, Lane::Verb).await?;
            let merged = turn.merge(&id, request, (caller, request_id)).await?;
            let note = merged.note.clone().or(note);
            Ok(FilesChanged { note, ..merged })
        })
        .await
    }

    /// Brings the changes of a node that worked on a copy to the directory of the node.
    pub(crate) async fn merge_node(self: &Arc<Self>, uuid: Uuid, into: String) -> Result<FilesChanged> {
        let runtime = Arc::clone(self);
        self.to_the_end(async move {
            check_no_link(Path::new(&into))?;
            let request = MergeRequest { into: Some(into), force: false, dry_run: false };
            let area = runtime.area_of(runtime.parent_uuid_of(uuid).await).await?;
            runtime.turn(uuid, Lane::Verb).await?.merge(&uuid.to_string(), request, (area, None)).await
        })
        .await
    }

    /// Returns the files of a process that were merged last into a directory.
    pub(crate) async fn merged_into(&self, uuid: Uuid, directory: PathBuf) -> Result<Option<FilesId>> {
        let read = self.on_journal(move |data| {
            let mut reader = Reader::new(data.directory(uuid).steps(), Cursor::default());
            let mut merged = None;
            while let Some(item) = reader.next_item()? {
                let Item::Record(entry) = item else { continue };
                if entry.kind != "rewound" {
                    continue;
                }
                let Ok(record) = serde_json::from_str::<Record>(&entry.line) else { continue };
                let is_same = |into: &str| is_same_directory(Path::new(into), &directory);
                if record.verb == FilesVerb::Merge && record.done && record.into.as_deref().is_some_and(is_same) {
                    merged = Some(record.files);
                }
            }
            Ok::<_, std::io::Error>(merged)
        });
        match read.await? {
            // It was collected, or never had a journal.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            read => Ok(read?),
        }
    }

    /// Returns the files with which the merge of a fork begins that took the place of another process in a run: those that
    /// were merged of that process, which the merge takes back, or else those that the first process of the node began
    /// with. `None` for other processes.
    pub(crate) async fn base_before_fork(&self, uuid: Uuid, directory: &Path) -> Result<Option<FilesId>> {
        let Some(tree) = self.tree_of(uuid).await else { return Ok(None) };
        let (mut here, mut first) = (uuid, None);
        for _ in 0..ORIGINS_MAX {
            let Some(origin) = self.origin_of(here).await else { break };
            if self.parent_uuid_of(origin).await != Some(tree) {
                break;
            }
            let merged = self.merged_into(origin, directory.to_owned()).await?;
            if merged.is_some() {
                return Ok(merged);
            }
            // It was replaced before anything of it was merged.
            let history = self.on_journal(move |data| data.history(origin)).await?.ok().map(|(history, _)| history);
            let own = history.filter(works_in_copy);
            first = own.and_then(|history| history.files.first).or(first);
            here = origin;
        }
        Ok(first)
    }

    /// Returns the base of a process that works in the copy of another one, as a fork does that stays where its original
    /// works: what was made for that one, or last merged from it.
    async fn base_of_copy(&self, uuid: Uuid, spawned: &Spawned, directory: &Path) -> Result<Option<FilesId>> {
        let name = Path::new(&spawned.cwd).file_name().and_then(|name| name.to_str());
        let Some(owner) = name.and_then(|name| Uuid::try_parse(name).ok()).filter(|owner| *owner != uuid) else {
            return Ok(None);
        };
        let merged = self.merged_into(owner, directory.to_owned()).await?;
        if merged.is_some() {
            return Ok(merged);
        }
        let history = self.on_journal(move |data| data.history(owner)).await?.ok().map(|(history, _)| history);
        Ok(history.filter(works_in_copy).and_then(|history| history.files.first))
    }

    async fn plan_merge(&self, sides: &Sides, force: Force, on_interrupted: OnInterrupted) -> Result<Plan> {
        let (workspaces, base, theirs) = (self.workspaces.clone(), sides.base, sides.theirs);
        let (into, left_out, lacks) = (sides.into.clone(), sides.left_out.clone(), sides.lacks);
        let planned = self.pools.bulk.run(move || {
            match workspaces.plan_merge(&into, (&base, &theirs), force, (on_interrupted, lacks, &left_out))? {
                Ok(planned) => {
                    workspaces.check_merged(&into, planned.plan.changes.iter().map(|change| change.path.as_path()))?;
                    let files = describe(&workspaces.store()?, &planned.plan.changes)?;
                    Ok::<_, Error>(Ok((planned, files)))
                }
                Err(conflicts) => Ok(Err(conflicts)),
            }
        });
        planned.await?
    }
}

impl Turn {
    async fn merge(
        &mut self,
        id: &str,
        request: MergeRequest,
        (area, request_id): (Option<Area>, Option<String>),
    ) -> Result<FilesChanged> {
        let runtime = Arc::clone(&self.runtime);
        // A command that is over later would change nothing about it.
        self.check_own(id).await?;
        let is_in_command = self.is_in_command().await?;
        if is_in_command && !request.force {
            let message = format!("process {id} is in the middle of a command, so its files may be half written");
            let hint = format!("merge when the command is over, or relive merge {id} --force");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(hint));
        }
        let on_interrupted = if request.dry_run { OnInterrupted::Refuse } else { OnInterrupted::RollBack };
        let sides = self.sides(id, (request.into, area.as_ref()), on_interrupted).await;
        let sides = sides.map_err(|error| self.with_way_to_merge(id, error))?;
        let force = if request.force { Force::Yes } else { Force::No };
        let (path, dry_run) = (sides.into.display().to_string(), request.dry_run);
        let with_way_out = |error: Error| {
            let error = self.with_way_to_merge(id, error);
            let is_overridable = error.code() == ErrorCode::Conflict && force == Force::No && error.hint().is_none();
            if is_overridable { error.with_hint(format!("relive merge {id} --force")) } else { error }
        };
        let (planned, files) = match runtime.plan_merge(&sides, force, on_interrupted).await.map_err(with_way_out)? {
            Ok(planned) => planned,
            Err(conflicts) => {
                let conflicts = conflicts.iter().map(conflict).collect();
                let files = Vec::new();
                return Ok(FilesChanged { written: 0, conflicts, verified: false, path, files, dry_run, note: None });
            }
        };
        if let Some(area) = &area {
            area.check_changes(&sides.into, planned.plan.changes.iter().map(|change| change.path.as_path()))?;
        }
        let conflicts = planned.conflicts.iter().map(conflict).collect();
        let written = files.len() as u64;
        let one_sided = planned.conflicts.iter().filter(|conflict| !conflict.kind.has_markers());
        let one_sided: Vec<FilePath> = one_sided.map(|conflict| conflict.path.clone()).collect();
        let half_done =
            is_in_command.then(|| format!("{id} is in the middle of a command: its files may be half written"));
        let not_merged = not_merged(id, &one_sided, &sides, &planned.spared);
        let notes = sides.note.iter().chain(&planned.settled).cloned().chain(half_done).chain(not_merged);
        let note = joined(notes);
        let verified = !dry_run;
        let mut answer = FilesChanged { written, conflicts, verified, path, files, dry_run, note };
        let has_changes = !planned.plan.changes.is_empty();
        if dry_run || !has_changes && !self.is_worth_recording(&sides, &one_sided).await? {
            return Ok(answer);
        }
        if !is_in_command {
            self.check_unchanged(id, &sides, &planned).await?;
        }
        let request = request_id.map(|id| format!("rewind:{id}"));
        let record = |files: Snapshot, counts: (u64, &[FilePath]), done| record(&sides.into, files, counts, done);
        if !has_changes {
            let merged = Some(to_record(&planned.before));
            // An earlier merge that was interrupted may have begun with other files.
            let records = [(None, None), (merged, request)].map(|done| record(sides.theirs, (0, &[]), done));
            return self.record_files(records.into()).await.map(|()| answer);
        }
        self.record_files(vec![record(sides.theirs, (written, &[]), (None, None))]).await?;
        let Changed { applied, now, note } = runtime.apply_plan(sides.into.clone(), planned).await?;
        answer.files.retain(|file| !is_left(&applied, file));
        answer.written = answer.files.len() as u64;
        // What was left is merged the next time: that begins where this began.
        let files = if applied.left.is_empty() { sides.theirs } else { sides.base };
        let merged = Some(to_record(&now));
        self.record_files(vec![record(files, (answer.written, &one_sided), (merged, request))]).await?;
        answer.verified = applied.is_verified();
        let left = (!applied.left.is_empty()).then(|| {
            let left = named(&applied.left);
            format!("somebody changed these meanwhile, so they were not merged: {left}; merge again")
        });
        answer.note = joined(answer.note.take().into_iter().chain(left).chain(note));
        Ok(answer)
    }

    /// Tells whether a merge that changes nothing is recorded. Where all is there already, for example because a daemon was
    /// killed before it could say so, it is merged too, and without its copy a process has what was seen last. Where nothing
    /// could be merged, the next merge begins where this one did.
    async fn is_worth_recording(&self, sides: &Sides, one_sided: &[FilePath]) -> Result<bool> {
        if !one_sided.is_empty() {
            return Ok(false);
        }
        let seen_last = self.runtime.file_history(self.uuid()).await?.seen_last().map(from_record);
        let is_seen = seen_last.is_some_and(|seen| seen.is_same_files(&sides.theirs));
        Ok(!is_seen || !sides.base.is_same_files(&sides.theirs))
    }

    /// Looks at a copy once more, before files are removed that it does not have: somebody may just be removing the copy.
    async fn check_unchanged(&self, id: &str, sides: &Sides, planned: &Planned) -> Result<()> {
        let removes_files = planned.plan.changes.iter().any(|change| change.after.is_none());
        let Some(take) = sides.take.clone().filter(|_| removes_files) else { return Ok(()) };
        let (workspaces, theirs, path) = (self.runtime.workspaces.clone(), sides.theirs, take.directory.clone());
        let look = move || {
            let is_there = workspaces.look_at_copy(&take.directory)? == CopyState::There;
            Ok::<_, Error>(is_there && workspaces.take(&take)?.snapshot.is_same_files(&theirs))
        };
        if self.runtime.workspaces.pool().run(look).await?? {
            return Ok(());
        }
        let message = format!("{} changed while it was being merged, so nothing was merged", path.display());
        Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive merge {id}")))
    }

    /// Adds the command that rolls back what was interrupted: a merge does, unless the process runs, which a rewind pauses.
    fn with_way_to_merge(&self, id: &str, error: Error) -> Error {
        if !matches!(error, Error::Interrupted(_)) {
            return error;
        }
        let verb = if self.owner.has_body() { "pause" } else { "merge" };
        error.with_hint(format!("relive {verb} {id}"))
    }

    /// Refuses a process that has no workspace of its own.
    async fn check_own(&mut self, id: &str) -> Result<()> {
        let spawned = self.look(|history| history.identity.clone().map(|identity| identity.spawned)).await?;
        let here = spawned.filter(|spawned| spawned.workspace.is_none());
        here.map_or(Ok(()), |here| Err(not_own(id, &here.cwd)))
    }

    /// Tells whether a call that may change its files is under way.
    async fn is_in_command(&mut self) -> Result<bool> {
        let may_change = |open: &OpenCall| !matches!(open.recovery, Recovery::Rerun | Recovery::Lookup { .. });
        let is_open = self.look(move |history| history.open_calls().any(may_change)).await?;
        Ok(is_open && self.machine().is_some())
    }

    /// Looks at the own workspace as it is now.
    async fn sides(
        &mut self,
        id: &str,
        (into, area): (Option<String>, Option<&Area>),
        on_interrupted: OnInterrupted,
    ) -> Result<Sides> {
        let (spawned, files): (_, Files) = self
            .look(|history| (history.identity.clone().map(|identity| identity.spawned), history.files.clone()))
            .await?;
        let spawned =
            spawned.ok_or_else(|| Error::new(ErrorCode::Internal, "the journal does not describe a process"))?;
        let Some(own) = spawned.workspace.clone() else {
            return Err(not_own(id, &spawned.cwd));
        };
        let into = target(id, into, own.from)?;
        if let Some(area) = area {
            area.find("the directory", &into)?;
        }
        let (workspaces, directory) = (self.runtime.workspaces.clone(), into.clone());
        self.runtime.pools.bulk.run(move || workspaces.check_target(&directory)).await??;
        let merged = match files.merged {
            Some(_) => self.runtime.merged_into(self.uuid(), into.clone()).await?,
            None => None,
        };
        let replaced = match merged {
            Some(_) => None,
            None => self.runtime.base_before_fork(self.uuid(), &into).await?,
        };
        let copied = match merged.or(replaced) {
            Some(_) => None,
            None => self.runtime.base_of_copy(self.uuid(), &spawned, &into).await?,
        };
        let base = merged.or(replaced).or(copied).or(files.first);
        let base = base.ok_or_else(|| {
            Error::new(ErrorCode::Conflict, "the files at its start are not known, so nothing can be merged")
        })?;
        let base = from_record(base);
        let theirs = self.theirs(&spawned, &files, on_interrupted).await?;
        let Theirs { snapshot: theirs, left_out, special, lacks, take, note } = theirs;
        // What was merged before, if need be by force, is not in the way of a merge that has nothing to do.
        let lacks = if base.is_same_files(&theirs) { Lacks::NoBytes } else { lacks };
        Ok(Sides { base, theirs, left_out, special, lacks, take, into, note })
    }

    /// Looks at the copy of a process. If it was removed, the last state in which it was seen stays.
    async fn theirs(&mut self, spawned: &Spawned, files: &Files, on_interrupted: OnInterrupted) -> Result<Theirs> {
        let (runtime, directory) = (Arc::clone(&self.runtime), PathBuf::from(&spawned.cwd));
        check_no_link(&directory)?;
        let last = files.last.map(from_record);
        let (workspaces, path) = (runtime.workspaces.clone(), directory.clone());
        let state = runtime.pools.bulk.run(move || workspaces.look_at_copy(&path)).await??;
        // A program takes no snapshot at its end: what it changed is only in its copy.
        let is_unknown = spawned.body == "exec" && files.last == files.first;
        let (workspaces, path) = (runtime.workspaces.clone(), directory.clone());
        let is_lost = move || state == CopyState::Replaced || workspaces.remembers_copy(&path).unwrap_or(true);
        if state != CopyState::There && is_unknown && runtime.pools.bulk.run(is_lost).await? {
            let message = format!(
                "what process {} changed in {} is not known: that is not the directory that Relive made any more",
                self.uuid(),
                directory.display(),
            );
            let fork = runtime.fork_command(self.uuid()).await;
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(fork));
        }
        // What was changed after the last snapshot, by a program or by hand, was seen by the merge that took it. Starting
        // from the snapshot would revert those changes.
        let history = match state {
            CopyState::There => None,
            CopyState::Gone | CopyState::Replaced => Some(runtime.file_history(self.uuid()).await?),
        };
        if let Some((history, last)) = history.and_then(|history| history.seen_last().map(|last| (history, last))) {
            let (left_out, special) = (Vec::new(), Vec::new());
            let replaced = (state == CopyState::Replaced).then(|| {
                let path = directory.display();
                format!("{path} is not the directory that Relive made, so its last snapshot was merged")
            });
            let activity = if self.owner.has_body() { Activity::Running } else { Activity::AtRest };
            // A merge that saw the files later than the last snapshot saw these changes too.
            let unknown = history.unknown_from(activity).filter(|_| history.last() == Some(last)).map(|step| {
                format!("no snapshot was taken after step {step}, so what it and later steps changed was not merged")
            });
            let note = joined(replaced.into_iter().chain(unknown));
            let (snapshot, lacks) = (from_record(last), Lacks::Something);
            return Ok(Theirs { snapshot, left_out, special, lacks, take: None, note });
        }
        let by: Uuid = spawned.root_uuid.unwrap_or(self.uuid());
        let at_best = runtime.workspaces.best_grade_in(&directory, files);
        // What runs works on the files as they are.
        let on_interrupted = if self.owner.has_body() { OnInterrupted::Refuse } else { on_interrupted };
        let take = Take { directory, by, base: last, whose: Whose::Own, at_best };
        let (workspaces, again) = (runtime.workspaces.clone(), Some(take.clone()));
        let taken = runtime.workspaces.pool().run(move || {
            let settled = workspaces.settle_in(&take.directory, on_interrupted)?;
            workspaces.take_copy(&take).map(|taken| (taken, settled))
        });
        let (taken, note) = taken.await??;
        let is_whole = taken.left_out.is_empty() && taken.lists_all && taken.snapshot.grade != Grade::Moving;
        let lacks = if is_whole { Lacks::NoBytes } else { Lacks::Something };
        let Taken { snapshot, left_out, special, .. } = taken;
        Ok(Theirs { snapshot, left_out, special, lacks, take: again, note })
    }
}

/// Returns these notes as one, if there are any.
fn joined(notes: impl Iterator<Item = String>) -> Option<String> {
    Some(notes.collect::<Vec<_>>().join("; ")).filter(|note| !note.is_empty())
}

fn works_in_copy(history: &History) -> bool {
    history.identity.as_ref().is_some_and(|identity| identity.spawned.workspace.is_some())
}

fn not_own(id: &str, directory: &str) -> Error {
    let message = format!("process {id} works in {directory} itself: there is nothing to merge");
    Error::new(ErrorCode::Invalid, message).with_hint(format!("relive diff {id}"))
}

/// Returns the real path of the directory to merge into. A link that replaced the directory that was copied is refused;
/// one that a user names is followed.
fn target(id: &str, named: Option<String>, from: String) -> Result<PathBuf> {
    if named.is_none() {
        check_no_link(Path::new(&from))?;
    }
    let is_named = named.is_some();
    let into = PathBuf::from(named.unwrap_or(from));
    into.canonicalize().ok().filter(|into| into.is_dir()).ok_or_else(|| {
        let path = into.display();
        let (code, message) = match (is_named, into.exists()) {
            (true, true) => (ErrorCode::Invalid, format!("cannot merge into {path}: it is not a directory")),
            (true, false) => (ErrorCode::NotFound, format!("cannot merge into {path}: it does not exist")),
            (false, _) => (ErrorCode::NotFound, format!("{path}, where the changes of {id} belong, no longer exists")),
        };
        Error::new(code, message).with_hint(format!("relive merge {id} --into DIR"))
    })
}

/// Compares a recorded path, which may contain links and `..`, with another one.
fn is_same_directory(recorded: &Path, other: &Path) -> bool {
    recorded == other || recorded.canonicalize().is_ok_and(|real| other.canonicalize().is_ok_and(|other| real == other))
}

/// Says which files are only in the copy after the merge, and which stay in the target although the copy does not have
/// them any more, as far as its snapshot tells.
fn not_merged(id: &str, one_sided: &[FilePath], sides: &Sides, not_removed: &[FilePath]) -> Option<String> {
    let Sides { left_out, special, .. } = sides;
    let mut notes = Vec::new();
    if !one_sided.is_empty() {
        let paths = named(one_sided);
        notes.push(format!("not merged, and so only in the workspace of {id} as it left them: {paths}"));
    }
    if !left_out.is_empty() {
        let paths = named(left_out);
        notes.push(format!("in no snapshot, so not merged and only in the workspace of {id}: {paths}"));
    }
    if !special.is_empty() {
        notes.push(format!("not merged, because they are pipes, sockets or devices: {}", named(special)));
    }
    if !not_removed.is_empty() {
        let paths = named(not_removed);
        notes.push(format!("ignored and not there in the workspace of {id}, but not removed here: {paths}"));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// Returns the record of a merge: one that begins, or what it did (the state of the target, and the request).
fn record(
    into: &Path,
    files: Snapshot,
    (changed, left): (u64, &[FilePath]),
    (merged, request): (Option<FilesId>, Option<String>),
) -> Body {
    Body::Rewound(Box::new(Record {
        verb: FilesVerb::Merge,
        done: merged.is_some(),
        to_step: None,
        after: None,
        files: to_record(&files),
        into: Some(into.display().to_string()),
        merged,
        changed,
        left: left.len() as u64,
        left_paths: left.iter().take(NOT_KEPT_MAX).map(ToString::to_string).collect(),
        untold: false,
        undo: false,
        req: request,
    }))
}

fn conflict(conflict: &Conflict) -> FileConflict {
    let kind = match conflict.kind {
        ConflictKind::Lines => "lines",
        ConflictKind::Binary => "binary",
        ConflictKind::BothAdded => "both_added",
        ConflictKind::RemovedAndChanged => "removed_and_changed",
        ConflictKind::Type => "type",
        ConflictKind::Mode => "mode",
    };
    FileConflict { path: conflict.path.to_string(), kind: kind.to_owned() }
}
