//! Processes that work on a copy: where it is made, what it is made of, and what the model is told of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_api::{Isolated, Isolation, Workspace, WorkspaceKind};
use relive_core::{ErrorCode, Uuid};
use relive_journal::data::ForkWorkspace;
use relive_journal::files::{Activity, FileHistory};
use relive_journal::record::{Body, FilesId, Grade as RecordedGrade, Input, OwnWorkspace, Snapshot as Record, Spawned};
use relive_workspace::{CopyState, Grade};

use crate::diff::not_known_yet;
use crate::error::{Error, Result};
use crate::lookup::Presence;
use crate::pools::FILE_WITHIN;
use crate::runtime::{ProcessRef, Runtime};
use crate::workspaces::{OnInterrupted, Take, Whose, check_no_link, from_record, to_record};

/// The id of the message that tells a model where it works.
pub(crate) const WORKSPACE_ID: &str = "workspace";

/// A copy that was made for a process that does not exist yet.
#[derive(Debug, Clone)]
pub(crate) struct MadeCopy {
    pub(crate) place: ForkWorkspace,
    /// What its journal begins with: the files, and what the model is told.
    pub(crate) records: Vec<Body>,
    files: FilesId,
}

impl MadeCopy {
    pub(crate) fn view(&self) -> Workspace {
        Workspace {
            kind: WorkspaceKind::Own,
            path: self.place.cwd.clone(),
            grade: Some(grade_word(self.files.grade).to_owned()),
            tree: Some(self.files.tree.to_string()),
            changed: Some(0),
            skipped: Vec::new(),
            not_kept: Vec::new(),
            unknown_steps: false,
            unknown_now: false,
            all_ignored: false,
        }
    }
}

/// What a fork is to its original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForkRole {
    /// It takes the place of its original in a tree.
    Replacement,
    Independent,
}

impl ForkRole {
    /// A fork is made below a tree in place of the process that had its node.
    fn below(parent: Option<Uuid>) -> Self {
        if parent.is_some() { Self::Replacement } else { Self::Independent }
    }
}

/// The word that users see.
pub(crate) fn grade_word(grade: RecordedGrade) -> &'static str {
    match grade {
        RecordedGrade::Exact => "exact",
        RecordedGrade::Partial => "partial",
        RecordedGrade::Moving => "moving",
    }
}

/// Where a process is to work.
#[derive(Debug)]
pub(crate) struct RunPlace {
    pub(crate) cwd: String,
    pub(crate) own: Option<OwnWorkspace>,
    /// What its journal begins with besides.
    pub(crate) records: Vec<Body>,
}

impl RunPlace {
    /// Keeps an isolated process that works on a copy in that copy: the directory of its parent, of which that was made, is
    /// out of its reach.
    fn is_the_only_one_of(&self, isolated: &mut Option<Isolated>) {
        if let Some(isolated) = isolated.as_mut().filter(|isolated| self.own.is_some() && isolated.within.is_some()) {
            isolated.within = Some(self.cwd.clone());
        }
    }
}

impl Runtime {
    /// Returns where a new agent works, with a copy of the directory if that is wanted. This is the only place that decides
    /// where an agent works if the request does not say it: a sealed one on a copy, but for a child, which shares the files
    /// of its parent.
    pub(crate) async fn place_for_run(
        self: &Arc<Self>,
        uuid: Uuid,
        cwd: String,
        wanted: Option<WorkspaceKind>,
        (parent, isolated): (Option<ProcessRef>, &mut Option<Isolated>),
    ) -> Result<RunPlace> {
        let is_sealed = isolated.as_ref().is_some_and(|isolated| isolated.isolation == Isolation::Sealed);
        let usual = if is_sealed && parent.is_none() { WorkspaceKind::Own } else { WorkspaceKind::Here };
        // The real path is recorded, so that a link that replaces the directory later is noticed.
        let typed = cwd.clone();
        let real = self.pools.files.run_within(FILE_WITHIN, move || Path::new(&typed).canonicalize()).await?;
        let cwd = real.ok().and_then(|path| path.into_os_string().into_string().ok()).unwrap_or(cwd);
        if wanted.unwrap_or(usual) == WorkspaceKind::Here {
            self.check_settled(Path::new(&cwd)).await?;
            return Ok(RunPlace { cwd, own: None, records: Vec::new() });
        }
        self.check_copy(&cwd, isolated.as_ref()).await?;
        match self.copy_for_run(uuid, &cwd).await {
            Ok(MadeCopy { place, records, .. }) => {
                let place = RunPlace { cwd: place.cwd, own: Some(place.own), records };
                place.is_the_only_one_of(isolated);
                Ok(place)
            }
            Err(error) if wanted.is_none() && error.hint().is_none() => {
                let message = format!("a sealed agent works on a copy of its directory: {error}");
                Err(Error::new(error.code(), message).with_hint("--workspace here works in the directory itself"))
            }
            Err(error) => Err(error),
        }
    }

    /// Refuses to let a process work in a directory where a rewind, restore or merge is half done. Rolls it back if that is
    /// possible now and nobody works there.
    pub(crate) async fn check_settled(&self, directory: &Path) -> Result<()> {
        for half_done in self.workspaces.half_done_around(directory) {
            if self.is_at_work_around(&half_done) {
                let path = half_done.display();
                let message = format!(
                    "a change of {path} was interrupted and is half done: it can be rolled back when the process \
                     that is running there has ended or is paused"
                );
                return Err(Error::new(ErrorCode::Conflict, message).with_hint("relive ps"));
            }
            let workspaces = self.workspaces.clone();
            let settled = self.in_bulk(move |_| workspaces.settle_in(&half_done, OnInterrupted::RollBack)).await??;
            settled.into_iter().for_each(|text| self.warn(text));
        }
        Ok(())
    }

    /// Tells whether a process is running in a directory, in one above or in one below it.
    fn is_at_work_around(&self, directory: &Path) -> bool {
        let works_there = |cwd: &Path| cwd.starts_with(directory) || directory.starts_with(cwd);
        let state = self.lock();
        let all = state.table.processes(self.moment());
        let there: Vec<Uuid> = all.filter(|view| works_there(Path::new(view.cwd))).map(|view| view.uuid).collect();
        drop(state);
        there.into_iter().any(|uuid| self.owners.find(uuid).is_some_and(|owner| owner.has_body()))
    }

    /// Refuses a copy with something that is hidden from an isolated process: in the copy it would not be.
    async fn check_copy(&self, cwd: &str, isolated: Option<&Isolated>) -> Result<()> {
        let Some(isolated) = isolated.filter(|isolated| !isolated.isolation.is_none()) else { return Ok(()) };
        let (policy, from) = (self.bodies.agent.isolations.reach(isolated), PathBuf::from(cwd));
        let find = move || {
            let hidden = relive_sandbox::hidden(&policy, &[]).into_iter();
            hidden.filter(|path| !policy.private.contains(path)).find(|path| path.starts_with(&from) && path.exists())
        };
        match self.pools.files.run_within(FILE_WITHIN, find).await? {
            None => Ok(()),
            Some(path) => {
                let (path, isolation) = (path.display(), isolated.isolation);
                let message = format!("a copy of {cwd} would contain {path}, which is hidden at isolation {isolation}");
                Err(Error::new(ErrorCode::Permission, message)
                    .with_hint("--workspace here works in the directory itself"))
            }
        }
    }

    /// Returns where a new program works. It is not told of its copy: it reads no messages.
    pub(crate) async fn place_for_program(
        self: &Arc<Self>,
        uuid: Uuid,
        cwd: String,
        wanted: WorkspaceKind,
        isolated: &mut Option<Isolated>,
    ) -> Result<RunPlace> {
        if wanted == WorkspaceKind::Own && !matches!(self.presence(uuid).await?, Presence::Never) {
            // It is there, and works on its copy.
            return Ok(RunPlace { cwd, own: None, records: Vec::new() });
        }
        let mut place = self.place_for_run(uuid, cwd, Some(wanted), (None, isolated)).await?;
        place.records.retain(|record| !matches!(record, Body::Input(_)));
        Ok(place)
    }

    /// Copies the directory in which a process is to be run.
    async fn copy_for_run(self: &Arc<Self>, uuid: Uuid, cwd: &str) -> Result<MadeCopy> {
        let (workspaces, directory) = (self.workspaces.clone(), cwd.to_owned());
        let whose = Whose::Own;
        let request = Take { directory: directory.clone().into(), by: uuid, base: None, whose, at_best: Grade::Exact };
        let taken = self.workspaces.pool().run(move || {
            let settled = workspaces.settle_in(&request.directory, OnInterrupted::RollBack)?;
            // A snapshot that is not exact is copied all the same: what it lacks is said.
            let snapshot = workspaces.take_controlled(&request, &workspaces.control_of_start(uuid))?.snapshot;
            let (path, copied) = workspaces.copy(&snapshot, &request.directory, uuid)?;
            Ok::<_, Error>((path, to_record(&copied), settled))
        });
        let (path, files, settled) = taken.await??;
        settled.into_iter().for_each(|text| self.warn(text));
        made(&path, directory, Record::new(0, files), |path| {
            format!(
                "You work on a copy of the project: your working directory is {path}. Ignored files and the Git \
                 repository are not in it."
            )
        })
    }

    /// Removes the copy that was made for a process which could not be created.
    pub(crate) async fn discard_copy(self: &Arc<Self>, uuid: Uuid) {
        let workspaces = self.workspaces.clone();
        let discarded = self.in_bulk(move |data| {
            // It may exist all the same: then the copy is its own.
            if data.directory(uuid).steps().exists() { Ok(()) } else { workspaces.remove_own(uuid) }
        });
        if let Ok(Err(error)) = discarded.await {
            self.warn(format!("the copy for {uuid}, which was not created, cannot be removed: {error}"));
        }
    }

    /// Copies the files of a step for a fork. `None`: it works where its original does.
    pub(crate) async fn copy_for_fork(
        self: &Arc<Self>,
        original: &Spawned,
        fork: Uuid,
        step: u32,
        wanted: Option<WorkspaceKind>,
        parent: Option<Uuid>,
    ) -> Result<Option<MadeCopy>> {
        let cwd = original.cwd.as_str();
        if wanted == Some(WorkspaceKind::Here) {
            self.check_settled(Path::new(cwd)).await?;
            return self.here(original, step).await;
        }
        let (history, not_yet) = self.files_so_far(original.uuid, step).await?;
        let activity = self.files_activity(original.uuid);
        let Some(files) = history.after(step, activity) else {
            if not_yet.is_some() {
                return Err(not_known_yet(&original.uuid.to_string(), step));
            }
            let beside = format!("relive resume --fork --from-step {step} --workspace here {}", original.uuid);
            if wanted.is_none() && history.may_have_changed(step) && self.living(original.uuid).is_some() {
                let message = format!(
                    "the files of step {step} are not known, so the fork would work in {cwd}, beside the original, which \
                     has not ended"
                );
                return Err(Error::new(ErrorCode::Conflict, message).with_hint(beside));
            }
            if wanted == Some(WorkspaceKind::Own) {
                let message = format!("the files of step {step} are not known, so they cannot be copied");
                return Err(Error::new(ErrorCode::Conflict, message).with_hint(beside));
            }
            self.check_settled(Path::new(cwd)).await?;
            return self.here(original, step).await;
        };
        let (workspaces, of) = (self.workspaces.clone(), PathBuf::from(cwd));
        let copied = self.in_bulk(move |_| {
            let copied = workspaces.copy(&from_record(files), &of, fork)?;
            Ok::<_, Error>((copied, workspaces.look_at_copy(&of)?))
        });
        let copied = copied.await?;
        let ((path, copied), state) = match (copied, wanted) {
            // Collected with the journals that named them, or the store was deleted.
            (Err(error), None) if error.code() == ErrorCode::Conflict => return self.here(original, step).await,
            (copied, _) => copied?,
        };
        let record = with_changes(Record::new(step, to_record(&copied)), &history);
        let belongs_to_origin = match ForkRole::below(parent) {
            ForkRole::Replacement => true,
            // The copy may have been removed.
            ForkRole::Independent => state != CopyState::There,
        };
        // Its changes belong to what the copy of the original was a copy of.
        let copied = original.workspace.as_ref().filter(|_| belongs_to_origin);
        let from = copied.map_or(cwd, |own| own.from.as_str());
        let made = made(&path, from.to_owned(), record, |path| {
            format!(
                "You are a fork and work on a copy of the files as they were after step {step}. Your working directory \
                 is {path} now, and no longer {cwd}, which is another process's. Ignored files and the Git repository \
                 are not in the copy."
            )
        });
        made.map(Some)
    }

    /// Says that a fork works in the directory of its original, if that is still there.
    async fn here(&self, original: &Spawned, step: u32) -> Result<Option<MadeCopy>> {
        let cwd = original.cwd.as_str();
        let (workspaces, path) = (self.workspaces.clone(), PathBuf::from(cwd));
        check_no_link(&path)?;
        let on_copy = || format!("relive resume --fork --from-step {step} {}", original.uuid);
        let made = self.in_bulk(move |_| workspaces.check_made(&path)).await?;
        made.map_err(|error| if error.hint().is_some() { error.with_hint(on_copy()) } else { error })?;
        if matches!(Path::new(cwd).try_exists(), Ok(false)) {
            let message = format!("a fork would work in {cwd}, which no longer exists");
            return Err(Error::new(ErrorCode::Conflict, message)
                .with_hint(format!("mkdir -p {}", relive_types::program::quote(cwd))));
        }
        Ok(None)
    }
}

/// Returns what a fork that works in the directory of its original begins with: the files after its step. What differs
/// from them when it starts is the work of others. `None` where they are not known.
pub(crate) fn begun_here(history: &FileHistory, step: u32, activity: Activity) -> Option<Box<Record>> {
    let files = history.after(step, activity)?;
    let state = history.states.iter().rfind(|state| state.files == files)?;
    // They were seen then, and not when the process is forked.
    let taken = state.snapshot.as_ref().and_then(|snapshot| snapshot.taken).unwrap_or(state.at);
    Some(Box::new(Record { taken: Some(taken), ..with_changes(Record::new(step, files), history) }))
}

/// Adds what the step of a fork changed: the record of it stands after the step, and so not in the journal of the fork.
fn with_changes(record: Record, history: &FileHistory) -> Record {
    let step = record.after;
    let of_step = history.snapshots().filter(|found| found.after == step && !found.before_verb);
    of_step.fold(record, |sum, found| Record {
        changed: sum.changed + found.changed,
        added: sum.added + found.added,
        removed: sum.removed + found.removed,
        uncounted: sum.uncounted + found.uncounted,
        skipped: found.skipped,
        not_kept: found.not_kept.clone(),
        ..sum
    })
}

fn made(path: &Path, from: String, record: Record, say: impl Fn(&str) -> String) -> Result<MadeCopy> {
    let cwd = path.to_str().ok_or_else(|| {
        Error::new(ErrorCode::Invalid, format!("{}: the name of the workspace is not UTF-8", path.display()))
    })?;
    let files = record.files;
    let told = Input { id: WORKSPACE_ID.to_owned(), from: None, text: say(cwd).into() };
    let records = vec![Body::Snapshot(Box::new(record)), Body::Input(told)];
    Ok(MadeCopy { place: ForkWorkspace { cwd: cwd.to_owned(), own: OwnWorkspace { from } }, records, files })
}
