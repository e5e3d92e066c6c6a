//! `write`: writes a whole file, new or replaced.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::Hash;
use relive_journal::recovery::{Finding, Recovery};
use serde_json::{Value, json};

use super::args::Args;
use super::replace::{self, Change, FILE_MAX};
use crate::tool::{Context, Tool, ToolResult};

#[derive(Debug)]
pub(super) struct Write;

fn parse(args: &str) -> Result<(String, String), ToolResult> {
    let mut args = Args::parse("write", args, &["path", "content"])?;
    let (path, content) = (args.text("path")?, args.text("content")?);
    if content.len() > FILE_MAX {
        return Err(ToolResult::failed(format!("write: `content` is larger than {FILE_MAX} bytes")));
    }
    Ok((path, content))
}

impl Tool for Write {
    fn name(&self) -> &'static str {
        "write"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "write",
            "description": "Write a whole text file in the working directory, replacing what is there. Directories are created as needed. To change a part of a file, use edit.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "From the working directory, or absolute inside it."},
                    "content": {"type": "string", "description": "The whole text."}
                },
                "required": ["path", "content"],
                "additionalProperties": false
            }
        })
    }

    fn prepare(&self, context: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        async move {
            let (path, content) = parse(&args)?;
            let cwd = context.cwd.clone();
            super::reading(&context, move |directory, leash| {
                let path = directory.relative(&path)?;
                let before = replace::look(directory, leash, &path)?.as_deref().map(Hash::of);
                Ok(Recovery::Check { path: cwd.join(path), before, after: Some(Hash::of(content.as_bytes())) })
            })
            .await
        }
        .boxed()
    }

    fn run(&self, context: Context, args: String, recovery: Recovery, key: String) -> BoxFuture<'static, ToolResult> {
        async move {
            let Recovery::Check { before, after, .. } = recovery else { return super::foreign_recovery("write") };
            let (path, content) = match parse(&args) {
                Ok(wanted) => wanted,
                Err(failed) => return failed,
            };
            let done = said(&path, content.len());
            let replaced = super::writing(&context, move |directory, leash| {
                let path = directory.relative(&path)?;
                let change = Change { before, after, key: &key };
                replace::replace(directory, leash, &path, change, |_| Ok(content.into_bytes()))
            });
            replace::result(replaced.await, &done)
        }
        .boxed()
    }

    fn look(&self, context: Context, recovery: Recovery, _: String) -> BoxFuture<'static, Finding> {
        replace::find(context, recovery).boxed()
    }

    fn found_done(&self, args: String, _: Recovery) -> ToolResult {
        parse(&args).map_or_else(|failed| failed, |(path, content)| ToolResult::ok(said(&path, content.len())))
    }
}

fn said(path: &str, bytes: usize) -> String {
    format!("wrote {bytes} bytes to {path}")
}
