//! What an agent is told and given at its start, from the request and from the files beside it.
//!
//! Read once, by the daemon, so that every client gets the same; then it stands in `process-meta.json` and no edit of a
//! file changes it. What is said in the request comes before the file of the agent. `AGENTS.md` of the working directory is
//! added to whatever the system prompt is. No file of the working directory is followed out of it: whoever works in a
//! directory of somebody else's does not send their own files to a model. Everything here blocks.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use relive_config::AgentFile;
use relive_core::{ErrorCode, Limits, Usd};
use relive_journal::Instructions;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// What an agent is told if nobody says anything else.
const SYSTEM_PROMPT: &str = "You are an agent that works on its own in the current directory. Use the tools to do what \
                             you are asked, check your work, and call `done` when it is finished.";
const FOLDER_FILE: &str = "AGENTS.md";
/// How much of `AGENTS.md` is taken.
const FOLDER_FILE_MAX: u64 = 64 << 10;
/// The longest file of an agent.
const AGENT_FILE_MAX: u64 = 1 << 20;

/// What an agent is told and given.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) model: Option<String>,
    pub(crate) system_prompt: String,
    /// The definitions of its tools, a JSON array.
    pub(crate) tools: Box<RawValue>,
    pub(crate) limits: Limits,
    pub(crate) files: Vec<Instructions>,
    /// What is there and was not taken, for a person to know.
    pub(crate) warning: Option<String>,
}

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) cwd: PathBuf,
    /// Where `config.yaml` is.
    pub(crate) config: PathBuf,
    pub(crate) agent: Option<String>,
    pub(crate) system_prompt: Option<String>,
}

/// Reads all there is.
pub(crate) fn gather(asked: Sources) -> Result<Gathered> {
    let Sources { cwd, config, agent, system_prompt } = asked;
    let mut files = Vec::new();
    let file = match agent {
        Some(name) => {
            let (file, read) = agent_file(&cwd, &config, &name)?;
            files.push(read);
            file
        }
        None => AgentFile::default(),
    };
    let mut prompt = system_prompt.or(file.system_prompt).unwrap_or_else(|| SYSTEM_PROMPT.to_owned());
    let mut warning = None;
    match folder_file(&cwd) {
        Ok(Some((text, read))) => {
            prompt.push_str(&format!("\n\nThe instructions of this directory ({FOLDER_FILE}):\n\n{text}"));
            files.push(read);
        }
        Ok(None) => {}
        Err(error) => warning = Some(format!("{}: not taken: {error}", cwd.join(FOLDER_FILE).display())),
    }
    let limits = Limits {
        max_steps: file.limits.max_steps,
        max_tokens: file.limits.max_tokens,
        max_cost_usd: file.limits.max_cost_usd.and_then(Usd::from_dollars),
        timeout_ms: file.limits.timeout.as_deref().and_then(millis),
    };
    let tools = definitions(file.tools.as_deref())?;
    Ok(Gathered { model: file.model, system_prompt: prompt, tools, limits, files, warning })
}

fn millis(duration: &str) -> Option<u64> {
    u64::try_from(relive_types::duration::parse(duration).ok()?.as_millis()).ok()
}

/// The definitions of these tools, or of all there are.
fn definitions(names: Option<&[String]>) -> Result<Box<RawValue>> {
    let is_given = |name: &str| names.is_none_or(|names| names.iter().any(|given| given == name));
    let tools = relive_agent::tools::all();
    let definitions: Vec<_> = tools.iter().filter(|tool| is_given(tool.name())).map(|tool| tool.definition()).collect();
    Ok(serde_json::value::to_raw_value(&definitions).map_err(io::Error::from)?)
}

/// The names of the tools whose definitions these are.
pub(crate) fn tool_names(definitions: &RawValue) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    let named: Vec<Named> = serde_json::from_str(definitions.get()).unwrap_or_default();
    named.into_iter().map(|tool| tool.name).collect()
}

fn agent_file(cwd: &Path, config: &Path, name: &str) -> Result<(AgentFile, Instructions)> {
    let plain = name.chars().all(|letter| letter.is_alphanumeric() || "._-".contains(letter));
    if name.is_empty() || name.starts_with('.') || !plain {
        let message = format!("`{name}` cannot be the name of an agent: letters, digits, `.`, `_` and `-`");
        return Err(Error::new(ErrorCode::Invalid, message));
    }
    for (directory, inside) in places(cwd, config) {
        let path = directory.join(format!("{name}.yaml"));
        let opened = match path.strip_prefix(cwd) {
            Ok(below) if inside => open_beneath(cwd, below),
            Ok(_) | Err(_) => crate::user_file::open(&path),
        };
        let read = match opened {
            Ok(file) => read(file, AGENT_FILE_MAX),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => Err(error),
        };
        let failed = |text: String| Error::new(ErrorCode::Invalid, text);
        let shown = path.display();
        let (text, bytes, cut) = read.map_err(|error| failed(format!("{shown}: cannot be read: {error}")))?;
        if cut {
            return Err(failed(format!("{shown}: longer than {AGENT_FILE_MAX} bytes")));
        }
        let tools = relive_agent::tools::all();
        let tools: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
        let file = AgentFile::parse(&path, &text, &tools).map_err(|error| failed(error.to_string()))?;
        return Ok((file, Instructions { path: path.display().to_string(), bytes, cut: false }));
    }
    Err(no_agent(cwd, config, name))
}

/// Where agents are looked for, and whether that is in the working directory.
fn places(cwd: &Path, config: &Path) -> [(PathBuf, bool); 3] {
    let beside = config.parent().unwrap_or(Path::new("/"));
    [(cwd.join(".relive/agents"), true), (cwd.join("agents"), true), (beside.join("agents"), false)]
}

fn no_agent(cwd: &Path, config: &Path, name: &str) -> Error {
    let mut names = Vec::new();
    let places = places(cwd, config);
    for entry in places.iter().filter_map(|(directory, _)| std::fs::read_dir(directory).ok()).flatten().flatten() {
        let file = entry.file_name();
        names.extend(file.to_str().and_then(|file| file.strip_suffix(".yaml")).map(str::to_owned));
    }
    names.sort();
    names.dedup();
    let hint = match relive_types::suggest::closest(name, names.iter().map(String::as_str)) {
        Some(found) => format!("did you mean `{found}`? There are: {}", names.join(", ")),
        None if names.is_empty() => "there are none: write agents/NAME.yaml here or beside config.yaml".to_owned(),
        None => format!("there are: {}", names.join(", ")),
    };
    let directories: Vec<String> = places.iter().map(|(directory, _)| directory.display().to_string()).collect();
    Error::new(ErrorCode::Invalid, format!("no agent `{name}` in {}", directories.join(", "))).with_hint(hint)
}

/// `AGENTS.md` of the working directory, if there is one.
fn folder_file(cwd: &Path) -> io::Result<Option<(String, Instructions)>> {
    let file = match open_beneath(cwd, Path::new(FOLDER_FILE)) {
        // That there is no working directory is for the tools to say.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::XDEV.raw_os_error()) => {
            return Err(io::Error::other("it leads out of the directory"));
        }
        opened => opened?,
    };
    let (text, bytes, cut) = read(file, FOLDER_FILE_MAX)?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let text = if cut { format!("{text}\n(the rest of {FOLDER_FILE} was left out)") } else { text };
    Ok(Some((text, Instructions { path: cwd.join(FOLDER_FILE).display().to_string(), bytes, cut })))
}

/// The text of a file up to so many bytes, its whole length, and whether that is more.
fn read(file: File, max: u64) -> io::Result<(String, u64, bool)> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    let cut = metadata.len() > max;
    if cut && let Some(end) = std::str::from_utf8(&bytes).err().filter(|error| error.error_len().is_none()) {
        // In the middle of a letter.
        bytes.truncate(end.valid_up_to());
    }
    Ok((String::from_utf8_lossy(&bytes).into_owned(), metadata.len(), cut))
}

/// Opens a file below a directory that no link leads out of. Not blocking, so that a pipe can be refused.
fn open_beneath(directory: &Path, below: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(directory, below, flags, Mode::empty(), ResolveFlags::BENEATH)?.into())
}
