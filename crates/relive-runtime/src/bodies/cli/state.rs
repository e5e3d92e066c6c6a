//! Where CLI agents keep their conversations, logins and settings: what a confined one may write besides its working
//! directory.
//!
//! The whole directory of a CLI is writable, because each version has other files in it. What its later runs execute, or take
//! for the words of the user, stays as it is: those runs may not be confined.

use std::path::{Path, PathBuf};

use relive_cli_agent::Dialect;
use relive_sandbox::{Fixed, Missing, State};
use relive_types::CliAgent;

use super::agents::dialect_of;
use super::route::program_of;

/// The directories of one CLI.
struct Known {
    /// The variable by which the user has put the first directory elsewhere.
    variable: Option<&'static str>,
    /// Below the home directory.
    directories: &'static [&'static str],
    /// Files in the first directory that stay as they are, with what is written to a missing one: what its later runs execute,
    /// or take for the words of the user.
    files: &'static [(&'static str, &'static str)],
    /// The same in the first directory if the variable names that.
    files_elsewhere: &'static [(&'static str, &'static str)],
    /// Directories in the first directory that stay as they are.
    subdirectories: &'static [&'static str],
    /// Files in the first directory that stay as they are. A missing one is made empty and read-only, so that the
    /// program ignores it.
    absent: &'static [&'static str],
    /// What its other runs execute while they run.
    private: &'static [&'static str],
}

const EMPTY_OBJECT: &str = "{}\n";

const CLAUDE: Known = Known {
    variable: Some("CLAUDE_CONFIG_DIR"),
    directories: &[".claude"],
    files: &[
        ("settings.json", EMPTY_OBJECT),
        ("settings.local.json", EMPTY_OBJECT),
        ("remote-settings.json", EMPTY_OBJECT),
        ("CLAUDE.md", ""),
    ],
    // Otherwise it is in the home directory, which is not writable.
    files_elsewhere: &[(".claude.json", EMPTY_OBJECT)],
    // The program itself may be in `local`.
    subdirectories: &[
        "agents",
        "commands",
        "hooks",
        "local",
        "output-styles",
        "plugins",
        "rules",
        "skills",
        "workflows",
    ],
    // An earlier name of `.claude.json`, which claude prefers, unless it is empty and nobody may write it.
    absent: &[".config.json"],
    private: &["session-env", "shell-snapshots"],
};

const CODEX: Known = Known {
    variable: Some("CODEX_HOME"),
    directories: &[".codex"],
    files: &[
        ("config.toml", ""),
        ("hooks.json", EMPTY_OBJECT),
        (".env", ""),
        ("AGENTS.md", ""),
        ("AGENTS.override.md", ""),
    ],
    files_elsewhere: &[],
    // The program itself may be in `packages`.
    subdirectories: &["hooks", "packages", "plugins", "prompts", "rules", "skills"],
    absent: &[],
    private: &["shell_snapshots", "tmp"],
};

const GEMINI: Known = Known {
    variable: None,
    directories: &[".gemini"],
    files: &[("settings.json", EMPTY_OBJECT), ("trustedFolders.json", EMPTY_OBJECT), (".env", ""), ("GEMINI.md", "")],
    files_elsewhere: &[],
    // The last one has programs that it has downloaded.
    subdirectories: &["agents", "commands", "extensions", "hooks", "policies", "skills", "tmp/bin"],
    absent: &[],
    private: &[],
};

const QWEN: Known = Known {
    variable: None,
    directories: &[".qwen"],
    files: &[("settings.json", EMPTY_OBJECT), ("trustedFolders.json", EMPTY_OBJECT), (".env", ""), ("QWEN.md", "")],
    files_elsewhere: &[],
    subdirectories: &["agents", "commands", "extensions", "hooks", "skills", "tmp/bin"],
    absent: &[],
    private: &[],
};

/// Its settings are in ~/.config/opencode, which is not writable.
const OPENCODE: Known = Known {
    variable: None,
    directories: &[".local/share/opencode", ".local/state/opencode"],
    files: &[],
    files_elsewhere: &[],
    subdirectories: &["bin"],
    absent: &[],
    private: &[],
};

fn known(agent: &CliAgent) -> Option<&'static Known> {
    match dialect_of(agent) {
        Dialect::Claude => Some(&CLAUDE),
        Dialect::CodexAppServer | Dialect::CodexExec => Some(&CODEX),
        Dialect::Gemini => Some(&GEMINI),
        Dialect::Qwen => Some(&QWEN),
        Dialect::Opencode => Some(&OPENCODE),
        Dialect::Acp => match program_of(agent) {
            "gemini" => Some(&GEMINI),
            "qwen" => Some(&QWEN),
            "opencode" => Some(&OPENCODE),
            _ => None,
        },
    }
}

/// Returns whether it is known where an agent keeps its state.
pub(crate) fn is_known(agent: &CliAgent) -> bool {
    !agent.state.is_empty() || known(agent).is_some()
}

/// Returns the directories of an agent. `home` is that of the user; the variables are those of its program.
pub(super) fn of(agent: &CliAgent, home: &Path, env: &[(String, String)]) -> Vec<State> {
    let named = agent.state.iter().map(|written| {
        let (base, below) = match written.strip_prefix("~/") {
            Some(below) => (home.to_owned(), below.into()),
            None => (written.into(), PathBuf::new()),
        };
        State { base, directories: vec![below], home: Some(home.to_owned()), ..State::default() }
    });
    named.chain(known(agent).map(|known| known.state(home, env))).collect()
}

impl Known {
    fn state(&self, home: &Path, env: &[(String, String)]) -> State {
        let set = |name| env.iter().find(|(other, value)| other == name && !value.is_empty());
        let elsewhere = self.variable.and_then(set).map(|(_, value)| PathBuf::from(value));
        let files_elsewhere: &[_] = if elsewhere.is_some() { self.files_elsewhere } else { &[] };
        let (base, directories, first) = match elsewhere {
            Some(base) => (base, vec![PathBuf::new()], PathBuf::new()),
            None => {
                let directories: Vec<PathBuf> = self.directories.iter().map(PathBuf::from).collect();
                let first = directories.first().cloned().unwrap_or_default();
                (home.to_owned(), directories, first)
            }
        };
        let fixed = |name: &str, missing| Fixed { at: first.join(name), missing };
        let files = self.files.iter().chain(files_elsewhere);
        let files = files.map(|(name, content)| fixed(name, Missing::File((*content).to_owned())));
        let subdirectories = self.subdirectories.iter().map(|name| fixed(name, Missing::Directory));
        let absent = self.absent.iter().map(|name| fixed(name, Missing::ReadOnlyEmptyFile));
        let private = self.private.iter().map(|name| first.join(name)).collect();
        let fixed = files.chain(subdirectories).chain(absent).collect();
        State { base, directories, fixed, private, home: Some(home.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::agents::built_in;
    use super::*;

    #[test]
    fn every_agent_that_needs_no_file_has_a_directory_and_what_it_executes_is_fixed() {
        let check = |name: &str, env: &[(&str, &str)], expect: &[&str], fixed: Option<&str>| {
            let env: Vec<(String, String)> =
                env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let states = of(&built_in(name).unwrap(), Path::new("/home/a"), &env);
            let at = |state: &State, below: &Path| state.base.join(below);
            let found: Vec<PathBuf> =
                states.iter().flat_map(|state| state.directories.iter().map(|below| at(state, below))).collect();
            let expect: Vec<PathBuf> = expect.iter().map(PathBuf::from).collect();
            assert_eq!(found.iter().map(|path| path.components().collect()).collect::<Vec<PathBuf>>(), expect);
            let all: Vec<PathBuf> =
                states.iter().flat_map(|state| state.fixed.iter().map(|part| at(state, &part.at))).collect();
            assert!(fixed.is_none_or(|fixed| all.contains(&fixed.into())), "{all:?}");
        };
        check("claude", &[], &["/home/a/.claude"], Some("/home/a/.claude/settings.json"));
        let elsewhere = [("CLAUDE_CONFIG_DIR", "/srv/c"), ("CODEX_HOME", "/srv/x")];
        check("claude", &elsewhere, &["/srv/c"], Some("/srv/c/settings.json"));
        check("codex", &[("CODEX_HOME", "")], &["/home/a/.codex"], Some("/home/a/.codex/config.toml"));
        check("codex", &elsewhere, &["/srv/x"], Some("/srv/x/config.toml"));
        check("gemini", &[], &["/home/a/.gemini"], Some("/home/a/.gemini/settings.json"));
        check("qwen", &[], &["/home/a/.qwen"], Some("/home/a/.qwen/extensions"));
        check("opencode", &[], &["/home/a/.local/share/opencode", "/home/a/.local/state/opencode"], None);
        let other = built_in("acp:mine --acp").unwrap();
        assert!(!is_known(&other));
        let named = CliAgent { state: vec!["~/.mine".to_owned(), "/srv/mine".to_owned()], ..other };
        assert!(is_known(&named));
        let states = of(&named, Path::new("/home/a"), &[]);
        assert_eq!(states[0].base.join(&states[0].directories[0]), Path::new("/home/a/.mine"));
        assert_eq!(states[1].base, Path::new("/srv/mine"));
    }

    #[test]
    fn what_later_runs_execute_is_made_if_it_is_missing() {
        let check = |name: &str, env: &[(&str, &str)], expect: &[&str]| {
            let env: Vec<(String, String)> =
                env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let states = of(&built_in(name).unwrap(), Path::new("/home/a"), &env);
            let made: Vec<PathBuf> =
                states.iter().flat_map(|state| state.fixed.iter().map(|part| state.base.join(&part.at))).collect();
            for path in expect {
                assert!(made.contains(&path.into()), "{path} is not in {made:#?}");
            }
            assert!(states.iter().all(|state| state.home.as_deref() == Some(Path::new("/home/a"))));
        };
        let claude = ["hooks", "local", "rules", "CLAUDE.md", "remote-settings.json", "settings.local.json"];
        check("claude", &[], &claude.map(|name| format!("/home/a/.claude/{name}")).each_ref().map(String::as_str));
        check("claude", &[("CLAUDE_CONFIG_DIR", "/srv/c")], &["/srv/c/.claude.json", "/srv/c/local"]);
        check("codex", &[], &["/home/a/.codex/hooks", "/home/a/.codex/plugins", "/home/a/.codex/skills"]);
        check("gemini", &[], &["/home/a/.gemini/hooks", "/home/a/.gemini/tmp/bin"]);
        check("qwen", &[], &["/home/a/.qwen/hooks"]);
    }

    #[test]
    fn the_earlier_configuration_of_claude_is_made_as_one_that_it_does_not_read() {
        let states = of(&built_in("claude").unwrap(), Path::new("/home/a"), &[]);
        let part = states[0].fixed.iter().find(|part| part.at == Path::new(".claude/.config.json"));
        assert_eq!(part.map(|part| &part.missing), Some(&Missing::ReadOnlyEmptyFile), "it would read any other one");
    }
}
