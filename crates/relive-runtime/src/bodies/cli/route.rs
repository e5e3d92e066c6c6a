//! The way of a CLI agent's model calls through the gateway: which provider they are for, and how the CLI is told.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use relive_api::Environment;
use relive_cli_agent::Dialect;
use relive_gateway::Auth;
use relive_types::CliAgent;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::agents::dialect_of;

/// The longest settings of a CLI that are read.
const SETTINGS_MAX: u64 = 1 << 20;
const ANTHROPIC: &str = "https://api.anthropic.com";
const GEMINI: &str = "https://generativelanguage.googleapis.com";
const OPENAI: &str = "https://api.openai.com/v1";
/// The provider that codex is given where its settings name none.
const CODEX_PROVIDER: &str = "relive";

/// The way of an agent's model calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    /// The address of the provider.
    pub(crate) upstream: String,
    pub(crate) auth: Auth,
    /// The variable with the key, which gets the token instead.
    key: String,
    /// The variable with the address.
    base: Option<&'static str>,
    /// A variable with another key for the same provider.
    other_key: Option<&'static str>,
    /// Arguments with `{port}`.
    arguments: Vec<String>,
}

/// Why the calls of an agent cannot go through the gateway.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoute {
    #[error("--no-gateway was given")]
    Declined,
    #[error("{0} is not set")]
    NoKey(String),
    #[error("it uses a login, which has no key")]
    Login,
    #[error("{0}")]
    Settings(String),
    #[error("its dialect, {0}, has no provider that Relive knows")]
    Dialect(Dialect),
    #[error("`{0}` takes its provider from settings of its own")]
    Unknown(String),
    #[error("this daemon has no gateway")]
    NoGateway,
}

/// Finds the way of an agent with this environment. It reads settings of codex, so it blocks.
pub(crate) fn route(agent: &CliAgent, environment: &Environment) -> Result<Route, NoRoute> {
    if agent.no_gateway {
        return Err(NoRoute::Declined);
    }
    match dialect_of(agent) {
        Dialect::Claude => claude(environment, agent.terminal),
        Dialect::Qwen => openai(environment),
        Dialect::CodexAppServer => codex(environment),
        Dialect::Acp => match program_of(agent) {
            "gemini" => gemini(environment),
            "qwen" => qwen(environment),
            _ => Err(NoRoute::Unknown(agent.agent.clone())),
        },
        other @ (Dialect::CodexExec | Dialect::Gemini | Dialect::Opencode) => Err(NoRoute::Dialect(other)),
    }
}

fn bearer(key: &str) -> Auth {
    Auth { header: "authorization".to_owned(), value: format!("Bearer {key}") }
}

/// The argument by which claude is given settings. They are stronger than those in files, except for managed ones.
pub(super) const SETTINGS: &str = "--settings";
/// After this argument all others belong to the prompt.
const END_OF_OPTIONS: &str = "--";
const CLAUDE_BASE: &str = "ANTHROPIC_BASE_URL";
/// The variables by which claude asks another provider.
const CLAUDE_ELSEWHERE: [&str; 7] = [
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
];

/// Tells whether a program is a claude that can be given settings at the end of its command line. One whose command line names
/// settings keeps those.
pub(super) fn takes_settings(agent: &CliAgent, argv: &[String]) -> bool {
    let takes_none = |word: &String| word == SETTINGS || word.starts_with("--settings=") || word == END_OF_OPTIONS;
    dialect_of(agent) == Dialect::Claude && program_of(agent) == "claude" && !argv.iter().any(takes_none)
}

/// Returns the settings by which a claude asks the gateway, whatever a file says, such as one of the repository that it works on.
pub(super) fn claude_settings(port: u16, environment: &[(String, String)]) -> Value {
    let mut env: Map<String, Value> = CLAUDE_ELSEWHERE.iter().map(|name| ((*name).to_owned(), "".into())).collect();
    env.insert(CLAUDE_BASE.to_owned(), format!("http://127.0.0.1:{port}").into());
    let direct = environment.iter().filter(|(name, _)| DIRECT.contains(&name.as_str()));
    env.extend(direct.map(|(name, value)| (name.clone(), value.clone().into())));
    json!({ "env": env })
}

/// The variables that name the hosts to which no proxy leads, in both spellings.
const DIRECT: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Has no proxy lead to the gateway: it would be given the prompts, and could ask another provider.
fn go_directly_to_gateway(env: &mut Vec<(String, String)>) {
    let values = DIRECT.map(|name| env.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone()));
    let [upper, lower] = values.clone();
    env.retain(|(name, _)| !DIRECT.contains(&name.as_str()));
    for (name, own) in DIRECT.into_iter().zip(values) {
        let hosts = own.or_else(|| upper.clone()).or_else(|| lower.clone()).filter(|hosts| !hosts.is_empty());
        let hosts = hosts.map_or_else(|| "127.0.0.1".to_owned(), |hosts| format!("{hosts},127.0.0.1"));
        env.push((name.to_owned(), hosts));
    }
}

/// The settings of claude, as far as they say where its calls go.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaudeSettings {
    env: BTreeMap<String, String>,
}

/// Returns the variables that the user's settings of claude set. They are stronger than those of the environment.
fn claude_variables(environment: &Environment) -> Result<BTreeMap<String, String>, NoRoute> {
    let directory = environment.get("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    let directory = directory.or_else(|| Some(Path::new(environment.get("HOME")?).join(".claude")));
    let Some(path) = directory.map(|directory| directory.join("settings.json")) else { return Ok(BTreeMap::new()) };
    let text = read_text(&path)?;
    // Claude does not read settings with a mistake either.
    let settings = text.and_then(|text| serde_json::from_str::<ClaudeSettings>(&text).ok()).unwrap_or_default();
    Ok(settings.env)
}

fn claude(environment: &Environment, is_terminal: bool) -> Result<Route, NoRoute> {
    const KEY: &str = "ANTHROPIC_API_KEY";
    const TOKEN: &str = "ANTHROPIC_AUTH_TOKEN";
    let of_user = claude_variables(environment)?;
    let is_set = |name: &&str| of_user.get(*name).is_some_and(|value| !value.is_empty());
    if let Some(name) = CLAUDE_ELSEWHERE.into_iter().chain([KEY, TOKEN]).find(is_set) {
        return Err(NoRoute::Settings(format!("its settings.json sets {name}")));
    }
    if let Some(name) = CLAUDE_ELSEWHERE.into_iter().find(|name| environment.get(name).is_some()) {
        return Err(NoRoute::Settings(format!("{name} is set")));
    }
    // In the order in which claude looks.
    let (key, other_key, auth) = match (environment.get(TOKEN), environment.get(KEY)) {
        (Some(token), _) => (TOKEN, KEY, bearer(token)),
        (None, Some(key)) => {
            // Its full-screen interface asks about every key that it has not seen before, and not about a token.
            let (told_as, other) = if is_terminal { (TOKEN, KEY) } else { (KEY, TOKEN) };
            (told_as, other, Auth { header: "x-api-key".to_owned(), value: key.to_owned() })
        }
        (None, None) => return Err(NoRoute::NoKey(KEY.to_owned())),
    };
    let of_user = of_user.get(CLAUDE_BASE).map(String::as_str).filter(|base| !base.is_empty());
    let upstream = of_user.or(environment.get(CLAUDE_BASE)).unwrap_or(ANTHROPIC).to_owned();
    let (key, base, other_key) = (key.to_owned(), Some(CLAUDE_BASE), Some(other_key));
    Ok(Route { upstream, auth, key, base, other_key, arguments: Vec::new() })
}

fn openai(environment: &Environment) -> Result<Route, NoRoute> {
    const KEY: &str = "OPENAI_API_KEY";
    let base = "OPENAI_BASE_URL";
    let key = environment.get(KEY).ok_or_else(|| NoRoute::NoKey(KEY.to_owned()))?;
    let upstream = environment.get(base).unwrap_or(OPENAI).to_owned();
    let (auth, key) = (bearer(key), KEY.to_owned());
    Ok(Route { upstream, auth, key, base: Some(base), other_key: None, arguments: Vec::new() })
}

/// Returns the name of an agent's program. ACP agents differ in how they are told their provider.
pub(super) fn program_of(agent: &CliAgent) -> &str {
    let program = agent.command.first().map(String::as_str).unwrap_or_default();
    program.rsplit('/').next().unwrap_or_default()
}

/// The settings of gemini and qwen, as far as they say where their calls go.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AuthSettings {
    security: SecuritySettings,
    model_providers: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SecuritySettings {
    auth: AuthSetting,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AuthSetting {
    selected_type: Option<String>,
    base_url: Option<serde::de::IgnoredAny>,
    api_key: Option<serde::de::IgnoredAny>,
}

/// Reads the settings in a directory of the home, and refuses those by which calls go elsewhere than `with` says.
fn check_auth(environment: &Environment, directory: &str, with: &str) -> Result<(), NoRoute> {
    let Some(home) = environment.get("HOME") else { return Ok(()) };
    let Some(text) = read_text(&Path::new(home).join(directory).join("settings.json"))? else { return Ok(()) };
    let unreadable = |_| NoRoute::Settings(format!("~/{directory}/settings.json cannot be read"));
    let AuthSettings { security, model_providers } = serde_json::from_str(&text).map_err(unreadable)?;
    let AuthSetting { selected_type, base_url, api_key } = security.auth;
    if selected_type.is_some_and(|selected| selected != with) {
        return Err(NoRoute::Login);
    }
    if base_url.is_some() || api_key.is_some() || model_providers.is_some() {
        return Err(NoRoute::Settings(format!("~/{directory}/settings.json names its provider")));
    }
    Ok(())
}

fn gemini(environment: &Environment) -> Result<Route, NoRoute> {
    const KEY: &str = "GEMINI_API_KEY";
    const ELSEWHERE: [&str; 2] = ["GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"];
    if let Some(name) = ELSEWHERE.into_iter().find(|name| environment.get(name).is_some()) {
        return Err(NoRoute::Settings(format!("{name} is set")));
    }
    let key = environment.get(KEY).ok_or_else(|| NoRoute::NoKey(KEY.to_owned()))?;
    check_auth(environment, ".gemini", "gemini-api-key")?;
    let base = "GOOGLE_GEMINI_BASE_URL";
    let upstream = environment.get(base).unwrap_or(GEMINI).to_owned();
    let auth = Auth { header: "x-goog-api-key".to_owned(), value: key.to_owned() };
    Ok(Route { upstream, auth, key: KEY.to_owned(), base: Some(base), other_key: None, arguments: Vec::new() })
}

fn qwen(environment: &Environment) -> Result<Route, NoRoute> {
    let route = openai(environment)?;
    check_auth(environment, ".qwen", "openai")?;
    Ok(route)
}

/// The settings of codex, as far as they say where its calls go.
#[derive(Debug, Default, Deserialize)]
struct CodexSettings {
    model_provider: Option<String>,
    profile: Option<String>,
    #[serde(default)]
    model_providers: BTreeMap<String, CodexProvider>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct CodexProvider {
    base_url: Option<String>,
    env_key: Option<String>,
}

/// The login of codex.
#[derive(Debug, Deserialize)]
struct CodexLogin {
    tokens: Option<serde::de::IgnoredAny>,
}

fn codex(environment: &Environment) -> Result<Route, NoRoute> {
    let home = environment.get("CODEX_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(environment.get("HOME")?).join(".codex")));
    let read = |name: &str| home.as_ref().map_or(Ok(None), |home| read_text(&home.join(name)));
    let settings: CodexSettings = match read("config.toml")? {
        Some(text) => toml::from_str(&text).map_err(|_| NoRoute::Settings("its config.toml cannot be read".into()))?,
        None => CodexSettings::default(),
    };
    if settings.profile.is_some() {
        return Err(NoRoute::Settings("its config.toml names a profile".to_owned()));
    }
    let named = settings.model_provider.as_deref().unwrap_or("openai");
    let Some(provider) = settings.model_providers.get(named) else {
        if named != "openai" {
            return Err(NoRoute::Settings(format!("its provider `{named}` has no address")));
        }
        let login = read("auth.json")?.and_then(|text| serde_json::from_str::<CodexLogin>(&text).ok());
        // A login pays otherwise than a key does.
        if login.is_some_and(|login| login.tokens.is_some()) {
            return Err(NoRoute::Login);
        }
        let route = openai(environment)?;
        let mut arguments = Vec::new();
        for setting in ["name=\"OpenAI\"", "env_key=\"OPENAI_API_KEY\"", "wire_api=\"responses\""] {
            arguments.extend(["-c".to_owned(), format!("model_providers.{CODEX_PROVIDER}.{setting}")]);
        }
        arguments.extend(["-c".to_owned(), format!("model_provider=\"{CODEX_PROVIDER}\"")]);
        arguments.extend(codex_arguments(CODEX_PROVIDER));
        return Ok(Route { base: None, arguments, ..route });
    };
    let CodexProvider { base_url: Some(upstream), env_key: Some(key) } = provider.clone() else {
        return Err(NoRoute::Settings(format!("its provider `{named}` has no `base_url` or no `env_key`")));
    };
    let is_plain = named.chars().all(|char| char.is_ascii_alphanumeric() || char == '-' || char == '_');
    if !is_plain {
        return Err(NoRoute::Settings(format!(
            "the name of its provider, `{}`, is not a plain word",
            named.escape_debug()
        )));
    }
    let value = environment.get(&key).ok_or_else(|| NoRoute::NoKey(key.clone()))?;
    let (auth, arguments) = (bearer(value), codex_arguments(named));
    Ok(Route { upstream, auth, key, base: None, other_key: None, arguments })
}

fn codex_arguments(provider: &str) -> Vec<String> {
    let settings = ["base_url=\"http://127.0.0.1:{port}\"", "supports_websockets=false"];
    settings.iter().flat_map(|setting| ["-c".to_owned(), format!("model_providers.{provider}.{setting}")]).collect()
}

/// Reads a file of the user; nothing if there is none.
fn read_text(path: &Path) -> Result<Option<String>, NoRoute> {
    let unreadable = |error: std::io::Error| NoRoute::Settings(format!("{} cannot be read: {error}", path.display()));
    let file = match crate::user_file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut text = String::new();
    file.take(SETTINGS_MAX).read_to_string(&mut text).map_err(unreadable)?;
    Ok(Some(text))
}

/// The variables in which CLIs and their tools look for the keys of model providers, besides those of native agents.
const KEYS: [&str; 11] = [
    "ANTHROPIC_AUTH_TOKEN",
    "AZURE_OPENAI_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CODEX_API_KEY",
    "DASHSCOPE_API_KEY",
    "GOOGLE_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "MOONSHOT_API_KEY",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
];

/// Tells whether a variable is a usual one for the key of a model provider.
fn is_key(name: &str) -> bool {
    KEYS.contains(&name) || relive_llm::providers().iter().any(|provider| provider.key_variable == Some(name))
}

impl Route {
    /// Changes the environment and the arguments of a program, so that it asks the gateway. It gets no key of another provider
    /// either, unless `tool_env` of the configuration names it: what it spends with one is not counted.
    pub(crate) fn apply(
        &self,
        port: u16,
        token: &str,
        env: &mut Vec<(String, String)>,
        argv: &mut Vec<String>,
        tool_env: &[String],
    ) {
        let is_own = |name: &String| *name == self.key || self.base == Some(name) || self.other_key == Some(name);
        let is_kept = |name: &String| !is_key(name) || tool_env.contains(name);
        env.retain(|(name, _)| !is_own(name) && is_kept(name));
        env.push((self.key.clone(), token.to_owned()));
        env.extend(self.base.map(|base| (base.to_owned(), format!("http://127.0.0.1:{port}"))));
        go_directly_to_gateway(env);
        let port = port.to_string();
        argv.extend(self.arguments.iter().map(|argument| argument.replace("{port}", &port)));
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files as a person would")]
mod tests {
    use super::super::agents::built_in;
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn applied(route: &Route, variables: &[(&str, &str)]) -> (Vec<(String, String)>, Vec<String>) {
        let environment = environment(variables);
        let mut env: Vec<(String, String)> =
            environment.variables().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut argv = vec!["cli".to_owned()];
        route.apply(4711, "token", &mut env, &mut argv, &["GROQ_API_KEY".to_owned()]);
        env.sort();
        (env, argv)
    }

    #[test]
    fn a_claude_has_the_token_in_place_of_every_key() {
        let agent = built_in("claude").unwrap();
        let variables = [("ANTHROPIC_API_KEY", "real"), ("HOME", "/h")];
        let found = route(&agent, &environment(&variables)).unwrap();
        assert_eq!(found.upstream, ANTHROPIC);
        assert_eq!((found.auth.header.as_str(), found.auth.value.as_str()), ("x-api-key", "real"));
        let (env, argv) = applied(&found, &variables);
        assert!(!format!("{env:?}").contains("real"), "{env:?}");
        assert!(env.contains(&("ANTHROPIC_BASE_URL".into(), "http://127.0.0.1:4711".into())), "{env:?}");
        assert_eq!(argv, ["cli"]);
        let both =
            [("ANTHROPIC_API_KEY", "real1"), ("ANTHROPIC_AUTH_TOKEN", "real2"), ("ANTHROPIC_BASE_URL", "http://x")];
        let found = route(&agent, &environment(&both)).unwrap();
        assert_eq!((found.upstream.as_str(), found.auth.value.as_str()), ("http://x", "Bearer real2"));
        assert!(!format!("{:?}", applied(&found, &both)).contains("real"));
        assert_eq!(route(&agent, &environment(&[])), Err(NoRoute::NoKey("ANTHROPIC_API_KEY".into())));
        let declined = CliAgent { no_gateway: true, ..agent };
        assert_eq!(route(&declined, &environment(&variables)), Err(NoRoute::Declined));
    }

    #[test]
    fn a_claude_has_the_provider_of_its_users_settings_and_no_key_of_theirs() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().to_str().unwrap();
        let variables = [("CLAUDE_CONFIG_DIR", at), ("ANTHROPIC_API_KEY", "real"), ("ANTHROPIC_BASE_URL", "http://e")];
        let found = |env: &str| {
            std::fs::write(home.path().join("settings.json"), format!(r#"{{"env":{env},"model":"m"}}"#)).unwrap();
            route(&built_in("claude").unwrap(), &environment(&variables))
        };
        assert_eq!(found("{}").unwrap().upstream, "http://e");
        assert_eq!(found(r#"{"ANTHROPIC_BASE_URL":"http://u"}"#).unwrap().upstream, "http://u");
        let refused = |name: &str| Err(NoRoute::Settings(format!("its settings.json sets {name}")));
        for name in ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK"] {
            assert_eq!(found(&format!(r#"{{"{name}":"1"}}"#)), refused(name));
        }
        let settings = claude_settings(4711, &[]);
        assert_eq!(settings["env"]["ANTHROPIC_BASE_URL"], "http://127.0.0.1:4711");
        assert_eq!(settings["env"]["CLAUDE_CODE_USE_BEDROCK"], "");
    }

    #[test]
    fn a_claude_without_settings_of_its_own_is_given_some() {
        let claude = built_in("claude").unwrap();
        let argv = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(takes_settings(&claude, &argv(&["claude"])));
        assert!(!takes_settings(&claude, &argv(&["claude", "--settings", "x"])));
        assert!(!takes_settings(&claude, &argv(&["claude", "--settings=x"])));
        assert!(!takes_settings(&claude, &argv(&["claude", "--", "do x"])), "it would become a part of the prompt");
        assert!(!takes_settings(&CliAgent { command: vec!["mine".to_owned()], ..claude }, &argv(&["mine"])));
    }

    #[test]
    fn keys_of_other_providers_reach_a_cli_only_if_the_configuration_names_them() {
        let variables = [
            ("ANTHROPIC_API_KEY", "real"),
            ("OPENAI_API_KEY", "real"),
            ("GEMINI_API_KEY", "real"),
            ("GROQ_API_KEY", "named"),
            ("SENTRY_API_KEY", "of a tool"),
        ];
        let found = route(&built_in("claude").unwrap(), &environment(&variables)).unwrap();
        let (env, _) = applied(&found, &variables);
        let names: Vec<&str> = env.iter().map(|(name, _)| name.as_str()).collect();
        let expected =
            ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "GROQ_API_KEY", "NO_PROXY", "SENTRY_API_KEY", "no_proxy"];
        assert_eq!(names, expected);
        assert!(!format!("{env:?}").contains("real"), "{env:?}");
    }

    #[test]
    fn a_gemini_and_a_qwen_are_led_by_their_environment_unless_their_settings_lead_elsewhere() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().to_str().unwrap();
        let variables = [("HOME", at), ("GEMINI_API_KEY", "real"), ("OPENAI_API_KEY", "real")];
        let found = |name: &str| route(&built_in(name).unwrap(), &environment(&variables));
        let gemini = found("gemini").unwrap();
        assert_eq!((gemini.upstream.as_str(), gemini.auth.header.as_str()), (GEMINI, "x-goog-api-key"));
        let (env, _) = applied(&gemini, &[("GEMINI_API_KEY", "real"), ("HOME", "/h")]);
        assert!(!format!("{env:?}").contains("real"), "{env:?}");
        assert!(env.contains(&("GOOGLE_GEMINI_BASE_URL".into(), "http://127.0.0.1:4711".into())), "{env:?}");
        assert_eq!(found("qwen").unwrap().upstream, OPENAI);
        let said = found("opencode").unwrap_err().to_string();
        assert_eq!(said, "`opencode` takes its provider from settings of its own");
        for directory in [".gemini", ".qwen"] {
            std::fs::create_dir(home.path().join(directory)).unwrap();
        }
        let set = |directory: &str, text: &str| {
            std::fs::write(home.path().join(directory).join("settings.json"), text).unwrap();
        };
        set(".gemini", r#"{"security":{"auth":{"selectedType":"oauth-personal"}}}"#);
        set(".qwen", r#"{"security":{"auth":{"selectedType":"openai","baseUrl":"http://x"}}}"#);
        assert_eq!(found("gemini"), Err(NoRoute::Login));
        assert!(matches!(found("qwen"), Err(NoRoute::Settings(_))));
        set(".gemini", r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"ui":{"theme":"x"}}"#);
        set(".qwen", r#"{"security":{"auth":{"selectedType":"openai"}}}"#);
        assert!(found("gemini").is_ok() && found("qwen").is_ok());
    }

    #[test]
    fn a_codex_keeps_the_provider_of_its_settings() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().to_str().unwrap();
        let agent = built_in("codex").unwrap();
        let variables = [("CODEX_HOME", at), ("OPENAI_API_KEY", "real"), ("OTHER_KEY", "other")];
        let found = route(&agent, &environment(&variables)).unwrap();
        assert_eq!((found.upstream.as_str(), found.auth.value.as_str()), (OPENAI, "Bearer real"));
        let (env, argv) = applied(&found, &variables);
        assert!(!format!("{env:?}").contains("real"), "{env:?}");
        assert!(argv.contains(&"model_providers.relive.base_url=\"http://127.0.0.1:4711\"".to_owned()), "{argv:?}");
        let settings =
            "model_provider = \"mine\"\n[model_providers.mine]\nbase_url = \"http://m/v1\"\nenv_key = \"OTHER_KEY\"\n";
        std::fs::write(home.path().join("config.toml"), settings).unwrap();
        let found = route(&agent, &environment(&variables)).unwrap();
        assert_eq!((found.upstream.as_str(), found.auth.value.as_str()), ("http://m/v1", "Bearer other"));
        let (_, argv) = applied(&found, &variables);
        assert!(!argv.iter().any(|word| word.contains("model_provider=")), "{argv:?}");
        std::fs::write(home.path().join("config.toml"), "model_provider = \"azure\"\n").unwrap();
        assert!(matches!(route(&agent, &environment(&variables)), Err(NoRoute::Settings(_))));
        std::fs::write(home.path().join("config.toml"), "").unwrap();
        std::fs::write(home.path().join("auth.json"), "{\"tokens\": {\"id_token\": \"x\"}}").unwrap();
        assert_eq!(route(&agent, &environment(&variables)), Err(NoRoute::Login));
    }
}
