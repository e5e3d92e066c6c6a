//! The names of models, `PROVIDER/MODEL`, as a user writes them.

use crate::suggest;

/// The providers, by the first part of the names of their models. `script` is none: its models are files.
pub const PROVIDERS: [&str; 7] =
    ["anthropic", "openai", "openai-chat", "openai-responses", "gemini", "ollama", "deepseek"];

/// A name that no model has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no model `{name}`: {}", self.advice())]
pub struct NoSuchModel {
    /// The whole name, as it was given.
    pub name: String,
    /// The provider that was probably meant.
    pub closest: Option<&'static str>,
}

impl NoSuchModel {
    /// Returns what to write instead.
    fn advice(&self) -> String {
        let model = self.name.split_once('/').map_or("MODEL", |(_, model)| model);
        let meant = match self.closest {
            Some(closest) => format!("did you mean {closest}/{model}?"),
            None => "write it as PROVIDER/MODEL.".to_owned(),
        };
        format!("{meant} The providers are {} and script", PROVIDERS.join(", "))
    }
}

/// Splits the name of a model into its provider and what that calls it.
pub fn split(name: &str) -> Result<(&'static str, &str), NoSuchModel> {
    let (first, model) = name.split_once('/').unwrap_or((name, ""));
    match PROVIDERS.into_iter().find(|provider| *provider == first).filter(|_| !model.is_empty()) {
        Some(provider) => Ok((provider, model)),
        None => Err(NoSuchModel { name: name.to_owned(), closest: suggest::closest(first, PROVIDERS) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_provider_is_suggested() {
        let check = |name: &str, expect: Option<&str>| assert_eq!(split(name).unwrap_err().closest, expect, "{name}");
        check("antropic", Some("anthropic"));
        check("anthropci", Some("anthropic"));
        check("OpenAI", Some("openai"));
        check("opena", Some("openai"));
        check("gemni", Some("gemini"));
        check("olama", Some("ollama"));
        check("deepseak", Some("deepseek"));
        check("mistral", None);
        check("", None);
        check("openai/", Some("openai"));
        assert_eq!(split("openai/gpt/5"), Ok(("openai", "gpt/5")));
    }
}
