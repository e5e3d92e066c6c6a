//! A process of a tree that has ended and is to be started again: ending it means that it is not.

use std::sync::Arc;
use std::time::Duration;

use relive_core::{ErrorCode, Pid, Signal, Uuid};
use relive_flow::{AtEnd, Event, Flow, Outcome, SlotState};

use super::redo::recorded;
use super::{Attempts, LiveFlow};
use crate::error::{Error, Result};
use crate::owner::Lane;
use crate::runtime::{ProcessRef, Runtime};
use crate::signal::SignalOrder;
use crate::spec::body_of;

/// How long a tree that begins, or that has not noticed an end yet, is waited for,
const SETTLED_WITHIN: Duration = Duration::from_secs(10);
/// and how often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a tree makes of a process of its own that has ended.
enum Place {
    /// It is not started again.
    Over,
    /// It is to be started again, by the slot with this name.
    Due(String),
    /// The tree takes it for running, in the slot with this name: it has not noticed the end, or waits for room to start it
    /// again.
    Unnoticed(String),
}

/// What became of a signal to a process that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DueStop {
    /// Nothing: it is not about to be started.
    Over,
    /// It will not be started again.
    Stopped { note: String },
    /// It has been started again: the signal is for its new incarnation.
    Restarted,
}

/// The tree that started a process.
struct TreeAbove {
    uuid: Uuid,
    /// Whether it has answered this request before.
    has_answered: bool,
}

impl Runtime {
    /// Has the tree of a process that ended not start it again.
    pub(crate) async fn stop_due(self: &Arc<Self>, uuid: Uuid, sent: &SignalOrder) -> Result<DueStop> {
        match sent.signal {
            Signal::Term | Signal::Kill | Signal::Int => {}
            Signal::Pause | Signal::Resume => return Ok(DueStop::Over),
        }
        let Some(above) = self.tree_above(uuid, sent.request.clone()).await else { return Ok(DueStop::Over) };
        if above.has_answered {
            return Ok(DueStop::Stopped { note: "it was to be started again: it is not".to_owned() });
        }
        let Some(tree) = self.living(above.uuid) else { return Ok(DueStop::Over) };
        let until = tokio::time::Instant::now() + SETTLED_WITHIN;
        loop {
            if self.living(uuid).is_some() {
                return Ok(DueStop::Restarted);
            }
            let settled = match self.flows.find(tree.uuid) {
                Some(live) => self.stop_in(tree, &live, uuid, sent).await?,
                None => self.stop_in_journal(tree, uuid, sent).await?,
            };
            match settled {
                Some(stop) => return Ok(stop),
                None if self.living(tree.uuid).is_none() => return Ok(DueStop::Over),
                None if tokio::time::Instant::now() >= until => {
                    let message = format!("run {} has not noticed the end of {uuid} yet", tree.of.pid);
                    let hint = format!("relive compose status {}", tree.of.pid);
                    return Err(Error::new(ErrorCode::Unavailable, message).with_hint(hint));
                }
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Returns the tree that started a process; `None` if something else did.
    pub(crate) async fn tree_of(&self, uuid: Uuid) -> Option<Uuid> {
        self.tree_above(uuid, None).await.map(|above| above.uuid)
    }

    async fn tree_above(&self, uuid: Uuid, request: Option<String>) -> Option<TreeAbove> {
        let read = move |data: &relive_journal::DataDirectory| {
            let parent = data.history(uuid).ok()?.0.identity?.spawned.parent_uuid?;
            let (history, _) = data.history(parent).ok()?;
            let body = body_of(&history.identity.as_ref()?.spawned.body)?;
            let is_tree = matches!(body, relive_core::Body::Compose | relive_core::Body::Supervisor);
            let has_answered = request.is_some_and(|id| history.request(&id).is_some());
            is_tree.then_some(TreeAbove { uuid: parent, has_answered })
        };
        self.on_journal(read).await.ok()?
    }

    /// Records it in a tree whose body runs; `None` if that has to notice something first.
    async fn stop_in(
        self: &Arc<Self>,
        tree: ProcessRef,
        live: &Arc<LiveFlow>,
        uuid: Uuid,
        sent: &SignalOrder,
    ) -> Result<Option<DueStop>> {
        let mut flow = live.flow.lock().await;
        if !self.flows.find(tree.uuid).is_some_and(|open| Arc::ptr_eq(&open, live)) {
            return Ok(None);
        }
        let stopped = self.record_stop(tree, (&mut flow, &live.attempts), uuid, sent).await?;
        live.changed.notify_one();
        Ok(stopped)
    }

    /// Records it in a tree without a body, which is suspended; `None` if its body is about to run.
    async fn stop_in_journal(
        self: &Arc<Self>,
        tree: ProcessRef,
        uuid: Uuid,
        sent: &SignalOrder,
    ) -> Result<Option<DueStop>> {
        let mut turn = self.turn(tree.uuid, Lane::Verb).await?;
        if turn.owner.has_body() || self.living(tree.uuid) != Some(tree) {
            return Ok(None);
        }
        // Nobody starts the body meanwhile: that takes the turn.
        let mut flow = self.recorded_flow(tree.uuid).await?.flow;
        let mut events = self.lost_ends(&flow).await?;
        apply(&mut flow, &events)?;
        let slot = match place_of(&flow, uuid) {
            Place::Over => return Ok(Some(DueStop::Over)),
            Place::Unnoticed(_) => return Ok(None),
            Place::Due(slot) => slot,
        };
        let stopped = self.stopped(&slot, uuid, sent);
        apply(&mut flow, std::slice::from_ref(&stopped))?;
        let mut records = Vec::new();
        for event in events.drain(..) {
            records.push(recorded(&event, None)?);
        }
        records.push(recorded(&stopped, sent.request.clone())?);
        turn.write(tree.of, self.moment(), records).await?;
        Ok(Some(DueStop::Stopped { note: stopped_note(&slot, tree.of.pid) }))
    }

    fn stopped(&self, slot: &str, uuid: Uuid, sent: &SignalOrder) -> Event {
        Event::Stopped { slot: slot.to_owned(), uuid, note: Some(self.ended_by(sent)) }
    }

    fn ended_by(&self, sent: &SignalOrder) -> String {
        format!("ended by {}", self.in_words_now(sent.cause, Some(sent.signal.name())))
    }

    async fn record_stop(
        self: &Arc<Self>,
        tree: ProcessRef,
        (flow, attempts): (&mut Flow, &Attempts),
        uuid: Uuid,
        sent: &SignalOrder,
    ) -> Result<Option<DueStop>> {
        let (slot, event) = match place_of(flow, uuid) {
            Place::Over => return Ok(Some(DueStop::Over)),
            Place::Due(slot) => (slot.clone(), self.stopped(&slot, uuid, sent)),
            Place::Unnoticed(slot) => {
                if !attempts.stop(uuid) {
                    return Ok(None);
                }
                let (at_ms, note) = (self.wall_ms(), Some(self.ended_by(sent)));
                let outcome = Outcome::Stopped;
                let at_end = AtEnd::default();
                (slot.clone(), Event::Ended { slot, uuid, outcome, at_ms, result: None, note, at_end })
            }
        };
        let mut next = flow.clone();
        apply(&mut next, std::slice::from_ref(&event))?;
        let mut turn = self.turn(tree.uuid, Lane::Verb).await?;
        turn.write(tree.of, self.moment(), vec![recorded(&event, sent.request.clone())?]).await?;
        *flow = next;
        Ok(Some(DueStop::Stopped { note: stopped_note(&slot, tree.of.pid) }))
    }
}

pub(super) fn apply(flow: &mut Flow, events: &[Event]) -> Result<()> {
    let internal = |error: relive_flow::Rejected| Error::new(ErrorCode::Internal, error.to_string());
    events.iter().try_for_each(|event| flow.apply(event).map_err(internal))
}

fn stopped_note(slot: &str, tree: Pid) -> String {
    format!("{slot} of run {tree} had ended and was to be started again: it is not")
}

fn place_of(flow: &Flow, uuid: Uuid) -> Place {
    let Some(slot) = flow.slots().find(|slot| slot.uuid == Some(uuid)) else { return Place::Over };
    match slot.state {
        SlotState::Due { .. } => Place::Due(slot.name.to_owned()),
        SlotState::Running { .. } | SlotState::ToStop { .. } => Place::Unnoticed(slot.name.to_owned()),
        SlotState::Waiting
        | SlotState::Succeeded
        | SlotState::Failed { .. }
        | SlotState::Stopped
        | SlotState::Halted
        | SlotState::Skipped => Place::Over,
    }
}
