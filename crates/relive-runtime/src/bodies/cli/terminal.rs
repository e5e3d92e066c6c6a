//! A CLI agent with its own full-screen interface, in a terminal of its own.
//!
//! What it draws is not read. Its model calls go through the gateway, and claude reports what else it does (see `hooks.rs`). Of
//! another program, or before the first report, all that is known are its model calls: it is at work while one of them is open,
//! and whether it runs a tool otherwise, or waits for the person at the terminal, is not known. So none is ended for being idle.

use relive_cli_agent::{Activity, Lifecycle, Waiting};
use relive_core::{ErrorCode, Timestamp, Uuid};
use relive_journal::Durability;
use relive_journal::history::CliFacts;
use relive_journal::record::{Body as Record, CliRecord, CliSession, OnBudget};
use relive_session::connection::Connection;
use tokio::sync::watch;

use super::agents::dialect_of;
use super::calls::Calls;
use super::conversation::{Conversation, Finished};
use super::hooks::Reports;
use super::live::{LiveAgent, LiveGateway};
use crate::error::Error;

/// The part of an argument that stands for the name of the conversation.
const SESSION: &str = "{session}";

/// Refuses a message to an agent in a terminal.
pub(super) fn takes_no_messages(uuid: Uuid) -> Error {
    let message = format!("process {uuid} accepts no messages: it has a terminal of its own, where they are typed");
    Error::new(ErrorCode::Invalid, message).with_hint(format!("relive attach {uuid}"))
}

/// Tells whether a program is told the name of its conversation.
fn is_told_name(facts: &CliFacts) -> bool {
    facts.agent.start.iter().any(|word| word.contains(SESSION))
}

/// What was seen of the calls of an agent.
struct Seen {
    last_active: Timestamp,
    /// Since when a call is open.
    asks_since: Option<Timestamp>,
    /// What was shown last.
    state: Option<(Lifecycle, Activity, Option<Waiting>)>,
}

impl Conversation {
    /// Follows the model calls of a program until its session has ended or its shim is gone.
    pub(super) async fn follow_terminal(self, connection: Connection, boundary: watch::Sender<bool>) -> Finished {
        let found = self.owner.look(|history| {
            let on_budget = history.identity.as_ref().map_or(OnBudget::End, |identity| identity.spawned.on_budget);
            history.cli.as_deref().cloned().map(|facts| (facts, on_budget))
        });
        let Some((facts, on_budget)) = found.await.ok().flatten() else { return Finished::Quiet };
        let mut calls = Calls::begin(&self, &connection, &facts, on_budget, boundary).await;
        let mut bell = self.owner.follow();
        let mut session = connection.seen();
        let mut seen = Seen { last_active: self.now(), asks_since: None, state: None };
        let mut reports = Reports::new(dialect_of(&facts.agent), self.now());
        let mut is_named = facts.session_id.is_some();
        loop {
            bell.borrow_and_update();
            let is_over = {
                let session = session.borrow_and_update();
                session.ended.is_some() || session.gone
            };
            if is_over {
                let refused = calls.and_then(|calls| calls.refused);
                return refused.map_or(Finished::Quiet, Finished::Refused);
            }
            if let Some(calls) = &mut calls {
                reports.read(&self, calls.last_hook()).await;
                calls.look(&self, reports.is_at_rest()).await;
                if calls.count() > 0 && !is_named {
                    is_named = self.name_terminal_conversation().await;
                }
            }
            self.publish_terminal(&facts, calls.as_ref().map(Calls::shown), &reports, &mut seen);
            tokio::select! {
                _ = session.changed() => {}
                _ = bell.changed() => {}
                () = Calls::changed(&mut calls) => {}
            }
        }
    }

    /// Records the name of the conversation once there is one: the program was told to use it, and keeps nothing before its
    /// first call. Returns whether there is nothing left to record.
    pub(super) async fn name_terminal_conversation(&self) -> bool {
        let facts = self.owner.look(|history| history.cli.as_deref().cloned()).await;
        let Some(facts) = facts.ok().flatten() else { return false };
        if !facts.agent.terminal || facts.session_id.is_some() || !is_told_name(&facts) {
            return true;
        }
        if facts.calls == 0 {
            return false;
        }
        let session = Some(CliSession { id: self.process.uuid.to_string(), model: None });
        let record = Record::Cli(CliRecord { session, ..CliRecord::default() });
        let appended = self.journal.append(vec![record], Durability::Synced).await;
        appended.inspect_err(|error| self.warn(&format!("its conversation cannot be recorded: {error}"))).is_ok()
    }

    /// Publishes the state of an agent. Without a gateway nothing is known of its calls.
    fn publish_terminal(&self, facts: &CliFacts, gateway: Option<LiveGateway>, reports: &Reports, seen: &mut Seen) {
        let is_asking = gateway.is_some_and(|gateway| gateway.in_flight > 0 || gateway.held > 0);
        if is_asking != seen.asks_since.is_some() {
            seen.last_active = self.now();
            seen.asks_since = is_asking.then_some(seen.last_active);
        }
        let (lifecycle, activity) = match (reports.state(), is_asking) {
            (Some((Lifecycle::Working, Activity::Idle)) | None, true) => (Lifecycle::Working, Activity::Thinking),
            (Some((Lifecycle::Working, activity)), _) => (Lifecycle::Working, activity),
            // Such as a title for the conversation.
            (Some(_), true) => (Lifecycle::Working, Activity::Thinking),
            (Some(_) | None, false) => (Lifecycle::Idle, Activity::Idle),
        };
        let state = (lifecycle, activity, reports.waiting());
        if seen.state.replace(state) != Some(state) {
            seen.last_active = self.now();
        }
        let told = is_told_name(facts).then(|| self.process.uuid.to_string());
        let agent = LiveAgent {
            name: facts.agent.agent.clone(),
            dialect: dialect_of(&facts.agent),
            lifecycle,
            activity,
            last_active: seen.last_active,
            idle_kill_at: None,
            session_id: facts.session_id.clone().or(told),
            waiting: reports.waiting(),
            dialog_since: reports.dialog_since(),
            tool: reports.tool(),
            subagents: reports.subagents(),
            turn_since: reports.turn_since().or(seen.asks_since),
            asked: reports.asked(),
            note: None,
            gateway,
            in_terminal: true,
            reports: reports.state().is_some(),
        };
        if self.body.agents.put(self.process.uuid, agent) {
            self.owner.ring();
        }
    }
}
