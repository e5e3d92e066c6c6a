//! Signals to a subtree: which processes they reach, also while children are being created, and what a repeat has to
//! do.
//!
//! A subtree is walked parents first, one turn for each process, so that nothing new is started above. Within its turn
//! each process reports its children, including those that are being created: the walk waits for their turn, so the
//! answer is given when they have the signal in their journals. A child that is not on the disk yet when its parent is
//! signalled has the signal in its first write.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use relive_api::{Affected, Failed};
use relive_core::{Aim, Cause, ErrorCode, Pid, Signal, SuspendReason, Timestamp, Urgency, Uuid, Why};
use relive_journal::ProcInfo;
use relive_journal::record::{Body, Paused, Signalled};

use crate::error::{Error, Result};
use crate::owner::{Lane, Turn};
use crate::runtime::{ProcessRef, Published, Runtime};
use crate::signal::{Delivered, KILL_WITHIN, SignalOrder};

/// How many processes of a subtree are signalled concurrently.
const IN_FLIGHT: usize = 64;
/// How many ancestors of a process are searched on the disk.
const ANCESTORS_MAX: usize = 256;

/// A signal that was sent to a whole subtree.
#[derive(Debug, Clone)]
pub(crate) struct Inherited {
    signal: Signal,
    urgency: Urgency,
    cause: Cause,
    request: Option<String>,
}

impl Inherited {
    fn of(sent: &SignalOrder) -> Self {
        Self { signal: sent.signal, urgency: sent.urgency, cause: sent.cause, request: sent.request.clone() }
    }

    pub(crate) fn order(self) -> SignalOrder {
        let Self { signal, urgency, cause, request } = self;
        SignalOrder { cause, urgency, aim: Aim::Subtree, request, ..SignalOrder::new(signal, None) }
    }

    /// Returns the record that a process has from its start. Nothing is blocked or handled then.
    pub(crate) fn record(self, at: Timestamp) -> Option<Body> {
        let Self { signal, cause, request: req, .. } = self;
        match signal {
            Signal::Kill | Signal::Term | Signal::Int => {
                Some(Body::Signalled(Signalled { signal, cause, end: None, pending: false, req }))
            }
            Signal::Pause => {
                let reason = SuspendReason::User;
                Some(Body::Paused(Paused { reason, asked_at: at, resume_at: None, cause: Some(cause), req }))
            }
            Signal::Resume => None,
        }
    }
}

/// The signals that subtrees got, and the children that are being created.
#[derive(Debug, Default)]
pub(crate) struct Inheritance {
    /// By the signalled process: a child that it creates in the meantime gets the signal too.
    by_parent: HashMap<Pid, Inherited>,
    /// From before anything of the child is on the disk until it is in the table and has its signal.
    creations: HashMap<Uuid, CreationUnderWay>,
    /// Processes that are about to be started paused, because they were when they ended.
    paused_starts: HashSet<Uuid>,
}

#[derive(Debug)]
struct CreationUnderWay {
    parent: Pid,
    /// Kept here as well: the parent may be gone before the child exists.
    inherited: Option<Inherited>,
}

impl Inheritance {
    fn signalled(&mut self, parent: Pid, inherited: Inherited) {
        for creation in self.creations.values_mut().filter(|creation| creation.parent == parent) {
            creation.inherited = Some(inherited.clone());
        }
        self.by_parent.insert(parent, inherited);
    }

    /// Forgets the signal of a process: it no longer applies to children that it creates from now on.
    pub(crate) fn freed(&mut self, parent: Pid) {
        self.by_parent.remove(&parent);
        for creation in self.creations.values_mut().filter(|creation| creation.parent == parent) {
            creation.inherited = None;
        }
    }

    /// Forgets an ended process. Children that are being created keep its signal.
    pub(crate) fn remove(&mut self, parent: &Pid) {
        self.by_parent.remove(parent);
    }

    fn created_below(&self, parent: Pid) -> impl Iterator<Item = Uuid> {
        self.creations.iter().filter(move |(_, creation)| creation.parent == parent).map(|(uuid, _)| *uuid)
    }

    /// Returns the pause that a process has from its start, if it is to be started paused.
    pub(crate) fn paused_start(&self, uuid: Uuid) -> Option<Inherited> {
        let cause = Cause::runtime(Why::User);
        let pause = Inherited { signal: Signal::Pause, urgency: Urgency::Now, cause, request: None };
        self.paused_starts.contains(&uuid).then_some(pause)
    }

    /// Takes the signal for a child that is being created.
    pub(crate) fn take(&mut self, child: Uuid) -> Option<Inherited> {
        self.creations.get_mut(&child)?.inherited.take()
    }
}

/// A child that is being created, until this is dropped.
pub(crate) struct Creation {
    runtime: Arc<Runtime>,
    parent: Pid,
    child: Uuid,
}

impl Creation {
    /// Takes the signal for the first write.
    pub(crate) fn inherited(&self) -> Option<Inherited> {
        self.runtime.lock().inherited.take(self.child)
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        let creations = &mut self.runtime.lock().inherited.creations;
        // The next incarnation of its parent may be creating it again.
        if creations.get(&self.child).is_some_and(|creation| creation.parent == self.parent) {
            creations.remove(&self.child);
        }
    }
}

/// A process that is started paused, until this is dropped.
pub(crate) struct PausedStart {
    runtime: Arc<Runtime>,
    uuid: Uuid,
}

impl Drop for PausedStart {
    fn drop(&mut self) {
        self.runtime.lock().inherited.paused_starts.remove(&self.uuid);
    }
}

/// A signal that is being sent to a subtree.
#[derive(Default)]
struct Walk {
    root: Uuid,
    next: Vec<Uuid>,
    done: HashSet<Uuid>,
    /// The processes that it changed.
    pids: Vec<Pid>,
    failed: Vec<Failed>,
    /// Whether the root had received it before.
    repeated: bool,
    resumed: bool,
}

impl Published {
    /// Returns the children of a process in the table, and those that are being created.
    fn below(&self, parent: Pid, now: relive_core::Moment) -> Vec<Uuid> {
        let listed = self.table.children(parent).filter_map(|pid| self.table.view(pid, now).map(|view| view.uuid));
        listed.chain(self.inherited.created_below(parent)).collect()
    }
}

impl Runtime {
    /// Records that a child is about to be created, before anything of it is written.
    pub(crate) fn begin_creation(self: &Arc<Self>, parent: ProcessRef, child: Uuid) -> Result<Creation> {
        let mut state = self.lock();
        let pid = parent.of.pid;
        let lives = state.table.machine(pid).is_some_and(|machine| machine.end().is_none());
        if !lives {
            return Err(Error::new(ErrorCode::Conflict, format!("PID {pid} has ended and cannot create a child")));
        }
        let inherited = state.inherited.by_parent.get(&pid).cloned();
        let inherited = inherited.or_else(|| state.inherited.paused_start(child));
        state.inherited.creations.insert(child, CreationUnderWay { parent: pid, inherited });
        Ok(Creation { runtime: Arc::clone(self), parent: pid, child })
    }

    /// Has the next incarnation of a process, or its first one, begin paused, as long as the answer is kept.
    pub(crate) fn start_paused(self: &Arc<Self>, uuid: Uuid) -> PausedStart {
        self.lock().inherited.paused_starts.insert(uuid);
        PausedStart { runtime: Arc::clone(self), uuid }
    }

    /// Sends a signal to a process and to its living descendants.
    pub(crate) async fn signal_tree(
        self: &Arc<Self>,
        root: Uuid,
        root_pid: Pid,
        mut sent: SignalOrder,
    ) -> Result<Affected> {
        sent.cause.root = Some(root_pid);
        if sent.signal == Signal::Kill && self.is_free(root) && self.is_repeated(root, &sent).await {
            // It was resumed since: its present descendants were not meant.
            return Ok(Affected { affected: 1, pids: vec![root_pid], ..Affected::default() });
        }
        let mut walk = Walk { root, next: vec![root], ..Walk::default() };
        let listed = self.lock().table.subtree(root_pid);
        walk.next.extend(listed.into_iter().filter_map(|pid| self.uuid_of(pid)));
        walk.next.extend(self.unrecovered_below(root).await);
        self.signal_all(&mut walk, &sent).await?;
        let ends = matches!(sent.signal, Signal::Kill | Signal::Term | Signal::Int);
        if walk.repeated && ends && !self.is_free(root) {
            // The first request may have ended their ancestors, and then the table has them below PID 0.
            walk.next.extend(self.descendants(root).await?);
            self.signal_all(&mut walk, &sent).await?;
        }
        let Walk { mut pids, failed, .. } = walk;
        if walk.resumed {
            pids.extend(self.resume_above(root_pid, &sent).await);
        }
        Ok(Affected { affected: pids.len(), pids, failed, ..Affected::default() })
    }

    /// Signals all processes of the walk, until there are no new ones: children that were being created are among them.
    async fn signal_all(self: &Arc<Self>, walk: &mut Walk, sent: &SignalOrder) -> Result<()> {
        let root = walk.root;
        loop {
            let mut next = std::mem::take(&mut walk.next);
            next.retain(|uuid| walk.done.insert(*uuid));
            if next.is_empty() {
                return Ok(());
            }
            let jobs = next.into_iter().map(|uuid| {
                let aim = if uuid == root { Aim::Process } else { Aim::Subtree };
                let (runtime, sent) = (Arc::clone(self), SignalOrder { aim, ..sent.clone() });
                async move {
                    let answer = runtime.signal_recovered(uuid, &sent).await;
                    let named = answer.as_ref().map_or(true, |delivered| delivered.changed);
                    (uuid, if named { runtime.last_pid(uuid).await } else { None }, answer)
                }
            });
            let mut answers = stream::iter(jobs).buffered(IN_FLIGHT);
            let mut refused = None;
            while let Some((uuid, pid, answer)) = answers.next().await {
                match answer {
                    Ok(Delivered { changed: _, resumed, repeated, below }) => {
                        walk.resumed |= resumed;
                        walk.repeated |= repeated && uuid == root;
                        walk.pids.extend(pid);
                        walk.next.extend(below);
                    }
                    // A refusal of the root is the answer, once the running turns are over.
                    Err(error) if uuid == root => refused = Some(error),
                    Err(error) => {
                        let message = error.to_string();
                        walk.failed.push(Failed { pid: pid.unwrap_or(Pid::RUNTIME), message });
                    }
                }
            }
            if let Some(error) = refused {
                return Err(error);
            }
        }
    }

    /// Delivers a signal; to a process that could not be recovered, once it is.
    async fn signal_recovered(self: &Arc<Self>, uuid: Uuid, sent: &SignalOrder) -> Result<Delivered> {
        if self.unrecovered.contains(uuid) {
            self.recover_again(uuid).await?;
        }
        self.signal_process(uuid, sent).await
    }

    /// Returns whether a process lives and was not asked to end.
    fn is_free(&self, uuid: Uuid) -> bool {
        self.machine_of(uuid).is_some_and(|machine| machine.ending().is_none())
    }

    /// Returns whether a process had received this request before. A stuck disk does not delay a KILL.
    async fn is_repeated(self: &Arc<Self>, uuid: Uuid, sent: &SignalOrder) -> bool {
        let Some(request) = &sent.request else { return false };
        let look = async { self.turn(uuid, sent.lane()).await?.was_answered(Some(request)).await };
        tokio::time::timeout(KILL_WITHIN, look).await.is_ok_and(|known| known.unwrap_or(false))
    }

    /// Returns the descendants that could not be recovered: they are not in the table.
    async fn unrecovered_below(self: &Arc<Self>, root: Uuid) -> Vec<Uuid> {
        let mut below = Vec::new();
        for uuid in self.unrecovered.uuids() {
            let (mut here, mut steps) = (self.parent_on_disk(uuid).await, 0);
            while let Some(parent) = here.filter(|parent| *parent != root && steps < ANCESTORS_MAX) {
                here = self.parent_on_disk(parent).await;
                steps += 1;
            }
            below.extend((here == Some(root)).then_some(uuid));
        }
        below
    }

    /// Returns the descendants of a process by descent, regardless of their parent in the table, parents first: living
    /// ones, and those that the table remembers.
    async fn descendants(self: &Arc<Self>, root: Uuid) -> Result<Vec<Uuid>> {
        let mut turn = self.turn(root, Lane::Own).await?;
        let first = turn.look(|history| history.identity.as_ref().and_then(|identity| identity.spawned.root_uuid));
        let first = first.await?.unwrap_or(root);
        drop(turn);
        let (members, mut parents) = {
            let state = self.lock();
            let ended = state.table.ended().filter_map(|view| Some((view.uuid, view.parent_uuid?)));
            let mut parents: HashMap<Uuid, Option<Uuid>> = ended.map(|(uuid, parent)| (uuid, Some(parent))).collect();
            parents.extend(state.trees.members(first).map(|(uuid, parent)| (uuid, Some(parent))));
            (parents.keys().copied().collect::<Vec<Uuid>>(), parents)
        };
        let mut found: Vec<(usize, Uuid)> = Vec::new();
        for member in members {
            let (mut here, mut above) = (member, Vec::new());
            while here != root && above.len() < ANCESTORS_MAX {
                above.push(here);
                let parent = match parents.get(&here) {
                    Some(parent) => *parent,
                    None => {
                        let parent = self.parent_on_disk(here).await;
                        parents.insert(here, parent);
                        parent
                    }
                };
                let Some(parent) = parent else { break };
                here = parent;
            }
            if here == root {
                let below = above.len();
                // Each of its ancestors as well: one may have ended under an earlier daemon by this signal.
                found.extend(above.into_iter().enumerate().map(|(steps, uuid)| (below - steps, uuid)));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found.into_iter().map(|(_, uuid)| uuid).collect())
    }

    /// Returns the parent of a process that is not in the table; `None` if it was collected.
    async fn parent_on_disk(&self, uuid: Uuid) -> Option<Uuid> {
        let info = self.on_journal(move |data| data.info(uuid)).await;
        let info: Option<ProcInfo> = info.ok().and_then(|info| info.ok()).flatten();
        info?.parent_uuid
    }

    /// Returns the present or last PID of a process.
    pub(crate) async fn last_pid(self: &Arc<Self>, uuid: Uuid) -> Option<Pid> {
        let listed = self.lock().table.current_pid(uuid);
        match listed {
            Some(pid) => Some(pid),
            None => self.turn(uuid, Lane::Own).await.ok()?.last_pid().await.ok()?,
        }
    }
}

impl Turn {
    /// Delivers a signal. A signal to a subtree is kept for children that are created later, and the answer lists the
    /// children: searched before, since the signal may end the process, and after, since it may have got another child
    /// in the meantime.
    pub(crate) async fn deliver_with_subtree(&mut self, sent: &SignalOrder) -> Result<Delivered> {
        if sent.cause.root.is_none() {
            return self.deliver(sent).await;
        }
        let runtime = Arc::clone(&self.runtime);
        let pid = self.machine().map(|machine| machine.incarnation().pid);
        let mut below = pid.map(|pid| runtime.lock().below(pid, runtime.moment())).unwrap_or_default();
        let delivered = self.deliver(sent).await?;
        if let Some(machine) = self.machine() {
            let pid = machine.incarnation().pid;
            let holds = delivered.changed || machine.pause().is_some() || machine.ending().is_some();
            let mut state = runtime.lock();
            if holds && sent.signal != Signal::Resume {
                state.inherited.signalled(pid, Inherited::of(sent));
            }
            below.extend(state.below(pid, runtime.moment()));
        }
        Ok(Delivered { below, ..delivered })
    }
}
