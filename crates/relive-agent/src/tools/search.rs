//! `search`: the lines that contain a text, in a file or in everything below a directory.
//!
//! Symbolic links below the start are not followed. Everything it reads and shows is limited, and its time is linear in
//! the bytes it reads.

use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::recovery::Recovery;
use serde_json::{Value, json};

use super::args::Args;
use super::beneath::{Directory, Kind, Refused, entries, open_entry};
use super::cancel::Leash;
use crate::tool::{Context, Patience, Tool, ToolResult};

/// How many lines a model is shown.
const LINES_MAX: usize = 200;
/// How much of each line is shown.
const LINE_CHARS_MAX: usize = 300;
/// How much is shown in total: paths can be long, too.
const SHOWN_MAX: usize = 256 * 1024;
/// Larger files are skipped.
const FILE_MAX: u64 = 1024 * 1024;
/// How much is read in total.
const BYTES_MAX: u64 = 512 * 1024 * 1024;
/// How many files and directories are examined.
const ENTRIES_MAX: usize = 50_000;
/// How many directories are open at once, one inside the other.
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
            "description": "Find the lines that contain a text, in a file or in all files below a directory. Answers `path:line:text`, at most 200 lines. Passes over binary files, files above 1 MB, symbolic links and `.git`.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "The exact text; not a regular expression."},
                    "path": {"type": "string", "description": "A file or directory; the working directory if absent."}
                },
                "required": ["pattern"],
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
            let (pattern, path) = match parse(&args) {
                Ok(wanted) => wanted,
                Err(failed) => return failed,
            };
            match super::reading(&context, move |directory, leash| search(directory, leash, pattern.clone(), &path))
                .await
            {
                Ok(text) => ToolResult::ok(text),
                Err(failed) => failed,
            }
        }
        .boxed()
    }
}

fn search(directory: &Directory, leash: &Leash, pattern: String, path: &str) -> Result<String, Refused> {
    let path = directory.relative(path)?;
    let mut hunt =
        Hunt { root: directory, leash, pattern, found: String::new(), lines: 0, bytes: 0, entries: 0, cut: None };
    if directory.kind(&path)? == Kind::Directory {
        let open = directory.directory(&path)?;
        let shown = if path == Path::new(".") { PathBuf::new() } else { path };
        hunt.directory(&open, &shown, 0)?;
    } else {
        let (file, stat) = directory.file(&path)?;
        if u64::try_from(stat.st_size).unwrap_or(0) > FILE_MAX {
            return Err(Refused::Said(format!("`{}` is larger than {FILE_MAX} bytes; use read", path.display())));
        }
        hunt.file(file, &path)?;
    }
    if hunt.found.is_empty() {
        hunt.found.push_str("[nothing found]\n");
    }
    if let Some(cut) = hunt.cut {
        hunt.found.push_str(&format!("[cut: {cut}; search in a smaller directory]\n"));
    }
    Ok(hunt.found)
}

struct Hunt<'a> {
    root: &'a Directory,
    leash: &'a Leash,
    pattern: String,
    found: String,
    lines: usize,
    bytes: u64,
    entries: usize,
    /// The reason why it ended early.
    cut: Option<&'static str>,
}

impl Hunt<'_> {
    fn directory(&mut self, directory: &OwnedFd, path: &Path, depth: usize) -> Result<(), Refused> {
        let left = ENTRIES_MAX - self.entries;
        let (found, more) = match entries(directory, left, &path.display().to_string(), self.leash) {
            Ok(found) => found,
            // An unreadable directory is skipped, unless it is the start.
            Err(refused) if depth == 0 => return Err(refused),
            Err(_) => return self.leash.check(),
        };
        for (name, kind) in found {
            if self.cut.is_some() {
                return Ok(());
            }
            self.leash.check()?;
            self.entries += 1;
            if self.entries == ENTRIES_MAX {
                self.cut = Some("too many files");
            }
            let wanted = match kind {
                Kind::Directory => name != ".git",
                Kind::File => true,
                Kind::Link | Kind::Other => false,
            };
            // Entries that are gone or forbidden by now are skipped.
            let Some(fd) = wanted.then(|| open_entry(directory, &name).ok()).flatten() else { continue };
            let path = path.join(name);
            if self.root.is_private(&path) {
                continue;
            }
            // The entry may have been replaced since the directory was read.
            match rustix::fs::fstat(&fd).map(|stat| Kind::of(&stat)) {
                Ok(Kind::File) => self.file(File::from(fd), &path)?,
                Ok(Kind::Directory) if depth + 1 < DEPTH_MAX => self.directory(&fd, &path, depth + 1)?,
                Ok(Kind::Directory) => self.cut = Some("directories nested too deeply"),
                Ok(Kind::Link | Kind::Other) | Err(_) => {}
            }
        }
        if more {
            self.cut = Some("too many files");
        }
        Ok(())
    }

    fn file(&mut self, file: File, path: &Path) -> Result<(), Refused> {
        let Ok(bytes) = self.leash.read_all(file, FILE_MAX + 1) else { return self.leash.check() };
        self.bytes += bytes.len() as u64;
        if self.bytes > BYTES_MAX {
            self.cut = Some("too many bytes");
        }
        if bytes.len() as u64 > FILE_MAX || bytes.contains(&0) {
            return Ok(());
        }
        if let Ok(text) = String::from_utf8(bytes) {
            self.text(&text, path);
        }
        Ok(())
    }

    /// Shows each matching line once. No byte is examined more than a few times, however many matches a line has.
    fn text(&mut self, text: &str, path: &Path) {
        let (mut number, mut rest) = (1, text);
        while let Some(place) = rest.find(&self.pattern) {
            let before = &rest[..place];
            number += before.matches('\n').count();
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            let line_end = rest[place..].find('\n').map_or(rest.len(), |newline| place + newline);
            if !self.show(path, number, &rest[line_start..line_end]) {
                return;
            }
            number += 1;
            rest = rest.get(line_end + 1..).unwrap_or_default();
        }
    }

    fn show(&mut self, path: &Path, number: usize, line: &str) -> bool {
        if self.lines == LINES_MAX {
            self.cut = Some("more than 200 lines");
            return false;
        }
        if self.found.len() >= SHOWN_MAX {
            self.cut = Some("more than 256 KB");
            return false;
        }
        self.lines += 1;
        let line = line.strip_suffix('\r').unwrap_or(line);
        let end = line.char_indices().nth(LINE_CHARS_MAX).map_or(line.len(), |(end, _)| end);
        let dots = if end < line.len() { "..." } else { "" };
        // Writing to a string does not fail.
        let _ = writeln!(self.found, "{}:{number}:{}{dots}", path.display(), &line[..end]);
        true
    }
}
