//! The known providers: their names, their environment variables and the addresses of their servers.

use genai::adapter::AdapterKind;
use relive_types::model_name::{self, NoSuchModel};
use reqwest::Url;

use crate::OpenError;
use crate::access::Access;

/// A provider, by the names that a user knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider {
    /// The first part of a model's name.
    pub name: &'static str,
    /// The environment variable that holds its key; absent if it needs none.
    pub key_variable: Option<&'static str>,
    /// The environment variable that holds the address of its server.
    pub base_url_variable: &'static str,
    kind: Kind,
}

/// The wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Anthropic,
    /// The Responses API at OpenAI itself, chat completions at any other server, because few of them have the Responses
    /// API.
    OpenAi,
    OpenAiChat,
    OpenAiResponses,
    Gemini,
    Ollama,
    DeepSeek,
}

const PROVIDERS: [Provider; 7] = [
    Provider {
        name: "anthropic",
        key_variable: Some("ANTHROPIC_API_KEY"),
        base_url_variable: "ANTHROPIC_BASE_URL",
        kind: Kind::Anthropic,
    },
    openai("openai", Kind::OpenAi),
    openai("openai-chat", Kind::OpenAiChat),
    openai("openai-responses", Kind::OpenAiResponses),
    Provider {
        name: "gemini",
        key_variable: Some("GEMINI_API_KEY"),
        base_url_variable: "GOOGLE_GEMINI_BASE_URL",
        kind: Kind::Gemini,
    },
    Provider { name: "ollama", key_variable: None, base_url_variable: "OLLAMA_HOST", kind: Kind::Ollama },
    Provider {
        name: "deepseek",
        key_variable: Some("DEEPSEEK_API_KEY"),
        base_url_variable: "DEEPSEEK_BASE_URL",
        kind: Kind::DeepSeek,
    },
];

const fn openai(name: &'static str, kind: Kind) -> Provider {
    Provider { name, key_variable: Some("OPENAI_API_KEY"), base_url_variable: "OPENAI_BASE_URL", kind }
}

/// The key that is sent to a server that needs none.
const NO_KEY: &str = "none";

/// Returns all known providers.
#[must_use]
pub fn providers() -> &'static [Provider] {
    &PROVIDERS
}

/// Finds a provider by its own name or by the whole name of a model.
#[must_use]
pub fn provider(name: &str) -> Option<Provider> {
    let first = name.split_once('/').map_or(name, |(first, _)| first);
    PROVIDERS.into_iter().find(|provider| provider.name == first)
}

/// Splits the name of a model into its provider and what that calls it.
pub fn split_name(name: &str) -> Result<(Provider, &str), OpenError> {
    let (_, model) = model_name::split(name)?;
    let no_such = || NoSuchModel { name: name.to_owned(), closest: None };
    Ok((provider(name).ok_or_else(no_such)?, model))
}

/// The destination of a question.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) adapter: AdapterKind,
    pub(crate) base_url: String,
    pub(crate) key: String,
}

/// Returns whether this is the address of OpenAI itself.
fn is_openai(base_url: Option<&str>) -> bool {
    base_url.is_none_or(|url| url.trim().is_empty() || url.trim().starts_with("https://api.openai.com"))
}

impl Provider {
    /// Returns the name in the configuration and the prices: providers that differ only in their wire format share it.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self.kind {
            Kind::OpenAi | Kind::OpenAiChat | Kind::OpenAiResponses => "openai",
            Kind::Anthropic | Kind::Gemini | Kind::Ollama | Kind::DeepSeek => self.name,
        }
    }

    /// Returns whether it needs a key at this address, or at its own if absent. Other servers that are compatible with
    /// OpenAI need none.
    #[must_use]
    pub fn needs_key(&self, base_url: Option<&str>) -> bool {
        match self.kind {
            Kind::Anthropic | Kind::Gemini | Kind::DeepSeek => true,
            Kind::OpenAi | Kind::OpenAiChat | Kind::OpenAiResponses => is_openai(base_url),
            Kind::Ollama => false,
        }
    }

    pub(crate) fn target(&self, access: &Access) -> Result<Target, OpenError> {
        let own = access.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let base_url = match own {
            Some(url) => self.base_url(url)?,
            None => self.default_url().to_owned(),
        };
        let is_openai = is_openai(Some(&base_url));
        let adapter = match self.kind {
            Kind::Anthropic => AdapterKind::Anthropic,
            Kind::OpenAiResponses => AdapterKind::OpenAIResp,
            Kind::OpenAi if is_openai => AdapterKind::OpenAIResp,
            Kind::OpenAi | Kind::OpenAiChat => AdapterKind::OpenAI,
            Kind::Gemini => AdapterKind::Gemini,
            Kind::Ollama => AdapterKind::Ollama,
            Kind::DeepSeek => AdapterKind::DeepSeek,
        };
        let key = access.key.as_ref().map(|key| key.expose().to_owned()).filter(|key| !key.is_empty());
        let key = match (key, self.key_variable) {
            (Some(key), _) => key,
            (None, Some(variable)) if self.needs_key(own) => {
                return Err(OpenError::NeedsKey { provider: self.name, variable });
            }
            (None, Some(_) | None) => NO_KEY.to_owned(),
        };
        Ok(Target { adapter, base_url, key })
    }

    fn default_url(&self) -> &'static str {
        match self.kind {
            Kind::Anthropic => "https://api.anthropic.com/v1/",
            Kind::OpenAi | Kind::OpenAiChat | Kind::OpenAiResponses => "https://api.openai.com/v1/",
            Kind::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Kind::Ollama => "http://127.0.0.1:11434/",
            Kind::DeepSeek => "https://api.deepseek.com/v1/",
        }
    }

    /// Completes an address like the provider's own programs: with or without the version, and for Ollama with or
    /// without scheme and port.
    fn base_url(&self, text: &str) -> Result<String, OpenError> {
        let bad = |reason: &dyn std::fmt::Display| OpenError::BadUrl {
            variable: self.base_url_variable,
            reason: reason.to_string(),
        };
        let is_ollama = self.kind == Kind::Ollama;
        let whole = if is_ollama && !text.contains("://") { format!("http://{text}") } else { text.to_owned() };
        let begins_wrong = "it begins with neither http:// nor https://";
        if !whole.contains("://") {
            return Err(bad(&begins_wrong));
        }
        let mut url = Url::parse(&whole).map_err(|error| bad(&error))?;
        if !matches!(url.scheme(), "http" | "https") || url.cannot_be_a_base() {
            return Err(bad(&begins_wrong));
        }
        let has_port =
            whole.trim_end_matches('/').rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if is_ollama && url.scheme() == "http" && !has_port {
            // The scheme of a URL with a host can take any port.
            let _ = url.set_port(Some(11434));
        }
        let path = url.path().trim_end_matches('/').to_owned();
        let version = match self.kind {
            Kind::Anthropic if !path.ends_with("/v1") => "/v1",
            Kind::Gemini if !path.ends_with("/v1beta") && !path.ends_with("/v1") => "/v1beta",
            Kind::DeepSeek if path.is_empty() => "/v1",
            Kind::Anthropic | Kind::Gemini | Kind::DeepSeek => "",
            Kind::OpenAi | Kind::OpenAiChat | Kind::OpenAiResponses | Kind::Ollama => "",
        };
        url.set_path(&format!("{path}{version}/"));
        Ok(url.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_server_address_is_completed() {
        let check = |name: &str, given: &str, expect: &str| {
            assert_eq!(provider(name).unwrap().base_url(given).unwrap(), expect, "{name} {given}");
        };
        check("anthropic", "http://h:1", "http://h:1/v1/");
        check("anthropic", "https://gate/way/", "https://gate/way/v1/");
        check("anthropic", "https://h/v1/", "https://h/v1/");
        check("openai", "http://h:8000/v1", "http://h:8000/v1/");
        check("gemini", "http://h:1/", "http://h:1/v1beta/");
        check("gemini", "http://h:1/v1beta", "http://h:1/v1beta/");
        check("ollama", "h", "http://h:11434/");
        check("ollama", "0.0.0.0:99", "http://0.0.0.0:99/");
        check("ollama", "http://h", "http://h:11434/");
        check("ollama", "https://h/", "https://h/");
        check("deepseek", "http://h:1", "http://h:1/v1/");
        for bad in ["h:1", "ftp://h", "http://", "::"] {
            assert!(provider("openai").unwrap().base_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn openai_uses_responses_and_compatible_servers_use_chat() {
        let check = |name: &str, base_url: Option<&str>, expect: AdapterKind| {
            let access = Access { base_url: base_url.map(str::to_owned), key: Some(crate::Secret::new("k")) };
            assert_eq!(provider(name).unwrap().target(&access).unwrap().adapter, expect, "{name} {base_url:?}");
        };
        check("openai/gpt-5", None, AdapterKind::OpenAIResp);
        check("openai/gpt-5", Some("https://api.openai.com/v1"), AdapterKind::OpenAIResp);
        check("openai/llama", Some("http://localhost:8080/v1"), AdapterKind::OpenAI);
        check("openai-chat/gpt-5", None, AdapterKind::OpenAI);
        check("openai-responses/gpt-5", Some("http://localhost:8080/v1"), AdapterKind::OpenAIResp);
    }

    #[test]
    fn every_name_of_a_provider_is_known() {
        assert_eq!(PROVIDERS.map(|provider| provider.name), model_name::PROVIDERS);
    }

    #[test]
    fn a_key_is_required_only_where_the_server_needs_one() {
        let keyless = |base_url: Option<&str>| Access { base_url: base_url.map(str::to_owned), key: None };
        let needs = |name: &str, base_url| provider(name).unwrap().target(&keyless(base_url)).err();
        let variable = "ANTHROPIC_API_KEY";
        let expect = Some(OpenError::NeedsKey { provider: "anthropic", variable });
        assert_eq!(needs("anthropic", None), expect);
        assert_eq!(needs("anthropic", Some("http://h")), expect);
        assert!(needs("openai", None).is_some());
        assert_eq!(needs("openai", Some("http://localhost:1/v1")), None);
        assert_eq!(needs("ollama", None), None);
    }
}
