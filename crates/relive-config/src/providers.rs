//! `providers:` in `config.yaml`: where to find a key, never the key itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use relive_types::suggest::closest;
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

use crate::check::{Checker, Expected, Node};

/// The names of all providers.
pub const PROVIDERS: &[&str] = &["anthropic", "openai", "gemini", "ollama", "deepseek"];

/// What the name of a model can begin with besides a provider.
const OTHERS: &[&str] = &["openai-chat", "openai-responses", "script"];

const KEYS: &[&str] = &["base_url", "key_file", "key_command"];

/// The settings of each provider, by name.
pub type Providers = BTreeMap<String, Provider>;

/// The settings of one provider. The environment of a process takes precedence over all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Provider {
    /// The address of the server, if it is not the usual one.
    pub base_url: Option<String>,
    /// The file whose first line is the key: an absolute path, or one that begins with `~/`.
    pub key_file: Option<String>,
    /// The command that prints the key, for `sh -c`. Used if there is no `key_file`.
    pub key_command: Option<String>,
}

impl Provider {
    /// Returns the path of the key file. `home` is the home directory of the user.
    #[must_use]
    pub fn key_path(&self, home: Option<&Path>) -> Option<PathBuf> {
        let written = self.key_file.as_deref()?;
        match (written.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => Some(home.join(rest)),
            (Some(_) | None, _) => Some(PathBuf::from(written)),
        }
    }
}

/// Returns what to write instead of a text that is not the name of a model. Whether the provider has the model only the
/// provider knows.
pub(crate) fn wrong_model(text: &str) -> Option<String> {
    let names = || PROVIDERS.iter().chain(OTHERS).copied();
    match text.split_once('/') {
        Some((provider, model)) if !model.trim().is_empty() => {
            if names().any(|name| name == provider) {
                return None;
            }
            Some(match closest(provider, names()) {
                Some(meant) => format!("did you mean `{meant}/{model}`?"),
                None => format!("the providers are {}", names().collect::<Vec<_>>().join(", ")),
            })
        }
        Some(_) | None => Some("write it as PROVIDER/MODEL, such as anthropic/claude-sonnet-4-5".to_owned()),
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
                // The value may be a key, and error messages end up in logs.
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
                    let message = "`key_file` must be an absolute path, or one that begins with `~/`".to_owned();
                    self.wrong(&value.referenced, message);
                }
                "base_url" if !(text.starts_with("http://") || text.starts_with("https://")) => {
                    self.wrong(&value.referenced, "`base_url` must begin with http:// or https://".to_owned());
                }
                _ => {}
            }
        }
    }

    fn unknown_here(&mut self, within: &str, key: &Spanned<String>, names: &[&str]) {
        let advice = match closest(&key.value, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("expected one of {}", names.join(", ")),
        };
        self.wrong(&key.referenced, format!("no such key under `{within}`: `{}` ({advice})", key.value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ConfigError};

    #[test]
    fn provider_settings_are_read() {
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
    fn a_default_model_has_a_provider_and_a_name() {
        let check = |text: &str, expect: &[&str]| {
            let problems = Config::parse(text).err().unwrap_or_default();
            assert_eq!(problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>(), expect, "{text}");
        };
        for model in ["anthropic/claude-x", "openai-chat/local", "ollama/org/model", "script/a b.yaml", ""] {
            check(&format!("default_model: {model}\n"), &[]);
        }
        check(
            "default_model: antropic/claude\n",
            &["`default_model`: `antropic/claude` is not a model (did you mean `anthropic/claude`?)"],
        );
        let form = "write it as PROVIDER/MODEL, such as anthropic/claude-sonnet-4-5";
        check("default_model: gpt-5\n", &[&format!("`default_model`: `gpt-5` is not a model ({form})")]);
        check("default_model: openai/\n", &[&format!("`default_model`: `openai/` is not a model ({form})")]);
        check("default_model: 5\n", &["`default_model` must be PROVIDER/MODEL, not a number"]);
    }

    #[test]
    fn every_mistake_is_reported_with_its_place_and_without_a_key() {
        let text = "providers:\n  antropic: {}\n  openai:\n    key_file: keys/openai\n    key: sk-secret\n    \
                    base_url: localhost\n  gemini: {key_comand: x, api_key: sk-secret}\n  ollama: 7\n";
        let problems = Config::parse(text).unwrap_err();
        let said: Vec<String> =
            problems.iter().map(|problem| format!("{}:{} {}", problem.line, problem.column, problem.message)).collect();
        assert_eq!(
            said,
            [
                "2:3 no such key under `providers`: `antropic` (did you mean `anthropic`?)",
                "4:15 `key_file` must be an absolute path, or one that begins with `~/`",
                "5:5 no such key under `providers.openai`: `key` (expected one of base_url, key_file, key_command)",
                "6:15 `base_url` must begin with http:// or https://",
                "7:12 no such key under `providers.gemini`: `key_comand` (did you mean `key_command`?)",
                "7:27 no such key under `providers.gemini`: `api_key` (expected one of base_url, key_file, key_command)",
                "8:11 providers.ollama must be a list of `key: value`, not a number",
            ]
        );
        let shown = ConfigError::Wrong { path: "/c".into(), problems }.to_string();
        assert!(!shown.contains("sk-secret"), "{shown}");
    }
}
