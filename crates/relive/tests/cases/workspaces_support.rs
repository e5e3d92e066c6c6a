//! Agents that change files, and an oracle that reads a directory byte by byte.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::world::{Begun, World, begun};

/// Everything below a directory: permissions, and bytes or the target of a link.
pub(crate) fn look(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let (mut seen, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let bytes = if metadata.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else {
                fs::read(&path).unwrap()
            };
            seen.insert(path.strip_prefix(root).unwrap().to_owned(), (metadata.mode() & 0o7777, bytes));
        }
    }
    seen
}

/// A turn that runs a command.
pub(crate) fn shell(command: &str) -> String {
    let args = serde_json::json!({ "command": command });
    format!("  - calls: [{{name: shell, args: {args}}}]\n")
}

impl World {
    /// Runs an agent whose steps are these commands, and waits for its end.
    #[track_caller]
    pub(crate) fn run_commands(&self, commands: &[&str], flags: &[&str]) -> Begun {
        let process = self.begin_commands(commands, "  - text: over\n", flags);
        self.relive(&["wait", &process.uuid]).ok();
        self.await_retired(&process.uuid);
        process
    }

    /// Begins an agent whose steps are these commands, and then `last`.
    #[track_caller]
    pub(crate) fn begin_commands(&self, commands: &[&str], last: &str, flags: &[&str]) -> Begun {
        let turns: String = commands.iter().map(|command| shell(command)).collect();
        // Its script is not among the files it works on.
        let path = self.root().join(format!("script-{}.yaml", fs::read_dir(self.root()).unwrap().count()));
        fs::write(&path, format!("turns:\n{turns}{last}")).unwrap();
        // The commands leave copies beside the directory they work in, to be compared.
        self.run_model(&format!("script/{}", path.display()), &[&["-y", "--isolation", "none"], flags].concat())
    }

    /// Forks at the end of a step, and lets the fork do nothing more.
    #[track_caller]
    pub(crate) fn fork_at(&self, process: &Begun, step: u32, flags: &[&str]) -> (Begun, Value) {
        let step = step.to_string();
        let args = ["resume", "--fork", "--from-step", &step, "--max-steps", &step, "--json", &process.uuid];
        let told = self.relive(&[&args, flags].concat()).ok().json();
        let fork = begun(&told);
        self.relive(&["wait", &fork.uuid]);
        (fork, told)
    }

    #[track_caller]
    pub(crate) fn own(&self, process: &Begun) -> PathBuf {
        self.relive(&["workspace", "path", &process.uuid]).ok().stdout.trim().into()
    }
}
