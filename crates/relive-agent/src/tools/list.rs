//! `list`: the names in a directory.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::recovery::Recovery;
use serde_json::{Value, json};

use super::args::Args;
use super::beneath::{Directory, Kind, Refused, entries};
use super::cancel::Leash;
use crate::tool::{Context, Patience, Tool, ToolResult};

/// How many names a model is shown.
const SHOWN_MAX: usize = 1000;
/// How many names are sorted and counted.
const COUNTED_MAX: usize = 100_000;

#[derive(Debug)]
pub(super) struct List;

fn parse(args: &str) -> Result<String, ToolResult> {
    let mut args = Args::parse("list", args, &["path"])?;
    Ok(args.optional_text("path")?.unwrap_or_else(|| ".".to_owned()))
}

impl Tool for List {
    fn name(&self) -> &'static str {
        "list"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "list",
            "description": "List a directory below the working directory, sorted, one name a line. Directories end in `/`, symbolic links in `@`.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "The directory; the working directory itself if absent."}
                },
                "additionalProperties": false
            }
        })
    }

    fn patience(&self) -> Patience {
        Patience::Read
    }

    fn prepare(&self, _: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        super::rerun(parse(&args))
    }

    fn run(&self, context: Context, args: String, _: Recovery, _: String) -> BoxFuture<'static, ToolResult> {
        async move {
            let path = match parse(&args) {
                Ok(path) => path,
                Err(failed) => return failed,
            };
            match super::reading(&context, move |directory, leash| list(directory, leash, &path)).await {
                Ok(text) => ToolResult::ok(text),
                Err(failed) => failed,
            }
        }
        .boxed()
    }
}

fn list(directory: &Directory, leash: &Leash, path: &str) -> Result<String, Refused> {
    let path = directory.relative(path)?;
    let shown = path.display().to_string();
    let (found, more) = entries(&directory.directory(&path)?, COUNTED_MAX, &shown, leash)?;
    if found.is_empty() {
        return Ok("[the directory is empty]".to_owned());
    }
    let mut text = String::new();
    for (name, kind) in found.iter().take(SHOWN_MAX) {
        text.push_str(&name.to_string_lossy());
        match kind {
            Kind::Directory => text.push('/'),
            Kind::Link => text.push('@'),
            Kind::File | Kind::Other => {}
        }
        text.push('\n');
    }
    if found.len() > SHOWN_MAX {
        let of = if more { format!("more than {COUNTED_MAX}") } else { found.len().to_string() };
        text.push_str(&format!("[cut: the first {SHOWN_MAX} of {of} names]\n"));
    }
    Ok(text)
}
