//! `providers:` in `config.yaml`: where a key is, never the key itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use relive_types::suggest::closest;
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

use crate::check::{Checker, Expected, Node};

/// The providers there are.
pub const PROVIDERS: &[&str] = &["anthropic", "openai", "gemini", "ollama", "deepseek"];

const KEYS: &[&str] = &["base_url", "key_file", "key_command"];

/// What is said of each provider, by its name.
pub type Providers = BTreeMap<String, Provider>;

/// One provider. What a process has in its own environment comes before all of this.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Provider {
    /// Its server, where that is not the usual one.
    pub base_url: Option<String>,
    /// The file whose first line is the key: an absolute path, or one that begins with `~/`.
    pub key_file: Option<String>,
    /// The command that prints the key, for `sh -c`. Asked where there is no `key_file`.
    pub key_command: Option<String>,
}

impl Provider {
    /// The path of its key file, given the home folder of whoever runs us.
    #[must_use]
    pub fn key_path(&self, home: Option<&Path>) -> Option<PathBuf> {
        let written = self.key_file.as_deref()?;
        match (written.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => Some(home.join(rest)),
            (Some(_) | None, _) => Some(PathBuf::from(written)),
        }
    }
}

impl Checker<'_> {
    pub(crate) fn providers(&mut self, found: &Spanned<Node>) {
        for (provider, section) in self.entries("providers", found) {
            if PROVIDERS.contains(&provider.value.as_str()) {
                self.provider(&provider.value, section);
            } else {
                self.unknown_here("providers", provider, PROVIDERS);
            }
        }
    }

    fn provider(&mut self, provider: &str, section: &Spanned<Node>) {
        let within = format!("providers.{provider}");
        for (key, value) in self.entries(&within, section) {
            if !KEYS.contains(&key.value.as_str()) {
                self.unknown_here(&within, key, KEYS);
                // What stands there may be a key, and a complaint is copied to logs.
                if let Some(problem) = self.problems.last_mut() {
                    let shown = problem.column - 1 + key.value.chars().count();
                    problem.text = format!("{}: ...", problem.text.chars().take(shown).collect::<String>());
                }
                continue;
            }
            self.value(Expected::Text, &key.value, value);
            let Node::Text(text) = &value.value else { continue };
            match key.value.as_str() {
                "key_file" if !(text.starts_with('/') || text.starts_with("~/")) => {
                    let message = "`key_file` is an absolute path, or one that begins with `~/`".to_owned();
                    self.wrong(&value.referenced, message);
                }
                "base_url" if !(text.starts_with("http://") || text.starts_with("https://")) => {
                    self.wrong(&value.referenced, "`base_url` begins with http:// or https://".to_owned());
                }
                _ => {}
            }
        }
    }

    fn unknown_here(&mut self, within: &str, key: &Spanned<String>, names: &[&str]) {
        let advice = match closest(&key.value, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("there are {}", names.join(", ")),
        };
        self.wrong(&key.referenced, format!("no such key under `{within}`: `{}` ({advice})", key.value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ConfigError};

    #[test]
    fn what_is_said_of_a_provider_counts() {
        let text = "providers:\n  anthropic: {key_file: ~/.keys/a, base_url: 'http://127.0.0.1:9'}\n  ollama:\n";
        let config = Config::parse(text).unwrap();
        let anthropic = &config.providers["anthropic"];
        assert_eq!(anthropic.base_url.as_deref(), Some("http://127.0.0.1:9"));
        assert_eq!(anthropic.key_path(Some(Path::new("/h"))).as_deref(), Some(Path::new("/h/.keys/a")));
        let absolute = Provider { key_file: Some("/k".to_owned()), ..Provider::default() };
        assert_eq!(absolute.key_path(None).as_deref(), Some(Path::new("/k")));
        assert_eq!(Config::parse(&config.to_yaml().unwrap()).unwrap(), config);
    }

    #[test]
    fn every_mistake_is_named_at_its_place_and_no_key_is_shown() {
        let text = "providers:\n  antropic: {}\n  openai:\n    key_file: keys/openai\n    key: sk-secret\n    \
                    base_url: localhost\n  gemini: {key_comand: x, api_key: sk-secret}\n  ollama: 7\n";
        let problems = Config::parse(text).unwrap_err();
        let said: Vec<String> =
            problems.iter().map(|problem| format!("{}:{} {}", problem.line, problem.column, problem.message)).collect();
        assert_eq!(
            said,
            [
                "2:3 no such key under `providers`: `antropic` (did you mean `anthropic`?)",
                "4:15 `key_file` is an absolute path, or one that begins with `~/`",
                "5:5 no such key under `providers.openai`: `key` (there are base_url, key_file, key_command)",
                "6:15 `base_url` begins with http:// or https://",
                "7:12 no such key under `providers.gemini`: `key_comand` (did you mean `key_command`?)",
                "7:27 no such key under `providers.gemini`: `api_key` (there are base_url, key_file, key_command)",
                "8:11 providers.ollama is a list of `key: value`, not a number",
            ]
        );
        let shown = ConfigError::Wrong { path: "/c".into(), problems }.to_string();
        assert!(!shown.contains("sk-secret"), "{shown}");
    }
}
