//! What a crash, or a kill, left open is settled before anything else is done.

use relive_journal::Durability;
use relive_journal::conversation::TOLD_IN_DOUBT;
use relive_journal::history::{CallState, OpenCall, Phase};
use relive_journal::record::{Body, Doubt, Outcome, Resolved};
use relive_journal::recovery::{Finding, OnInDoubt, Recovery, Settlement};
use relive_llm::Message;
use serde_json::json;

use super::{Exit, Loop, Step, Wait};
use crate::tool::Patience;

impl Loop {
    /// Settles what is open. Afterwards every call of the step has its outcome or was not begun.
    pub(super) async fn settle(&mut self) -> Step {
        self.forget_placeholders()?;
        let plan = self.history()?.plan();
        for open in plan.open {
            self.settle_one(open, plan.on_in_doubt).await?;
        }
        Ok(())
    }

    /// The conversation has a placeholder for each call without an outcome, and after them what was said meanwhile.
    /// The calls get their outcomes now, and what was said comes after these.
    fn forget_placeholders(&mut self) -> Step {
        let Phase::Calling { calls } = &self.history()?.phase else { return Ok(()) };
        let settled = calls.iter().filter(|state| **state == CallState::Settled).count();
        let total = calls.len();
        let is_model = |message: &Message| matches!(message, Message::Model { .. });
        let Some(answer) = self.messages.iter().rposition(is_model) else { return Ok(()) };
        self.meanwhile = self.messages.split_off((answer + 1 + total).min(self.messages.len()));
        self.messages.truncate(answer + 1 + settled);
        Ok(())
    }

    async fn settle_one(&mut self, open: OpenCall, on_in_doubt: OnInDoubt) -> Step {
        let Some(asked) = self.asked(open.call) else { return Ok(()) };
        let settled = Some(open.recovery.name());
        let Some(tool) = self.tool(&open.name) else {
            return self.doubt(&open, on_in_doubt, "the tool is not there any more").await;
        };
        let settlement = match &open.recovery {
            Recovery::Check { .. } | Recovery::Lookup { .. } | Recovery::Join => {
                let looking = tool.look(self.agent.context.clone(), open.recovery.clone(), self.key(open.call)?);
                let found = self.attend(Wait::Tool(Patience::Finish), looking).await?;
                open.recovery.settle(found)
            }
            Recovery::Rerun | Recovery::SameKey | Recovery::Doubt => open.recovery.settle(Finding::Lost),
        };
        #[cfg(feature = "faults")]
        let settlement = if switched_on("retry-all") { Settlement::Run } else { settlement };
        let how = match settlement {
            Settlement::Run | Settlement::Adopt => "run",
            Settlement::Done => "done",
            Settlement::Doubt => "doubt",
        };
        self.event("settled", json!({"call": open.call, "name": open.name, "by": open.recovery.name(), "as": how}))
            .await;
        match settlement {
            Settlement::Run | Settlement::Adopt => self.perform(open.call, &asked, &tool, open.recovery, settled).await,
            // Its session tells how it went, so the tool is asked as if it ran.
            Settlement::Done if open.recovery == Recovery::Join => {
                self.perform(open.call, &asked, &tool, open.recovery, settled).await
            }
            Settlement::Done => {
                let result = tool.found_done(asked.args.clone(), open.recovery.clone());
                self.end_call(open.call, &asked, result, settled).await;
                Ok(())
            }
            Settlement::Doubt => self.doubt(&open, on_in_doubt, "it was interrupted").await,
        }
    }

    /// Nobody can tell what became of a call: the policy says what follows. With a retry it has no outcome, and is made again.
    pub(super) async fn doubt(&mut self, open: &OpenCall, on_in_doubt: OnInDoubt, reason: &str) -> Step {
        match on_in_doubt {
            OnInDoubt::Park => Err(Exit::InDoubt),
            OnInDoubt::TellModel => {
                let Some(asked) = self.asked(open.call) else { return Ok(()) };
                let doubt = Doubt { call: open.call, reason: reason.to_owned() };
                self.outcome(&asked, false, TOLD_IN_DOUBT.to_owned(), Body::Doubt(doubt));
                Ok(())
            }
            OnInDoubt::Retry => {
                let resolved = Resolved { call: open.call, outcome: Outcome::Retry, by_policy: true };
                self.record(vec![Body::Resolved(resolved)], Durability::Synced).await?;
                Ok(())
            }
        }
    }
}

/// Whether a switch that breaks the protocol on purpose is on.
#[cfg(feature = "faults")]
pub(crate) fn switched_on(name: &str) -> bool {
    std::env::var("RELIVE_FAULTS").is_ok_and(|switches| switches.split(',').any(|switch| switch == name))
}
