//! `sleep`: a sleep that a crash does not prolong. The deadline is in the journal.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::recovery::{Finding, Lookup, Recovery};
use relive_types::Timestamp;
use serde_json::{Value, json};

use super::args::Args;
use crate::tool::{Context, Patience, Tool, ToolResult};

/// How long it sleeps before it checks the clock again: a suspended machine resumes late.
const SLICE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Sleep;

fn parse(args: &str) -> Result<Duration, ToolResult> {
    let mut args = Args::parse("sleep", args, &["duration"])?;
    args.optional_duration("duration")?.ok_or_else(|| ToolResult::failed("sleep: `duration` is missing"))
}

impl Tool for Sleep {
    fn name(&self) -> &'static str {
        "sleep"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "sleep",
            "description": "Wait for a while. Costs nothing and survives a restart: only what is left of it is slept.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "duration": {"type": ["string", "number"], "description": "Like \"10s\", \"1m30s\", \"2h\"; a number is seconds."}
                },
                "required": ["duration"],
                "additionalProperties": false
            }
        })
    }

    fn patience(&self) -> Patience {
        Patience::Leave
    }

    fn prepare(&self, context: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        super::ready(parse(&args).and_then(|duration| match context.host.now().checked_add(duration) {
            Ok(deadline) => Ok(Recovery::Lookup { what: Lookup::Until(deadline) }),
            Err(_) => Err(ToolResult::failed("sleep: `duration` is too long")),
        }))
    }

    fn run(&self, context: Context, _: String, recovery: Recovery, _: String) -> BoxFuture<'static, ToolResult> {
        async move {
            let Recovery::Lookup { what: Lookup::Until(deadline) } = recovery else {
                return super::foreign_recovery("sleep");
            };
            loop {
                let left = left(context.host.now(), deadline);
                if left.is_zero() {
                    return slept();
                }
                tokio::time::sleep(left.min(SLICE)).await;
            }
        }
        .boxed()
    }

    fn look(&self, _: Context, _: Recovery, _: String) -> BoxFuture<'static, Finding> {
        super::ready(Finding::Running)
    }

    fn found_done(&self, _: String, _: Recovery) -> ToolResult {
        slept()
    }
}

fn slept() -> ToolResult {
    ToolResult::ok("slept")
}

fn left(now: Timestamp, deadline: Timestamp) -> Duration {
    deadline.duration_since(now).try_into().unwrap_or(Duration::ZERO)
}
