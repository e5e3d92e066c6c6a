//! The calls that claude's hooks have announced.
//!
//! A `PermissionRequest` hook names the tool and its input, but not the id of the call, and older versions name no id at
//! all. So a hook without an id is about the oldest fitting call with the same tool and input.

use std::collections::VecDeque;

use crate::ids::{digest, shorten};
use crate::json::Json;

/// Claude has a handful of calls open; the oldest of more than this is forgotten.
const MAX_CALLS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct HookCalls {
    calls: VecDeque<HookCall>,
    /// How many calls had no id.
    unnamed: u64,
}

#[derive(Debug)]
struct HookCall {
    key: CallKey,
    id: String,
    /// False while only its approval was seen.
    is_started: bool,
    /// The id that its approval was asked under.
    approval_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CallKey {
    subagent: Option<String>,
    tool: String,
    input: Option<u64>,
}

/// The fields of a hook's body that are about its call.
#[derive(Debug)]
pub(super) struct HookBody<'a> {
    pub id: Option<String>,
    pub tool: String,
    pub input: Option<Json<'a>>,
    pub suggestions: Option<Json<'a>>,
    subagent: Option<String>,
}

impl<'a> HookBody<'a> {
    pub(super) fn of(body: Json<'a>) -> Self {
        let [id, tool, input, suggestions, subagent] =
            body.fields(["tool_use_id", "tool_name", "tool_input", "permission_suggestions", "agent_id"]);
        Self {
            id: id.and_then(Json::text),
            tool: tool.and_then(Json::text).unwrap_or_default(),
            input,
            suggestions,
            subagent: subagent.and_then(Json::text).filter(|id| !id.is_empty()),
        }
    }

    fn key(&self) -> CallKey {
        CallKey {
            subagent: self.subagent.as_deref().map(|id| shorten(id).into_owned()),
            tool: shorten(&self.tool).into_owned(),
            input: self.input.map(|input| digest(input.as_str())),
        }
    }
}

impl HookCalls {
    /// Notes that a call starts, and returns its id.
    pub(super) fn start(&mut self, body: &HookBody<'_>) -> String {
        let key = body.key();
        let id = body.id.clone();
        if let Some(call) = self.calls.iter_mut().find(|call| call.key == key && !call.is_started) {
            call.is_started = true;
            call.id = id.map_or(call.id.clone(), |id| shorten(&id).into_owned());
            return call.id.clone();
        }
        let id = id.unwrap_or_else(|| self.next_id(&body.tool));
        self.add(HookCall { key, id: shorten(&id).into_owned(), is_started: true, approval_id: None });
        id
    }

    /// Notes that the approval of a call was asked, and returns the id of the call, which is also the approval's.
    pub(super) fn ask(&mut self, body: &HookBody<'_>) -> String {
        let key = body.key();
        if let Some(call) = self.unasked_call(body, &key) {
            call.approval_id = Some(call.id.clone());
            return call.id.clone();
        }
        let id = body.id.clone().unwrap_or_else(|| self.next_id(&body.tool));
        let id = shorten(&id).into_owned();
        self.add(HookCall { key, id: id.clone(), is_started: false, approval_id: Some(id.clone()) });
        id
    }

    fn unasked_call(&mut self, body: &HookBody<'_>, key: &CallKey) -> Option<&mut HookCall> {
        let unasked = |call: &HookCall| call.approval_id.is_none();
        let own_id = body.id.as_deref().map(shorten);
        let position = self
            .calls
            .iter()
            .position(|call| unasked(call) && own_id.as_deref().map_or(call.key == *key, |id| call.id == id))
            .or_else(|| {
                // Another hook may have changed the input since, which leaves no doubt if the tool has only one call.
                let mut same_tool = self.calls.iter().enumerate().filter(|(_, call)| {
                    unasked(call) && call.key.tool == key.tool && call.key.subagent == key.subagent
                });
                let (position, _) = same_tool.next()?;
                same_tool.next().is_none().then_some(position)
            })?;
        self.calls.get_mut(position)
    }

    /// Notes that a call has ended, and returns its id, and the id of its approval where that is another one.
    pub(super) fn end(&mut self, body: &HookBody<'_>) -> (String, Option<String>) {
        let key = body.key();
        let own_id = body.id.as_deref().map(shorten);
        let position =
            self.calls.iter().position(|call| own_id.as_deref() == Some(call.id.as_str())).or_else(|| {
                self.calls.iter().position(|call| call.key == key && (own_id.is_none() || !call.is_started))
            });
        let call = position.and_then(|position| self.calls.remove(position));
        let known_id = call.as_ref().map(|call| call.id.clone());
        let id = body.id.clone().or(known_id).unwrap_or_else(|| body.tool.clone());
        let approval_id = call.and_then(|call| call.approval_id).filter(|approval_id| *approval_id != shorten(&id));
        (id, approval_id)
    }

    /// Forgets the agent's own calls: what was interrupted has no end.
    pub(super) fn end_turn(&mut self) {
        self.calls.retain(|call| call.key.subagent.is_some());
    }

    /// Whether the agent itself has a call open.
    pub(super) fn has_open(&self) -> bool {
        self.calls.iter().any(|call| call.key.subagent.is_none())
    }

    fn next_id(&mut self, tool: &str) -> String {
        self.unnamed = self.unnamed.saturating_add(1);
        format!("{tool}#{}", self.unnamed)
    }

    fn add(&mut self, call: HookCall) {
        if self.calls.len() == MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(call);
    }
}
