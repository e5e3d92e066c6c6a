//! Files of a process that go back to how they were after a step: all of them, or some.
//!
//! The process stands still meanwhile. What the files were is a snapshot in its journal, and what is about to be done a
//! record, before the first file is changed; a daemon that is killed rolls back what it finds half done.

mod paths;
mod told;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use relive_api::{FilesChanged, RestoreRequest, RewindRequest, Rewound};
use relive_core::{Aim, Cause, ErrorCode, Pid, Signal, Urgency, Uuid};
use relive_journal::files::{FileHistory, NoUndo};
use relive_journal::history::Files;
use relive_journal::record::{
    Body, FilesId, FilesVerb, Input, PATHS_MAX, Rewound as Record, Snapshot as SnapshotRecord,
};
use relive_workspace::{Applied, FilePath, Force, Grade, Snapshot};

use crate::diff::{describe, unknown_step};
use crate::error::{Error, Result};
use crate::owner::{Lane, Turn};
use crate::runtime::Runtime;
use crate::signal::{PauseFor, SignalOrder};
use crate::workspaces::{Planned, RestoreOrder, from_record, named, to_record};
use paths::paths_in;
use told::{left_note, told};

pub(crate) use paths::unquoted;
pub(crate) use told::untold;

/// How long a process may take to stand still.
const STILL_WITHIN: Duration = Duration::from_secs(20);

/// A rewind or a restore, understood.
#[derive(Debug)]
struct Order {
    verb: FilesVerb,
    to: Goal,
    paths: Vec<String>,
    /// The directory of the one who asks.
    cwd: PathBuf,
    force: Force,
    dry_run: bool,
    tells_model: bool,
    request: Option<String>,
}

/// Which state the files go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    AfterStep(u32),
    BeforeLastVerb,
}

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
    has_open_call: bool,
}

impl Runtime {
    /// Puts all files of a process back to how they were after a step.
    pub(crate) async fn rewind_for(
        self: &Arc<Self>,
        cause: Cause,
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
        cause: Cause,
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
                let outcome = runtime.turn(uuid, Lane::Verb).await?.put_back(&id, &order).await?;
                return Ok(Outcome { note, ..outcome });
            }
            runtime.turn(uuid, Lane::Verb).await?.check_order(&id, &order).await?;
            let paused = runtime.stand_still(cause, uuid).await?;
            let mut turn = runtime.turn(uuid, Lane::Verb).await?;
            let put_back = turn.put_back(&id, &order).await;
            drop(turn);
            if put_back.is_err() {
                runtime.resume_again(cause, &paused).await;
            }
            runtime.lock().paused_for_rewind.retain(|pid| !paused.contains(pid));
            put_back.map(|outcome| Outcome { paused: !paused.is_empty(), note, ..outcome })
        })
        .await
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

    /// Pauses a process that runs, with all below it, and waits until nothing of them does. Returns those that had to be
    /// paused.
    async fn stand_still(self: &Arc<Self>, cause: Cause, uuid: Uuid) -> Result<Vec<Pid>> {
        let Some(machine) = self.machine_of(uuid) else { return Ok(Vec::new()) };
        let mut paused = Vec::new();
        if machine.pause().is_none() {
            let (urgency, pause_for) = (Urgency::Now, PauseFor::Rewind);
            let sent = SignalOrder { urgency, cause, pause_for, ..SignalOrder::new(Signal::Pause, None) };
            paused = self.deliver(&uuid.to_string(), sent, true).await?.pids;
        }
        let mut bell = self.follow(uuid);
        let stopped = async {
            loop {
                let changed = self.bodies_changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                bell.borrow_and_update();
                if !self.owners.find(uuid).is_some_and(|owner| owner.has_body()) {
                    return Ok(());
                }
                if self.machine_of(uuid).is_some_and(|machine| machine.pause().is_none()) {
                    return Err(resumed_meanwhile(&uuid.to_string()));
                }
                tokio::select! {
                    () = changed => {}
                    Ok(()) = bell.changed() => {}
                }
            }
        };
        match tokio::time::timeout(STILL_WITHIN, stopped).await {
            Ok(stopped) => stopped.map(|()| paused),
            Err(_) => {
                let message = format!("process {uuid} is paused and has not stopped yet");
                Err(Error::new(ErrorCode::Timeout, message).with_hint("try again in a moment"))
            }
        }
    }

    /// Plans a restore, and says what would be changed.
    async fn plan_restore(&self, order: RestoreOrder) -> Result<PlannedRestore> {
        let workspaces = self.workspaces.clone();
        let planned = self.pools.bulk.run(move || {
            let planned = workspaces.plan_restore(&order)?;
            let store = workspaces.store()?;
            let files = describe(&store, &planned.plan.changes)?;
            // A verb of its own that was interrupted may have left them like this.
            let is_known = order.expected.iter().any(|known| known.is_same_files(&planned.before));
            let last = order.expected.first().filter(|_| !is_known);
            let since = last.map(|last| store.diff(last, &planned.before)).transpose()?;
            let foreign = since.into_iter().flatten().filter(|change| !change.is_directory());
            Ok::<_, Error>(PlannedRestore { foreign: foreign.map(|change| change.path).collect(), planned, files })
        });
        planned.await?
    }

    /// Carries out a plan, and returns what was done and what the files are then.
    pub(crate) async fn apply_plan(&self, directory: PathBuf, planned: Planned) -> Result<(Applied, FilesId)> {
        let workspaces = self.workspaces.clone();
        let applied = self.pools.bulk.run(move || {
            let (applied, now) = workspaces.apply(&directory, &planned)?;
            Ok::<_, Error>((applied, to_record(&now)))
        });
        applied.await?
    }
}

impl Turn {
    /// Refuses what can be refused while the process runs.
    async fn check_order(&mut self, id: &str, order: &Order) -> Result<()> {
        let standing = self.standing(id).await?;
        paths_in(&standing.directory, order)?;
        match order.to {
            Goal::AfterStep(step) if step > standing.last_step => Err(unknown_step(id, step)),
            Goal::AfterStep(_) => Ok(()),
            Goal::BeforeLastVerb => {
                let history = self.runtime.file_history(self.uuid()).await?;
                history.before_last_verb().map(drop).map_err(|why| no_undo(id, why))
            }
        }
    }

    async fn put_back(&mut self, id: &str, order: &Order) -> Result<Outcome> {
        let (runtime, uuid) = (Arc::clone(&self.runtime), self.uuid());
        let standing = self.standing(id).await?;
        if !order.dry_run {
            self.check_still(id, &standing)?;
        }
        let history = runtime.file_history(uuid).await?;
        let target = self.target(id, order.to, &history, standing.last_step)?;
        let PlannedRestore { planned, files, foreign } = runtime
            .plan_restore(RestoreOrder {
                directory: standing.directory.clone(),
                target: order.to.as_wanted(target.files),
                expected: expected(&standing.files),
                paths: paths_in(&standing.directory, order)?,
                force: order.force,
                at_best: runtime.workspaces.best_grade_in(&standing.directory, &standing.files),
            })
            .await
            .map_err(|error| order.with_way_out(id, error))?;
        if order.force == Force::No {
            check_foreign(&history, target.step, &planned).map_err(|error| order.with_way_out(id, error))?;
        }
        let Standing { directory, last_step, .. } = standing;
        let Target { files: wanted, step } = target;
        let before = planned.before.grade;
        let mut outcome = Outcome { uuid, directory, step, before, files, verified: true, paused: false, note: None };
        if order.dry_run || planned.plan.changes.is_empty() {
            return Ok(outcome);
        }
        let mut first = before_record(&standing.files, &planned, &foreign, last_step).into_iter().collect::<Vec<_>>();
        first.push(order.record(wanted, (step, last_step), None));
        self.record_files(first).await?;
        let changed = planned.files().count() as u64;
        let spared = planned.spared.clone();
        let (applied, now) = runtime.apply_plan(outcome.directory.clone(), planned).await?;
        let lives = self.machine().is_some();
        let done = Done { changed, untold: order.tells_model && !lives };
        let mut last = vec![order.record(now, (step, last_step), Some(done))];
        let said = (order.tells_model && lives).then(|| told(order.to, step, &outcome.files));
        last.extend(said.clone().map(|text| {
            let fresh = || format!("rewind:{}", runtime.clock.new_uuid());
            Body::Input(Input { id: order.request.clone().unwrap_or_else(fresh), from: None, text: text.into() })
        }));
        self.record_files(last).await?;
        outcome.verified = applied.is_verified();
        outcome.note = left_note(&applied, &spared);
        Ok(outcome)
    }

    /// Finds the files to go back to.
    fn target(&self, id: &str, goal: Goal, history: &FileHistory, last_step: u32) -> Result<Target> {
        let step = match goal {
            Goal::AfterStep(step) => step,
            Goal::BeforeLastVerb => {
                let files = history.before_last_verb().map_err(|why| no_undo(id, why))?;
                return Ok(Target { files, step: history.step_with(files).unwrap_or(last_step) });
            }
        };
        let activity = self.runtime.files_activity(self.uuid());
        let known = history.after(step, activity).filter(|_| step <= last_step);
        Ok(Target { files: known.ok_or_else(|| unknown_step(id, step))?, step })
    }

    /// Refuses to change files under a process that is not at rest.
    fn check_still(&self, id: &str, standing: &Standing) -> Result<()> {
        if self.owner.has_body() {
            return Err(resumed_meanwhile(id));
        }
        if standing.has_open_call && self.machine().is_some() {
            let message = format!("process {id} is in the middle of a command");
            let hint = format!("rewind when the command is over, or relive kill {id}");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(hint));
        }
        Ok(())
    }

    async fn standing(&mut self, id: &str) -> Result<Standing> {
        let found = self.look(|history| {
            let spawned = history.identity.as_ref().map(|identity| identity.spawned.cwd.clone());
            let has_open_call = history.open_calls().next().is_some();
            spawned.map(|cwd| Standing {
                directory: cwd.into(),
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

/// A verb that is done.
#[derive(Debug, Clone, Copy)]
struct Done {
    changed: u64,
    untold: bool,
}

impl Goal {
    /// The state as it is planned for. What a partial state lacks is never touched, so it can be undone like an exact one.
    fn as_wanted(self, files: FilesId) -> Snapshot {
        let target = from_record(files);
        match (self, target.grade) {
            (Self::BeforeLastVerb, Grade::Partial) => Snapshot { grade: Grade::Exact, ..target },
            (Self::BeforeLastVerb | Self::AfterStep(_), _) => target,
        }
    }

    /// As it is typed.
    fn option(self) -> String {
        match self {
            Self::AfterStep(step) => format!("--to-step {step}"),
            Self::BeforeLastVerb => "--undo".to_owned(),
        }
    }
}

impl Order {
    /// Adds the command that does it all the same.
    fn with_way_out(&self, id: &str, error: Error) -> Error {
        if error.code() != ErrorCode::Conflict || self.force == Force::Yes || error.hint().is_some() {
            return error;
        }
        error.with_hint(match (self.verb, self.to) {
            (FilesVerb::Restore, Goal::AfterStep(step)) => {
                let paths: Vec<_> = self.paths.iter().map(|path| relive_types::program::quote(path)).collect();
                format!("relive restore {id} --step {step} --force {}", paths.join(" "))
            }
            (FilesVerb::Restore | FilesVerb::Rewind | FilesVerb::Merge, to) => {
                format!("relive rewind {id} {} --force", to.option())
            }
        })
    }

    /// What is recorded: before the first file is changed, and when it is done.
    fn record(&self, files: FilesId, (step, last_step): (u32, u32), done: Option<Done>) -> Body {
        Body::Rewound(Box::new(Record {
            verb: self.verb,
            done: done.is_some(),
            to_step: Some(step),
            after: Some(last_step),
            files,
            into: None,
            merged: None,
            changed: done.map_or(0, |done| done.changed),
            left: 0,
            untold: done.is_some_and(|done| done.untold),
            req: self.request.clone().filter(|_| done.is_some()),
        }))
    }
}

fn forced(force: bool) -> Force {
    if force { Force::Yes } else { Force::No }
}

/// The states that the files may be in without anybody else having changed them. A step whose snapshot was lost with a
/// daemon may have changed them too: nobody knows, so that counts as somebody else.
fn expected(files: &Files) -> Vec<relive_workspace::Snapshot> {
    files.last.into_iter().chain(files.unfinished).map(from_record).collect()
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

fn resumed_meanwhile(id: &str) -> Error {
    let message = format!("process {id} was resumed meanwhile");
    Error::new(ErrorCode::Conflict, message).with_hint(format!("relive pause {id}"))
}

fn no_undo(id: &str, why: NoUndo) -> Error {
    let message = match why {
        NoUndo::NothingToUndo => format!("the files of {id} were never put back, so there is nothing to undo"),
        NoUndo::ChangedSince => format!("{id} has changed files since they were put back"),
    };
    Error::new(ErrorCode::Conflict, message).with_hint(format!("relive steps {id}"))
}

/// Refuses to undo what others did after the step.
fn check_foreign(history: &FileHistory, step: u32, planned: &Planned) -> Result<()> {
    // What was forced over is not there any more, unless that was undone.
    let is_there = |snapshot: &SnapshotRecord| !snapshot.before_verb || history.last() == Some(snapshot.files);
    let is_later = |snapshot: &SnapshotRecord| snapshot.after > step || snapshot.before_verb;
    let later = history.snapshots().filter(|found| found.foreign_count > 0 && is_later(found) && is_there(found));
    let mut touched: Vec<FilePath> = Vec::new();
    for snapshot in later {
        // Where not all are listed, each may be one of them.
        let is_foreign = |path: &FilePath| {
            snapshot.foreign_count > PATHS_MAX as u64
                || snapshot.foreign.iter().any(|foreign| *foreign == path.to_string())
        };
        let found =
            planned.files().map(|change| &change.path).filter(|path| is_foreign(path) && !touched.contains(path));
        let found: Vec<_> = found.cloned().collect();
        touched.extend(found);
    }
    if touched.is_empty() {
        return Ok(());
    }
    let message = format!("this would undo what others changed in the same directory: {}", named(&touched));
    Err(Error::new(ErrorCode::Conflict, message))
}
