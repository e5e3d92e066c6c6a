//! Settles calls that a crash, a kill or a pause left open, before anything else is done.

use relive_journal::Durability;
use relive_journal::history::OpenCall;
use relive_journal::record::{Body, Doubt, Outcome, Resolved};
use relive_journal::recovery::{Finding, OnInDoubt, Recovery, Settlement};
use serde_json::json;

use super::{Exit, Loop, Step, Wait};
use crate::tool::Patience;

impl Loop {
    /// Settles an open call: afterwards it has its outcome, or will be made again.
    pub(super) async fn settle(&mut self, open: OpenCall) -> Step {
        let Some(asked) = self.asked(open.call) else {
            return Err(Exit::Faulted(format!("call {} is open, but is in no answer", open.call)));
        };
        let settled = Some(open.recovery.name());
        let Some(tool) = self.tool(&open.name) else {
            return self.doubt(&open, "the tool no longer exists").await;
        };
        let key = self.key(&open);
        let settlement = match &open.recovery {
            Recovery::Check { .. } | Recovery::Lookup { .. } | Recovery::Join => {
                let looking = tool.look(self.agent.context.clone(), open.recovery.clone(), key.clone());
                let found = self.attend(Wait::Tool(Patience::Read), looking).await?;
                open.recovery.settle(found)
            }
            Recovery::Rerun | Recovery::SameKey | Recovery::Doubt => open.recovery.settle(Finding::Lost),
        };
        #[cfg(feature = "faults")]
        let settlement = if crate::faults::is_on("retry-all") { Settlement::Run } else { settlement };
        let how = match settlement {
            Settlement::Run | Settlement::Adopt => "run",
            Settlement::Done => "done",
            Settlement::Doubt => "doubt",
        };
        self.event("settled", json!({"call": open.call, "name": open.name, "by": open.recovery.name(), "as": how}));
        match settlement {
            Settlement::Run | Settlement::Adopt => {
                self.perform(open.call, &asked, &tool, open.recovery, key, settled).await
            }
            // The result comes from its session, so the tool runs again and joins it.
            Settlement::Done if open.recovery == Recovery::Join => {
                self.perform(open.call, &asked, &tool, open.recovery, key, settled).await
            }
            Settlement::Done => {
                let result = tool.found_done(asked.args.clone(), open.recovery.clone());
                self.end_call(open.call, result, settled).await
            }
            Settlement::Doubt => self.doubt(&open, "it was interrupted").await,
        }
    }

    /// Applies the policy for a call whose outcome cannot be known. With `retry` it is made again.
    pub(super) async fn doubt(&mut self, open: &OpenCall, reason: &str) -> Step {
        match self.standing.plan.on_in_doubt {
            OnInDoubt::Park => Err(Exit::InDoubt),
            OnInDoubt::TellModel => {
                let doubt = Doubt { call: open.call, reason: reason.to_owned() };
                self.record(Body::Doubt(doubt), Durability::Beside).await
            }
            OnInDoubt::Retry => {
                let resolved = Resolved { call: open.call, outcome: Outcome::Retry, by_policy: true, req: None };
                self.record(Body::Resolved(resolved), Durability::Synced).await
            }
        }
    }
}
