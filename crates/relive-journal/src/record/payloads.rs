//! The payloads of records, and the blobs they name.

use super::{Body, ModelEnded, Partial};
use crate::hash::Hash;
use crate::payload::{Json, PayloadMut, Text};

impl Body {
    /// Calls `each` for every payload that may be too large for the line.
    pub(crate) fn for_each_payload<E>(
        &mut self,
        each: &mut dyn FnMut(PayloadMut<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Spawned(body) => each(PayloadMut::Text(&mut body.intent)),
            Self::Input(body) => each(PayloadMut::Text(&mut body.text)),
            Self::ModelEnded(ModelEnded { thinking, text, calls, usage: _, carry, git: _ }) => {
                thinking.iter_mut().chain(text).try_for_each(|text| each(PayloadMut::Text(text)))?;
                let args = calls.iter_mut().map(|call| &mut call.args);
                args.chain(carry).try_for_each(|json| each(PayloadMut::Json(json)))
            }
            Self::Partial(Partial { thinking, text, usage: _, cause: _ }) => {
                thinking.iter_mut().chain(text).try_for_each(|text| each(PayloadMut::Text(text)))
            }
            Self::CallEnded(body) => each(PayloadMut::Text(&mut body.result)),
            Self::Compacted(body) => each(PayloadMut::Text(&mut body.summary)),
            Self::Flow(body) => {
                body.definition.iter_mut().chain(&mut body.event).try_for_each(|json| each(PayloadMut::Json(json)))
            }
            Self::Opened(_)
            | Self::ModelStarted(_)
            | Self::CallStarted(_)
            | Self::Doubt(_)
            | Self::Resolved(_)
            | Self::Approval(_)
            | Self::Question(_)
            | Self::Acked(_)
            | Self::Paused(_)
            | Self::Resumed(_)
            | Self::Limits(_)
            | Self::Ended(_)
            | Self::Repair(_)
            | Self::Signalled(_)
            | Self::SignalMask(_)
            | Self::Renamed(_)
            | Self::Proceeded(_)
            | Self::Model(_)
            | Self::Granted(_)
            | Self::Released(_)
            | Self::Snapshot(_)
            | Self::Rewound(_)
            | Self::Cli(_) => Ok(()),
        }
    }

    /// Calls `each` for every blob the record names.
    pub(crate) fn for_each_blob(&self, each: &mut dyn FnMut(Hash)) {
        let mut texts = |texts: &[Option<&Text>]| {
            for text in texts {
                if let Some(Text::Blob(blob)) = text {
                    each(blob.hash);
                }
            }
        };
        match self {
            Self::Spawned(body) => texts(&[Some(&body.intent)]),
            Self::Input(body) => texts(&[Some(&body.text)]),
            Self::ModelEnded(body) => {
                texts(&[body.thinking.as_ref(), body.text.as_ref()]);
                for json in body.calls.iter().map(|call| &call.args).chain(&body.carry) {
                    if let Json::Blob(blob) = json {
                        each(blob.hash);
                    }
                }
            }
            Self::Partial(body) => texts(&[body.thinking.as_ref(), body.text.as_ref()]),
            Self::CallEnded(body) => texts(&[Some(&body.result)]),
            Self::Compacted(body) => texts(&[Some(&body.summary)]),
            Self::Flow(body) => {
                for json in body.definition.iter().chain(&body.event) {
                    if let Json::Blob(blob) = json {
                        each(blob.hash);
                    }
                }
            }
            Self::Repair(body) => each(body.blob),
            Self::Opened(_)
            | Self::ModelStarted(_)
            | Self::CallStarted(_)
            | Self::Doubt(_)
            | Self::Resolved(_)
            | Self::Approval(_)
            | Self::Question(_)
            | Self::Acked(_)
            | Self::Paused(_)
            | Self::Resumed(_)
            | Self::Limits(_)
            | Self::Ended(_)
            | Self::Signalled(_)
            | Self::SignalMask(_)
            | Self::Renamed(_)
            | Self::Proceeded(_)
            | Self::Model(_)
            | Self::Granted(_)
            | Self::Released(_)
            | Self::Snapshot(_)
            | Self::Rewound(_)
            | Self::Cli(_) => {}
        }
    }
}
