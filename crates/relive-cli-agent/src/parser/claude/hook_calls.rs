//! The calls that claude's hooks have announced.
//!
//! A `PermissionRequest` hook names the tool and its input, but not the id of the call, and older versions name no id at
//! all. So a hook without an id is about a call with the same tool and input.

use std::collections::VecDeque;

use crate::ids::{IdSet, digest, shorten};
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
    /// False while the id is an invented one.
    is_named: bool,
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

#[derive(Debug)]
pub(super) struct AskedCall {
    /// The id of the approval, and of the call.
    pub id: String,
    pub subagent: Option<String>,
}

#[derive(Debug)]
pub(super) struct AskedOnScreen {
    pub tool: String,
    pub asked: AskedCall,
}

#[derive(Debug)]
pub(super) struct EndedCall {
    pub id: String,
    /// The id of its approval, if it differs.
    pub approval_id: Option<String>,
    pub subagent: Option<String>,
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
    /// Notes that a call starts, and returns its id. A call whose approval was seen first is the same call if it has the
    /// same id, or the same input and no id yet.
    pub(super) fn start(&mut self, body: &HookBody<'_>) -> String {
        let key = body.key();
        let id = body.id.as_deref().map(|id| shorten(id).into_owned());
        let is_same_input = |call: &HookCall| call.key == key && !call.is_started && (id.is_none() || !call.is_named);
        let position = self.calls.iter().position(|call| id.as_deref() == Some(call.id.as_str()));
        let position = position.or_else(|| self.calls.iter().position(is_same_input));
        if let Some(call) = position.and_then(|position| self.calls.get_mut(position)) {
            call.is_started = true;
            call.is_named |= id.is_some();
            call.id = id.unwrap_or_else(|| call.id.clone());
            return body.id.clone().unwrap_or_else(|| call.id.clone());
        }
        let is_named = id.is_some();
        let id = id.unwrap_or_else(|| self.next_id(&body.tool));
        self.add(HookCall { key, id: id.clone(), is_named, is_started: true, approval_id: None });
        body.id.clone().unwrap_or(id)
    }

    /// Notes that the approval of a call was asked, and returns the call.
    pub(super) fn ask(&mut self, body: &HookBody<'_>) -> AskedCall {
        let key = body.key();
        if let Some(call) = self.asking_call(body, &key).and_then(|position| self.calls.get_mut(position)) {
            let id = call.approval_id.get_or_insert_with(|| call.id.clone()).clone();
            // The hook before may not have named the subagent.
            call.key.subagent = call.key.subagent.take().or(key.subagent);
            return AskedCall { id, subagent: call.key.subagent.clone() };
        }
        let is_named = body.id.is_some();
        let id = body.id.clone().unwrap_or_else(|| self.next_id(&body.tool));
        let id = shorten(&id).into_owned();
        let subagent = key.subagent.clone();
        self.add(HookCall { key, id: id.clone(), is_named, is_started: false, approval_id: Some(id.clone()) });
        AskedCall { id, subagent }
    }

    /// Finds the call that an approval is about. The approval follows its call at once, so among equal calls it belongs
    /// to the last one without an approval: an earlier one may need none.
    fn asking_call(&self, body: &HookBody<'_>, key: &CallKey) -> Option<usize> {
        let last = |fits: &dyn Fn(&HookCall) -> bool| self.calls.iter().rposition(fits);
        let is_unasked = |call: &HookCall| call.approval_id.is_none();
        if let Some(id) = body.id.as_deref().map(shorten) {
            return last(&|call| call.id == id)
                .or_else(|| last(&|call| !call.is_named && is_unasked(call) && call.key == *key));
        }
        // A hook that names no subagent may be about a call that another hook said to be a subagent's.
        let is_of_subagent = |call: &HookCall| {
            key.subagent.is_none() && call.key.tool == key.tool && call.key.input == key.input && is_unasked(call)
        };
        last(&|call| is_unasked(call) && call.key == *key)
            .or_else(|| last(&is_of_subagent))
            .or_else(|| self.only_unasked_of_tool(key))
            // The same approval once more: it has not been answered.
            .or_else(|| last(&|call| call.key == *key))
    }

    /// Finds the only call of the tool without an approval. Another hook may have changed the input, but a single call
    /// leaves no doubt.
    fn only_unasked_of_tool(&self, key: &CallKey) -> Option<usize> {
        let is_candidate = |call: &HookCall| {
            call.approval_id.is_none() && call.key.tool == key.tool && call.key.subagent == key.subagent
        };
        let mut candidates = self.calls.iter().enumerate().filter(|(_, call)| is_candidate(call));
        let (position, _) = candidates.next()?;
        candidates.next().is_none().then_some(position)
    }

    /// Notes that a dialog is open on claude's screen, and returns its call: the last one of the tool without an
    /// approval, or else one that no hook has announced. Returns `None` if the dialog belongs to a known approval.
    pub(super) fn ask_on_screen(&mut self, tool: &str) -> Option<AskedOnScreen> {
        if self.calls.iter().any(|call| call.approval_id.is_some()) {
            return None;
        }
        let position = self.calls.iter().rposition(|call| tool.is_empty() || call.key.tool == tool);
        if let Some(call) = position.and_then(|position| self.calls.get_mut(position)) {
            call.approval_id = Some(call.id.clone());
            let (tool, asked) =
                (call.key.tool.clone(), AskedCall { id: call.id.clone(), subagent: call.key.subagent.clone() });
            return Some(AskedOnScreen { tool, asked });
        }
        let id = self.next_id(tool);
        let key = CallKey { subagent: None, tool: shorten(tool).into_owned(), input: None };
        let approval_id = Some(id.clone());
        self.add(HookCall { key, id: id.clone(), is_named: false, is_started: false, approval_id });
        Some(AskedOnScreen { tool: tool.into(), asked: AskedCall { id, subagent: None } })
    }

    pub(super) fn end(&mut self, body: &HookBody<'_>) -> EndedCall {
        let key = body.key();
        let own_id = body.id.as_deref().map(shorten);
        let position = self.calls.iter().position(|call| own_id.as_deref() == Some(call.id.as_str())).or_else(|| {
            let fits = |call: &HookCall| match own_id {
                Some(_) => !call.is_started && !call.is_named,
                None => true,
            };
            self.calls.iter().position(|call| call.key == key && fits(call)).or_else(|| self.unannounced(&key.tool))
        });
        let call = position.and_then(|position| self.calls.remove(position));
        let known_id = call.as_ref().map(|call| call.id.clone());
        let id = body.id.clone().or(known_id).unwrap_or_else(|| body.tool.clone());
        let (approval_id, subagent) = call.map(|call| (call.approval_id, call.key.subagent)).unwrap_or_default();
        EndedCall { approval_id: approval_id.filter(|approval_id| *approval_id != shorten(&id)), id, subagent }
    }

    /// Finds the call of a tool that is known only from a dialog on the screen.
    fn unannounced(&self, tool: &str) -> Option<usize> {
        let is_tool = |call: &HookCall| call.key.tool.is_empty() || call.key.tool == tool;
        self.calls
            .iter()
            .position(|call| !call.is_named && !call.is_started && call.key.input.is_none() && is_tool(call))
    }

    /// Notes that an MCP server asks the user something. Like a call that waits for an approval, it ends with its turn.
    pub(super) fn ask_for_server(&mut self, server: &str, subagent: Option<&str>) {
        let id = shorten(server).into_owned();
        if self.calls.iter().any(|call| call.id == id) {
            return;
        }
        let key = CallKey { subagent: subagent.map(Into::into), tool: id.clone(), input: None };
        self.add(HookCall { key, id: id.clone(), is_named: true, is_started: false, approval_id: Some(id) });
    }

    pub(super) fn answer_server(&mut self, server: &str) {
        let id = shorten(server);
        self.calls.retain(|call| call.id != id);
    }

    /// Forgets the agent's own calls: an interrupted call never ends.
    pub(super) fn end_turn(&mut self) {
        self.calls.retain(|call| call.key.subagent.is_some());
    }

    /// Forgets the calls that wait for an approval, and returns the ids of the approvals.
    pub(super) fn take_approvals(&mut self) -> Vec<String> {
        self.take_approvals_if(|_| true)
    }

    /// Forgets the calls of subagents that wait for an approval, except of those in the background, and returns the ids of
    /// the approvals.
    pub(super) fn take_foreground_approvals(&mut self, background: &IdSet) -> Vec<String> {
        self.take_approvals_if(|call| call.key.subagent.as_deref().is_some_and(|id| !background.contains(id)))
    }

    fn take_approvals_if(&mut self, is_meant: impl Fn(&HookCall) -> bool) -> Vec<String> {
        let mut approvals = Vec::new();
        self.calls.retain(|call| {
            let approval_id = call.approval_id.as_ref().filter(|_| is_meant(call));
            approvals.extend(approval_id.cloned());
            approval_id.is_none()
        });
        approvals
    }

    /// Returns whether the agent itself has an open call.
    pub(super) fn has_open(&self) -> bool {
        self.calls.iter().any(|call| call.key.subagent.is_none())
    }

    /// Returns whether there is no open call at all.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
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
