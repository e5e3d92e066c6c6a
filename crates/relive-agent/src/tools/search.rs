//! `search`: the lines that hold a text, in a file or in everything below a folder.
//!
//! No symbolic link is followed below the place where it begins. Everything it reads and shows is bounded.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::recovery::Recovery;
use serde_json::{Value, json};

use super::args::Args;
use super::beneath::{Folder, Kind, Refused, entries, open_entry};
use crate::tool::{Context, Tool, ToolResult};

/// How many lines a model is shown.
const LINES_MAX: usize = 200;
/// How much of each.
const LINE_CHARS_MAX: usize = 300;
/// Files above this are passed over.
const FILE_MAX: u64 = 1024 * 1024;
/// How much is read in all.
const BYTES_MAX: u64 = 512 * 1024 * 1024;
/// How many files and folders are looked at.
const ENTRIES_MAX: usize = 50_000;
/// How deep, which is also how many folders are open at once.
const DEPTH_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Search;

fn parse(args: &str) -> Result<(String, String), ToolResult> {
    let mut args = Args::parse("search", args, &["pattern", "path"])?;
    let pattern = args.text("pattern")?;
    if pattern.is_empty() {
        return Err(ToolResult::failed("search: `pattern` must not be empty"));
    }
    Ok((pattern, args.optional_text("path")?.unwrap_or_else(|| ".".to_owned())))
}

impl Tool for Search {
    fn name(&self) -> &'static str {
        "search"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "search",
            "description": "Find the lines that contain a text, in a file or in all files below a folder. Answers `path:line:text`, at most 200 lines. Passes over binary files, files above 1 MB, symbolic links and `.git`.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "The exact text; not a regular expression."},
                    "path": {"type": "string", "description": "A file or folder; the working folder if absent."}
                },
                "required": ["pattern"],
                "additionalProperties": false
            }
        })
    }

    fn prepare(&self, _: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        super::rerun(parse(&args))
    }

    fn run(&self, context: Context, args: String, _: Recovery, _: String) -> BoxFuture<'static, ToolResult> {
        async move {
            let (pattern, path) = match parse(&args) {
                Ok(wanted) => wanted,
                Err(failed) => return failed,
            };
            match super::in_folder(&context, move |folder| search(folder, pattern, &path)).await {
                Ok(text) => ToolResult::ok(text),
                Err(failed) => failed,
            }
        }
        .boxed()
    }
}

fn search(folder: &Folder, pattern: String, path: &str) -> Result<String, Refused> {
    let path = folder.relative(path)?;
    let mut hunt = Hunt { pattern, found: String::new(), lines: 0, bytes: 0, entries: 0, cut: None };
    if folder.kind(&path)? == Kind::Folder {
        let open = folder.folder(&path)?;
        let shown = if path == Path::new(".") { PathBuf::new() } else { path };
        hunt.folder(&open, &shown, 0)?;
    } else {
        let (file, stat) = folder.file(&path)?;
        if u64::try_from(stat.st_size).unwrap_or(0) > FILE_MAX {
            return Err(Refused::Said(format!("`{}` is larger than {FILE_MAX} bytes; use read", path.display())));
        }
        hunt.file(file, &path);
    }
    if hunt.found.is_empty() {
        hunt.found.push_str("[nothing found]\n");
    }
    if let Some(cut) = hunt.cut {
        hunt.found.push_str(&format!("[cut: {cut}; search in a smaller folder]\n"));
    }
    Ok(hunt.found)
}

struct Hunt {
    pattern: String,
    found: String,
    lines: usize,
    bytes: u64,
    entries: usize,
    /// Why it was ended early.
    cut: Option<&'static str>,
}

impl Hunt {
    fn folder(&mut self, folder: &OwnedFd, path: &Path, depth: usize) -> Result<(), Refused> {
        let left = ENTRIES_MAX - self.entries;
        let (found, more) = entries(folder, left, &path.display().to_string())?;
        for (name, kind) in found {
            if self.cut.is_some() {
                return Ok(());
            }
            self.entries += 1;
            if self.entries == ENTRIES_MAX {
                self.cut = Some("too many files");
            }
            let wanted = match kind {
                Kind::Folder => name != ".git",
                Kind::File => true,
                Kind::Link | Kind::Other => false,
            };
            // What is gone or forbidden by now is passed over.
            let Some(fd) = wanted.then(|| open_entry(folder, &name).ok()).flatten() else { continue };
            let path = path.join(name);
            // What it is by now, not what the folder said.
            match rustix::fs::fstat(&fd).map(|stat| Kind::of(&stat)) {
                Ok(Kind::File) => self.file(File::from(fd), &path),
                Ok(Kind::Folder) if depth + 1 < DEPTH_MAX => {
                    // A folder that cannot be read is passed over too.
                    let _ = self.folder(&fd, &path, depth + 1);
                }
                Ok(Kind::Folder) => self.cut = Some("too many folders inside each other"),
                Ok(Kind::Link | Kind::Other) | Err(_) => {}
            }
        }
        if more {
            self.cut = Some("too many files");
        }
        Ok(())
    }

    fn file(&mut self, file: File, path: &Path) {
        let mut bytes = Vec::new();
        if file.take(FILE_MAX + 1).read_to_end(&mut bytes).is_err() {
            return;
        }
        self.bytes += bytes.len() as u64;
        if self.bytes > BYTES_MAX {
            self.cut = Some("too many bytes");
        }
        if bytes.len() as u64 > FILE_MAX || bytes.contains(&0) {
            return;
        }
        let Ok(text) = String::from_utf8(bytes) else { return };
        let (mut number, mut line_start, mut shown) = (1, 0, None);
        for (place, _) in text.match_indices(&self.pattern) {
            number += text[line_start..place].matches('\n').count();
            line_start = text[..place].rfind('\n').map_or(0, |newline| newline + 1);
            if shown == Some(number) {
                continue;
            }
            shown = Some(number);
            if self.lines == LINES_MAX {
                self.cut = Some("more than 200 lines");
                return;
            }
            self.lines += 1;
            let line = text[line_start..].lines().next().unwrap_or_default();
            let short: String = line.chars().take(LINE_CHARS_MAX).collect();
            let dots = if short.len() < line.len() { "..." } else { "" };
            // Writing to a string does not fail.
            let _ = writeln!(self.found, "{}:{number}:{short}{dots}", path.display());
        }
    }
}
