//! A process of a tree that a person resumes by itself: a supervisor keeps it running again, and a run that lives is asked.

use std::sync::Arc;
use std::time::Duration;

use relive_core::{ErrorCode, Uuid};
use relive_flow::{Definition, Event, Flow, Origin};
use relive_types::Limits;

use super::redo::recorded;
use super::stop_due::apply;
use crate::error::{Error, Result};
use crate::owner::Lane;
use crate::runtime::{ProcessRef, Runtime};

/// How long a supervisor that begins is waited for,
const OPENED_WITHIN: Duration = Duration::from_secs(2);
/// and how often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether a supervisor has heard of a child.
enum Told {
    /// It has, or need not.
    Yes,
    /// Its body is about to run.
    NotYet,
}

impl Runtime {
    /// Has the supervisor of a process that a person resumed, if it lives, take that for its own again. Otherwise it would
    /// end without it, and then end it.
    pub(crate) async fn rejoin_supervisor(self: &Arc<Self>, child: Uuid) {
        let Some(tree) = self.tree_of(child).await.and_then(|tree| self.living(tree)) else { return };
        let until = tokio::time::Instant::now() + OPENED_WITHIN;
        loop {
            match self.tell_supervisor(tree, child).await {
                Ok(Told::NotYet) if tokio::time::Instant::now() < until => tokio::time::sleep(LOOK_EVERY).await,
                Ok(Told::Yes | Told::NotYet) => return,
                Err(error) => {
                    self.warn(format!("{child} was resumed, and its supervisor cannot be told: {error}"));
                    return;
                }
            }
        }
    }

    /// Returns the events by which a supervisor takes back children that run without it: a person resumed them, and the
    /// daemon was killed before the supervisor was told, or the supervisor was over.
    pub(crate) fn lost_rejoins(&self, flow: &Flow) -> Vec<Event> {
        let last = flow.slots().filter_map(|slot| slot.uuid);
        last.filter(|child| self.living(*child).is_some()).filter_map(|child| rejoined(flow, child)).collect()
    }

    /// Returns the refusal to resume a node that has ended by itself while its run lives: the run would not know of it, and
    /// would end it with itself, or start another one of its name.
    pub(crate) async fn belongs_to_run(self: &Arc<Self>, child: Uuid) -> Option<Error> {
        if self.living(child).is_some() {
            return None;
        }
        let tree = self.tree_of(child).await.and_then(|tree| self.living(tree))?;
        let flow = match self.flows.find(tree.uuid) {
            Some(live) => Flow::clone(&*live.flow.lock().await),
            None => self.recorded_flow(tree.uuid).await.ok()?.flow,
        };
        match flow.definition() {
            Definition::Compose(_) => {}
            Definition::Supervisor(_) => return None,
        }
        let slot = flow.slots().find(|slot| slot.uuid == Some(child) && slot.state.living().is_none())?;
        let (name, pid) = (slot.name, tree.of.pid);
        let message = format!("{child} is node {name} of run {pid}, which has not ended: resume it in that run");
        let hint = format!("relive compose resume {pid} --node {name}");
        Some(Error::new(ErrorCode::Conflict, message).with_hint(hint))
    }

    async fn tell_supervisor(self: &Arc<Self>, tree: ProcessRef, child: Uuid) -> Result<Told> {
        let Some(live) = self.flows.find(tree.uuid) else {
            // It is suspended, unless it begins.
            let mut turn = self.turn(tree.uuid, Lane::Verb).await?;
            if self.living(tree.uuid) != Some(tree) {
                return Ok(Told::Yes);
            }
            if turn.owner.has_body() {
                return Ok(Told::NotYet);
            }
            let flow = self.recorded_flow(tree.uuid).await?.flow;
            if let Some(event) = rejoined(&flow, child) {
                turn.write(tree.of, self.moment(), vec![recorded(&event, None)?]).await?;
            }
            return Ok(Told::Yes);
        };
        let mut flow = live.flow.lock().await;
        if !self.flows.find(tree.uuid).is_some_and(|open| Arc::ptr_eq(&open, &live)) {
            return Ok(Told::NotYet);
        }
        let Some(event) = rejoined(&flow, child) else { return Ok(Told::Yes) };
        let mut next = flow.clone();
        apply(&mut next, std::slice::from_ref(&event))?;
        let mut turn = self.turn(tree.uuid, Lane::Verb).await?;
        turn.write(tree.of, self.moment(), vec![recorded(&event, None)?]).await?;
        *flow = next;
        live.changed.notify_one();
        Ok(Told::Yes)
    }
}

/// Returns the event by which a supervisor takes a child back that it does not start any more.
fn rejoined(flow: &Flow, child: Uuid) -> Option<Event> {
    match flow.definition() {
        Definition::Supervisor(_) => {}
        // A node is resumed in its run with `compose resume`, which also runs what depends on it.
        Definition::Compose(_) => return None,
    }
    let slot = flow.slots().find(|slot| slot.uuid == Some(child) && slot.state.is_over())?;
    let origin = Origin::End { input: None, limits: Limits::default() };
    Some(Event::Redo { slot: slot.name.to_owned(), origin, run: flow.reopened_after() })
}
