//! Files of a process that go back to how they were after a step: all of them, or some.
//!
//! The process stands still meanwhile. What the files were is a snapshot in its journal, and what is about to be done a
//! record, before the first file is changed; a daemon that is killed rolls back what it finds half done.

mod order;
mod paths;
mod refuse;
mod repeated;
mod still;
mod told;

use std::path::PathBuf;
use std::sync::Arc;

use relive_api::{FilesChanged, RestoreRequest, RewindRequest, Rewound};
use relive_core::{Aim, Cause, ErrorCode, Pid, Signal, Uuid};
use relive_journal::files::{Activity, FileHistory};
use relive_journal::history::{Files, OpenCall};
use relive_journal::record::{Body, FilesId, FilesVerb, Input, PATHS_MAX, Snapshot as SnapshotRecord};
use relive_journal::recovery::Recovery;
use relive_workspace::{FilePath, Force, Grade, shown};

use crate::area::Area;
use crate::diff::{describe, not_known_yet, unknown_step};
use crate::error::{Error, Result};
use crate::owner::{Lane, Turn};
use crate::runtime::Runtime;
use crate::signal::SignalOrder;
use crate::workspace_list::{all_ignored_message, are_all_ignored};
use crate::workspaces::{Changed, OnInterrupted, Planned, RestoreOrder, from_record, to_record};
use order::{Done, Goal, Order, forced};
use paths::paths_in;
use refuse::{in_command, no_undo, resumed_meanwhile};
use told::{left_note, told, unseen_note};

pub(crate) use paths::unquoted;
pub(crate) use told::{is_left, untold};

/// The files to go back to.
#[derive(Debug, Clone, Copy)]
struct Target {
    files: FilesId,
    /// The step that they are of, or the last one.
    step: u32,
}

/// A plan, and what is said and recorded of it.
#[derive(Debug)]
struct PlannedRestore {
    planned: Planned,
    files: Vec<relive_api::FileChange>,
    /// What somebody else has changed since the process last looked.
    foreign: Vec<FilePath>,
}

/// What came of it.
#[derive(Debug)]
struct Outcome {
    uuid: Uuid,
    directory: PathBuf,
    step: u32,
    /// How far the state from before can be relied on.
    before: Grade,
    files: Vec<relive_api::FileChange>,
    verified: bool,
    paused: bool,
    note: Option<String>,
}

/// A process as far as a rewind needs it.
#[derive(Debug)]
struct Standing {
    directory: PathBuf,
    last_step: u32,
    files: Files,
    /// The root of its tree.
    by: Uuid,
    /// Whether a call that may change files is under way.
    has_open_call: bool,
}

/// What has to be planned to tell whether a rewind is refused.
#[derive(Debug)]
struct Check {
    restore: RestoreOrder,
    step: u32,
    history: FileHistory,
    /// Whether an earlier verb was interrupted before it could say what it did.
    is_unfinished: bool,
}

/// What there is to do, found while the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Changes,
    NothingToDo,
}

impl Outcome {
    /// Adds something to say.
    fn with_note(self, note: Option<String>) -> Self {
        let notes: Vec<String> = self.note.into_iter().chain(note).collect();
        Self { note: Some(notes.join("; ")).filter(|note| !note.is_empty()), ..self }
    }
}

impl Runtime {
    /// Puts all files of a process back to how they were after a step; for an isolated caller only files that it could
    /// change itself.
    pub(crate) async fn rewind_for(
        self: &Arc<Self>,
        (cause, caller): (Cause, Option<Area>),
        id: &str,
        request: RewindRequest,
        request_id: Option<String>,
    ) -> Result<Rewound> {
        let RewindRequest { to_step, undo, files_only, force, dry_run } = request;
        let order = Order {
            verb: FilesVerb::Rewind,
            to: if undo { Goal::BeforeLastVerb } else { Goal::AfterStep(to_step) },
            paths: Vec::new(),
            cwd: PathBuf::new(),
            force: forced(force),
            dry_run,
            tells_model: !files_only,
            caller,
            request: request_id.map(|id| format!("rewind:{id}")),
        };
        let done = self.put_back(cause, id, order).await?;
        let consent = if done.before == Grade::Moving { "--force" } else { "-y" };
        let undo = (!dry_run && !done.files.is_empty()).then(|| format!("relive rewind {id} --undo {consent}"));
        let restored = done.files.len() as u64;
        let Outcome { uuid, step: to_step, files, verified, paused, note, .. } = done;
        Ok(Rewound { uuid, to_step, restored, verified, undo, files, dry_run, paused, note })
    }

    /// Puts some files of a process back to how they were after a step.
    pub(crate) async fn restore_for(
        self: &Arc<Self>,
        (cause, caller): (Cause, Option<Area>),
        id: &str,
        request: RestoreRequest,
        request_id: Option<String>,
    ) -> Result<FilesChanged> {
        let RestoreRequest { step, paths, cwd, force, dry_run } = request;
        if paths.is_empty() {
            return Err(Error::new(ErrorCode::Invalid, "name the files to restore"));
        }
        let order = Order {
            verb: FilesVerb::Restore,
            to: Goal::AfterStep(step),
            paths,
            cwd: cwd.into(),
            force: forced(force),
            dry_run,
            tells_model: true,
            caller,
            request: request_id.map(|id| format!("rewind:{id}")),
        };
        let Outcome { directory, files, verified, note, .. } = self.put_back(cause, id, order).await?;
        let (written, path) = (files.len() as u64, directory.display().to_string());
        Ok(FilesChanged { written, conflicts: Vec::new(), verified, path, files, dry_run, note })
    }

    async fn put_back(self: &Arc<Self>, cause: Cause, id: &str, order: Order) -> Result<Outcome> {
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move {
            let (uuid, note) = runtime.identity_of(&runtime.look_up_to_change(&id).await?)?;
            if order.dry_run {
                runtime.await_files(uuid).await;
                let outcome = runtime.turn(uuid, Lane::Verb).await?.put_back(&id, &order).await?;
                return Ok(outcome.with_note(note));
            }
            if let Some(outcome) = runtime.turn(uuid, Lane::Verb).await?.put_back_before(&id, &order).await? {
                return Ok(outcome.with_note(note));
            }
            if runtime.check_first(&id, uuid, &order).await? == Found::NothingToDo {
                let order = Order { dry_run: true, ..order };
                let outcome = runtime.turn(uuid, Lane::Verb).await?.put_back(&id, &order).await?;
                return Ok(Outcome { verified: true, ..outcome }.with_note(note));
            }
            let paused = runtime.stand_still(cause, uuid).await.map_err(|error| match error.hint() {
                None => error.with_hint(order.again(&id)),
                Some(_) => error,
            })?;
            let mut turn = runtime.turn(uuid, Lane::Verb).await?;
            let put_back = turn.put_back(&id, &order).await;
            drop(turn);
            let put_back = match put_back {
                // It would work on files that never were together.
                Err(error @ Error::HalfApplied { .. }) => Err(error.with_hint(order.again(&id))),
                Err(error) => {
                    runtime.resume_again(cause, &paused).await;
                    Err(error)
                }
                Ok(outcome) if outcome.files.is_empty() => {
                    runtime.resume_again(cause, &paused).await;
                    Ok(outcome)
                }
                Ok(outcome) => Ok(Outcome { paused: !paused.is_empty(), ..outcome }),
            };
            runtime.lock().paused_for_rewind.retain(|pid| !paused.contains(pid));
            put_back.map(|outcome| outcome.with_note(note))
        })
        .await
    }

    /// Refuses what can be refused before a process is paused, and tells whether it has to be: a pause cuts off the call of
    /// its model.
    async fn check_first(self: &Arc<Self>, id: &str, uuid: Uuid, order: &Order) -> Result<Found> {
        self.await_files(uuid).await;
        let Some(check) = self.turn(uuid, Lane::Verb).await?.check_order(id, order).await? else {
            return Ok(Found::Changes);
        };
        let checked = match self.plan_restore(check.restore.clone(), order.caller.clone()).await {
            // It is rolled back when the process stands still.
            Err(Error::Interrupted(_)) => return Ok(Found::Changes),
            Err(error) => Err(error),
            Ok(found) if found.planned.plan.changes.is_empty() && !check.is_unfinished => {
                return Ok(Found::NothingToDo);
            }
            Ok(_) if order.force == Force::Yes => return Ok(Found::Changes),
            Ok(found) => self.check_foreign(&check.history, check.step, &found.planned).await,
        };
        let Err(error) = checked else { return Ok(Found::Changes) };
        let error = self.with_losses((&check.history, check.step), check.restore, error).await;
        Err(order.with_way_out(id, error))
    }

    /// Resumes what was paused for a verb that was then refused, unless somebody else has asked for a pause since.
    async fn resume_again(self: &Arc<Self>, cause: Cause, paused: &[Pid]) {
        let sent = SignalOrder { cause, aim: Aim::Subtree, ..SignalOrder::new(Signal::Resume, None) };
        for (pid, uuid) in paused.iter().filter_map(|pid| Some((pid, self.uuid_of(*pid)?))) {
            let resumed = async {
                let mut turn = self.turn(uuid, Lane::Own).await?;
                let is_ours = self.lock().paused_for_rewind.contains(pid);
                if is_ours { turn.deliver(&sent).await.map(drop) } else { Ok(()) }
            };
            if let Err(error) = resumed.await {
                self.warn(format!("{uuid} was paused for a rewind that was refused, and cannot be resumed: {error}"));
            }
        }
    }

    /// Plans a restore, and says what would be changed.
    async fn plan_restore(&self, order: RestoreOrder, caller: Option<Area>) -> Result<PlannedRestore> {
        let workspaces = self.workspaces.clone();
        let planned = self.pools.bulk.run(move || {
            let planned = workspaces.plan_restore(&order)?;
            // Nothing would be put back, and nothing verified.
            if planned.plan.changes.is_empty()
                && order.target.has_no_files()
                && are_all_ignored(&planned.before, &order.directory)
            {
                let refused = Error::new(ErrorCode::Conflict, all_ignored_message(&order.directory));
                return Err(refused.with_hint("`workspace: include:` in config.yaml adds files that are ignored"));
            }
            if let Some(area) = caller {
                let root = order.directory.canonicalize().unwrap_or_else(|_| order.directory.clone());
                area.check_changes(&root, planned.plan.changes.iter().map(|change| change.path.as_path()))?;
            }
            let store = workspaces.store()?;
            let files = describe(&store, &planned.plan.changes)?;
            // A verb of its own that was interrupted may have left them like this.
            let is_known = order.expected.iter().any(|known| known.is_same_files(&planned.before));
            let last = order.expected.first().filter(|_| !is_known);
            let since = last.map(|last| store.diff(last, &planned.before)).transpose()?.unwrap_or_default();
            let foreign = shown(&since).into_iter().map(|change| change.path.clone()).collect();
            Ok::<_, Error>(PlannedRestore { foreign, planned, files })
        });
        planned.await?
    }

    /// Carries out a plan, and returns what was done and what the files are then.
    pub(crate) async fn apply_plan(&self, directory: PathBuf, planned: Planned) -> Result<Changed> {
        let workspaces = self.workspaces.clone();
        self.pools.bulk.run(move || workspaces.apply(&directory, &planned)).await?
    }
}

impl Turn {
    /// Refuses what can be told from the journal alone. Returns what has to be planned to tell more, if the process would
    /// be paused.
    async fn check_order(&mut self, id: &str, order: &Order) -> Result<Option<Check>> {
        let standing = self.standing(id).await?;
        paths_in(&standing.directory, order, |_| false)?;
        if let Goal::AfterStep(step) = order.to
            && step > standing.last_step
        {
            return Err(unknown_step(id, step, standing.last_step));
        }
        let (history, not_yet) = self.runtime.files_by_now(self.uuid(), standing.last_step).await?;
        if order.to == Goal::BeforeLastVerb {
            history.before_last_verb().map_err(|why| no_undo(id, why))?;
        }
        if self.machine().is_none_or(|machine| machine.pause().is_some()) {
            return Ok(None);
        }
        if standing.has_open_call {
            return Err(in_command(id));
        }
        let target = match self.target(id, order.to, (&history, not_yet), standing.last_step) {
            Ok(target) => target,
            // Known when it has stopped.
            Err(_) if is_known_at_rest(&history, order.to) => return Ok(None),
            Err(error) => return Err(error),
        };
        let restore = self.restore_order(&standing, order, target)?;
        let restore = RestoreOrder { on_interrupted: OnInterrupted::Refuse, ..restore };
        let is_unfinished = standing.files.unfinished.is_some();
        Ok(Some(Check { restore, step: target.step, history, is_unfinished }))
    }

    fn restore_order(&self, standing: &Standing, order: &Order, target: Target) -> Result<RestoreOrder> {
        // The last snapshot of a running process may not be recorded yet, and what it changed since is its own work.
        let is_at_work = self.owner.has_body() && (standing.files.has_unseen_effect || standing.has_open_call);
        let (store, wanted) = (self.runtime.workspaces.store()?, from_record(target.files));
        let was_there = |path: &FilePath| matches!(store.state(&wanted, path), Ok(Some(_)));
        let last_seen = || self.runtime.workspaces.last_seen(&standing.directory, standing.by);
        Ok(RestoreOrder {
            directory: standing.directory.clone(),
            target: order.to.as_wanted(target.files),
            expected: if is_at_work { last_seen().into_iter().collect() } else { expected(&standing.files) },
            paths: paths_in(&standing.directory, order, was_there)?,
            force: order.force,
            at_best: self.runtime.workspaces.best_grade_in(&standing.directory, &standing.files),
            on_interrupted: if order.dry_run { OnInterrupted::Refuse } else { OnInterrupted::RollBack },
        })
    }

    async fn put_back(&mut self, id: &str, order: &Order) -> Result<Outcome> {
        let (runtime, uuid) = (Arc::clone(&self.runtime), self.uuid());
        let standing = self.standing(id).await?;
        if !order.dry_run {
            self.check_still(id, &standing)?;
        }
        let (history, not_yet) = runtime.files_by_now(uuid, standing.last_step).await?;
        let target = self.target(id, order.to, (&history, not_yet), standing.last_step)?;
        let restore = self.restore_order(&standing, order, target)?;
        let found = match runtime.plan_restore(restore.clone(), order.caller.clone()).await {
            Ok(found) if order.force == Force::No => {
                runtime.check_foreign(&history, target.step, &found.planned).await.map(|()| found)
            }
            found => found,
        };
        let PlannedRestore { planned, files, foreign } = match found {
            Ok(found) => found,
            Err(error) => {
                let error = runtime.with_losses((&history, target.step), restore, error).await;
                return Err(order.with_way_out(id, error));
            }
        };
        let Standing { directory, last_step, .. } = standing;
        let Target { files: wanted, step } = target;
        let before = planned.before.grade;
        let (verified, note) = (!order.dry_run, planned.settled.clone());
        let unseen = unseen_note(&planned, &order.by_force(id));
        let mut outcome = Outcome { uuid, directory, step, before, files, verified, paused: false, note };
        let is_same = |known: FilesId| from_record(known).is_same_files(&from_record(wanted));
        if order.dry_run || planned.plan.changes.is_empty() {
            if !order.dry_run && standing.files.unfinished.is_some_and(is_same) {
                // A daemon was killed when the files were put back, and before it could say so.
                let now = to_record(&planned.before);
                self.record_done(order, (step, last_step), now, &outcome.files).await?;
            }
            return Ok(outcome.with_note(unseen));
        }
        let mut first = before_record(&standing.files, &planned, &foreign, last_step).into_iter().collect::<Vec<_>>();
        first.push(order.record(wanted, (step, last_step), None));
        self.record_files(first).await?;
        let Changed { applied, now, note } = runtime.apply_plan(outcome.directory.clone(), planned).await?;
        // What somebody changed meanwhile was not put back.
        outcome.files.retain(|file| !is_left(&applied, file));
        self.record_done(order, (step, last_step), to_record(&now), &outcome.files).await?;
        outcome.verified = applied.is_verified();
        Ok(outcome.with_note(left_note(&applied)).with_note(unseen).with_note(note))
    }

    /// Records that the files were put back, and tells the model if it runs.
    async fn record_done(
        &mut self,
        order: &Order,
        steps: (u32, u32),
        now: FilesId,
        files: &[relive_api::FileChange],
    ) -> Result<()> {
        let lives = self.machine().is_some();
        let done = Done { changed: files.len() as u64, untold: order.tells_model && !lives };
        let mut last = vec![order.record(now, steps, Some(done))];
        last.extend((order.tells_model && lives).then(|| {
            let fresh = || format!("rewind:{}", self.runtime.clock.new_uuid());
            let text = told(order.to, steps.0, files).into();
            Body::Input(Input { id: order.request.clone().unwrap_or_else(fresh), from: None, text })
        }));
        self.record_files(last).await
    }

    /// Finds the files to go back to. `not_yet` is the step whose snapshot is still being taken.
    fn target(
        &self,
        id: &str,
        goal: Goal,
        (history, not_yet): (&FileHistory, Option<u32>),
        last_step: u32,
    ) -> Result<Target> {
        let step = match goal {
            Goal::AfterStep(step) => step,
            Goal::BeforeLastVerb => {
                let files = history.before_last_verb().map_err(|why| no_undo(id, why))?;
                return Ok(Target { files, step: history.step_with(files).unwrap_or(last_step) });
            }
        };
        let activity = self.runtime.files_activity(self.uuid());
        let known = history.after(step, activity).filter(|_| step <= last_step);
        let unknown = || match not_yet {
            Some(first) if step >= first && step <= last_step => not_known_yet(id, step),
            Some(_) | None => unknown_step(id, step, last_step),
        };
        Ok(Target { files: known.ok_or_else(unknown)?, step })
    }

    /// Refuses to change files under a process that is not at rest.
    fn check_still(&self, id: &str, standing: &Standing) -> Result<()> {
        if self.owner.has_body() {
            return Err(resumed_meanwhile(id));
        }
        if standing.has_open_call && self.machine().is_some() {
            return Err(in_command(id));
        }
        Ok(())
    }

    async fn standing(&mut self, id: &str) -> Result<Standing> {
        let found = self.look(|history| {
            let spawned = history.identity.as_ref().map(|identity| &identity.spawned);
            // A sleep, or a wait for a child, goes on whatever the files are.
            let may_change = |open: &OpenCall| !matches!(open.recovery, Recovery::Rerun | Recovery::Lookup { .. });
            let has_open_call = history.open_calls().any(may_change);
            spawned.map(|spawned| Standing {
                directory: spawned.cwd.clone().into(),
                by: spawned.root_uuid.unwrap_or(spawned.uuid),
                last_step: history.completed_step,
                files: history.files.clone(),
                has_open_call,
            })
        });
        found
            .await?
            .ok_or_else(|| Error::new(ErrorCode::Internal, format!("the journal of {id} does not describe a process")))
    }

    /// Records something about the files of a process, whether or not it has ended. On return it is on the disk.
    pub(crate) async fn record_files(&mut self, batch: Vec<Body>) -> Result<()> {
        let (runtime, uuid, now) = (Arc::clone(&self.runtime), self.uuid(), self.runtime.moment());
        if let Some(machine) = self.machine() {
            return self.write(machine.incarnation(), now, batch).await;
        }
        let history = runtime.on_journal(move |data| data.annotate(uuid, now, batch)).await??;
        runtime.catalog.tell(&history);
        runtime.changes.ring(uuid);
        Ok(())
    }
}

/// The states that the files may be in without anybody else having changed them. A step whose snapshot was lost with a
/// daemon may have changed them too: nobody knows, so that counts as somebody else.
fn expected(files: &Files) -> Vec<relive_workspace::Snapshot> {
    files.last.into_iter().chain(files.unfinished).map(from_record).collect()
}

/// Tells whether the files of a step are not known only because the process is still running.
fn is_known_at_rest(history: &FileHistory, goal: Goal) -> bool {
    match goal {
        Goal::AfterStep(step) => history.after(step, Activity::AtRest).is_some(),
        Goal::BeforeLastVerb => false,
    }
}

/// The snapshot from before, if the journal does not have it yet. What is different in it is somebody else's work: nobody
/// was asked about the process's own.
fn before_record(files: &Files, planned: &Planned, foreign: &[FilePath], after: u32) -> Option<Body> {
    let before = to_record(&planned.before);
    if files.last == Some(before) {
        return None;
    }
    Some(Body::Snapshot(Box::new(SnapshotRecord {
        base: files.last.map(|last| last.tree),
        changed: foreign.len() as u64,
        foreign: foreign.iter().take(PATHS_MAX).map(ToString::to_string).collect(),
        foreign_count: foreign.len() as u64,
        before_verb: true,
        ..SnapshotRecord::new(after, before)
    })))
}
