//! `panic`, in a `faults` build: simulates a bug in a body.

use futures_util::future::BoxFuture;
use relive_journal::recovery::Recovery;
use serde_json::{Value, json};

use crate::tool::{Context, Tool, ToolResult};

#[derive(Debug)]
pub(super) struct Panic;

impl Tool for Panic {
    fn name(&self) -> &'static str {
        "panic"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "panic",
            "description": "For tests: panic.",
            "input_schema": {"type": "object", "properties": {}, "additionalProperties": false}
        })
    }

    fn prepare(&self, _: Context, _: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        super::ready(Ok(Recovery::Rerun))
    }

    #[expect(clippy::panic, reason = "that is what it is for")]
    fn run(&self, _: Context, _: String, _: Recovery, _: String) -> BoxFuture<'static, ToolResult> {
        Box::pin(async { panic!("on purpose") })
    }
}
