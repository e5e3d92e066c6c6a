//! `terminate` and `abandon`: the agent ends itself, with a code, a fault, or by giving itself up. Neither has a result: the
//! end is recorded, and nothing of the agent runs after that.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::recovery::Recovery;
use serde_json::{Value, json};

use super::args::Args;
use crate::tool::{Context, OwnEnd, Patience, Tool, ToolResult};

#[derive(Debug)]
pub(super) struct Terminate;

#[derive(Debug)]
pub(super) struct Abandon;

fn parse_terminate(args: &str) -> Result<OwnEnd, ToolResult> {
    let mut args = Args::parse("terminate", args, &["code", "reason", "fault"])?;
    let (code, reason, fault) =
        (args.optional_count("code")?, args.optional_text("reason")?, args.optional_text("fault")?);
    match (code, fault) {
        (None, Some(fault)) if reason.is_none() => Ok(OwnEnd::Fault { fault }),
        (Some(code), None) => match u8::try_from(code) {
            Ok(code) => Ok(OwnEnd::Exit { code, reason }),
            Err(_) => Err(ToolResult::failed("terminate: `code` is 0 to 255")),
        },
        (Some(_) | None, _) => {
            Err(ToolResult::failed("terminate: either `code`, with or without `reason`, or `fault`"))
        }
    }
}

fn parse_abandon(args: &str) -> Result<OwnEnd, ToolResult> {
    Args::parse("abandon", args, &[]).map(|_| OwnEnd::Abandon)
}

/// Has the process end, and waits to be left.
async fn end(context: Context, how: Result<OwnEnd, ToolResult>) -> ToolResult {
    let how = match how {
        Ok(how) => how,
        Err(failed) => return failed,
    };
    match context.host.end_self(how).await {
        Ok(()) => std::future::pending().await,
        Err(error) => ToolResult::failed(error),
    }
}

impl Tool for Terminate {
    fn name(&self) -> &'static str {
        "terminate"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "terminate",
            "description": "End yourself now with an exit code, or with the fault that keeps you from doing your work. Nothing runs after this. To say that the work is done, use `done`.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "code": {"type": "integer", "description": "The exit code, 0 to 255; 0 is success."},
                    "reason": {"type": "string", "description": "Why, in a few words; only with code."},
                    "fault": {"type": "string", "description": "What went wrong; instead of code."}
                },
                "additionalProperties": false
            }
        })
    }

    fn patience(&self) -> Patience {
        Patience::Leave
    }

    fn prepare(&self, _: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        super::rerun(parse_terminate(&args))
    }

    fn run(&self, context: Context, args: String, _: Recovery, _: String) -> BoxFuture<'static, ToolResult> {
        end(context, parse_terminate(&args)).boxed()
    }
}

impl Tool for Abandon {
    fn name(&self) -> &'static str {
        "abandon"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "abandon",
            "description": "Give yourself up: end now, without a result and without an error. Nothing runs after this.",
            "input_schema": {"type": "object", "properties": {}, "additionalProperties": false}
        })
    }

    fn patience(&self) -> Patience {
        Patience::Leave
    }

    fn prepare(&self, _: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        super::rerun(parse_abandon(&args))
    }

    fn run(&self, context: Context, args: String, _: Recovery, _: String) -> BoxFuture<'static, ToolResult> {
        end(context, parse_abandon(&args)).boxed()
    }
}
