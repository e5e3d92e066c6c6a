//! The calls of a step: collected, recorded, and settled.

use relive_cli_agent::{ApprovalRequest, RawJson};
use relive_journal::payload::Json;
use relive_journal::record::{Body as Record, Call, CallEnded};

use super::{Stage, Translator};

impl Translator {
    /// Returns whether something was collected that could be recorded now: a text alone waits for what follows it.
    pub(in super::super) fn has_calls(&self) -> bool {
        !self.calls.is_empty() && self.preparing.is_empty() && !self.has_open_calls()
    }

    fn knows(&self, id: &str) -> bool {
        let recorded = match &self.stage {
            Stage::Calling(calls) => calls.iter().any(|call| call.id == id),
            Stage::Boundary | Stage::Asking => false,
        };
        recorded || self.calls.iter().any(|call| call.id == id)
    }

    /// Collects a call, or its input if it was collected without.
    pub(super) fn start_call(&mut self, id: &str, name: &str, args: Option<&RawJson>, preparing: bool) {
        if self.preparing.remove(id) {
            self.calls.retain(|call| call.id != id);
        }
        if !self.knows(id) {
            self.calls.push(call(id, name, args));
            if preparing {
                self.preparing.insert(id.to_owned());
            }
        }
    }

    pub(super) fn has_open_calls(&self) -> bool {
        match &self.stage {
            Stage::Calling(calls) => calls.iter().any(|call| !call.is_settled),
            Stage::Boundary | Stage::Asking => false,
        }
    }

    pub(super) fn end_call(&mut self, id: &str, ok: bool) {
        self.preparing.remove(id);
        self.flush();
        if self.settle(id, ok, "") {
            // What was collected meanwhile could not be recorded before.
            self.flush();
        } else if self.calls.iter().any(|call| call.id == id) {
            self.early.push((id.to_owned(), ok));
        }
    }

    pub(super) fn settle(&mut self, id: &str, ok: bool, result: &str) -> bool {
        let Stage::Calling(calls) = &mut self.stage else { return false };
        let Some((place, call)) = calls.iter_mut().enumerate().find(|(_, call)| call.id == id && !call.is_settled)
        else {
            return false;
        };
        call.is_settled = true;
        let call = u32::try_from(place).unwrap_or(u32::MAX);
        let is_over = calls.iter().all(|call| call.is_settled);
        self.record(Record::CallEnded(CallEnded {
            call,
            ok,
            result: result.into(),
            done: false,
            settled: None,
            denied: false,
        }));
        if is_over {
            self.stage = Stage::Boundary;
        }
        true
    }

    pub(super) fn settle_all(&mut self, result: &str) {
        if let Stage::Calling(calls) = &self.stage {
            let open: Vec<String> = calls.iter().filter(|call| !call.is_settled).map(|call| call.id.clone()).collect();
            for id in open {
                self.settle(&id, false, result);
            }
        }
    }

    /// Returns the call that a request for permission is about, and records it if that is not done.
    pub(in super::super) fn call_for(&mut self, request: &ApprovalRequest) -> u32 {
        let key = request.tool_id.clone().unwrap_or_else(|| request.request_id.as_str().to_owned());
        if self.preparing.contains(&key) {
            self.start_call(&key, &request.tool, request.input.as_ref(), false);
        }
        self.flush();
        if !self.has_open_calls() {
            if !self.knows(&key) {
                self.start_turn(None);
                self.calls.push(call(&key, &request.tool, request.input.as_ref()));
            }
            self.flush();
        }
        let Stage::Calling(calls) = &self.stage else { return 0 };
        let own = calls.iter().position(|call| call.id == key && !call.is_settled);
        // A subagent asks while the agent waits for it, with a call of its own.
        let place = own.or_else(|| calls.iter().position(|call| !call.is_settled));
        u32::try_from(place.unwrap_or(0)).unwrap_or(0)
    }
}

fn call(id: &str, name: &str, args: Option<&RawJson>) -> Call {
    let text = args.map_or("{}", RawJson::as_str);
    let parsed = Json::parse(text).or_else(|_| Json::parse("{}"));
    let args = parsed.unwrap_or_else(|_| Json::Inline(serde_json::value::RawValue::NULL.to_owned()));
    Call { id: id.to_owned(), name: name.to_owned(), args }
}
