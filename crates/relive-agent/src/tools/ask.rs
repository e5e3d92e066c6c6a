//! `ask`: a question to a person. Its result is the answer.

use futures_util::future::BoxFuture;
use relive_journal::recovery::Recovery;
use relive_types::rule::QUESTION_TOOL;
use serde_json::{Value, json};

use super::args::Args;
use crate::tool::{Context, Tool, ToolResult};

/// How many answers may be proposed: each has a key of its own.
const CHOICES_MAX: usize = 9;
/// How many characters a choice may have: it is a word of a command.
const CHOICE_CHARS_MAX: usize = 200;

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
    if choices.iter().any(|choice| choice.chars().count() > CHOICE_CHARS_MAX) {
        return Err(ToolResult::failed(format!("ask: a choice may have at most {CHOICE_CHARS_MAX} characters")));
    }
    if choices.iter().any(|choice| choice.contains(char::is_control)) {
        return Err(ToolResult::failed("ask: a choice is one line without control characters"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_short_lines() {
        let checked = |choices: Value| {
            let refused = check(&json!({"question": "which?", "choices": choices}).to_string()).err();
            refused.map(|result| result.text)
        };
        assert_eq!(checked(json!(["main", "日".repeat(CHOICE_CHARS_MAX)])), None);
        let long = checked(json!(["x".repeat(CHOICE_CHARS_MAX + 1)]));
        assert_eq!(long.as_deref(), Some("ask: a choice may have at most 200 characters"));
        for choice in ["a\0b", "a\nb", "\u{1b}[2J"] {
            let refused = checked(json!([choice]));
            assert_eq!(refused.as_deref(), Some("ask: a choice is one line without control characters"), "{choice:?}");
        }
        assert_eq!(checked(json!([" "])).as_deref(), Some("ask: a choice must not be empty"));
    }
}
