//! The steps of an agent: what was asked, what was answered, and which calls are settled.

use relive_core::{Rights, Timestamp};

use super::{CallState, History, OpenCall, Phase, Place, Summary};
use crate::record::{Body, CallStarted, Compacted, ModelEnded, Record, Usage};
use crate::recovery::{Lookup, Recovery};

impl History {
    /// The intents without an outcome.
    pub fn open_calls(&self) -> impl Iterator<Item = &OpenCall> {
        let calls = match &self.phase {
            Phase::Calling { calls } => calls.as_slice(),
            Phase::Boundary | Phase::Asking { .. } => &[],
        };
        calls.iter().filter_map(|state| match state {
            CallState::Open(open) => Some(open),
            CallState::Waiting | CallState::Settled => None,
        })
    }

    /// The step after the last that was carried out to its end.
    pub(crate) fn next_step(&self) -> u32 {
        self.completed_step.saturating_add(1)
    }

    pub(super) fn begin_step(&mut self, record: &Record, place: Place) {
        if let Phase::Asking { reserved_tokens, reserved_cost_usd } = self.phase
            && !self.has_calls_of_its_own()
        {
            // The earlier call was lost: it may have been billed.
            self.spend(
                record.at,
                Usage { tokens_in: reserved_tokens, cost_usd: reserved_cost_usd, estimated: true, ..Usage::default() },
            );
        }
        if let Body::ModelStarted(started) = &record.body {
            self.conversation.append(&mut self.unheard);
            self.step_start = place.offset;
            self.asked_at = Some(record.at);
            self.asked_model.clone_from(&started.model);
            (self.approval, self.asked) = (None, None);
            self.phase = Phase::Asking {
                reserved_tokens: started.reserved_tokens,
                reserved_cost_usd: started.reserved_cost_usd,
            };
        }
    }

    /// Returns whether the gateway counts the model calls, each with a record of its own: the answer that a step asks for
    /// is followed by the next daemon, and costs nothing beside them.
    fn has_calls_of_its_own(&self) -> bool {
        self.cli.as_ref().is_some_and(|cli| cli.gateway.is_some())
    }

    pub(super) fn compact(&mut self, at: Timestamp, compacted: &Compacted, place: Place) {
        // An earlier summary stands for what this one stands for too, however late it was written.
        let earlier = self.summary.replace(Summary { seq: place.seq, through: compacted.through });
        let stale = earlier.map(|summary| summary.seq);
        self.conversation.retain(|kept| kept.seq > compacted.through && Some(kept.seq) != stale);
        self.conversation.insert(0, place);
        if let (Some(usage), Phase::Asking { .. }) = (compacted.usage, &self.phase) {
            self.spend(at, usage);
            self.phase = Phase::Boundary;
            self.conversation.append(&mut self.unheard);
        }
    }

    pub(super) fn answer(&mut self, at: Timestamp, answer: &ModelEnded, place: Place) {
        self.spend(at, answer.usage);
        self.answers += 1;
        self.answer_place = Some(place);
        self.answered = answer.calls.is_empty() && self.unheard.is_empty();
        self.conversation.push(place);
        self.conversation.append(&mut self.unheard);
        self.phase = Phase::Calling { calls: vec![CallState::Waiting; answer.calls.len()] };
        self.complete_if_settled();
    }

    pub(super) fn start_call(&mut self, record: &Record, started: &CallStarted) {
        let CallStarted { call, name, recovery, rule: _ } = started.clone();
        if let Recovery::Lookup { what: Lookup::Child(child) } = recovery
            && self.children.last() != Some(&child)
        {
            self.children.push(child);
            self.handles.insert(child, Rights::Owner);
        }
        self.set_call(call, CallState::Open(OpenCall { call, seq: record.seq, at: record.at, name, recovery }));
    }

    pub(super) fn settle(&mut self, call: u32, place: Place) {
        let had_effect = |open: &OpenCall| open.call == call && open.recovery != Recovery::Rerun;
        if self.open_calls().any(had_effect) {
            self.files.has_unseen_effect = true;
        }
        self.conversation.push(place);
        self.set_call(call, CallState::Settled);
        self.complete_if_settled();
    }

    pub(super) fn set_call(&mut self, call: u32, state: CallState) {
        if let Phase::Calling { calls } = &mut self.phase
            && let Some(slot) = calls.get_mut(call as usize)
        {
            *slot = state;
        }
    }

    pub(super) fn complete_if_settled(&mut self) {
        if let Phase::Calling { calls } = &self.phase
            && calls.iter().all(|state| *state == CallState::Settled)
        {
            self.phase = Phase::Boundary;
            self.completed_step = self.step;
        }
    }

    pub(super) fn spend(&mut self, at: Timestamp, usage: Usage) {
        let model = self.asked_model.clone();
        self.spend_on(at, &model, usage);
    }

    pub(super) fn spend_on(&mut self, at: Timestamp, model: &str, usage: Usage) {
        self.enter(at, model, usage);
        self.spent.tokens_in = self.spent.tokens_in.saturating_add(usage.tokens_in);
        self.spent.tokens_out = self.spent.tokens_out.saturating_add(usage.tokens_out);
        self.spent.cost_usd = self.spent.cost_usd.zip(usage.cost_usd).map(|(a, b)| a.saturating_add(b));
        self.spent.estimated |= usage.estimated;
    }
}
