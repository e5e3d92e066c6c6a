//! Access to the provider of a model: the process's own key and server, or those of the configuration.
//!
//! The nearest source wins: a variable of the process's environment, then `key_file`, then `key_command`. The daemon's
//! own environment is never used. A key is in no message: messages name where it was searched.

use std::collections::HashMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use relive_agent::script::Script;
use relive_api::Environment;
use relive_config::Provider;
use relive_core::{ErrorCode, Pid, SuspendReason, Uuid};
use relive_journal::{JobLost, Pool};
use relive_llm::Model;
use relive_llm::{Access, OpenError, Prices, Secret, Windows};
use tokio::io::AsyncReadExt as _;
use tokio::sync::Semaphore;

use crate::environment::Environments;
use crate::error::{Error, Result};
use crate::pools::FILE_WITHIN;
use crate::reload::LiveSettings;
use crate::warnings::Warnings;

/// How long `key_command` may take.
const COMMAND_WITHIN: Duration = Duration::from_secs(10);
/// How many of them run at once for one provider.
const COMMANDS_MAX: usize = 4;
/// How much of a key file, or of the output of a command, is read.
const KEY_BYTES_MAX: u64 = 16 << 10;

/// Returns the provider of a model; `None` for one that needs none.
pub(crate) fn provider_of(model: &str) -> Option<relive_llm::Provider> {
    let (provider, _) = model.split_once('/')?;
    relive_llm::provider(provider)
}

/// The reason why a model cannot be used.
#[derive(Debug)]
pub(crate) enum NoModel {
    /// There is no usable key.
    NeedsKey {
        message: String,
        hint: String,
    },
    Wrong(String),
    /// A file was not read in time. The disk is slow, or many others wait for it.
    Unread(JobLost),
}

impl From<NoModel> for Error {
    fn from(no_model: NoModel) -> Self {
        match no_model {
            NoModel::NeedsKey { message, hint } => Self::new(ErrorCode::Invalid, message).with_hint(hint),
            NoModel::Wrong(message) => Self::new(ErrorCode::Invalid, message),
            NoModel::Unread(lost) => lost.into(),
        }
    }
}

/// Returns what to do for a process that lacks credentials.
pub(crate) fn credentials_hint(model: &str, pid: Pid, refused: Option<&str>) -> Option<String> {
    let provider = provider_of(model)?;
    if let Some(refusal) = refused {
        // It is set, and wrong.
        let (variable, family) = (provider.key_variable?, provider.family());
        return Some(format!(
            "{refusal}; export {variable}=..., or put another key into providers.{family}.key_file, and from a shell that has it: relive resume {pid}"
        ));
    }
    Some(format!("{}, then from a shell that has it: relive resume {pid}", what_to_set(provider)?))
}

fn what_to_set(provider: relive_llm::Provider) -> Option<String> {
    let (variable, family) = (provider.key_variable?, provider.family());
    Some(format!("export {variable}=..., or set providers.{family}.key_file in config.yaml"))
}

/// Builds the model of this name, with access for its provider. Blocks.
fn build_model(
    name: &str,
    cwd: &Path,
    uuid: Uuid,
    access: Option<Access>,
    prices: &Prices,
    windows: &Windows,
) -> Result<Arc<dyn Model>, NoModel> {
    if let Some(file) = name.strip_prefix("script/") {
        let script = Script::open(file, cwd).map_err(|error| NoModel::Wrong(error.to_string()))?;
        return Ok(Arc::new(script.with_uuid(uuid)));
    }
    relive_llm::open(name, access.unwrap_or_default(), prices, windows).map_err(|error| {
        let message = error.to_string();
        match error {
            OpenError::NeedsKey { .. } => {
                let hint = provider_of(name).and_then(what_to_set).unwrap_or_default();
                NoModel::NeedsKey { message, hint }
            }
            OpenError::UnknownProvider(_) | OpenError::BadUrl { .. } | OpenError::Client(_) => NoModel::Wrong(message),
        }
    })
}

/// Finds keys and builds models.
#[derive(Debug)]
pub(crate) struct Credentials {
    pool: Pool,
    environments: Arc<Environments>,
    live: Arc<LiveSettings>,
    commands: KeyCommands,
    warnings: Warnings,
}

impl Credentials {
    pub(crate) fn new(
        live: Arc<LiveSettings>,
        pool: Pool,
        environments: Arc<Environments>,
        warnings: Warnings,
    ) -> Self {
        Self { pool, environments, live, commands: KeyCommands::default(), warnings }
    }

    /// Ensures that process `to` can continue from the journal of `from`, and has an environment: that of `from`, or,
    /// if that is gone or insufficient, that of the caller. A refusal changes nothing.
    pub(crate) async fn equip(
        &self,
        from: Uuid,
        to: Uuid,
        reason: Option<SuspendReason>,
        model: Option<&str>,
        brought: &Environment,
    ) -> Result<()> {
        if let Some(environment) = self.choose(from, to, reason, model, brought).await? {
            let environments = Arc::clone(&self.environments);
            self.pool.run(move || environments.put(to, &environment)).await??;
        }
        Ok(())
    }

    /// Chooses the environment that [`Self::equip`] stores, without storing it; `None` if the present one stays.
    pub(crate) async fn choose(
        &self,
        from: Uuid,
        to: Uuid,
        reason: Option<SuspendReason>,
        model: Option<&str>,
        brought: &Environment,
    ) -> Result<Option<Environment>> {
        let kept = self.environments.of(from);
        let provider = model.and_then(provider_of);
        let brings = if kept.is_empty() {
            (!brought.is_empty()).then(|| brought.clone())
        } else {
            let needs_key = reason == Some(SuspendReason::NeedsCredentials) && !brought.is_empty();
            provider.filter(|_| needs_key).map(|provider| with_key(&kept, provider, brought))
        };
        let takes = brings.is_some();
        let environment = brings.unwrap_or(kept);
        if let Some(provider) = provider {
            self.access(provider, &environment).await?;
        }
        Ok((takes || from != to).then_some(environment))
    }

    /// Builds the model of this name, with access from this environment and the configuration.
    pub(crate) async fn model(
        &self,
        name: &str,
        cwd: &Path,
        uuid: Uuid,
        environment: &Environment,
    ) -> Result<Arc<dyn Model>, NoModel> {
        let access = match provider_of(name) {
            Some(provider) => Some(self.access(provider, environment).await?),
            None => None,
        };
        let (name, cwd) = (name.to_owned(), cwd.to_owned());
        let now = self.live.now();
        let (prices, windows) = (Arc::clone(&now.prices), Arc::clone(&now.windows));
        let built =
            self.pool.run_within(FILE_WITHIN, move || build_model(&name, &cwd, uuid, access, &prices, &windows)).await;
        built.map_err(NoModel::Unread)?
    }

    async fn access(&self, provider: relive_llm::Provider, environment: &Environment) -> Result<Access, NoModel> {
        let configured = self.live.now().providers.get(provider.family()).cloned().unwrap_or_default();
        let of_process = environment.get(provider.base_url_variable).map(str::to_owned);
        let base_url = of_process.or_else(|| configured.base_url.clone());
        let Some(variable) = provider.key_variable else { return Ok(Access { base_url, key: None }) };
        let needs_key = |message| NoModel::NeedsKey { message, hint: what_to_set(provider).unwrap_or_default() };
        let found = match environment.get(variable) {
            Some(key) => Some((key.to_owned(), variable.to_owned())),
            None => self.configured_key(provider.family(), &configured, environment).await.map_err(needs_key)?,
        };
        match found {
            Some((key, _)) if key.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Ok(Access { base_url, key: Some(Secret::new(&key)) })
            }
            Some((_, from)) => Err(needs_key(format!("{from} does not contain a valid key"))),
            None if !provider.needs_key(base_url.as_deref()) => Ok(Access { base_url, key: None }),
            None => Err(needs_key(format!("{} needs a key: {variable} is not set", provider.name))),
        }
    }

    /// Returns the key from the configuration, and its source.
    async fn configured_key(
        &self,
        provider: &str,
        configured: &Provider,
        environment: &Environment,
    ) -> Result<Option<(String, String)>, String> {
        let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
        if let Some(path) = configured.key_path(home.as_deref()) {
            let shown = path.display().to_string();
            let read =
                self.pool.run_within(FILE_WITHIN, move || read_key(&path)).await.map_err(|error| error.to_string())?;
            let (key, others_can_read) = read.map_err(|error| format!("{shown}: the key cannot be read: {error}"))?;
            if others_can_read {
                self.warnings.warn_once(format!("{shown}: others can read this key; chmod 600 {shown}"));
            }
            return Ok(Some((key, shown)));
        }
        let Some(command) = &configured.key_command else { return Ok(None) };
        let from = format!("providers.{provider}.key_command");
        let asked = self.commands.ask(provider, command, environment).await;
        let key = asked.map_err(|problem| format!("{from} {problem}"))?;
        Ok(Some((key, from)))
    }
}

type Asked = Shared<BoxFuture<'static, Result<String, String>>>;

/// The running commands for keys. Those of one provider do not delay those of another, and a caller that needs the
/// result of a running command waits for that run.
#[derive(Debug, Default)]
struct KeyCommands {
    turns: Mutex<HashMap<String, Arc<Semaphore>>>,
    runs: Mutex<Vec<Run>>,
}

#[derive(Debug)]
struct Run {
    command: String,
    environment: Environment,
    /// Dropped with the last waiter: a key is not kept.
    asked: WeakShared<BoxFuture<'static, Result<String, String>>>,
}

impl KeyCommands {
    async fn ask(&self, provider: &str, command: &str, environment: &Environment) -> Result<String, String> {
        self.run_of(provider, command, environment).await
    }

    fn run_of(&self, provider: &str, command: &str, environment: &Environment) -> Asked {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|run| run.asked.upgrade().is_some_and(|asked| asked.peek().is_none()));
        let same = runs.iter().find(|run| run.command == command && run.environment == *environment);
        if let Some(asked) = same.and_then(|run| run.asked.upgrade()) {
            return asked;
        }
        let turns = self.turns_of(provider);
        let (command, environment) = (command.to_owned(), environment.clone());
        let (asks, with) = (command.clone(), environment.clone());
        let asked = async move {
            let _turn = turns.acquire().await;
            ask_command(&asks, &with, COMMAND_WITHIN).await
        };
        let asked = asked.boxed().shared();
        if let Some(weak) = asked.downgrade() {
            runs.push(Run { command, environment, asked: weak });
        }
        asked
    }

    fn turns_of(&self, provider: &str) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let of = turns.entry(provider.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(COMMANDS_MAX)));
        Arc::clone(of)
    }
}

/// Returns the first line that a command prints. Its other output is discarded: it may be a key as well.
async fn ask_command(command: &str, environment: &Environment, within: Duration) -> Result<String, String> {
    let mut shell = tokio::process::Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    shell.process_group(0).kill_on_drop(true);
    if !environment.is_empty() {
        shell.env_clear().envs(environment.variables());
    }
    let mut child = shell.spawn().map_err(|error| format!("cannot be run: {error}"))?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    let mut printed = Vec::new();
    let asked = async {
        if let Some(stdout) = child.stdout.take() {
            stdout.take(KEY_BYTES_MAX).read_to_end(&mut printed).await?;
        }
        child.wait().await
    };
    let ended = tokio::time::timeout(within, asked).await;
    if let (Err(_), Some(group)) = (&ended, group) {
        // A descendant may be what hangs.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    match ended {
        Err(_) => Err(format!("did not end within {} s", within.as_secs())),
        Ok(Err(error)) => Err(format!("cannot be run: {error}")),
        Ok(Ok(status)) if !status.success() => Err(format!("failed: {status}")),
        Ok(Ok(_)) => first_line(&printed).ok_or_else(|| "printed nothing".to_owned()),
    }
}

/// Returns the key in a file, and whether others than its owner can read it.
fn read_key(path: &Path) -> std::io::Result<(String, bool)> {
    let file = crate::user_file::open(path)?;
    let metadata = file.metadata()?;
    let mut bytes = Vec::new();
    file.take(KEY_BYTES_MAX).read_to_end(&mut bytes)?;
    let key = first_line(&bytes).ok_or_else(|| std::io::Error::other("it is empty"))?;
    Ok((key, metadata.permissions().mode() & 0o077 != 0))
}

fn first_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// Returns an environment with the key that was brought in place of its own, which is missing or was refused, and with
/// the address of the server that takes it if that was brought too. Everything else stays: without it, a process of a
/// private server would speak to a public one.
fn with_key(kept: &Environment, provider: relive_llm::Provider, brought: &Environment) -> Environment {
    let is_own_key = |name: &str| Some(name) == provider.key_variable;
    let others = kept.variables().filter(|(name, _)| !is_own_key(name));
    let mut environment: Environment = others.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    for variable in provider.key_variable.into_iter().chain([provider.base_url_variable]) {
        if let Some(value) = brought.get(variable) {
            environment.set(variable.to_owned(), value.to_owned());
        }
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_can_be_configured() {
        let mut names: Vec<&str> = relive_llm::providers().iter().map(relive_llm::Provider::family).collect();
        names.dedup();
        assert_eq!(names, relive_config::PROVIDERS);
    }

    #[test]
    fn the_key_is_the_first_line_that_is_not_empty() {
        let check = |text: &str, key: Option<&str>| assert_eq!(first_line(text.as_bytes()).as_deref(), key, "{text:?}");
        check("sk-1\n", Some("sk-1"));
        check("\n  sk-1  \r\nsk-2\n", Some("sk-1"));
        check(" \n", None);
        check("", None);
    }

    #[tokio::test]
    async fn a_key_command_gets_the_environment_of_the_process_and_a_time_limit() {
        let environment: Environment = std::iter::once(("WHO".to_owned(), "me".to_owned())).collect();
        let ask = async |command: &str, ms| ask_command(command, &environment, Duration::from_millis(ms)).await;
        assert_eq!(ask("echo key-of-$WHO; echo more", 60_000).await.as_deref(), Ok("key-of-me"));
        assert_eq!(ask("echo sk-secret >&2; exit 3", 60_000).await.unwrap_err(), "failed: exit status: 3");
        let begun = std::time::Instant::now();
        // It hangs in a child that keeps the pipe open.
        let late = ask("echo sk-secret; /bin/sleep 600 & wait", 100).await.unwrap_err();
        assert_eq!(late, "did not end within 0 s");
        assert!(begun.elapsed() < Duration::from_secs(60));
        // More than is read: its pipe is closed, and it blocks nothing.
        assert!(ask("yes sk-secret", 60_000).await.is_err());
    }

    #[tokio::test]
    async fn slow_key_commands_delay_no_other_provider_and_run_once() {
        let temp = tempfile::tempdir().unwrap();
        let count = temp.path().join("count");
        let commands = KeyCommands::default();
        let of = |number: usize| std::iter::once(("N".to_owned(), number.to_string())).collect::<Environment>();
        let slow = format!("echo $N >> {}; exec /bin/sleep 600", count.display());
        let runs: Vec<Asked> = (0..64).map(|number| commands.run_of("slow", &slow, &of(number % 8))).collect();
        let mut waiting = std::pin::pin!(futures_util::future::select_all(runs));
        let environment = of(0);
        let asked = commands.ask("quick", "echo sk-1", &environment);
        let asked = futures_util::future::select(waiting.as_mut(), Box::pin(asked));
        let futures_util::future::Either::Right((key, _)) = asked.await else { panic!("600 s are not over") };
        assert_eq!(key.as_deref(), Ok("sk-1"));
        let begun = || std::fs::read_to_string(&count).unwrap_or_default().lines().count();
        let all_begin = async {
            while begun() < COMMANDS_MAX {
                assert!(futures_util::poll!(waiting.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), all_begin).await.unwrap();
        assert_eq!(begun(), COMMANDS_MAX, "64 wait for 8 runs, of which 4 have begun");
    }

    #[test]
    fn the_hint_for_a_missing_key_names_what_to_set() {
        let hint = credentials_hint("anthropic/claude", Pid(5), None).unwrap();
        assert!(
            hint.starts_with("export ANTHROPIC_API_KEY=...")
                && hint.contains("key_file")
                && hint.ends_with("relive resume 5")
        );
        assert_eq!(credentials_hint("script/demo", Pid(5), None), None);
        let refused = credentials_hint("openai/gpt-5", Pid(5), Some("openai refused the key (401)")).unwrap();
        assert!(
            refused.starts_with("openai refused the key (401); ") && refused.contains("export OPENAI_API_KEY=..."),
            "{refused}"
        );
    }
}
