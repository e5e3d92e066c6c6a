//! The messages that a record adds to a conversation.

use super::{TOLD_DONE, TOLD_IN_DOUBT, TOLD_NOT_DONE};
use crate::payload::Text;
use crate::record::{Body, Compacted, Input, ModelEnded, Outcome};

/// A record, as far as the model is shown it or has to do with it.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// A message to the agent.
    Input(Input),
    /// The model is being asked.
    Asked,
    /// The model was cut off: it has not answered.
    CutOff,
    Answer(ModelEnded),
    /// The result of a call, or what the model is told in its place.
    Result {
        call: u32,
        ok: bool,
        text: Text,
    },
    /// The summary that replaces everything before it.
    Summary(Compacted),
}

impl Said {
    /// Returns `None` for a record that the model hears nothing of.
    #[must_use]
    pub fn of(body: Body) -> Option<Self> {
        match body {
            Body::Input(input) => Some(Self::Input(input)),
            Body::ModelStarted(_) => Some(Self::Asked),
            Body::Partial(_) => Some(Self::CutOff),
            Body::ModelEnded(answer) => Some(Self::Answer(answer)),
            Body::CallEnded(ended) => Some(Self::Result { call: ended.call, ok: ended.ok, text: ended.result }),
            Body::Doubt(doubt) => Some(Self::Result { call: doubt.call, ok: false, text: TOLD_IN_DOUBT.into() }),
            Body::Resolved(resolved) => match resolved.outcome {
                Outcome::Done => Some(Self::Result { call: resolved.call, ok: true, text: TOLD_DONE.into() }),
                Outcome::NotDone => Some(Self::Result { call: resolved.call, ok: false, text: TOLD_NOT_DONE.into() }),
                Outcome::Retry => None,
            },
            Body::Compacted(compacted) => Some(Self::Summary(compacted)),
            Body::Opened(_)
            | Body::Spawned(_)
            | Body::CallStarted(_)
            | Body::Approval(_)
            | Body::Question(_)
            | Body::Paused(_)
            | Body::Resumed(_)
            | Body::Limits(_)
            | Body::Ended(_)
            | Body::Repair(_)
            | Body::Signalled(_)
            | Body::SignalMask(_)
            | Body::Renamed(_)
            | Body::Model(_)
            | Body::Granted(_)
            | Body::Released(_)
            | Body::Snapshot(_)
            | Body::Rewound(_)
            | Body::Acked(_)
            | Body::Proceeded(_)
            | Body::Flow(_)
            | Body::Cli(_) => None,
        }
    }
}
