//! Own workspaces: which there are, and removing them; and where a process works, as `info` shows it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use relive_api::{NotKept, OwnWorkspace, OwnWorkspaces, RemoveWorkspaceRequest, Workspace, WorkspaceKind};
use relive_core::{ErrorCode, Uuid};
use relive_journal::record::FilesId;
use relive_journal::{History, KnownFiles};

use crate::error::{Error, Result};
use crate::own_workspace::grade_word;
use crate::owner::Lane;
use crate::runtime::Runtime;
use crate::workspaces::{Awaited, Look, Take, Whose, from_record, named};
use relive_workspace::{CopyState, FilePath, GIT_INDEX, Grade, SkipReason, Snapshot, Store, disk_usage, shown};

/// So many entries of a directory are looked at.
const ENTRIES_MAX: usize = 1_000;
/// How long `info` waits for a snapshot that is being taken.
const SHORTLY: Duration = Duration::from_secs(2);

impl Runtime {
    /// Lists the own workspaces there are.
    pub async fn own_workspaces(self: &Arc<Self>) -> Result<OwnWorkspaces> {
        let workspaces = self.workspaces.clone();
        let all = self.pools.reads.run(move || workspaces.all_own()).await??;
        let mut listed = Vec::new();
        for own in all {
            listed.push(self.own_workspace(own.uuid).await?.0);
        }
        Ok(OwnWorkspaces { workspaces: listed })
    }

    /// Removes an own workspace. Refuses one whose process lives, or that has changes which were not merged, unless the
    /// caller insists.
    pub async fn remove_workspace(self: &Arc<Self>, request: RemoveWorkspaceRequest) -> Result<OwnWorkspace> {
        let (runtime, id) = (Arc::clone(self), request.id.clone());
        self.to_the_end(async move {
            let uuid = runtime.whose_workspace(&id).await?;
            let _turn = runtime.turn(uuid, Lane::Verb).await?;
            if let Some(rest) = runtime.workspaces.rest_of_own(uuid).filter(|_| !runtime.workspaces.has_own(uuid)) {
                return runtime.remove_rest(uuid, rest, request.dry_run).await;
            }
            if !runtime.workspaces.has_own(uuid) {
                return Err(runtime.no_own_workspace(&id, uuid).await);
            }
            if runtime.living(uuid).is_some() {
                let message = format!("process {id} works there, and has not ended");
                return Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive kill {id}")));
            }
            runtime.check_unused(&id, uuid)?;
            let (found, only_there) = runtime.own_workspace(uuid).await?;
            if !request.force {
                check_merged(&id, &found, &only_there)?;
            }
            if !request.dry_run {
                let workspaces = runtime.workspaces.clone();
                runtime.in_bulk(move |_| workspaces.remove_own(uuid)).await??;
            }
            Ok(found)
        })
        .await
    }

    /// Returns the own workspace of an ended process if it can be removed with its journal: nothing is in it that is not
    /// elsewhere. Fails if there is.
    pub(crate) async fn workspace_to_remove(&self, id: &str, uuid: Uuid) -> Result<Option<OwnWorkspace>> {
        if !self.workspaces.has_own(uuid) || self.check_unused(id, uuid).is_err() {
            return Ok(None);
        }
        let (found, only_there) = self.own_workspace(uuid).await?;
        check_merged(id, &found, &only_there)?;
        Ok(Some(found))
    }

    /// Removes the files that an interrupted removal left of an own workspace.
    async fn remove_rest(&self, uuid: Uuid, rest: PathBuf, dry_run: bool) -> Result<OwnWorkspace> {
        let (workspaces, path) = (self.workspaces.clone(), rest.display().to_string());
        let removed = self.in_bulk(move |_| {
            let bytes = disk_usage(&rest);
            if dry_run { Ok(bytes) } else { workspaces.remove_own(uuid).map(|()| bytes) }
        });
        let bytes = removed.await??;
        Ok(OwnWorkspace { uuid, path, kind: WorkspaceKind::Own, bytes, dirty: Some(false), known: true })
    }

    /// Removes the files that interrupted removals left of own workspaces. Returns why some of them stay.
    pub(crate) async fn sweep_removed(&self) -> Vec<Error> {
        let workspaces = self.workspaces.clone();
        self.in_bulk(move |_| workspaces.sweep_removed()).await.unwrap_or_default()
    }

    /// Removes the own workspace of a process that was collected.
    pub(crate) async fn remove_merged(&self, own: &OwnWorkspace) -> Result<()> {
        let (workspaces, uuid) = (self.workspaces.clone(), own.uuid);
        self.in_bulk(move |_| workspaces.remove_own(uuid)).await?
    }

    /// Refuses to remove a workspace in which another process works, such as a fork of its own.
    fn check_unused(&self, id: &str, uuid: Uuid) -> Result<()> {
        let own = self.workspaces.own(uuid);
        // The recorded path of a process is the real one.
        let real = own.canonicalize().unwrap_or_else(|_| own.clone());
        let state = self.lock();
        let mut all = state.table.processes(self.moment());
        let is_there = |cwd: &Path| cwd.starts_with(&own) || cwd.starts_with(&real);
        let Some(other) = all.find(|view| view.exit_code.is_none() && is_there(Path::new(view.cwd))) else {
            return Ok(());
        };
        let pid = other.pid;
        let message = format!("process {pid} works there, in the workspace of {id}, and has not ended");
        Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive kill {pid}")))
    }

    /// Says why a process has no own workspace that could be removed.
    async fn no_own_workspace(&self, id: &str, uuid: Uuid) -> Error {
        let path = self.workspaces.own(uuid);
        if path.is_symlink() {
            let message = format!("{} is a link that Relive did not make: it is not followed", path.display());
            return Error::new(ErrorCode::Permission, message)
                .with_hint(format!("rm {}", relive_types::program::quote(&path.display().to_string())));
        }
        let history = self.on_disk(move |data| data.history(uuid)).await.ok().and_then(std::result::Result::ok);
        let spawned = history.and_then(|(history, _)| history.identity).map(|identity| identity.spawned);
        let message = match spawned {
            Some(spawned) if spawned.workspace.is_some() => {
                format!("the workspace of {id} is gone already: {}", spawned.cwd)
            }
            Some(spawned) => format!("{id} has no workspace of its own: it works in {}", spawned.cwd),
            None => format!("{id} has no workspace of its own"),
        };
        Error::new(ErrorCode::NotFound, message).with_hint("relive workspace list")
    }

    /// Finds the process that a workspace was made for. It may have been collected.
    async fn whose_workspace(self: &Arc<Self>, id: &str) -> Result<Uuid> {
        let refused = match self.look_up(id).await.and_then(|found| self.identity_of(&found)) {
            Ok((uuid, _)) => return Ok(uuid),
            Err(error) => error,
        };
        let workspaces = self.workspaces.clone();
        let all = self.pools.reads.run(move || workspaces.all_own()).await??;
        let is_meant = |uuid: &str| uuid.starts_with(id) || uuid.ends_with(id);
        let mut matching = all.into_iter().filter(|own| is_meant(&own.uuid.to_string()));
        match (matching.next(), matching.next()) {
            (Some(own), None) if id.len() >= 4 => Ok(own.uuid),
            _ => Err(refused),
        }
    }

    /// Looks at an own workspace. Returns also what is in it that no merge brings back.
    async fn own_workspace(&self, uuid: Uuid) -> Result<(OwnWorkspace, OnlyThere)> {
        let history = self.on_disk(move |data| data.history(uuid)).await?.ok().map(|(history, _)| history);
        let begun = match &history {
            Some(history) => match self.merged_to_origin(uuid, history).await? {
                Some(merged) => Some(merged),
                None => self.base_of_unmerged(uuid, history).await?,
            },
            None => None,
        };
        let path = self.workspaces.own(uuid);
        let base = begun.map(from_record);
        let at_best = base.map_or(Grade::Exact, |base| base.grade);
        let take = Take { directory: path.clone(), by: uuid, base, whose: Whose::Own, at_best };
        let workspaces = self.workspaces.clone();
        let looked = self.workspaces.pool().run(move || {
            let bytes = disk_usage(&take.directory);
            let state = workspaces.look_at_copy(&take.directory);
            (bytes, state, workspaces.take_copy(&take).ok())
        });
        let (bytes, state, taken) = looked.await?;
        let is_partly_merged = history.as_ref().is_some_and(|history| history.files.is_partly_merged);
        let (is_changed, can_be_merged, left_out) = taken.map_or((None, true, Vec::new()), |taken| {
            let is_changed = taken.record.is_some() || is_partly_merged || !taken.left_out.is_empty();
            (Some(is_changed), taken.record.is_some(), taken.left_out)
        });
        let one_sided = history.as_ref().map(|history| history.files.left_paths.clone()).filter(|_| is_partly_merged);
        let one_sided = one_sided.filter(|_| !can_be_merged);
        let only_there = OnlyThere { left_out, one_sided, is_replaced: state? == CopyState::Replaced };
        let own = OwnWorkspace {
            uuid,
            path: path.display().to_string(),
            kind: WorkspaceKind::Own,
            bytes,
            dirty: is_changed.filter(|_| begun.is_some()),
            known: history.is_some(),
        };
        Ok((own, only_there))
    }

    /// Returns the files that were last merged into the directory that was copied. A merge into another directory, such as
    /// one to try it in, brings nothing back.
    async fn merged_to_origin(&self, uuid: Uuid, history: &History) -> Result<Option<FilesId>> {
        let own = history.identity.as_ref().and_then(|identity| identity.spawned.workspace.as_ref());
        match (own, history.files.merged) {
            (Some(own), Some(_)) => self.merged_into(uuid, own.from.clone().into()).await,
            (Some(_) | None, _) => Ok(None),
        }
    }

    /// Returns the files with which the first merge of a process begins.
    async fn base_of_unmerged(&self, uuid: Uuid, history: &History) -> Result<Option<FilesId>> {
        let own = history.identity.as_ref().and_then(|identity| identity.spawned.workspace.as_ref());
        let replaced = match own {
            Some(own) => self.base_before_fork(uuid, Path::new(&own.from)).await?,
            None => None,
        };
        Ok(replaced.or(history.files.first))
    }

    /// Where a process works, and what is known of its files. Reads no history of a process that has ended.
    pub(crate) async fn workspace_of(&self, cwd: &str, known: Option<KnownFiles>) -> Option<Workspace> {
        let KnownFiles { own, first, last, has_unknown_step, is_unknown_now } = known?;
        let (workspaces, directory) = (self.workspaces.clone(), PathBuf::from(cwd));
        let changed = self.pools.reads.run(move || {
            let (store, last) = (workspaces.store().ok()?, from_record(last));
            let not_kept = not_kept(&store, &last, own).ok()?;
            let changed = shown(&store.diff(&from_record(first), &last).ok()?).len() as u64;
            Some((changed, (not_kept, are_all_ignored(&last, &directory))))
        });
        let (changed, about) = changed.await.ok().flatten().unzip();
        let (not_kept, all_ignored): (Vec<NotKept>, bool) = about.unwrap_or_default();
        Some(Workspace {
            kind: if own { WorkspaceKind::Own } else { WorkspaceKind::Here },
            path: cwd.to_owned(),
            grade: Some(grade_word(last.grade).to_owned()),
            tree: Some(last.tree.to_string()),
            changed,
            skipped: paths(&not_kept),
            not_kept,
            unknown_steps: has_unknown_step,
            unknown_now: is_unknown_now,
            all_ignored,
        })
    }

    /// The files of a process that the table knows, including a snapshot that is not in its journal yet.
    pub(crate) async fn known_files_so_far(&self, uuid: Uuid) -> Option<KnownFiles> {
        match self.workspaces.last_look(uuid, SHORTLY).await {
            Awaited::Looked(_) => {}
            Awaited::Stopped => return self.recorded_files(uuid).await,
            // Nothing is better than a number that is wrong.
            Awaited::NotInTime => return None,
        }
        let known = self.recorded_files(uuid).await?;
        // Looked at again, without a wait: the journal may have a newer snapshot than the one that was waited for.
        match self.workspaces.last_look(uuid, Duration::ZERO).await {
            Awaited::Looked(Look { record: Some(record), .. }) => Some(KnownFiles { last: record.files, ..known }),
            Awaited::Looked(_) => Some(known),
            // It has stopped since, and its journal says what is known.
            Awaited::Stopped => self.recorded_files(uuid).await,
            Awaited::NotInTime => None,
        }
    }

    /// Returns the files of a process as its journal has them.
    async fn recorded_files(&self, uuid: Uuid) -> Option<KnownFiles> {
        self.on_disk(move |data| data.info(uuid)).await.ok()?.ok()??.files
    }
}

/// Returns the files that a snapshot lacks. A copy is partial because what was copied is: it has no repository.
pub(crate) fn not_kept(store: &Store, snapshot: &Snapshot, is_copy: bool) -> relive_workspace::Result<Vec<NotKept>> {
    let mut found = store.not_kept(snapshot)?;
    found.retain(|(path, _)| !is_copy || path.as_bytes() != GIT_INDEX.as_bytes());
    let named = |(path, reason): (FilePath, Option<SkipReason>)| {
        let reason = reason.map(|reason| reason.name().to_owned());
        NotKept { path: path.to_string(), reason }
    };
    Ok(found.into_iter().map(named).collect())
}

/// Tells whether a directory has files and none of them is in its snapshot, although nothing prevented that: the rules leave
/// all of them out.
pub(crate) fn are_all_ignored(snapshot: &Snapshot, directory: &Path) -> bool {
    let is_file = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file() || kind.is_symlink());
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().take(ENTRIES_MAX);
    let has_files = |entry: std::fs::DirEntry| {
        let is_git = entry.file_name() == ".git";
        !is_git && (is_file(&entry) || entries(&entry.path()).any(|below| is_file(&below)))
    };
    snapshot.grade == Grade::Exact && snapshot.has_no_files() && entries(directory).any(has_files)
}

/// Returns the message for a directory whose files are all left out of its snapshots.
pub(crate) fn all_ignored_message(directory: &Path) -> String {
    format!("all files in {} are ignored or look like secrets, so none is in a snapshot", directory.display())
}

pub(crate) fn paths(not_kept: &[NotKept]) -> Vec<String> {
    not_kept.iter().map(|file| file.path.clone()).collect()
}

/// What is in an own workspace and no merge brings back.
#[derive(Debug)]
struct OnlyThere {
    /// Files that no snapshot has.
    left_out: Vec<FilePath>,
    /// Files of which a forced merge kept the version of the target, as far as they are known, where all else is merged.
    one_sided: Option<Vec<String>>,
    /// Whether it is another directory than the one that was made.
    is_replaced: bool,
}

/// Refuses to remove what is in a workspace only.
fn check_merged(id: &str, found: &OwnWorkspace, only_there: &OnlyThere) -> Result<()> {
    let OnlyThere { left_out, one_sided, is_replaced } = only_there;
    if found.dirty == Some(false) {
        return Ok(());
    }
    if !found.known {
        let path = &found.path;
        let message = format!("the journal of {id} is gone, so nobody knows whether its workspace was merged: {path}");
        let hint = format!("copy what you need from {path}, then relive workspace rm --force {id}");
        return Err(Error::new(ErrorCode::Conflict, message).with_hint(hint));
    }
    if *is_replaced {
        let path = &found.path;
        let message = format!("{path} is not the directory that Relive made for {id}, so nobody knows what is in it");
        let hint = format!("copy what you need from {path}, then relive workspace rm --force {id}");
        return Err(Error::new(ErrorCode::Conflict, message).with_hint(hint));
    }
    let (message, merge) = if let Some(paths) = one_sided.as_ref().filter(|_| left_out.is_empty()) {
        let files = if paths.is_empty() { "some files".to_owned() } else { paths.join(", ") };
        let message =
            format!("a forced merge left out {files}: the version of {id} is only in its workspace, {}", found.path);
        (message, format!("copy what you need from {}", found.path))
    } else if left_out.is_empty() {
        let has = if found.dirty.is_none() { "may have" } else { "has" };
        (format!("the workspace of {id} {has} changes that were not merged"), format!("relive merge {id}"))
    } else {
        let message = format!("the workspace of {id} has files that no merge brings back: {}", named(left_out));
        (message, format!("copy them from {}", found.path))
    };
    let hint = format!("{merge}, or relive workspace rm --force {id}");
    Err(Error::new(ErrorCode::Conflict, message).with_hint(hint))
}

/// Where a process works, whatever is known of its files.
pub(crate) fn works_in(history: &History) -> Option<Workspace> {
    let spawned = &history.identity.as_ref()?.spawned;
    let kind = if spawned.workspace.is_some() { WorkspaceKind::Own } else { WorkspaceKind::Here };
    let (path, skipped, not_kept) = (spawned.cwd.clone(), Vec::new(), Vec::new());
    let (grade, tree, changed) = (None, None, None);
    let (unknown_steps, unknown_now, all_ignored) = (false, false, false);
    Some(Workspace { kind, path, grade, tree, changed, skipped, not_kept, unknown_steps, unknown_now, all_ignored })
}
