//! `done`: the agent declares its work done.

use futures_util::future::BoxFuture;
use relive_journal::recovery::Recovery;
use serde_json::{Value, json};

use super::args::Args;
use crate::tool::{Context, Tool, ToolResult};

#[derive(Debug)]
pub(super) struct Done;

fn parse(args: &str) -> Result<Option<String>, ToolResult> {
    Args::parse("done", args, &["summary"])?.optional_text("summary")
}

impl Tool for Done {
    fn name(&self) -> &'static str {
        "done"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "done",
            "description": "Say that the work is done. You end, successfully.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "summary": {"type": "string", "description": "What was done, for the person or agent that asked."}
                },
                "additionalProperties": false
            }
        })
    }

    fn prepare(&self, _: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        super::rerun(parse(&args))
    }

    fn run(&self, _: Context, args: String, _: Recovery, _: String) -> BoxFuture<'static, ToolResult> {
        super::ready(match parse(&args) {
            Ok(summary) => ToolResult { done: true, ..ToolResult::ok(summary.unwrap_or_else(|| "done".to_owned())) },
            Err(failed) => failed,
        })
    }
}
