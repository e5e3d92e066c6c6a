//! Running the calls of a step, each recorded before it is made.

use std::sync::Arc;

use relive_journal::Durability;
use relive_journal::history::{CallState, Leave, Phase};
use relive_journal::record::{Approval, Body, CallEnded, CallStarted, Decision};
use relive_journal::recovery::{Recovery, RecoveryName};
use relive_llm::{Message, ToolCall};
use serde_json::json;

use super::{Exit, Loop, Step, Wait};
use crate::tool::{Patience, Tool, ToolResult};

/// How much of a result the event shows.
const EVENT_TEXT_MAX: usize = 200;

impl Loop {
    /// Runs the calls of the last answer from `first` on. None of them is open.
    pub(super) async fn run_calls(&mut self, first: u32) -> Step {
        let (asked, _) = self.calls_of_last_answer();
        for call in first..asked {
            self.boundary().await?;
            self.start_call(call).await?;
            let (_, answered) = self.calls_of_last_answer();
            if answered <= call {
                // It is to be made again before those after it.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Intent, act, result. The result is carried: it is recorded with whatever comes next.
    async fn start_call(&mut self, call: u32) -> Step {
        let Some(asked) = self.asked(call) else { return Ok(()) };
        let context = self.agent.context.clone();
        let Some(tool) = self.tool(&asked.name) else {
            let result = ToolResult::failed(format!("there is no tool `{}`", asked.name));
            self.end_call(call, &asked, result, None).await;
            return Ok(());
        };
        let leave = self.history()?.leave(call, &asked.name);
        if let Leave::Refused { by_human, reason } = leave {
            let result = ToolResult::failed(refusal(&asked.name, by_human, reason.as_deref()));
            self.end_call(call, &asked, result, None).await;
            return Ok(());
        }
        let prepared = self.attend(Wait::Tool(tool.patience()), tool.prepare(context, asked.args.clone())).await?;
        let recovery = match prepared {
            Ok(recovery) => recovery,
            Err(result) => {
                self.end_call(call, &asked, result, None).await;
                return Ok(());
            }
        };
        if leave != Leave::Given {
            return self.put_to_a_human(call, &asked, &leave).await;
        }
        self.intend(call, &asked, &recovery).await?;
        self.perform(call, &asked, &tool, recovery, None).await
    }

    /// The call waits for an answer, and the loop ends until there is one. Nothing of the call is done, not even its
    /// intent recorded, so whatever happens meanwhile it is asked for again, or its answer stands.
    async fn put_to_a_human(&mut self, call: u32, asked: &ToolCall, leave: &Leave) -> Step {
        if *leave == Leave::Needed {
            let name = Some(asked.name.clone());
            let question = Approval { call, name, decision: Decision::Asked, always: false, reason: None };
            self.record(vec![Body::Approval(question)], Durability::Synced).await?;
        }
        self.event("approval", json!({"call": call, "name": asked.name, "args": head(&asked.args)})).await;
        Err(Exit::Approval)
    }

    async fn intend(&mut self, call: u32, asked: &ToolCall, recovery: &Recovery) -> Step {
        #[cfg(feature = "faults")]
        if super::settle::switched_on("no-intent") {
            return Ok(());
        }
        let intent = CallStarted { call, name: asked.name.clone(), recovery: recovery.clone() };
        self.record(vec![Body::CallStarted(intent)], Durability::Synced).await?;
        self.event("call", json!({"call": call, "name": asked.name, "args": head(&asked.args)})).await;
        Ok(())
    }

    /// Makes a call whose intent is recorded.
    pub(super) async fn perform(
        &mut self,
        call: u32,
        asked: &ToolCall,
        tool: &Arc<dyn Tool>,
        recovery: Recovery,
        settled: Option<RecoveryName>,
    ) -> Step {
        let key = self.key(call)?;
        let act = tool.run(self.agent.context.clone(), asked.args.clone(), recovery, key.clone());
        let changing = tool.changes_files();
        if changing {
            self.agent.watcher.changing_files(true);
        }
        let outcome = match tool.patience() {
            Patience::Session => self.attend_session(tool, &key, act).await,
            patience @ (Patience::Finish | Patience::Leave) => self.attend(Wait::Tool(patience), act).await,
        };
        if changing {
            self.agent.watcher.changing_files(false);
        }
        let result = outcome?;
        if result.lost {
            let plan = self.history()?.plan();
            if let Some(open) = plan.open.iter().find(|open| open.call == call) {
                return self.doubt(open, plan.on_in_doubt, &result.text).await;
            }
        }
        self.done |= result.done;
        self.end_call(call, asked, result, settled).await;
        Ok(())
    }

    pub(super) async fn end_call(
        &mut self,
        call: u32,
        asked: &ToolCall,
        result: ToolResult,
        settled: Option<RecoveryName>,
    ) {
        self.event(
            "call_result",
            json!({"call": call, "name": asked.name, "ok": result.ok, "text": head(&result.text)}),
        )
        .await;
        let ToolResult { ok, text, done, lost: _ } = result;
        let ended = CallEnded { call, ok, result: text.clone().into(), done, settled };
        self.outcome(asked, ok, text, Body::CallEnded(ended));
    }

    /// A call has its outcome. It is carried, and recorded with whatever comes next.
    pub(super) fn outcome(&mut self, asked: &ToolCall, ok: bool, text: String, body: Body) {
        self.messages.push(Message::Tool { id: asked.id.clone(), ok, result: text });
        self.carry.push(body);
        let (calls, outcomes) = self.calls_of_last_answer();
        if outcomes == calls {
            self.messages.append(&mut self.meanwhile);
        }
    }

    /// The calls of the last answer.
    fn asked_calls(&self) -> &[ToolCall] {
        let last = self.messages.iter().rev().find_map(|message| match message {
            Message::Model { calls, .. } => Some(calls.as_slice()),
            Message::User { .. } | Message::Summary { .. } | Message::Tool { .. } => None,
        });
        last.unwrap_or_default()
    }

    pub(super) fn asked(&self, call: u32) -> Option<ToolCall> {
        self.asked_calls().get(call as usize).cloned()
    }

    pub(super) fn tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.agent.tools.iter().find(|tool| tool.name() == name).cloned()
    }

    /// What names a call that is open, and no other.
    pub(super) fn key(&self, call: u32) -> Step<String> {
        let history = self.history()?;
        let seq = match &history.phase {
            Phase::Calling { calls } => match calls.get(call as usize) {
                Some(CallState::Open(open)) => open.seq,
                Some(CallState::Waiting | CallState::Settled) | None => history.seq,
            },
            Phase::Boundary | Phase::Asking { .. } => history.seq,
        };
        Ok(format!("{}:{seq}", self.agent.context.uuid))
    }
}

/// What a model is told about a call that may not be made.
fn refusal(tool: &str, by_human: bool, reason: Option<&str>) -> String {
    match (by_human, reason) {
        (true, Some(reason)) => format!("The user refused this call of {tool}; it was not run. They say: {reason}"),
        (true, None) => format!("The user refused this call of {tool}; it was not run. Do not try it again unchanged."),
        (false, _) => format!("{tool} may not be used here: it is denied by policy. The call was not run."),
    }
}

fn head(text: &str) -> &str {
    &text[..text.floor_char_boundary(EVENT_TEXT_MAX)]
}
