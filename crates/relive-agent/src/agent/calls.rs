//! Makes the calls of a step. Each is recorded before it is made, and its result as soon as there is one.

use std::sync::Arc;

use relive_journal::Durability;
use relive_journal::history::{Asked, OpenCall, Permit, RefusedBy};
use relive_journal::record::{Approval, Body, CallEnded, CallStarted, Decision, Question};
use relive_journal::recovery::{Recovery, RecoveryName};
use serde_json::json;

use super::files::may_change_files;
use super::{Exit, Loop, Step, Wait};
use crate::tool::{Context, Order, Patience, Tool, ToolResult};
use relive_llm::ToolCall;
use relive_proxy::Answers;
use relive_types::CommandRule;

/// How many bytes of arguments an event shows: enough for nearly every command.
const EVENT_ARGS_MAX: usize = 4096;

/// The name under which a person is asked about a host, in place of that of a tool.
const HOST_QUESTION: &str = "network";

impl Loop {
    /// Makes a call of the last answer for the first time: intent, act, result.
    pub(super) async fn start_call(&mut self, call: u32) -> Step {
        let Some(asked) = self.asked(call) else {
            return Err(Exit::Faulted(format!("the journal asks for call {call}, which no answer made")));
        };
        let Some(tool) = self.tool(&asked.name) else {
            let result = ToolResult::failed(format!("there is no tool `{}`", asked.name));
            return self.end_call(call, result, None).await;
        };
        let command = tool.command(&asked.args);
        let permit = self.agent.journal.permit(call, &asked.name, command.as_deref()).await?;
        if let Permit::Refused { by, reason } = permit {
            let result = ToolResult::denied(refusal(&asked.name, by, reason.as_deref()));
            return self.end_call(call, result, None).await;
        }
        // Preparing changes nothing, so it can be left.
        let prepared = tool.prepare(self.agent.context.clone(), asked.args.clone());
        let recovery = match self.attend(Wait::Tool(Patience::Read), prepared).await? {
            Ok(recovery) => recovery,
            Err(result) => return self.end_call(call, result, None).await,
        };
        let rule = match permit {
            Permit::Given => None,
            Permit::ByRule(rule) => Some(rule),
            Permit::Needed | Permit::Awaited | Permit::Refused { .. } => {
                return self.ask_person(call, &asked, &permit).await;
            }
        };
        if tool.asks_person() {
            return self.put_question(call, &asked).await;
        }
        if may_change_files(&recovery) {
            self.before_change(self.step()).await?;
        }
        self.intend(call, &asked, &recovery, rule).await?;
        let open = self.standing.plan.open.iter().find(|open| open.call == call);
        let key = open.map_or_else(|| self.unrecorded_key(call), |open| self.key(open));
        self.perform(call, &asked, &tool, recovery, key, None).await
    }

    /// Asks a person whether a call may be made, and ends the loop until there is an answer. The
    /// intent is not recorded yet, so whatever happens meanwhile, the question is asked again or its answer counts.
    async fn ask_person(&mut self, call: u32, asked: &ToolCall, permit: &Permit) -> Step {
        if *permit == Permit::Needed {
            let name = Some(asked.name.clone());
            let question = Approval {
                call,
                name,
                decision: Decision::Asked,
                always: false,
                rule: None,
                host: None,
                reason: None,
                req: None,
                key: None,
            };
            self.record(Body::Approval(question), Durability::Synced).await?;
        }
        self.sync_results().await?;
        self.event("approval", shown_call(call, asked));
        Err(Exit::Approval)
    }

    /// Asks a person whether the command of an open call may reach a host, and ends the loop until there is an answer. The
    /// command stands still meanwhile, and its request waits in the proxy. The call stays open, to be joined.
    async fn ask_about_host(&mut self, call: u32, tool: &Arc<dyn Tool>, key: &str, host: String) -> Step {
        // One that cannot be frozen waits for its request.
        let _ = tool.order(self.agent.context.clone(), key.to_owned(), Order::StandStill).await;
        let shown = json!({"call": call, "name": HOST_QUESTION, "args": json!({"host": host}).to_string()});
        let question = Approval {
            call,
            name: Some(HOST_QUESTION.to_owned()),
            decision: Decision::Asked,
            always: false,
            rule: None,
            host: Some(host),
            reason: None,
            req: None,
            key: None,
        };
        self.record(Body::Approval(question), Durability::Synced).await?;
        self.event("approval", shown);
        Err(Exit::Approval)
    }

    /// Returns what a call may use, with the answers of a person so far.
    fn context_now(&self) -> Context {
        let mut context = self.agent.context.clone();
        if let Some(proxy) = &mut context.proxy {
            let with = |wanted: Decision| {
                let hosts = self.standing.hosts.iter().filter(move |(_, decision)| **decision == wanted);
                hosts.map(|(host, _)| host.clone()).collect()
            };
            proxy.answers = Answers { allowed: with(Decision::Allowed), denied: with(Decision::Denied) };
        }
        context
    }

    /// Puts the question of a call to a person, and ends the loop until there is an answer, which is the call's result.
    /// Like an approval it has no intent: nothing happens until it is answered.
    async fn put_question(&mut self, call: u32, asked: &ToolCall) -> Step {
        match self.agent.journal.asked(call).await? {
            Asked::Answered(answer) => return self.end_call(call, ToolResult::ok(answer), None).await,
            Asked::Waits => {}
            Asked::NotYet => {
                let question = Question { call, answer: None, req: None, key: None };
                self.record(Body::Question(question), Durability::Synced).await?;
            }
        }
        self.sync_results().await?;
        self.event("question", shown_call(call, asked));
        Err(Exit::Question)
    }

    async fn intend(&mut self, call: u32, asked: &ToolCall, recovery: &Recovery, rule: Option<CommandRule>) -> Step {
        #[cfg(feature = "faults")]
        if crate::faults::is_on("no-intent") {
            return Ok(());
        }
        let intent = CallStarted { call, name: asked.name.clone(), recovery: recovery.clone(), rule: rule.clone() };
        // Before an effect in the world its intent is on the disk. Where there is none, nothing depends on the sync.
        let durability = if has_effect(recovery) { Durability::Synced } else { Durability::Written };
        self.record(Body::CallStarted(intent), durability).await
    }

    /// Makes a call whose intent is recorded, and records its result.
    pub(super) async fn perform(
        &mut self,
        call: u32,
        asked: &ToolCall,
        tool: &Arc<dyn Tool>,
        recovery: Recovery,
        key: String,
        settled: Option<RecoveryName>,
    ) -> Step {
        let changes_files = may_change_files(&recovery);
        let act = tool.run(self.context_now(), asked.args.clone(), recovery, key.clone());
        let result = match tool.patience() {
            Patience::Session => self.attend_session(tool, &key, act).await?,
            patience @ (Patience::Finish | Patience::Read | Patience::Leave) => {
                self.attend(Wait::Tool(patience), act).await?
            }
        };
        if let Some(host) = result.asks {
            return self.ask_about_host(call, tool, &key, host).await;
        }
        if changes_files {
            self.after_change(self.step());
        }
        if result.lost
            && let Some(open) = self.standing.plan.open.iter().find(|open| open.call == call).cloned()
        {
            return self.doubt(&open, &result.text).await;
        }
        self.end_call(call, result, settled).await
    }

    /// Records the result of a call.
    pub(super) async fn end_call(&mut self, call: u32, result: ToolResult, settled: Option<RecoveryName>) -> Step {
        let ended = call_ended(call, result, settled);
        // The result of an effect is in the file at once, and on the disk while the model is asked.
        let open = self.standing.plan.open.iter().find(|open| open.call == call);
        let effect = open.is_some_and(|open| has_effect(&open.recovery));
        let durability = if effect { Durability::Beside } else { Durability::Deferred };
        if effect {
            self.seen_commit = None;
        }
        self.record(ended, durability).await
    }

    /// The step whose calls are made.
    fn step(&self) -> u32 {
        self.standing.plan.last_step.saturating_add(1)
    }

    pub(super) fn asked(&self, call: u32) -> Option<ToolCall> {
        self.dialogue.call(call).cloned()
    }

    pub(super) fn tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.agent.tools.iter().find(|tool| tool.name() == name).cloned()
    }

    /// Returns the key of an open call, which no other call has.
    pub(super) fn key(&self, open: &OpenCall) -> String {
        format!("{}:{}", self.agent.context.uuid, open.seq)
    }

    /// Returns the key of a call whose intent was not recorded, which happens only in a `faults` build.
    fn unrecorded_key(&self, call: u32) -> String {
        format!("{}:{}-{call}", self.agent.context.uuid, self.standing.answers)
    }
}

/// Returns the record of a call's result.
pub(super) fn call_ended(call: u32, result: ToolResult, settled: Option<RecoveryName>) -> Body {
    let ToolResult { ok, text, done, lost: _, asks: _, denied } = result;
    Body::CallEnded(CallEnded { call, ok, result: text.into(), done, settled, denied })
}

/// Tells whether a call changes anything but the conversation.
fn has_effect(recovery: &Recovery) -> bool {
    *recovery != Recovery::Rerun
}

/// Tells the model about a call that may not be made.
fn refusal(tool: &str, by: RefusedBy, reason: Option<&str>) -> String {
    match (by, reason) {
        (RefusedBy::Person, Some(reason)) => {
            format!("The user refused this call of {tool}; it was not run. They say: {reason}")
        }
        (RefusedBy::Person, None) => {
            format!("The user refused this call of {tool}; it was not run. Do not try it again unchanged.")
        }
        (RefusedBy::Policy, _) => format!("{tool} may not be used here: it is denied by policy. The call was not run."),
    }
}

/// A call as an event shows it.
fn shown_call(call: u32, asked: &ToolCall) -> serde_json::Value {
    let mut body = json!({"call": call, "name": asked.name, "args": head(&asked.args, EVENT_ARGS_MAX)});
    if asked.args.len() > EVENT_ARGS_MAX {
        body["args_bytes"] = asked.args.len().into();
    }
    body
}

fn head(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}
