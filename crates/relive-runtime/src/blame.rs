//! Which process, step and prompt wrote a line.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_api::{Blame, BlameRequest, BlamedLine, ListQuery, Process};
use relive_core::{ErrorCode, Timestamp, Uuid};
use relive_journal::files::FileHistory;
use relive_workspace::{BlameVersion, FilePath};

use crate::error::{Error, Result};
use crate::pools::FILE_WITHIN;
use crate::runtime::Runtime;
use crate::workspaces::from_record;

/// The longest file that is blamed.
const FILE_MAX: u64 = 16 << 20;
/// So many processes of a directory are looked at, the newest first.
const PROCESSES_MAX: usize = 1_000;

/// A version of a directory, and whose it is.
#[derive(Debug, Clone)]
struct Version {
    at: Timestamp,
    files: BlameVersion,
    /// Absent where it was there before, or is somebody else's work.
    author: Option<Author>,
}

#[derive(Debug, Clone)]
struct Author {
    uuid: Uuid,
    step: u32,
    /// The first step that may have written it, if no snapshot was taken after that.
    first: Option<u32>,
    at: Timestamp,
    intent: String,
}

impl Runtime {
    /// Says of the lines of a file which process wrote them.
    pub async fn blame(self: &Arc<Self>, request: BlameRequest) -> Result<Blame> {
        let path = crate::rewind::unquoted(&request.path);
        if !path.is_absolute() {
            return Err(Error::new(ErrorCode::Invalid, format!("`{}` is not an absolute path", request.path)));
        }
        let looked_at = path.clone();
        if self.pools.files.run_within(FILE_WITHIN, move || looked_at.is_dir()).await? {
            let message = format!("{} is a directory: name a file in it", path.display());
            return Err(Error::new(ErrorCode::Invalid, message));
        }
        for directory in path.ancestors().skip(1) {
            let versions = self.versions(directory, &path).await?;
            if versions.is_empty() {
                continue;
            }
            let Ok(inside) = path.strip_prefix(directory) else { continue };
            let inside = FilePath::from_bytes(inside.as_os_str().as_bytes())
                .map_err(|error| Error::new(ErrorCode::Invalid, error.to_string()))?;
            if let Some(blame) = self.blame_versions(versions, inside, path.clone(), request.line).await? {
                return Ok(blame);
            }
        }
        let message = format!("no snapshot of {} is known", path.display());
        Err(Error::new(ErrorCode::NotFound, message).with_hint("relive ps -a"))
    }

    /// Every version of a directory that a process saw, and of the copies that were merged into it, first to last.
    async fn versions(self: &Arc<Self>, directory: &Path, file: &Path) -> Result<Vec<Version>> {
        let Some(cwd) = directory.to_str() else { return Ok(Vec::new()) };
        let inside =
            file.strip_prefix(directory).ok().and_then(|path| FilePath::from_bytes(path.as_os_str().as_bytes()).ok());
        let inside = inside.unwrap_or_default().to_string();
        let mut versions = Vec::new();
        for process in self.begun_below(cwd).await?.into_iter().filter(|process| Path::new(&process.cwd) == directory) {
            let Ok(history) = self.file_history(process.uuid).await else { continue };
            versions.extend(versions_of(&process, &history, &inside, None));
        }
        let own = self.workspaces.own_root().display().to_string();
        for (copy, process) in self.begun_below(&own).await?.into_iter().enumerate() {
            let Ok(history) = self.file_history(process.uuid).await else { continue };
            let merges = history.merges.iter().filter(|merge| merge.into == cwd);
            let merged = merges.filter_map(|merge| {
                let files = BlameVersion { merges: Some(copy), ..from_record(merge.merged?).into() };
                Some(Version { at: merge.at, files, author: None })
            });
            let merged: Vec<Version> = merged.collect();
            if !merged.is_empty() {
                versions.extend(versions_of(&process, &history, &inside, Some(copy)));
                versions.extend(merged);
            }
        }
        versions.sort_by_key(|version| version.at);
        Ok(versions)
    }

    async fn begun_below(self: &Arc<Self>, cwd: &str) -> Result<Vec<Process>> {
        let query = ListQuery {
            all: true,
            cwd: Some(cwd.to_owned()),
            newest: true,
            limit: Some(PROCESSES_MAX),
            ..ListQuery::default()
        };
        Ok(self.page(query).await?.processes)
    }

    async fn blame_versions(
        &self,
        versions: Vec<Version>,
        inside: FilePath,
        file: PathBuf,
        line: Option<u64>,
    ) -> Result<Option<Blame>> {
        let workspaces = self.workspaces.clone();
        let blamed = self.pools.reads.run(move || {
            let known: Vec<BlameVersion> = versions.iter().map(|version| version.files).collect();
            let lines = match workspaces.store()?.blame(&known, &inside) {
                Err(relive_workspace::Error::NoSuchPath { .. }) => return Ok(None),
                Err(relive_workspace::Error::NotText { .. }) => {
                    let message = format!("{} is not a text, so it has no lines that could be blamed", file.display());
                    return Err(Error::new(ErrorCode::Invalid, message));
                }
                lines => lines?,
            };
            let now = read(&file);
            let text: String = lines.iter().map(|line| format!("{}\n", line.text)).collect();
            let changed_since = now.is_none_or(|now| now.trim_end_matches('\n') != text.trim_end_matches('\n'));
            if let Some(line) = line.filter(|line| *line == 0 || *line > lines.len() as u64) {
                let message = format!("{} has no line {line}: its lines are 1 to {}", file.display(), lines.len());
                return Err(Error::new(ErrorCode::Invalid, message));
            }
            let numbered = (1..).zip(lines).filter(|(number, _)| line.is_none_or(|line| line == *number));
            let lines = numbered.map(|(number, line)| blamed_line(number, line, &versions)).collect();
            Ok::<_, Error>(Some(Blame { lines, changed_since }))
        });
        blamed.await?
    }
}

/// The versions that a process saw: as they were taken, which is not when they were recorded.
fn versions_of(process: &Process, history: &FileHistory, inside: &str, copy: Option<usize>) -> Vec<Version> {
    let version = |at, files, author| {
        let files = BlameVersion { copy, ..from_record(files).into() };
        Version { at, files, author }
    };
    let (mut versions, mut unseen_from) = (Vec::new(), None);
    for state in history.states.iter().filter(|state| !state.is_of_origin) {
        if let Some(unseen) = state.snapshot.as_ref().filter(|snapshot| snapshot.is_unseen()) {
            unseen_from.get_or_insert(unseen.after);
            continue;
        }
        let first = unseen_from.take();
        let Some(snapshot) = &state.snapshot else {
            versions.push(version(state.at, state.files, None));
            continue;
        };
        let at = snapshot.taken.unwrap_or(state.at);
        // What is new in it before the work of the process is the work of others.
        versions.extend(snapshot.since.map(|since| version(at, since, None)));
        let is_listed = snapshot.foreign_count > snapshot.foreign.len() as u64
            || snapshot.foreign.iter().any(|foreign| foreign == inside);
        let is_foreign = snapshot.since.is_none() && is_listed;
        if is_foreign && snapshot.foreign_count < snapshot.changed {
            // Another process's: its own snapshot says so.
            continue;
        }
        let author = (snapshot.base.is_some() && !is_foreign).then(|| Author {
            uuid: process.uuid,
            step: snapshot.after,
            first: first.filter(|first| *first < snapshot.after),
            at: state.at,
            intent: process.intent.clone(),
        });
        versions.push(version(at, state.files, author));
    }
    versions
}

fn blamed_line(number: u64, line: relive_workspace::BlamedLine, versions: &[Version]) -> BlamedLine {
    let author = versions.get(line.version).and_then(|version| version.author.as_ref());
    BlamedLine {
        line: number,
        uuid: author.map(|author| author.uuid),
        step: author.filter(|author| author.first.is_none()).map(|author| author.step),
        steps: author.and_then(|author| Some((author.first?, author.step))),
        at: author.map(|author| author.at),
        intent: author.map(|author| author.intent.clone()),
        text: line.text,
    }
}

/// The file as it is, as far as it can be compared.
fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    crate::user_file::open(path).ok()?.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
