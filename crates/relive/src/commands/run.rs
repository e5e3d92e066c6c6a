//! `relive run`: an agent, in the foreground or not.

pub(crate) mod attach;
mod policy;
mod prompt;
mod show;

use std::time::Duration;

use relive_api::RunRequest;
use relive_core::{ErrorCode, Limits, Usd};
use tokio::signal::unix::{SignalKind, signal};

use super::interrupts::{INTERRUPTED, obey};
use crate::client::{Client, Start};
use crate::context::{Context, new_uuid};
use crate::error::{CommandError, Outcome};
use crate::render::time::as_millis;

/// Run an agent
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive run \"fix the failing test\"           Ctrl-C asks it to stop, a second one kills it
  relive run -d --name fixer \"fix the test\"  prints its PID and runs in the background
  relive run --max-steps 20 --timeout 10m --system @prompt.md \"review the last commit\"
  relive run --agent reviewer --env-file .env \"review the last commit\"   as agents/reviewer.yaml says
  relive run --ask write --deny shell \"tidy up\"   asks before each write, and never runs a command")]
pub(crate) struct Args {
    /// What it is to do
    intent: String,
    /// In the background: print its PID and return
    #[arg(short, long)]
    detach: bool,
    /// Provider and model: script/FILE.yaml, or script/demo
    #[arg(long, value_name = "P/M")]
    model: Option<String>,
    /// A name to call it by
    #[arg(long)]
    name: Option<String>,
    /// As agents/NAME.yaml says, here or beside config.yaml: model, system prompt, tools, limits; flags win
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The system prompt, or @ and the file it is in; AGENTS.md of this folder is added
    #[arg(long, value_name = "TEXT|@FILE")]
    system: Option<String>,
    /// It fails when it would take more steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_steps: Option<u32>,
    /// It is ended when it would use more tokens, in and out together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: Option<u64>,
    /// It is ended when it would cost more dollars
    #[arg(long, value_name = "USD", value_parser = parse_dollars)]
    max_cost: Option<Usd>,
    /// It is ended after this long, pauses not counted
    #[arg(long, value_name = "DURATION", value_parser = relive_types::duration::parse)]
    timeout: Option<Duration>,
    /// What becomes of a call whose outcome a crash hid
    #[arg(long, value_name = "POLICY", value_parser = ["tell_model", "park", "retry"])]
    on_in_doubt: Option<String>,
    /// What becomes of a process that has spent what it may
    #[arg(long, value_name = "POLICY", value_parser = ["end", "suspend"])]
    on_budget: Option<String>,
    #[command(flatten)]
    policy: policy::Args,
    #[command(flatten)]
    environment: crate::environment::EnvironmentArgs,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let request = request(args)?;
    let cannot = |error| CommandError::internal("Ctrl-C cannot be listened to").because(error);
    let mut interrupts = if args.detach { None } else { Some(signal(SignalKind::interrupt()).map_err(cannot)?) };
    let begin = async {
        let client = Client::open(context, Start::Always).await?;
        let client = client.ok_or_else(|| CommandError::unavailable("no daemon is running"))?;
        let created = client.run(&request).await.map_err(|error| explain(context, &request, error.into()))?;
        Ok::<_, CommandError>((client, created))
    };
    let interrupted = async {
        match &mut interrupts {
            Some(interrupts) => interrupts.recv().await.unwrap_or(()),
            None => std::future::pending().await,
        }
    };
    let (client, created) = tokio::select! {
        begun = begin => begun?,
        () = interrupted => {
            context.say("interrupted before the daemon answered: `relive ps` shows whether it runs");
            return Ok(INTERRUPTED);
        }
    };
    match interrupts {
        Some(interrupts) => {
            let uuid = created.uuid.to_string();
            attach::run(&client, created, obey(&client, &uuid, interrupts, None)).await
        }
        None if context.json => context.print_json(&created).map(|()| 0),
        None => context.print_line(&created.pid.to_string()).map(|()| 0),
    }
}

fn request(args: &Args) -> Outcome<RunRequest> {
    let cwd = current_directory()?;
    if args.intent.trim().is_empty() {
        return Err(
            CommandError::invalid("say what the agent is to do").with_hint("relive run \"fix the failing test\"")
        );
    }
    Ok(RunRequest {
        uuid: new_uuid()?,
        name: args.name.clone(),
        intent: args.intent.clone(),
        model: args.model.clone(),
        agent: args.agent.clone(),
        system_prompt: args.system.as_deref().map(system_prompt).transpose()?,
        cwd,
        env: args.environment.environment()?,
        limits: Limits {
            max_steps: args.max_steps,
            max_tokens: args.max_tokens,
            max_cost_usd: args.max_cost,
            timeout_ms: args.timeout.map(as_millis),
        },
        on_in_doubt: args.on_in_doubt.clone(),
        on_budget: args.on_budget.clone(),
        policy: args.policy.by_tool()?,
        yes: args.policy.yes,
    })
}

/// An amount of dollars, more than nothing.
pub(crate) fn parse_dollars(text: &str) -> Result<Usd, String> {
    let amount = text.strip_prefix('$').unwrap_or(text).parse().ok().and_then(Usd::from_dollars);
    amount.filter(|amount| amount.nanos() > 0).ok_or_else(|| "not an amount of dollars: say it like 0.50".to_owned())
}

fn system_prompt(given: &str) -> Outcome<String> {
    let Some(path) = given.strip_prefix('@') else { return Ok(given.to_owned()) };
    std::fs::read_to_string(path)
        .map_err(|error| CommandError::invalid(format!("{path}: the system prompt cannot be read")).because(error))
}

/// Nothing configured yet is the first thing a new user meets.
fn explain(context: &Context, request: &RunRequest, error: CommandError) -> CommandError {
    let no_model =
        request.model.is_none() && error.code() == Some(ErrorCode::Invalid) && error.message.contains("no model");
    if !no_model {
        return error;
    }
    error.with_hint(format!(
        "relive run --model script/FILE.yaml ..., or script/demo, which is built in; or put `default_model: script/demo` \
         into {}; or try `relive demo`, which needs none",
        context.paths.config.display()
    ))
}

/// The directory this command was typed in.
pub(crate) fn current_directory() -> Outcome<String> {
    let cwd = std::env::current_dir()
        .map_err(|error| CommandError::invalid("there is no current directory").because(error))?;
    cwd.into_os_string().into_string().map_err(|cwd| {
        CommandError::invalid(format!("{}: the name of the current directory is not UTF-8", cwd.display()))
    })
}
