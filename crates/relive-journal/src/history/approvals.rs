//! Approvals of calls.

use super::{CallState, History, Phase, Place};
use crate::policy::Permission;
use crate::record::{Approval, Decision, Outcome, Question, Record, Resolved};
use relive_core::Timestamp;
use relive_types::CommandRule;
use relive_types::rule::QUESTION_TOOL;
use serde::{Deserialize, Serialize};

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    Given,
    /// Yes, because this rule allows its command.
    ByRule(CommandRule),
    /// A person has to be asked.
    Needed,
    /// A person has been asked, and has not answered.
    Awaited,
    /// The call is denied, and the model is told.
    Refused {
        by: RefusedBy,
        /// The reason that the person gave.
        reason: Option<String>,
    },
}

/// The state of an agent's question to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    NotYet,
    /// The question waits for an answer.
    Waits,
    Answered(String),
}

/// The answer to a question of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The record of the question.
    pub question: u64,
    /// The beginning of the answer.
    pub text: String,
    pub at: Timestamp,
}

/// What a person's answer about a call was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The record of the question, or that of the call if it was in doubt.
    pub question: u64,
    pub at: Timestamp,
    /// What became of the call, if it was in doubt; otherwise the answer is [`History::last_answer`].
    pub outcome: Option<Outcome>,
}

/// How many bytes of an answer are remembered.
const REPLY_MAX: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedBy {
    Person,
    Policy,
}

impl History {
    /// Returns whether a call of the current step may be made. `command` is its command, if it has one.
    #[must_use]
    pub fn permit(&self, call: u32, tool: &str, command: Option<&str>) -> Permit {
        let refused = |by, reason| Permit::Refused { by, reason };
        let policy = self.identity.as_ref().map(|identity| &identity.spawned.policy);
        let rule = policy.zip(command).and_then(|(policy, command)| policy.rule_for(command));
        match (policy.map_or(Permission::Ask, |policy| policy.of(tool)), rule) {
            (Permission::Allow, _) => return Permit::Given,
            (Permission::Ask | Permission::Deny, Some(rule)) => return Permit::ByRule(rule),
            (Permission::Deny, None) => return refused(RefusedBy::Policy, None),
            // Nobody is asked whether they may be asked.
            (Permission::Ask, None) if tool == QUESTION_TOOL => return Permit::Given,
            (Permission::Ask, None) => {}
        }
        let about_call = |approval: &&Approval| approval.call == call && approval.host.is_none();
        if let Some(approval) = self.approval.as_ref().filter(about_call) {
            match approval.decision {
                Decision::Allowed => return Permit::Given,
                Decision::Denied => return refused(RefusedBy::Person, approval.reason.clone()),
                Decision::Asked => {}
            }
        }
        if let Some(rule) = command.and_then(|command| self.rules.iter().find(|rule| rule.matches(command))) {
            return Permit::ByRule(rule.clone());
        }
        match self.always.get(tool) {
            Some(Decision::Allowed) => Permit::Given,
            Some(Decision::Denied) => refused(RefusedBy::Person, None),
            Some(Decision::Asked) | None if self.question().is_some_and(|asked| asked.call == call) => Permit::Awaited,
            Some(Decision::Asked) | None => Permit::Needed,
        }
    }

    /// Returns the open question to a person, if there is one.
    #[must_use]
    pub fn question(&self) -> Option<&Approval> {
        let asked = self.approval.as_ref().filter(|approval| approval.decision == Decision::Asked)?;
        let Phase::Calling { calls } = &self.phase else { return None };
        let is_open = match (calls.get(asked.call as usize), &asked.host) {
            (Some(CallState::Waiting), None) | (Some(CallState::Open(_)), Some(_)) => true,
            (Some(CallState::Waiting | CallState::Open(_) | CallState::Settled) | None, _) => false,
        };
        is_open.then_some(asked)
    }

    /// Returns how far the question of a call of the current step is.
    #[must_use]
    pub fn asked(&self, call: u32) -> Asked {
        match self.asked.as_ref().filter(|asked| asked.call == call) {
            None => Asked::NotYet,
            Some(Question { answer: None, .. }) => Asked::Waits,
            Some(Question { answer: Some(answer), .. }) => Asked::Answered(answer.clone()),
        }
    }

    /// Returns the open question of the agent to a person, if there is one.
    #[must_use]
    pub fn open_question(&self) -> Option<&Question> {
        let asked = self.asked.as_ref().filter(|asked| asked.answer.is_none())?;
        let Phase::Calling { calls } = &self.phase else { return None };
        (calls.get(asked.call as usize) == Some(&CallState::Waiting)).then_some(asked)
    }

    pub(super) fn ask_or_answer(&mut self, question: &Question, record: &Record) {
        match &question.answer {
            None => self.question_seq = record.seq,
            Some(answer) => {
                let text = answer[..answer.floor_char_boundary(REPLY_MAX)].to_owned();
                self.last_reply = Some(Reply { question: self.question_seq, text, at: record.at });
            }
        }
        self.asked = Some(question.clone());
    }

    pub(super) fn resolve(&mut self, resolved: &Resolved, record: &Record, place: Place) {
        self.note_resolved(resolved, record);
        match resolved.outcome {
            Outcome::Done | Outcome::NotDone => self.settle(resolved.call, place),
            Outcome::Retry => self.set_call(resolved.call, CallState::Waiting),
        }
    }

    /// Notes what a person said about a call in doubt. One answer settles all of them, and is for the first.
    fn note_resolved(&mut self, resolved: &Resolved, record: &Record) {
        let is_same = |last: Verdict| last.at == record.at && last.outcome == Some(resolved.outcome);
        if resolved.by_policy || self.last_verdict.is_some_and(is_same) {
            return;
        }
        let call = self.open_calls().find(|open| open.call == resolved.call);
        self.last_verdict =
            call.map(|call| Verdict { question: call.seq, at: record.at, outcome: Some(resolved.outcome) });
    }

    pub(super) fn approve(&mut self, approval: &Approval, record: &Record) {
        match &approval.host {
            Some(host) => {
                self.hosts.insert(host.clone(), approval.decision);
            }
            None => {
                if let Some(name) = approval.name.as_ref().filter(|_| approval.always) {
                    self.always.insert(name.clone(), approval.decision);
                }
                if approval.decision == Decision::Allowed {
                    self.rules.extend(approval.rule.clone());
                }
            }
        }
        if approval.decision == Decision::Asked {
            self.question_seq = record.seq;
        } else {
            self.last_answer = Some(approval.clone());
            self.last_verdict = Some(Verdict { question: self.question_seq, at: record.at, outcome: None });
        }
        self.approval = Some(approval.clone());
    }
}
