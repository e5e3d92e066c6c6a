//! `ask`: a question to a person. Its result is the answer.

use futures_util::future::BoxFuture;
use relive_journal::recovery::Recovery;
use relive_types::rule::QUESTION_TOOL;
use serde_json::{Value, json};

use super::args::Args;
use crate::tool::{Context, Tool, ToolResult};

/// How many answers may be proposed: each has a key of its own.
const CHOICES_MAX: usize = 9;

#[derive(Debug)]
pub(super) struct Ask;

fn check(args: &str) -> Result<(), ToolResult> {
    let mut args = Args::parse(QUESTION_TOOL, args, &["question", "choices"])?;
    if args.text("question")?.trim().is_empty() {
        return Err(ToolResult::failed("ask: `question` must not be empty"));
    }
    let choices = args.optional_texts("choices")?.unwrap_or_default();
    if choices.len() > CHOICES_MAX {
        return Err(ToolResult::failed(format!("ask: at most {CHOICES_MAX} `choices`")));
    }
    if choices.iter().any(|choice| choice.trim().is_empty()) {
        return Err(ToolResult::failed("ask: a choice must not be empty"));
    }
    Ok(())
}

impl Tool for Ask {
    fn name(&self) -> &'static str {
        QUESTION_TOOL
    }

    fn definition(&self) -> Value {
        json!({
            "name": QUESTION_TOOL,
            "description": "Ask the user a question, and wait for the answer, which may take long. Only for what you can neither find out nor decide yourself.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "question": {"type": "string", "description": "The question, with all that is needed to answer it."},
                    "choices": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Answers to choose from; the user may also give another."
                    }
                },
                "required": ["question"],
                "additionalProperties": false
            }
        })
    }

    fn asks_person(&self) -> bool {
        true
    }

    fn prepare(&self, _: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        super::rerun(check(&args))
    }

    fn run(&self, _: Context, _: String, _: Recovery, _: String) -> BoxFuture<'static, ToolResult> {
        super::ready(ToolResult::failed("ask: only a person answers it"))
    }
}
