//! Claude's subagents, which have two ids: most lines name the call that started one, requests for permission name its
//! agent id, which is also the id of its task in the background. Events name the call.

use std::collections::VecDeque;

use crate::ids::{IdSet, shorten};

/// Claude runs a few subagents at a time. A subagent beyond the limit is reported as started, and never as ended.
const MAX_SUBAGENTS: usize = 256;

/// Subagents have a handful of calls open; the oldest of more than this is forgotten.
const MAX_INNER_CALLS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Subagents {
    subagents: Vec<Subagent>,
    inner_calls: VecDeque<InnerCall>,
    /// The subagents that have asked for something, including those whose starting call is not known.
    asking: IdSet,
}

/// A call of a subagent, because not every request for permission names the subagent.
#[derive(Debug)]
struct InnerCall {
    tool_id: String,
    subagent: String,
}

#[derive(Debug)]
struct Subagent {
    call_id: String,
    /// `None` until a line has both ids.
    agent_id: Option<String>,
    /// The subagent whose call started this one.
    parent: Option<String>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Ends when its call returns.
    Foreground,
    /// Its call has returned, or will at once; it ends with its task.
    Background,
    /// Kept because the agent may give it more to do, in the background.
    Ended,
}

impl Subagents {
    /// Notes that a call, of the agent or of the subagent `parent`, starts a subagent. Returns false if it has started
    /// already.
    pub(super) fn start(&mut self, call_id: &str, parent: Option<&str>) -> bool {
        if self.with_call(call_id).is_some() {
            return false;
        }
        if self.subagents.len() == MAX_SUBAGENTS
            && let Some(ended) = self.subagents.iter().position(|subagent| subagent.stage == Stage::Ended)
        {
            self.subagents.remove(ended);
        }
        if self.subagents.len() < MAX_SUBAGENTS {
            let call_id = shorten(call_id).into_owned();
            let parent = parent.map(Into::into);
            self.subagents.push(Subagent { call_id, agent_id: None, parent, stage: Stage::Foreground });
        }
        true
    }

    pub(super) fn link(&mut self, call_id: &str, agent_id: &str) {
        if let Some(subagent) = self.with_call(call_id)
            && subagent.agent_id.is_none()
        {
            subagent.agent_id = Some(shorten(agent_id).into_owned());
        }
    }

    /// Notes that a subagent calls a tool.
    pub(super) fn start_inner_call(&mut self, tool_id: &str, subagent: &str) {
        if self.owner_of(tool_id).is_some() {
            return;
        }
        if self.inner_calls.len() == MAX_INNER_CALLS {
            self.inner_calls.pop_front();
        }
        let tool_id = shorten(tool_id).into_owned();
        self.inner_calls.push_back(InnerCall { tool_id, subagent: subagent.into() });
    }

    pub(super) fn end_inner_call(&mut self, tool_id: &str) {
        let tool_id = shorten(tool_id);
        self.inner_calls.retain(|call| call.tool_id != tool_id);
    }

    /// Returns the subagent that made a call.
    pub(super) fn owner_of(&self, tool_id: &str) -> Option<&str> {
        let tool_id = shorten(tool_id);
        self.inner_calls.iter().find(|call| call.tool_id == tool_id).map(|call| call.subagent.as_str())
    }

    /// Returns the call of the subagent with this agent id. An unknown agent id belongs to the only running subagent
    /// whose agent id is not known yet.
    pub(super) fn call_of(&self, agent_id: &str) -> Option<&str> {
        let agent_id = shorten(agent_id);
        let known = self.subagents.iter().find(|subagent| subagent.agent_id.as_deref() == Some(agent_id.as_ref()));
        known.or_else(|| self.only_unlinked()).map(|subagent| subagent.call_id.as_str())
    }

    fn only_unlinked(&self) -> Option<&Subagent> {
        let mut unlinked =
            self.subagents.iter().filter(|subagent| subagent.agent_id.is_none() && subagent.stage != Stage::Ended);
        unlinked.next().filter(|_| unlinked.next().is_none())
    }

    /// Notes that a subagent waits for an answer.
    pub(super) fn ask(&mut self, id: &str) {
        self.asking.insert(id);
    }

    /// Notes that a call has returned. Returns the subagents that end with it: its own, and those its own waited for.
    pub(super) fn end_call(&mut self, call_id: &str) -> Vec<String> {
        let call_id = shorten(call_id);
        let mut ended = self.end_foreground(|subagent| subagent.call_id == call_id);
        let mut next = 0;
        while let Some(parent) = ended.get(next).cloned() {
            ended.extend(self.end_foreground(|subagent| subagent.parent.as_deref() == Some(parent.as_str())));
            next += 1;
        }
        ended
    }

    /// Notes that no turn is open any more. Returns the subagents that end with it: all except those in the background.
    pub(super) fn end_turn(&mut self, background: &IdSet) -> Vec<String> {
        let mut ended = self.end_foreground(|_| true);
        let asking = std::mem::take(&mut self.asking);
        ended.extend(
            asking.iter().filter(|id| self.with_call(id).is_none() && !background.contains(id)).map(Into::into),
        );
        ended
    }

    fn end_foreground(&mut self, is_meant: impl Fn(&Subagent) -> bool) -> Vec<String> {
        let mut ended = Vec::new();
        for subagent in &mut self.subagents {
            if subagent.stage == Stage::Foreground && is_meant(subagent) {
                subagent.stage = Stage::Ended;
                ended.push(subagent.call_id.clone());
            }
        }
        ended
    }

    /// Notes that a task runs in the background: its subagent continues when its call returns. Returns the call if the
    /// subagent had ended and starts again.
    pub(super) fn start_task(&mut self, task_id: &str) -> Option<String> {
        self.move_stage(task_id, Stage::Foreground, Stage::Background);
        self.move_stage(task_id, Stage::Ended, Stage::Background)
    }

    /// Notes that a task in the background has ended. Returns the call of the subagent that ends with it.
    pub(super) fn end_task(&mut self, task_id: &str) -> Option<String> {
        self.move_stage(task_id, Stage::Background, Stage::Ended)
    }

    fn move_stage(&mut self, task_id: &str, from: Stage, to: Stage) -> Option<String> {
        let task_id = shorten(task_id);
        let is_task =
            |subagent: &&mut Subagent| subagent.stage == from && subagent.agent_id.as_deref() == Some(task_id.as_ref());
        let subagent = self.subagents.iter_mut().find(is_task)?;
        subagent.stage = to;
        Some(subagent.call_id.clone())
    }

    fn with_call(&mut self, call_id: &str) -> Option<&mut Subagent> {
        let call_id = shorten(call_id);
        self.subagents.iter_mut().find(|subagent| subagent.call_id == call_id)
    }
}
