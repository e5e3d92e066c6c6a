//! `edit`: replaces an exact piece of a file's text.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::Hash;
use relive_journal::recovery::{Finding, Recovery};
use serde_json::{Value, json};

use super::args::Args;
use super::beneath::Refused;
use super::replace::{self, Change, FILE_MAX};
use crate::tool::{Context, Tool, ToolResult};

#[derive(Debug)]
pub(super) struct Edit;

#[derive(Debug, Clone)]
struct Wanted {
    path: String,
    old: String,
    new: String,
    which: Which,
}

/// Which occurrences of the old text are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    TheOnlyOne,
    All,
}

fn parse(args: &str) -> Result<Wanted, ToolResult> {
    let mut args = Args::parse("edit", args, &["path", "old", "new", "all"])?;
    let (path, old, new) = (args.text("path")?, args.text("old")?, args.text("new")?);
    if old.is_empty() {
        return Err(ToolResult::failed("edit: `old` must not be empty; to write a new file, use write"));
    }
    if old == new {
        return Err(ToolResult::failed("edit: `old` and `new` are the same"));
    }
    let which = if args.flag("all")? { Which::All } else { Which::TheOnlyOne };
    Ok(Wanted { path, old, new, which })
}

impl Wanted {
    fn apply(&self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, Refused> {
        let path = &self.path;
        let bytes = bytes.ok_or_else(|| Refused::Missing(path.clone()))?;
        let said = |text: String| Err(Refused::Said(text));
        let Ok(text) = String::from_utf8(bytes) else { return said(format!("`{path}` is not text: not valid UTF-8")) };
        let found = text.matches(&self.old).count();
        match (found, self.which) {
            (0, _) => {
                return said(format!("`old` is not in `{path}`; it must match exactly, spaces and line ends too"));
            }
            (1, _) | (_, Which::All) => {}
            (_, Which::TheOnlyOne) => {
                return said(format!(
                    "`old` is in `{path}` {found} times; give more of the text around it, or set all"
                ));
            }
        }
        let length = text.len() as u128 - (found * self.old.len()) as u128 + found as u128 * self.new.len() as u128;
        if length > FILE_MAX as u128 {
            return said(format!("`{path}` would be larger than {FILE_MAX} bytes"));
        }
        Ok(text.replace(&self.old, &self.new).into_bytes())
    }

    fn said(&self) -> String {
        format!("edited {}", self.path)
    }
}

impl Tool for Edit {
    fn name(&self) -> &'static str {
        "edit"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "edit",
            "description": "Replace an exact piece of text in a file in the working directory. It must occur once, unless `all` is true.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "From the working directory, or absolute inside it."},
                    "old": {"type": "string", "description": "The text to replace, exactly as it is in the file."},
                    "new": {"type": "string", "description": "What it becomes."},
                    "all": {"type": "boolean", "description": "Replace it everywhere in the file."}
                },
                "required": ["path", "old", "new"],
                "additionalProperties": false
            }
        })
    }

    fn prepare(&self, context: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        async move {
            let wanted = parse(&args)?;
            let cwd = context.cwd.clone();
            super::reading(&context, move |directory, leash| {
                let path = directory.relative(&wanted.path)?;
                let bytes = replace::look(directory, leash, &path)?;
                let before = bytes.as_deref().map(Hash::of);
                let after = Some(Hash::of(&wanted.apply(bytes)?));
                Ok(Recovery::Check { path: cwd.join(path), before, after })
            })
            .await
        }
        .boxed()
    }

    fn run(&self, context: Context, args: String, recovery: Recovery, key: String) -> BoxFuture<'static, ToolResult> {
        async move {
            let Recovery::Check { before, after, .. } = recovery else { return super::foreign_recovery("edit") };
            let wanted = match parse(&args) {
                Ok(wanted) => wanted,
                Err(failed) => return failed,
            };
            let done = wanted.said();
            let replaced = super::writing(&context, move |directory, leash| {
                let path = directory.relative(&wanted.path)?;
                let change = Change { before, after, key: &key };
                replace::replace(directory, leash, &path, change, |bytes| wanted.apply(bytes))
            });
            replace::result(replaced.await, &done)
        }
        .boxed()
    }

    fn look(&self, context: Context, recovery: Recovery, _: String) -> BoxFuture<'static, Finding> {
        replace::find(context, recovery).boxed()
    }

    fn found_done(&self, args: String, _: Recovery) -> ToolResult {
        parse(&args).map_or_else(|failed| failed, |wanted| ToolResult::ok(wanted.said()))
    }
}
