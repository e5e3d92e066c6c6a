//! The pool of CLI agents: how many run at the same time. The others wait, in the order in which they were asked for.
//!
//! Nothing here is on the disk: an agent that waits is a process whose program was not launched, and its messages are in
//! its journal. So a daemon that was killed finds the same agents waiting, in the same order.

mod plan;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relive_cli_agent::{Activity, Lifecycle};
use relive_core::{Timestamp, Uuid};
use relive_session::connection::Connection;
use relive_session::protocol::{Outcome, Verb};
use serde_json::{Value, json};
use tokio::sync::watch;

use plan::{Occupant, PoolLimits, plan};

use super::CliBody;
use super::live::ShownAgent;
use super::subagents::Subagents;
use crate::bodies::Context;

/// How often the first agent that waits looks again: memory is freed, and processes end, without a word to the pool.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a shim may take to say which processes it has.
const ASKED_WITHIN: Duration = Duration::from_secs(1);

/// The CLI agents that run or wait.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentPool {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    members: Mutex<Members>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Members {
    waiting: HashMap<Uuid, Waiting>,
    inside: HashMap<Uuid, Inside>,
    /// Those whose body has exited. They stay in the table for a moment.
    left: HashSet<Uuid>,
}

/// An agent that waits.
#[derive(Debug, Clone)]
struct Waiting {
    /// Since when it is to run. Earlier ones are first.
    since: Timestamp,
    /// Whether it is paused, so that others go before it.
    is_paused: bool,
    name: String,
    dialect: String,
    session_id: Option<String>,
    in_terminal: bool,
}

/// An agent whose program runs, or is being launched.
#[derive(Debug, Default)]
struct Inside {
    connection: Option<Connection>,
    memory: u64,
    idle_since: Option<Timestamp>,
    is_leaving: bool,
}

/// The place of an agent that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueuePlace {
    /// From 1.
    pub(crate) place: usize,
    pub(crate) of: usize,
    pub(crate) since: Timestamp,
    name: String,
    dialect: String,
    session_id: Option<String>,
    in_terminal: bool,
}

impl QueuePlace {
    /// Returns the field `agent` of a process that waits.
    pub(crate) fn to_json(&self) -> Value {
        let shown = ShownAgent {
            name: &self.name,
            dialect: &self.dialect,
            lifecycle: Lifecycle::Spawning,
            activity: Activity::Idle,
            last_active: None,
            idle_kill_at: None,
            session_id: self.session_id.as_deref(),
            usage: None,
            gateway: None,
            in_terminal: self.in_terminal,
            waiting: None,
            dialog: None,
            subagents: &Subagents::default(),
            queued: Some(json!({"place": self.place, "of": self.of, "since": self.since.to_string()})),
        };
        shown.to_json()
    }
}

impl Members {
    /// Returns those that wait, the first one first. Paused ones come after all others.
    fn queue(&self) -> Vec<(bool, Timestamp, Uuid)> {
        let mut queue: Vec<_> =
            self.waiting.iter().map(|(uuid, waiting)| (waiting.is_paused, waiting.since, *uuid)).collect();
        queue.sort_unstable();
        queue
    }

    /// Returns those that take up room. A living agent of which nothing is known here may run.
    fn occupants(&self, living: &[Uuid]) -> Vec<Occupant> {
        let takes_room = |uuid: &&Uuid| !self.waiting.contains_key(uuid) && !self.left.contains(uuid);
        let occupant = |uuid: &Uuid| {
            let inside = self.inside.get(uuid);
            Occupant {
                uuid: *uuid,
                memory: inside.map_or(0, |inside| inside.memory),
                idle_since: inside.and_then(|inside| inside.idle_since),
                is_leaving: inside.is_some_and(|inside| inside.is_leaving),
            }
        };
        living.iter().filter(takes_room).map(occupant).collect()
    }
}

impl AgentPool {
    fn lock(&self) -> MutexGuard<'_, Members> {
        self.inner.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        self.inner.changed.send_replace(());
    }

    /// Returns a bell that rings when an agent comes, goes, becomes idle or has to make room.
    pub(super) fn follow(&self) -> watch::Receiver<()> {
        self.inner.changed.subscribe()
    }

    /// Notes that the body of an agent runs.
    pub(super) fn begins(&self, uuid: Uuid) {
        self.lock().left.remove(&uuid);
    }

    /// Notes that an agent has a program: it was admitted, or an earlier daemon launched it.
    pub(super) fn runs(&self, uuid: Uuid, connection: Connection) {
        let mut members = self.lock();
        members.waiting.remove(&uuid);
        members.inside.insert(uuid, Inside { connection: Some(connection), ..Inside::default() });
    }

    /// Notes that the body of an agent has exited.
    pub(super) fn leaves(&self, uuid: Uuid) {
        {
            let mut members = self.lock();
            members.waiting.remove(&uuid);
            members.inside.remove(&uuid);
            members.left.insert(uuid);
        }
        self.ring();
    }

    /// Notes since when an agent could be ended to make room; `None` if it cannot be.
    pub(super) fn report_idle(&self, uuid: Uuid, idle_since: Option<Timestamp>) {
        let is_news = {
            let mut members = self.lock();
            let has_waiting = !members.waiting.is_empty();
            let Some(inside) = members.inside.get_mut(&uuid) else { return };
            let before = std::mem::replace(&mut inside.idle_since, idle_since);
            has_waiting && before.is_none() && idle_since.is_some()
        };
        if is_news {
            self.ring();
        }
    }

    /// Tells whether an agent is to make room.
    pub(super) fn is_to_leave(&self, uuid: Uuid) -> bool {
        self.lock().inside.get(&uuid).is_some_and(|inside| inside.is_leaving)
    }

    /// Notes that an agent which was to make room has work.
    pub(super) fn stays(&self, uuid: Uuid) {
        if let Some(inside) = self.lock().inside.get_mut(&uuid) {
            (inside.is_leaving, inside.idle_since) = (false, None);
        }
        self.ring();
    }

    /// Returns the place of an agent that waits.
    pub(crate) fn place(&self, uuid: Uuid) -> Option<QueuePlace> {
        let members = self.lock();
        let waiting = members.waiting.get(&uuid)?;
        let place = members.queue().iter().position(|(_, _, other)| *other == uuid)? + 1;
        Some(QueuePlace {
            place,
            of: members.waiting.len(),
            since: waiting.since,
            name: waiting.name.clone(),
            dialect: waiting.dialect.clone(),
            session_id: waiting.session_id.clone(),
            in_terminal: waiting.in_terminal,
        })
    }

    /// Returns the memory of each agent that runs, measured now.
    pub(crate) async fn memory(&self) -> HashMap<Uuid, u64> {
        let connections: Vec<(Uuid, Connection)> = {
            let members = self.lock();
            let inside = members.inside.iter();
            inside.filter_map(|(uuid, inside)| Some((*uuid, inside.connection.clone()?))).collect()
        };
        let measured = connections.into_iter().map(|(uuid, connection)| async move {
            let asked = tokio::time::timeout(ASKED_WITHIN, connection.request(Verb::Stat)).await;
            match asked {
                Ok(Ok(Outcome::Stat(stat))) => Some((uuid, stat.members.iter().map(|pid| resident(*pid)).sum())),
                Ok(_) | Err(_) => None,
            }
        });
        let measured: HashMap<Uuid, u64> =
            futures_util::future::join_all(measured).await.into_iter().flatten().collect();
        let mut members = self.lock();
        for (uuid, memory) in &measured {
            if let Some(inside) = members.inside.get_mut(uuid) {
                inside.memory = *memory;
            }
        }
        measured
    }

    /// Has an agent wait, unless it has a place already.
    fn wait(&self, uuid: Uuid, waiting: Waiting) -> Admission {
        let mut members = self.lock();
        if members.inside.contains_key(&uuid) {
            return Admission::Granted;
        }
        members.waiting.insert(uuid, waiting);
        Admission::Pending
    }

    fn set_paused(&self, uuid: Uuid, is_paused: bool) {
        let before = match self.lock().waiting.get_mut(&uuid) {
            Some(waiting) => std::mem::replace(&mut waiting.is_paused, is_paused),
            None => is_paused,
        };
        if before != is_paused {
            self.ring();
        }
    }

    fn is_first(&self, uuid: Uuid) -> bool {
        self.lock().queue().first().is_some_and(|(is_paused, _, first)| *first == uuid && !is_paused)
    }

    /// Admits the first agent that waits if there is room, and otherwise has idle ones make room. `living` are all CLI
    /// agents that have not ended.
    fn admit_first(&self, uuid: Uuid, living: &[Uuid], limits: PoolLimits) -> Admission {
        let admission = {
            let mut members = self.lock();
            members.left.retain(|left| living.contains(left));
            let queue = members.queue();
            let ready = queue.iter().filter(|(is_paused, ..)| !is_paused).count();
            let plan = plan(limits, &members.occupants(living), ready);
            for evicted in &plan.evict {
                if let Some(inside) = members.inside.get_mut(evicted) {
                    inside.is_leaving = true;
                }
            }
            if plan.start > 0 {
                members.waiting.remove(&uuid);
                members.inside.insert(uuid, Inside::default());
                Admission::Granted
            } else if plan.evict.is_empty() {
                return Admission::Pending;
            } else {
                Admission::Pending
            }
        };
        self.ring();
        admission
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Granted,
    Pending,
}

/// Returns how much memory a process has, in bytes; nothing if it has gone.
fn resident(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

impl CliBody {
    /// Returns how many agents may run.
    fn pool_limits(&self) -> PoolLimits {
        let pool = self.live.now().pool;
        PoolLimits { max_running: pool.max_running, max_memory: pool.max_memory }
    }

    /// Waits until there is room for an agent; `false` if it has to end before that.
    pub(super) async fn wait_for_room(&self, cx: &mut Context, asked: AskedRun) -> bool {
        let (uuid, pool) = (cx.process.uuid, &self.pool);
        let AskedRun { since, name, dialect, session_id, in_terminal } = asked;
        let waiting = Waiting { since, is_paused: false, name, dialect, session_id, in_terminal };
        if pool.wait(uuid, waiting) == Admission::Granted {
            return note_queued(cx, false).await;
        }
        let mut bell = pool.follow();
        let mut is_told = false;
        loop {
            bell.borrow_and_update();
            let orders = *cx.orders.borrow_and_update();
            if orders.end.is_some() {
                return false;
            }
            pool.set_paused(uuid, orders.stop.is_some());
            if orders.stop.is_some() {
                cx.owner.report_stopped().await;
            } else if pool.is_first(uuid) {
                let limits = self.pool_limits();
                if limits.max_memory > 0 {
                    pool.memory().await;
                }
                if pool.admit_first(uuid, &cx.owner.living_cli_agents(), limits) == Admission::Granted {
                    return note_queued(cx, false).await;
                }
            }
            if !is_told {
                is_told = true;
                // It can be paused and ended like one that runs.
                cx.owner.started().await;
                note_queued(cx, true).await;
                cx.owner.ring();
            }
            tokio::select! {
                _ = cx.orders.changed() => {}
                _ = bell.changed() => cx.owner.ring(),
                () = tokio::time::sleep(LOOK_EVERY), if orders.stop.is_none() => {}
            }
        }
    }
}

/// Records that an agent waits, or no longer does: no time counts meanwhile. A launch is not kept back by a journal that
/// cannot say so; it says more itself.
async fn note_queued(cx: &Context, is_queued: bool) -> bool {
    if let Err(error) = cx.owner.set_queued(is_queued).await {
        let uuid = cx.process.uuid;
        let wrong = if is_queued { "counts" } else { "does not count from now on" };
        cx.owner.warn(format!("the time of {uuid} {wrong}, because its queue cannot be recorded: {error}"));
    }
    true
}

/// A run that is to begin.
#[derive(Debug)]
pub(super) struct AskedRun {
    pub(super) since: Timestamp,
    pub(super) name: String,
    pub(super) dialect: String,
    pub(super) session_id: Option<String>,
    pub(super) in_terminal: bool,
}
