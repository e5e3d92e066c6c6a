//! Requests, with everything left out that a test does not name.

use relive_api::{
    InputRequest, PauseRequest, Resolution, ResolveRequest, ResumeRequest, SignalMaskRequest, SignalRequest,
};
use relive_core::Uuid;
use relive_runtime::Clock;

pub(crate) fn new_uuid() -> Uuid {
    Clock::new().unwrap().new_uuid()
}

pub(crate) fn signal(name: &str) -> SignalRequest {
    SignalRequest { signal: name.to_owned(), subtree: false }
}

pub(crate) fn resume() -> ResumeRequest {
    ResumeRequest {
        fork: None,
        from_step: None,
        subtree: false,
        input: None,
        name: None,
        model: None,
        workspace: None,
        limits: Default::default(),
        env: Default::default(),
    }
}

pub(crate) fn message(id: &str, text: &str) -> InputRequest {
    InputRequest { id: id.to_owned(), text: text.to_owned(), eof: false }
}

pub(crate) fn mask(blocked: &[&str], handled: &[&str]) -> SignalMaskRequest {
    let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    SignalMaskRequest { blocked: names(blocked), handled: names(handled), ..SignalMaskRequest::default() }
}

pub(crate) fn answer(outcome: Resolution) -> ResolveRequest {
    ResolveRequest::new(outcome)
}

pub(crate) const PAUSE: PauseRequest = PauseRequest { subtree: false, now: false };
pub(crate) const PAUSE_NOW: PauseRequest = PauseRequest { subtree: false, now: true };
