//! `read`: the text of a file, or some of its lines.

use std::io::{self, BufRead, Read as _};
use std::path::Path;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::recovery::Recovery;
use serde_json::{Value, json};

use super::args::Args;
use super::beneath::{Directory, Refused};
use super::cancel::Leash;
use super::hot;
use crate::tool::{Context, Patience, Tool, ToolResult};

/// How much a model is shown at once.
const SHOWN_MAX: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Read;

#[derive(Debug, Clone)]
struct Wanted {
    path: String,
    /// The number of the first line, from 1.
    offset: u64,
    /// How many lines.
    limit: u64,
}

fn parse(args: &str) -> Result<Wanted, ToolResult> {
    let mut args = Args::parse("read", args, &["path", "offset", "limit"])?;
    Ok(Wanted {
        path: args.text("path")?,
        offset: args.optional_count("offset")?.unwrap_or(1).max(1),
        limit: args.optional_count("limit")?.unwrap_or(u64::MAX),
    })
}

impl Tool for Read {
    fn name(&self) -> &'static str {
        "read"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "read",
            "description": "Read a text file in the working directory. At most 256 KB are shown; the answer says if there is more and how to continue.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "From the working directory, or absolute inside it."},
                    "offset": {"type": "integer", "minimum": 1, "description": "The first line to show, counted from 1."},
                    "limit": {"type": "integer", "minimum": 0, "description": "How many lines to show."}
                },
                "required": ["path"],
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
            let wanted = match parse(&args) {
                Ok(wanted) => wanted,
                Err(failed) => return failed,
            };
            // With private paths, each path is checked on a thread, and there they are found.
            let links = super::links_of(&context);
            let at_hand =
                context.private.are_known_to_be_none().then(|| hot::read(&context.cwd, links, &wanted.path)).flatten();
            let read = match at_hand {
                Some((path, bytes)) => {
                    text_of(bytes.as_slice(), &wanted, &path).map_err(|refused| ToolResult::failed(refused.to_string()))
                }
                None => super::reading(&context, move |directory, leash| read(directory, leash, &wanted)).await,
            };
            read.map_or_else(|failed| failed, ToolResult::ok)
        }
        .boxed()
    }
}

fn read(directory: &Directory, leash: &Leash, wanted: &Wanted) -> Result<String, Refused> {
    let path = directory.relative(&wanted.path)?;
    let (file, _) = directory.file(&path)?;
    // The next file may be in memory.
    hot::learn_mounts();
    text_of(leash.reader(file), wanted, &path)
}

fn text_of(reader: impl BufRead, wanted: &Wanted, path: &Path) -> Result<String, Refused> {
    let lines = read_lines(reader, wanted.offset, wanted.limit)
        .map_err(|error| Refused::Io { path: path.display().to_string(), error })?;
    show(lines, wanted, path)
}

struct Lines {
    bytes: Vec<u8>,
    /// The number of lines before them.
    skipped: u64,
    taken: u64,
    end: End,
}

enum End {
    OfFile,
    /// There are more lines than requested, or than are shown.
    More,
    /// In the middle of a line that is longer than the limit.
    OfRoom,
}

fn read_lines(mut reader: impl BufRead, offset: u64, limit: u64) -> io::Result<Lines> {
    let mut lines = Lines { bytes: Vec::new(), skipped: 0, taken: 0, end: End::OfFile };
    while lines.skipped + 1 < offset {
        if reader.skip_until(b'\n')? == 0 {
            return Ok(lines);
        }
        lines.skipped += 1;
    }
    loop {
        if reader.fill_buf()?.is_empty() {
            return Ok(lines);
        }
        let room = SHOWN_MAX - lines.bytes.len();
        if lines.taken == limit || room == 0 {
            lines.end = End::More;
            return Ok(lines);
        }
        let start = lines.bytes.len();
        (&mut reader).take(room as u64).read_until(b'\n', &mut lines.bytes)?;
        let whole = lines.bytes.ends_with(b"\n") || reader.fill_buf()?.is_empty();
        if whole {
            lines.taken += 1;
        } else if lines.taken > 0 {
            lines.bytes.truncate(start);
            lines.end = End::More;
            return Ok(lines);
        } else {
            lines.end = End::OfRoom;
            return Ok(lines);
        }
    }
}

fn show(lines: Lines, wanted: &Wanted, path: &Path) -> Result<String, Refused> {
    let path = path.display();
    let Lines { mut bytes, skipped, taken, end } = lines;
    if matches!(end, End::OfRoom) {
        // The cut may have gone through a character.
        let spare = bytes.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
        bytes.truncate(bytes.len() - spare.min(3));
    }
    if bytes.contains(&0) {
        return Err(Refused::Said(format!("`{path}` is not text: it is binary")));
    }
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let line =
            skipped + 1 + error.as_bytes()[..error.utf8_error().valid_up_to()].split(|b| *b == b'\n').count() as u64
                - 1;
        Refused::Said(format!("`{path}` is not text: line {line} is not valid UTF-8"))
    })?;
    match end {
        End::OfFile if text.is_empty() && wanted.offset == 1 => text.push_str("[the file is empty]"),
        End::OfFile if text.is_empty() => {
            text = format!("[the file has {skipped} lines; line {} is past its end]", wanted.offset);
        }
        End::OfFile => {}
        End::More => {
            let last = skipped + taken;
            text.push_str(&format!("\n[cut after line {last}; continue with offset {}]", last + 1));
        }
        End::OfRoom => {
            text.push_str(&format!("\n[cut: line {} is longer than {SHOWN_MAX} bytes]", skipped + 1));
        }
    }
    Ok(text)
}
