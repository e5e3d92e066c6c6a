//! Periodic work: collecting, noticing processes that have stalled, forgetting completion records.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use relive_api::{GcAnswer, GcCandidate, GcRequest};
use relive_config::StallPolicy;
use relive_core::{Cause, Effect, ErrorCode, Moment, Pid, Signal, SuspendReason, Urgency, Uuid, Why};
use relive_journal::data::{Candidate, Collected, GcReason, GcRules};

use crate::error::Result;
use crate::runtime::Runtime;
use relive_workspace::Removal;

const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// How long a directory stays open after its last snapshot.
const DIRECTORY_IDLE_AFTER: Duration = Duration::from_secs(60);
/// How many processes one request collects: each takes a few syncs, and a client waits for the answer.
const COLLECTED_MAX: usize = 200;

impl Runtime {
    /// Starts the periodic work. It ends with the runtime.
    pub fn run_housekeeping(self: &Arc<Self>) {
        let every = self.settings.stalled_after.div_f32(4.0).clamp(Duration::from_millis(250), Duration::from_secs(30));
        self.periodically(every, |runtime| async move {
            runtime.look_for_stalled().await;
        });
        // Apart from the rest: long copies may occupy the threads that close a directory.
        self.periodically(DIRECTORY_IDLE_AFTER / 2, |runtime| async move {
            runtime.close_idle_directories().await;
        });
        self.periodically(SWEEP_EVERY, |runtime| async move {
            runtime.forget_ended();
        });
        self.run_notifications();
        if let Some(every) = self.settings.gc_every {
            self.periodically(every, |runtime| async move {
                loop {
                    match runtime.gc(GcRequest::default()).await {
                        Ok(answer) => {
                            let is_over = answer.left == 0;
                            let told = answer.warnings.into_iter().chain(answer.failures).chain(answer.not_freed);
                            told.for_each(|warning| runtime.warn_once(warning));
                            if is_over {
                                return;
                            }
                        }
                        Err(error) => return runtime.warn(format!("nothing was collected: {error}")),
                    }
                }
            });
        }
    }

    async fn close_idle_directories(&self) {
        if self.workspaces.has_idle(DIRECTORY_IDLE_AFTER) {
            let workspaces = self.workspaces.clone();
            let _ = self.in_bulk(move |_| workspaces.close_idle(DIRECTORY_IDLE_AFTER)).await;
        }
    }

    fn periodically<F: Future<Output = ()> + Send>(
        self: &Arc<Self>,
        every: Duration,
        job: impl Fn(Arc<Self>) -> F + Send + 'static,
    ) {
        let runtime = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                let Some(runtime) = runtime.upgrade() else { return };
                job(runtime).await;
            }
        });
    }

    async fn look_for_stalled(self: &Arc<Self>) {
        let stalled_after = self.live.now().stalled_after;
        let after_ms = u64::try_from(stalled_after.as_millis()).unwrap_or(u64::MAX);
        let stalled: Vec<(Pid, Option<Uuid>)> = {
            let mut state = self.lock();
            if state.bodies.is_empty() {
                return;
            }
            let now = self.moment();
            // A model that streams, a tool within its time, a sleep and a wait owe nothing.
            let bodies: Vec<_> = state.bodies.values().filter_map(|owner| owner.owes_since()).collect();
            for (of, since) in bodies {
                let owed = since.map_or(Duration::ZERO, |since| since.elapsed());
                if owed < stalled_after {
                    // Its last sign of life was when it began to owe, not when it was looked at.
                    let owed_ms = u64::try_from(owed.as_millis()).unwrap_or(u64::MAX);
                    state.table.alive(of, Moment { up_ms: now.up_ms.saturating_sub(owed_ms), ..now });
                }
            }
            let effects = state.table.check_stalled(after_ms, now);
            let pids = effects
                .into_iter()
                .filter_map(|effect| if let Effect::Stalled { of } = effect { Some(of.pid) } else { None });
            let pids: Vec<Pid> = pids.collect();
            state.stalled_at.extend(pids.iter().map(|pid| (*pid, now.at)));
            pids.into_iter().map(|pid| (pid, state.table.view(pid, now).map(|view| view.uuid))).collect()
        };
        for (pid, uuid) in stalled {
            self.tell(pid, "stalled", serde_json::json!({}));
            let Some(uuid) = uuid else { continue };
            let done = match self.live.now().stalled_policy {
                StallPolicy::Warn => Ok(()),
                StallPolicy::Pause => self.suspend(uuid, SuspendReason::Stalled, Urgency::Now).await,
                StallPolicy::Kill => {
                    self.signal_one(uuid, Signal::Term, Cause::runtime(Why::Stalled)).await.map(|_| ())
                }
            };
            if let Err(error) = done {
                self.warn(format!("{uuid} has stalled and could not be stopped: {error}"));
            }
        }
    }

    /// Collects old processes, or says which would be.
    pub async fn gc(self: &Arc<Self>, request: GcRequest) -> Result<GcAnswer> {
        let runtime = Arc::clone(self);
        self.reload_settings().await;
        self.to_the_end(async move { runtime.collect(request).await }).await
    }

    /// Leaves out those whose own workspace has changes that were not merged, and returns how many there are.
    async fn keep_unmerged(&self, candidates: &mut Vec<Candidate>) -> Result<usize> {
        let workspaces = self.workspaces.clone();
        let own = self.pools.reads.run(move || workspaces.all_own()).await??;
        let mut unmerged = Vec::new();
        for uuid in own.iter().map(|own| own.uuid).filter(|own| candidates.iter().any(|found| found.uuid == *own)) {
            if self.workspace_to_remove(&uuid.to_string(), uuid).await.is_err() {
                unmerged.push(uuid);
            }
        }
        candidates.retain(|candidate| !unmerged.contains(&candidate.uuid));
        Ok(unmerged.len())
    }

    async fn collect(self: &Arc<Self>, request: GcRequest) -> Result<GcAnswer> {
        let (mut rules, reading, now): (GcRules, _, _) = (self.live.now().gc, self.clock.reading(), self.now());
        if request.older_than_ms.is_some() {
            rules = GcRules { retention_days: None, max_entries: None, older_than_ms: request.older_than_ms };
        }
        self.recall_ended().await;
        let mut survey = {
            let _alone = self.collecting.lock().await;
            self.in_bulk(move |data| data.survey(rules, &reading)).await??
        };
        let found = survey.candidates.len();
        survey.candidates.retain(|candidate| !self.is_held(candidate.uuid));
        let unmerged = self.keep_unmerged(&mut survey.candidates).await?;
        let mut warnings: Vec<String> = survey.warnings.iter().map(|(uuid, text)| format!("{uuid}: {text}")).collect();
        if request.dry_run {
            warnings.extend(kept_for_handles(found - survey.candidates.len() - unmerged));
        }
        warnings.extend(kept_unmerged(unmerged));
        let too_many = request.at_most.is_some_and(|max| survey.candidates.len() > max);
        let mut answer = GcAnswer {
            collected: !(request.dry_run || too_many),
            candidates: survey.candidates.iter().map(candidate).collect(),
            removed: Vec::new(),
            freed_bytes: 0,
            warnings,
            failures: Vec::new(),
            left: 0,
            snapshots: None,
            not_freed: None,
        };
        if !answer.collected {
            let without = survey.candidates.iter().map(|candidate| candidate.uuid).collect();
            self.add_snapshots(&mut answer, Removal::DryRun, without).await;
            return Ok(answer);
        }
        // Before this collects: what fails then is told once.
        let rests = self.sweep_removed().await;
        let _alone = self.collecting.lock().await;
        answer.left = survey.candidates.len();
        for candidate in survey.candidates {
            if answer.removed.len() == COLLECTED_MAX {
                break;
            }
            answer.left -= 1;
            if self.is_held(candidate.uuid) {
                continue;
            }
            let (uuid, bytes) = (candidate.uuid, candidate.bytes);
            // Its process may have been resumed since, and have changed it.
            let Ok(own) = self.workspace_to_remove(&uuid.to_string(), uuid).await else { continue };
            match self.collect_with_own(candidate, now, own.as_ref()).await? {
                Ok(Collected::Gone) => {
                    answer.removed.push(uuid);
                    answer.freed_bytes += bytes;
                    if let Some(own) = own {
                        match self.remove_merged(&own).await {
                            Ok(()) => answer.freed_bytes += own.bytes,
                            Err(error) => answer.failures.push(format!("{}: {error}", own.path)),
                        }
                    }
                }
                Ok(Collected::Spared) => {}
                Err(error) => answer.failures.push(format!("{uuid}: {error}")),
            }
        }
        answer.warnings.extend(rests.iter().map(ToString::to_string));
        if answer.left == 0 {
            self.add_snapshots(&mut answer, Removal::Remove, HashSet::new()).await;
        }
        // Room may have come back for the reserve.
        let _ = self.in_bulk(|data| data.restore_reserve()).await;
        Ok(answer)
    }

    /// Collects the snapshots that no process but these names, or says why they stay.
    async fn add_snapshots(self: &Arc<Self>, answer: &mut GcAnswer, removal: Removal, without: HashSet<Uuid>) {
        match (self.collect_snapshots(removal, without).await, removal) {
            (Ok(found), _) => {
                let (snapshots, blocked_bytes) = found.unzip();
                answer.snapshots = snapshots;
                answer.not_freed = blocked_bytes.filter(|bytes| *bytes > 0).map(|bytes| {
                    let bytes = relive_types::size::bytes(bytes);
                    let (which, stay, then) = match removal {
                        Removal::Remove => ("are", "stay", ", then try again"),
                        Removal::DryRun => ("would be", "would stay", " first"),
                    };
                    format!(
                        "snapshots of {bytes} {which} partly garbage and {stay}, because the disk has too little free \
                         space to write the rest of them anew: free some space{then}"
                    )
                });
            }
            (Err(error), Removal::Remove) if error.code() == ErrorCode::Exhausted => {
                answer.not_freed = Some(format!("the snapshots were not collected: {error}"));
            }
            (Err(error), Removal::Remove) => {
                answer.warnings.push(format!("the snapshots were not collected: {error}"));
            }
            (Err(error), Removal::DryRun) => {
                answer.warnings.push(format!("the snapshots would not be collected: {error}"));
            }
        }
    }
}

/// Says how many processes are kept because something is in their workspaces only.
fn kept_unmerged(kept: usize) -> Option<String> {
    let kept = match kept {
        0 => return None,
        1 => "1 process is kept, because its workspace has changes that were not merged".to_owned(),
        _ => format!("{kept} processes are kept, because their workspaces have changes that were not merged"),
    };
    Some(format!("{kept}: relive workspace list"))
}

/// Says how many processes are kept because others have handles to them.
fn kept_for_handles(kept: usize) -> Option<String> {
    let kept = match kept {
        0 => return None,
        1 => "1 process is kept, because another one has a handle to it".to_owned(),
        _ => format!("{kept} processes are kept, because others have handles to them"),
    };
    Some(format!("{kept}: relive handle list"))
}

fn candidate(candidate: &relive_journal::data::Candidate) -> GcCandidate {
    let reason = match candidate.reason {
        GcReason::Retention => "retention_days",
        GcReason::MaxEntries => "max_entries",
        GcReason::Asked => "asked",
    };
    GcCandidate { uuid: candidate.uuid, dead_at: candidate.dead_at, bytes: candidate.bytes, reason: reason.to_owned() }
}
