//! `agents/NAME.yaml`: an agent that can be run by its name.
//!
//! Every key is optional, and options of the command that runs the agent take precedence. The file is read once, when a
//! process is created; a later edit does not affect that process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use relive_types::Isolation;
use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::NetworkSetting;
use crate::check::{self, Expected, Key};

const KEYS: &[Key] = &[
    ("", "model", Expected::Model),
    ("", "system_prompt", Expected::Text),
    ("", "tools", Expected::Names),
    ("", "allow", Expected::Rules),
    ("", "isolation", check::ISOLATION),
    ("", "network", Expected::Network),
    ("", "command", Expected::Words),
    ("", "dialect", Expected::WordOrNothing(&["claude", "qwen", "codex-app-server", "acp"])),
    ("", "start", Expected::Words),
    ("", "resume", Expected::Words),
    ("", "fork", Expected::Words),
    ("", "with_model", Expected::Words),
    ("", "terminal", Expected::Words),
    ("", "env", Expected::Environment),
    ("", "state", Expected::Words),
    ("limits", "max_steps", Expected::Number(1, u32::MAX as u64)),
    ("limits", "max_tokens", Expected::Number(1, i64::MAX as u64)),
    ("limits", "max_cost_usd", Expected::Amount),
    ("limits", "timeout", Expected::Duration),
];

/// The content of an agent file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentFile {
    /// `provider/model`.
    pub model: Option<String>,
    pub system_prompt: Option<String>,
    /// The names of its tools; all tools if absent.
    pub tools: Option<Vec<String>>,
    /// Rules such as `shell:git status*`: commands that it may run without asking.
    pub allow: Vec<String>,
    /// What its commands may reach.
    pub isolation: Option<Isolation>,
    /// What they reach of the network.
    pub network: NetworkSetting,
    /// The program of a CLI agent, with the arguments of every run; absent for a native agent.
    pub command: Vec<String>,
    /// The language of the CLI's standard input and output.
    pub dialect: Option<String>,
    /// Further arguments of a run that begins a conversation, named `{session}`.
    pub start: Vec<String>,
    /// Further arguments of a run that continues the conversation `{session}`.
    pub resume: Vec<String>,
    /// Further arguments of a run that forks the conversation `{origin}` as `{session}`.
    pub fork: Vec<String>,
    /// Further arguments if a model is named: `{model}`.
    pub with_model: Vec<String>,
    /// The program of a run with `-t` in place of `command`: the CLI's own full-screen interface.
    pub terminal: Vec<String>,
    /// Further environment variables of the CLI.
    pub env: BTreeMap<String, String>,
    /// Directories of the CLI's own that it may write when it is confined.
    pub state: Vec<String>,
    pub limits: AgentLimits,
}

/// The limits of an agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentLimits {
    pub max_steps: Option<u32>,
    /// Input and output tokens together.
    pub max_tokens: Option<u64>,
    pub max_cost_usd: Option<f64>,
    /// Execution time, as [`relive_types::duration::parse`] reads it.
    pub timeout: Option<String>,
}

impl AgentFile {
    /// Parses the text of the file at `path`. `tools` are the names of all tools.
    pub fn parse(path: &Path, text: &str, tools: &[&str]) -> Result<Self, ConfigError> {
        let wrong = |problems| ConfigError::Wrong { path: PathBuf::from(path), problems };
        let problems = check::check(text, KEYS, tools);
        if !problems.is_empty() {
            return Err(wrong(problems));
        }
        let file: Option<Self> =
            serde_saphyr::from_str(text).map_err(|error| wrong(vec![check::problem_of(&error, text)]))?;
        Ok(file.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<AgentFile, ConfigError> {
        AgentFile::parse(Path::new("agents/a.yaml"), text, &["read", "write", "search"])
    }

    #[test]
    fn every_key_is_read_and_every_key_is_optional() {
        for text in ["", "# nothing\n", "limits:\n", "model:\n"] {
            assert_eq!(parse(text).unwrap(), AgentFile::default(), "{text:?}");
        }
        let text = "model: anthropic/claude\nsystem_prompt: |\n  Be brief.\ntools: [read, search]\nallow: ['shell:git status*']\nisolation: sealed\n\
                    limits: {max_steps: 5, max_tokens: 1000, max_cost_usd: 0.5, timeout: 10m}\n";
        let file = parse(text).unwrap();
        assert_eq!(file.system_prompt.as_deref(), Some("Be brief.\n"));
        assert_eq!(file.tools.as_deref(), Some(&["read".to_owned(), "search".to_owned()][..]));
        assert_eq!(file.allow, ["shell:git status*"]);
        assert_eq!(file.isolation, Some(Isolation::Sealed));
        let limits = AgentLimits {
            max_steps: Some(5),
            max_tokens: Some(1000),
            max_cost_usd: Some(0.5),
            timeout: Some("10m".to_owned()),
        };
        assert_eq!(file.limits, limits);
        assert_eq!(parse("limits: {max_cost_usd: 2}").unwrap().limits.max_cost_usd, Some(2.0));
    }

    #[test]
    fn every_mistake_is_reported_with_its_place() {
        let text = "modle: x\ntools: [raed, shell, 7]\nlimits:\n  max_steps: 0\n  timeout: 10\n  max_cost_usd: -1\n\
                    max_tokens: 5\nallow: [ls, 'shell:a*;b']\n";
        let Err(ConfigError::Wrong { problems, .. }) = parse(text) else { panic!("it was accepted") };
        let said: Vec<String> =
            problems.iter().map(|problem| format!("{}:{} {}", problem.line, problem.column, problem.message)).collect();
        assert_eq!(
            said,
            [
                "1:1 no such key: `modle` (did you mean `model`?)",
                "2:9 no such name under `tools`: `raed` (did you mean `read`?)",
                "2:15 no such name under `tools`: `shell` (expected one of read, write, search)",
                "2:22 `tools` must list names, not a number",
                "4:14 `max_steps` must be at least 1, not 0",
                "5:12 `timeout` must be a duration like 30s or 10m, not a number",
                "6:17 `max_cost_usd` must be zero or more",
                "7:1 no such key: `max_tokens` (`max_tokens` belongs under `limits`)",
                "8:9 `allow`: `ls` is not a rule: write it like `shell:git status*`",
                "8:13 `allow`: `shell:a*;b` would never match: a command with `;` matches only a rule that spells it \
                 out, without a `*`",
            ]
        );
        let Err(error) = parse("tools: read") else { panic!("it was accepted") };
        assert!(
            error.to_string().starts_with("agents/a.yaml:1:8: `tools` must be a list of names, not a text"),
            "{error}"
        );
    }
}
