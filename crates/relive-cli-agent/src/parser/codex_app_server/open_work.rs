//! The calls and requests that are open on each thread of one server.
//!
//! They end with the turn of their thread. If a turn is open on another thread, the agent's own turn continues and
//! nothing else would end them.

use std::collections::VecDeque;

use crate::event::{Event, EventKind, RawJson};
use crate::ids::shorten;
use crate::parser::line_events::LineEvents;

/// A server has a handful of calls and requests open; the oldest of more than this is forgotten.
const MAX_OPEN: usize = 256;

#[derive(Debug, Default)]
pub(super) struct OpenWork {
    work: VecDeque<(String, Open)>,
}

#[derive(Debug, PartialEq)]
enum Open {
    Call(String),
    Request(RawJson),
}

impl Open {
    fn call(id: &str) -> Self {
        Self::Call(shorten(id).into_owned())
    }

    /// Returns the key of a request. An id that is too long to be remembered could not be repeated.
    fn request(id: &RawJson) -> Option<Self> {
        (shorten(id.as_str()) == id.as_str()).then(|| Self::Request(id.clone()))
    }
}

impl OpenWork {
    /// Notes the starts and ends that the events of a line report on a thread.
    pub(super) fn note(&mut self, thread_id: Option<&str>, events: &[Event]) {
        for Event { kind, .. } in events {
            if let EventKind::ToolStarted { id, .. } = kind {
                self.add(thread_id, Open::call(id));
            } else if let EventKind::ToolEnded { id, .. } = kind {
                self.remove(&Open::call(id));
            } else if let EventKind::ApprovalAsked(request) = kind {
                self.add_request(thread_id, &request.request_id);
            } else if let EventKind::Question { request_id, .. } = kind {
                self.add_request(thread_id, request_id);
            } else if let EventKind::Answered { request_id } = kind {
                self.work.retain(|(_, open)| *open != Open::Request(request_id.clone()));
            }
        }
    }

    fn add_request(&mut self, thread_id: Option<&str>, request_id: &RawJson) {
        if let Some(request) = Open::request(request_id) {
            self.add(thread_id, request);
        }
    }

    fn add(&mut self, thread_id: Option<&str>, open: Open) {
        let Some(thread_id) = thread_id else { return };
        if self.work.len() == MAX_OPEN {
            self.work.pop_front();
        }
        self.work.push_back((shorten(thread_id).into_owned(), open));
    }

    fn remove(&mut self, ended: &Open) {
        self.work.retain(|(_, open)| open != ended);
    }

    /// Reports the end of everything that is open on a thread.
    pub(super) fn end(&mut self, thread_id: &str, events: &mut LineEvents) {
        let thread_id = shorten(thread_id);
        let (ended, rest): (Vec<_>, _) =
            std::mem::take(&mut self.work).into_iter().partition(|(thread, _)| *thread == thread_id);
        self.work = rest.into();
        for (_, open) in ended {
            match open {
                Open::Call(id) => events.push(EventKind::ToolEnded { id, failed: true }),
                Open::Request(request_id) => events.push(EventKind::Answered { request_id }),
            }
        }
    }
}
