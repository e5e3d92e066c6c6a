//! Makes several read-only calls of one answer at the same time. Their intents are one batch, and so are their results,
//! both in the order in which the model asked.

use std::sync::Arc;

use futures_util::future::join_all;
use relive_journal::Durability;
use relive_journal::history::Permit;
use relive_journal::record::{Body, CallStarted};
use relive_journal::recovery::Recovery;

use super::calls::call_ended;
use super::{Loop, Step, Wait};
use crate::tool::{Patience, Tool};
use relive_llm::ToolCall;

/// How many calls are made at the same time.
const READS_MAX: usize = 8;

/// A call that is ready to be made.
struct ReadyRead {
    call: u32,
    asked: ToolCall,
    tool: Arc<dyn Tool>,
}

impl Loop {
    /// Makes the calls from `first` on that only read and need no permission. Returns `false`, with nothing done, if
    /// there are fewer than two.
    pub(super) async fn read_together(&mut self, first: u32) -> Step<bool> {
        let reads = self.ready_reads(first).await?;
        if reads.len() < 2 {
            return Ok(false);
        }
        let intent = |read: &ReadyRead| {
            let (call, name) = (read.call, read.asked.name.clone());
            Body::CallStarted(CallStarted { call, name, recovery: Recovery::Rerun, rule: None })
        };
        self.record_batch(reads.iter().map(intent).collect(), Durability::Written).await?;
        let acts = reads.iter().map(|read| {
            let key = self.standing.plan.open.iter().find(|open| open.call == read.call).map(|open| self.key(open));
            let (context, args) = (self.agent.context.clone(), read.asked.args.clone());
            read.tool.run(context, args, Recovery::Rerun, key.unwrap_or_default())
        });
        let results = self.attend(Wait::Tool(Patience::Read), join_all(acts)).await?;
        let ended = reads.iter().zip(results).map(|(read, result)| call_ended(read.call, result, None));
        self.record_batch(ended.collect(), Durability::Deferred).await?;
        Ok(true)
    }

    async fn ready_reads(&self, first: u32) -> Step<Vec<ReadyRead>> {
        let mut reads = Vec::new();
        for call in (first..).take(READS_MAX) {
            let Some(asked) = self.asked(call) else { break };
            let Some(tool) = self.tool(&asked.name).filter(|tool| tool.patience() == Patience::Read) else { break };
            if self.agent.journal.permit(call, &asked.name, None).await? != Permit::Given {
                break;
            }
            let prepared = tool.prepare(self.agent.context.clone(), asked.args.clone());
            if self.attend(Wait::Tool(Patience::Read), prepared).await? != Ok(Recovery::Rerun) {
                break;
            }
            reads.push(ReadyRead { call, asked, tool });
        }
        Ok(reads)
    }
}
