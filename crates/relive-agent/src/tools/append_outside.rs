//! `append_outside`, in a `faults` build: an effect that nobody can look up afterwards.
//!
//! It appends one line per effect, so that a test can count them. It is the only tool that leaves the working
//! directory.

use std::path::PathBuf;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::recovery::{Finding, Recovery};
use relive_types::Uuid;
use serde_json::{Value, json};

use super::args::Args;
use crate::tool::{Context, Tool, ToolResult};

#[derive(Debug)]
pub(super) struct AppendOutside;

fn parse(args: &str) -> Result<(PathBuf, String), ToolResult> {
    let mut args = Args::parse("append_outside", args, &["path", "text"])?;
    let (path, text) = (PathBuf::from(args.text("path")?), args.text("text")?);
    if !path.is_absolute() {
        return Err(ToolResult::failed("append_outside: `path` must be absolute"));
    }
    if text.contains('\n') {
        return Err(ToolResult::failed("append_outside: `text` must be one line"));
    }
    Ok((path, text))
}

impl Tool for AppendOutside {
    fn name(&self) -> &'static str {
        "append_outside"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "append_outside",
            "description": "For tests: append `UUID KEY TEXT` as a line to a file outside the working directory.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Absolute."},
                    "text": {"type": "string", "description": "One line."}
                },
                "required": ["path", "text"],
                "additionalProperties": false
            }
        })
    }

    fn prepare(&self, _: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        super::ready(parse(&args).map(|_| Recovery::Doubt))
    }

    fn run(&self, context: Context, args: String, _: Recovery, key: String) -> BoxFuture<'static, ToolResult> {
        async move {
            let (path, text) = match parse(&args) {
                Ok(wanted) => wanted,
                Err(failed) => return failed,
            };
            let uuid = context.uuid;
            match context.pool.run(move || append(&path, uuid, &key, &text)).await {
                Ok(Ok(())) => appended(),
                Ok(Err(error)) => ToolResult::failed(format!("append_outside: {error}")),
                Err(lost) => ToolResult::failed(lost.to_string()),
            }
        }
        .boxed()
    }

    fn look(&self, _: Context, _: Recovery, _: String) -> BoxFuture<'static, Finding> {
        super::ready(Finding::Lost)
    }

    fn found_done(&self, _: String, _: Recovery) -> ToolResult {
        appended()
    }
}

/// Opens any kind of file, including a pipe: the tests use one to delay a call.
fn append(path: &std::path::Path, uuid: Uuid, key: &str, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(format!("{uuid} {key} {text}\n").as_bytes())?;
    file.sync_data()
}

fn appended() -> ToolResult {
    ToolResult::ok("appended")
}
