//! What humans have said about calls.

use super::{CallState, History, Phase};
use crate::policy::Permission;
use crate::record::{Approval, Decision};

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    /// It may.
    Given,
    /// A human has to be asked.
    Needed,
    /// A human has been asked, and has not answered.
    Awaited,
    /// It may not, and the model is told so.
    Refused {
        /// The one who refused.
        by: RefusedBy,
        /// The person's words, if they gave any.
        reason: Option<String>,
    },
}

/// Who refused a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum RefusedBy {
    Person,
    Policy,
}

impl History {
    /// Whether a call of the step under way may be made.
    #[must_use]
    pub fn permit(&self, call: u32, tool: &str) -> Permit {
        let refused = |by, reason| Permit::Refused { by, reason };
        let policy = self.identity.as_ref().map(|identity| &identity.spawned.policy);
        match policy.map_or(Permission::Ask, |policy| policy.of(tool)) {
            Permission::Allow => return Permit::Given,
            Permission::Deny => return refused(RefusedBy::Policy, None),
            Permission::Ask => {}
        }
        if let Some(approval) = self.approval.as_ref().filter(|approval| approval.call == call) {
            match approval.decision {
                Decision::Allowed => return Permit::Given,
                Decision::Denied => return refused(RefusedBy::Person, approval.reason.clone()),
                Decision::Asked => {}
            }
        }
        match self.always.get(tool) {
            Some(Decision::Allowed) => Permit::Given,
            Some(Decision::Denied) => refused(RefusedBy::Person, None),
            Some(Decision::Asked) | None if self.question().is_some_and(|asked| asked.call == call) => Permit::Awaited,
            Some(Decision::Asked) | None => Permit::Needed,
        }
    }

    /// The call that a human has been asked about, while there is no answer.
    #[must_use]
    pub fn question(&self) -> Option<&Approval> {
        let asked = self.approval.as_ref().filter(|approval| approval.decision == Decision::Asked)?;
        let Phase::Calling { calls } = &self.phase else { return None };
        (calls.get(asked.call as usize) == Some(&CallState::Waiting)).then_some(asked)
    }

    pub(super) fn approve(&mut self, approval: &Approval, seq: u64) {
        if let Some(name) = approval.name.as_ref().filter(|_| approval.always) {
            self.always.insert(name.clone(), approval.decision);
        }
        if approval.decision == Decision::Asked {
            self.question_seq = seq;
        } else {
            self.last_answer = Some(approval.clone());
        }
        self.approval = Some(approval.clone());
    }
}
