//! The rules for which record may come next. Relive's writers append no others.

use relive_core::Signal;

use super::{CallState, History, Phase};
use crate::record::Body;

impl History {
    /// The step a record of this body belongs to if it comes next.
    pub(crate) fn step_of(&self, body: &Body) -> u32 {
        if matches!(body, Body::ModelStarted(_)) { self.next_step() } else { self.step }
    }

    /// Whether a record may come next; if not, why.
    pub(crate) fn admits(&self, body: &Body) -> Result<(), &'static str> {
        let require = |holds: bool, why| if holds { Ok(()) } else { Err(why) };
        if self.ended().is_some() {
            // A name is no part of an incarnation, and its files are there for as long as its journal.
            let may_follow = matches!(
                body,
                Body::Opened(_) | Body::Renamed(_) | Body::Snapshot(_) | Body::Rewound(_) | Body::Acked(_)
            );
            return require(may_follow, "this incarnation has ended");
        }
        let asking = matches!(self.phase, Phase::Asking { .. });
        match body {
            Body::Opened(_) | Body::Spawned(_) | Body::Input(_) | Body::Paused(_) => Ok(()),
            Body::Limits(_) | Body::Ended(_) | Body::Repair(_) | Body::SignalMask(_) => Ok(()),
            Body::Renamed(_) | Body::Model(_) | Body::Granted(_) | Body::Released(_) => Ok(()),
            Body::Snapshot(_) | Body::Rewound(_) | Body::Flow(_) | Body::Cli(_) | Body::Proceeded(_) => Ok(()),
            Body::ModelStarted(_) => {
                require(!matches!(self.phase, Phase::Calling { .. }), "calls of the step before are not settled")
            }
            Body::ModelEnded(_) | Body::Partial(_) => require(asking, "no model was asked"),
            Body::CallStarted(body) => require(self.call(body.call, is_waiting), "no such call waits to be started"),
            Body::Approval(body) if body.host.is_some() => {
                require(self.call(body.call, is_open), "no such call is open")
            }
            Body::Approval(body) => require(self.call(body.call, is_waiting), "no such call waits to be started"),
            Body::Question(body) => require(self.call(body.call, is_waiting), "no such call waits to be started"),
            Body::Acked(_) => require(false, "it has not ended"),
            // A call that was refused before it began has a result and no intent.
            Body::CallEnded(body) => {
                require(self.call(body.call, |state| *state != CallState::Settled), "no such call is open")
            }
            Body::Doubt(body) => require(self.call(body.call, is_open), "no such call is open"),
            Body::Resolved(body) => require(self.call(body.call, is_open), "no such call is open"),
            Body::Compacted(body) => require(
                (self.phase == Phase::Boundary || (asking && body.usage.is_some()))
                    && body.through <= self.seq
                    && self.summary.is_none_or(|earlier| earlier.through <= body.through),
                "only whole steps that are over, and all that is summed up already, can be compacted",
            ),
            Body::Resumed(_) => require(self.paused.is_some(), "it is not suspended"),
            Body::Signalled(body) => match body.signal {
                Signal::Kill => require(!body.pending, "KILL is never kept"),
                Signal::Term | Signal::Int => Ok(()),
                Signal::Pause | Signal::Resume => require(body.pending, "this signal ends nothing"),
            },
        }
    }

    fn call(&self, call: u32, test: impl Fn(&CallState) -> bool) -> bool {
        match &self.phase {
            Phase::Calling { calls } => calls.get(call as usize).is_some_and(test),
            Phase::Boundary | Phase::Asking { .. } => false,
        }
    }
}

fn is_waiting(state: &CallState) -> bool {
    *state == CallState::Waiting
}

fn is_open(state: &CallState) -> bool {
    matches!(state, CallState::Open(_))
}
