//! The model calls of a CLI agent that go through the gateway: copied from its log into the journal, and permitted.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use relive_core::{Cause, End, ProcessStatus, Signal, SuspendReason, Timestamp, Usd, Why};
use relive_gateway::{Cut, Ended, Entry, Facts, Lease};
use relive_journal::Durability;
use relive_journal::history::CliFacts;
use relive_journal::record::{Body as Record, CliModelCall, CliRecord, OnBudget, Usage};
use relive_llm::Prices;
use relive_session::connection::Connection;
use serde_json::json;
use tokio::sync::watch;

use super::CliBody;
use super::conversation::Conversation;
use super::live::LiveGateway;
use super::route::{self, NoRoute, Route};
use crate::drive::Standing;
use crate::runtime::ProcessRef;

/// The name under which the shim of a process keeps the socket that listens at its port.
const SOCKET: &str = "gateway";

/// The model calls of one program.
pub(super) struct Calls {
    facts: watch::Receiver<Facts>,
    /// The gateway's log up to here is recorded.
    read_to: u64,
    /// What the gateway was told last.
    lease: Option<Lease>,
    /// The highest number of a call that was permitted.
    permitted: u64,
    count: u64,
    /// The model of a call that was refused, because nothing was left or its price is not known.
    pub(super) refused: Option<String>,
    /// Whether the gateway waits for space on the disk.
    is_disk_full: bool,
    on_budget: OnBudget,
    /// Where the process is told that it may be frozen.
    boundary: watch::Sender<bool>,
}

impl CliBody {
    /// Finds the way of an agent's model calls.
    pub(super) async fn route(&self, process: ProcessRef, facts: &CliFacts) -> Result<Route, NoRoute> {
        if !self.gateways.is_possible() {
            return Err(NoRoute::NoGateway);
        }
        let (agent, environment) = (facts.agent.clone(), self.exec.environments.of(process.uuid));
        let found = self.exec.pool.run(move || route::route(&agent, &environment)).await;
        found.map_err(|error| NoRoute::Settings(error.to_string()))?
    }

    /// Has the calls of a process served: at the port that its program knows, if it knows one.
    pub(super) async fn serve(
        &self,
        process: ProcessRef,
        route: &Route,
        at: ServedAt,
        called_to: u64,
    ) -> io::Result<u16> {
        let ServedAt { port, token, socket } = at;
        // Held until it is known what it may spend.
        let lease = Lease { settled: called_to, hold: true, ..Lease::default() };
        let entry = Entry {
            uuid: process.uuid,
            port,
            token,
            upstream: route.upstream.clone(),
            auth: route.auth.clone(),
            directory: self.exec.data.directory(process.uuid).path().to_owned(),
            lease,
        };
        self.gateways.serve(entry, socket).await
    }
}

/// Where the calls of a process are served.
pub(super) struct ServedAt {
    /// The port that its program knows.
    pub(super) port: Option<u16>,
    /// The hash of its token.
    pub(super) token: String,
    /// The socket that listens at the port.
    pub(super) socket: Option<OwnedFd>,
}

impl Calls {
    /// Follows the calls of a program; nothing if they do not go through the gateway.
    pub(super) async fn begin(
        conversation: &Conversation,
        connection: &Connection,
        facts: &CliFacts,
        on_budget: OnBudget,
        boundary: watch::Sender<bool>,
    ) -> Option<Self> {
        let gateway = facts.gateway.as_ref()?;
        let (body, process) = (&conversation.body, conversation.process);
        if body.gateways.facts(process.uuid).is_none() {
            // Adopted: the gateway may serve it already.
            let socket = connection.copy(SOCKET).await.ok().and_then(|(_, socket)| socket);
            let at = ServedAt { port: Some(gateway.port), token: gateway.token.clone(), socket };
            let served = match body.route(process, facts).await {
                Ok(route) => body.serve(process, &route, at, facts.called_to).await,
                Err(why) => Err(io::Error::other(why)),
            };
            if let Err(error) = served {
                conversation.warn(&format!("its model calls cannot be followed: {error}"));
                return None;
            }
        }
        if let Some(socket) = body.gateways.socket(process.uuid) {
            // If its shim cannot keep it, a gateway that is killed while there is no daemon takes the port with it.
            let _ = connection.store(SOCKET, socket.as_fd()).await;
        }
        boundary.send_replace(false);
        // Its account is open from now on.
        conversation.owner.has_budget().await;
        Some(Self {
            facts: body.gateways.facts(process.uuid)?,
            read_to: facts.called_to,
            lease: None,
            permitted: 0,
            count: facts.calls,
            refused: None,
            is_disk_full: false,
            on_budget,
            boundary,
        })
    }

    /// Waits until its calls do something.
    pub(super) async fn changed(calls: &mut Option<Self>) {
        let changed = match calls {
            Some(calls) => calls.facts.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            std::future::pending::<()>().await;
        }
    }

    /// Records what has happened, and says what may happen next. `is_at_rest` is whether the agent does nothing for which
    /// a call would follow.
    pub(super) async fn look(&mut self, conversation: &Conversation, is_at_rest: bool) {
        let facts = self.facts.borrow_and_update().clone();
        if facts.log > self.read_to {
            self.record(conversation).await;
        }
        self.note_space(conversation, &facts).await;
        let granted = self.grant(conversation, &facts).await;
        if granted == Granted::Short && !conversation.owner.is_paused() {
            conversation.suspend().await;
        }
        let facts = self.facts.borrow().clone();
        let rests = facts.held > 0 || is_at_rest;
        let is_boundary = conversation.is_paused() && facts.is_holding && facts.in_flight == 0 && rests;
        self.boundary.send_if_modified(|before| std::mem::replace(before, is_boundary) != is_boundary);
    }

    /// Suspends everything when a call waits to be recorded: the gateway has found that the disk is full.
    async fn note_space(&mut self, conversation: &Conversation, facts: &Facts) {
        match (std::mem::replace(&mut self.is_disk_full, facts.is_disk_full), facts.is_disk_full) {
            (false, true) => {
                conversation.warn("a model call waits to be recorded, because the disk is full");
                conversation.owner.disk_full().await;
            }
            (true, false) => conversation.warn("its model calls are recorded again"),
            (false, false) | (true, true) => {}
        }
    }

    /// Copies calls that have ended from the gateway's log.
    async fn record(&mut self, conversation: &Conversation) {
        let mut recorded = Recorded::up_to(self.read_to);
        if let Err(error) = conversation.record_calls(&mut recorded, OnQuota::Suspend).await {
            conversation.warn(&format!("its model calls cannot be recorded: {error}"));
        }
        self.read_to = recorded.read_to;
        self.count += recorded.count;
        if self.refused.is_none() && recorded.refused.is_some() {
            self.refused = recorded.refused;
            conversation.owner.end_for(Why::Budget);
        }
    }

    /// Tells the gateway what the process may spend.
    async fn grant(&mut self, conversation: &Conversation, facts: &Facts) -> Granted {
        let owner = &conversation.owner;
        let has_budget = owner.has_budget().await;
        let left = owner.left_to_spend().await;
        // A process that waits for more is asked about each call: the gateway would refuse one too many.
        let waits = self.on_budget == OnBudget::Suspend;
        let asks = left.cost.is_some() || (left.tokens.is_some() && (left.is_shared || waits));
        let mut granted = Granted::Enough;
        let is_resumed = !owner.is_paused() && owner.told_to_end().is_none();
        let prices = Arc::clone(&conversation.body.live.now().prices);
        let mut refuse = None;
        for wanted in &facts.wanted {
            if !has_budget && waits {
                granted = Granted::Short;
            } else if !has_budget {
                refuse = Some("the budget of this process is used up".to_owned());
            } else if left.cost.is_some() && prices.of(&wanted.model).is_none() {
                refuse = Some(unpriced(&wanted.model));
            } else {
                self.permitted = self.permitted.max(wanted.number);
            }
        }
        let lease = Lease {
            settled: if left.tokens.is_some() && !waits { self.read_to } else { 0 },
            tokens_left: left.tokens.filter(|_| !waits),
            permitted: asks.then_some(self.permitted),
            refuse,
            hold: conversation.is_paused(),
            // It was suspended when the quota was recorded: whoever resumes it before the reset wants the call to be made.
            tried_again: facts.limited_call.filter(|_| facts.log <= self.read_to && is_resumed),
            ..Lease::default()
        };
        if self.lease.as_ref() == Some(&lease) {
            return granted;
        }
        let told = conversation.body.gateways.lease(conversation.process.uuid, lease.clone()).await;
        // The next gateway is told by whoever starts it.
        self.lease = told.is_ok().then_some(lease);
        granted
    }

    /// Returns the number of calls that are over.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of the last hook, if the gateway takes any.
    pub(super) fn last_hook(&self) -> u64 {
        self.facts.borrow().hooks.unwrap_or(0)
    }

    /// Returns what is shown of the calls.
    pub(super) fn shown(&self) -> LiveGateway {
        let facts = self.facts.borrow();
        LiveGateway {
            calls: self.count,
            in_flight: facts.in_flight,
            held: facts.held,
            limited_until: limited_until(&facts),
        }
    }
}

/// Returns when the provider takes calls again, if it takes none now.
fn limited_until(facts: &Facts) -> Option<Timestamp> {
    facts.limited_until_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok())
}

/// Whether the calls that a process wants to make are within its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Granted {
    Enough,
    /// They wait for more.
    Short,
}

/// What to do where a price is not known.
pub(crate) const PRICES_HINT: &str = "set it under `prices:` in config.yaml, or use --max-tokens";

/// What follows from a call that was refused because a quota is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnQuota {
    /// The process waits until the quota resets.
    Suspend,
    /// Only the record: its program has ended, so nothing would wait.
    Record,
}

/// What was recorded of the gateway's log.
#[derive(Debug)]
pub(super) struct Recorded {
    read_to: u64,
    count: u64,
    /// The model of a call that was refused.
    pub(super) refused: Option<String>,
}

impl Recorded {
    pub(super) fn up_to(read_to: u64) -> Self {
        Self { read_to, count: 0, refused: None }
    }

    fn add(&mut self, end: BatchEnd) {
        self.read_to = self.read_to.max(end.offset);
        self.count += end.count;
        self.refused = end.refused.or(self.refused.take());
    }
}

impl Conversation {
    /// Tells whether the process is to stand still. One that waits for an answer is not stopped for that, only if somebody
    /// pauses it.
    fn is_paused(&self) -> bool {
        let is_stopped = |standing: Standing| !standing.waits_for_answer || standing.kept.is_some();
        self.owner.is_paused() && self.owner.standing().is_none_or(is_stopped)
    }

    /// Tells the same of the records that are in the journal: a pause may come with the record that was read last, and is
    /// known once the turn that wrote both is over.
    pub(super) async fn is_paused_as_recorded(&self) -> bool {
        match self.owner.look(|_| ()).await {
            Ok(()) => self.is_paused(),
            Err(error) => {
                self.warn(&format!("an answer is held back, because its journal cannot be read: {error}"));
                true
            }
        }
    }

    /// Suspends a process that has nothing left to spend.
    async fn suspend(&self) {
        if let Err(error) = self.owner.suspend(Vec::new(), SuspendReason::BudgetExceeded, None).await {
            self.warn(&format!("it cannot be suspended: {error}"));
        }
    }

    /// Copies the calls that have ended from the gateway's log into the journal. A quota that resets late suspends the process
    /// with the record of its call, which waits at the gateway, unless the program has ended.
    pub(super) async fn record_calls(&self, recorded: &mut Recorded, on_quota: OnQuota) -> io::Result<()> {
        let directory = self.body.exec.data.directory(self.process.uuid).path().to_owned();
        let from = recorded.read_to;
        let read = self.body.exec.pool.run(move || relive_gateway::read_log(&directory, from)).await;
        let prices = Arc::clone(&self.body.live.now().prices);
        let mut batch = Batch::default();
        for (ended, offset) in read.map_err(io::Error::other)?? {
            let until = ended.resets_at.filter(|until| on_quota == OnQuota::Suspend && *until > self.now());
            if until.is_some() {
                // Their usage counts before anything else is decided.
                self.append_calls(std::mem::take(&mut batch), recorded).await?;
            }
            if let Some(resets_at) = ended.resets_at {
                let text = "the provider's quota is used up";
                self.journal.event("quota", json!({"text": text, "resets_at": resets_at.to_string()}));
            }
            batch.add(&ended, offset, &prices);
            if let Some(until) = until {
                let Batch { records, end } = std::mem::take(&mut batch);
                let suspended = self.owner.suspend(records, SuspendReason::Quota, Some(until)).await;
                suspended.map_err(io::Error::other)?;
                recorded.add(end);
            }
        }
        self.append_calls(batch, recorded).await
    }

    async fn append_calls(&self, batch: Batch, recorded: &mut Recorded) -> io::Result<()> {
        if !batch.records.is_empty() {
            // They are on the disk already, in the gateway's log.
            self.journal.append(batch.records, Durability::Deferred).await.map_err(io::Error::other)?;
            recorded.add(batch.end);
        }
        Ok(())
    }
}

/// Calls that are recorded together.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    end: BatchEnd,
}

/// What is known once a batch is recorded.
#[derive(Default)]
struct BatchEnd {
    offset: u64,
    count: u64,
    refused: Option<String>,
}

impl Batch {
    fn add(&mut self, ended: &Ended, offset: u64, prices: &Prices) {
        self.end.offset = offset;
        self.end.count += u64::from(ended.refused.is_none());
        let call = Box::new(call_of(ended, offset, prices));
        if call.refused.is_some() {
            self.end.refused = Some(call.model.clone());
        }
        let call = Some(call);
        self.records.push(Record::Cli(CliRecord { call, ..CliRecord::default() }));
    }
}

/// Returns the record of a call.
fn call_of(ended: &Ended, offset: u64, prices: &Prices) -> CliModelCall {
    let model = format!("{}/{}", ended.api.provider(), ended.model.as_deref().unwrap_or("unknown"));
    let usage = Usage {
        tokens_in: ended.tokens_in,
        tokens_out: ended.tokens_out,
        cost_usd: None,
        estimated: ended.estimated,
        cache_read: ended.cache_read,
        cache_write: ended.cache_write,
    };
    let is_free = usage.tokens_in == 0 && usage.tokens_out == 0;
    let cost_usd = if is_free { Some(Usd::default()) } else { prices.of(&model).map(|price| price.cost(&usage)) };
    CliModelCall {
        number: ended.number,
        offset,
        model,
        usage: Usage { cost_usd, ..usage },
        status: ended.status,
        subagent: ended.subagent.clone(),
        cut: ended.cut.map(|cut| cut_word(cut).to_owned()),
        refused: ended.refused.clone(),
        resets_at: ended.resets_at,
        first_ms: ended.first_ms,
        ms: ended.ms,
    }
}

fn cut_word(cut: Cut) -> &'static str {
    match cut {
        Cut::Upstream => "upstream",
        Cut::Agent => "agent",
        Cut::Gateway => "gateway",
    }
}

/// Says why a call is refused whose price is not known.
pub(crate) fn unpriced(model: &str) -> String {
    format!("the price of {model} is not known, so a limit in dollars cannot be enforced")
}

impl Conversation {
    /// Returns how a process ends whose call was refused: it has nothing left to spend, or its limit cannot be enforced.
    pub(super) async fn end_of_refused(&self, end: End, model: &str) -> End {
        let is_unpriced = self.body.live.now().prices.of(model).is_none();
        if is_unpriced && self.owner.has_budget().await && self.owner.left_to_spend().await.cost.is_some() {
            let fault = format!("{}: set it under `prices:` in config.yaml, and resume the process", unpriced(model));
            return End::of(ProcessStatus::Faulted { fault });
        }
        over_budget(end)
    }
}

/// Returns how a process ends that has nothing left to spend.
fn over_budget(end: End) -> End {
    let status = ProcessStatus::Killed { signal: Signal::Term.into() };
    End { cause: Some(Cause::runtime(Why::Budget)), while_paused: end.while_paused, ..End::of(status) }
}
