//! `relive run`: an agent, in the foreground or not.

pub(crate) mod foreground;
mod leaving;
mod policy;
pub(crate) mod questions;
mod show;
mod stdin;
mod terminal;

use std::path::PathBuf;

use relive_api::{Created, Isolation, Network, Resources, RunRequest};
use relive_core::ErrorCode;
use relive_types::program::quote;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::foreground::{Arrival, AtQuestion, Manner};
use self::stdin::Patience;
use super::interrupts::{Asked, Front, INTERRUPTED, Reach, obey, start_or_cancel};
use super::limits::LimitArgs;
use super::started::{self, Answer, NotStarted};
use crate::client::{Client, Start};
use crate::context::{Context, new_uuid};
use crate::error::{CommandError, Outcome};
use crate::render::size::{parse_processors, parse_size};
use crate::terminal::key::{self, Key};

/// The model that is offered to whoever has not chosen one.
const REAL_MODEL: &str = "anthropic/claude-sonnet-4-5";

/// The longest task that a hint repeats.
const TASK_SHOWN_MAX: usize = 60;

/// Run an agent
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive run \"fix the failing test\"
      Run in the foreground. A typed line is a message to the agent. Ctrl-C
      asks it to stop, a second Ctrl-C kills it, and Ctrl-] detaches: the agent
      keeps running.
  git diff | relive run \"review this\"
      Give the agent the piped text as context. `run -` reads the intent itself.
  relive run -d --name fixer \"fix the test\"
      Run in the background.
  relive run --max-steps 20 --timeout 10m --system @prompt.md \"review this\"
  relive run --agent reviewer --env-file .env \"review the last commit\"
      Use the settings in agents/reviewer.yaml.
  relive run -d --agent claude \"fix the test\"
      Run Claude Code, or codex, as a process that waits for further messages.
  relive run --agent claude -t
      Run Claude Code's own full-screen interface; Ctrl-] detaches.
  relive run --allow 'shell:cargo test*' \"fix the test\"
      Ask before every other command.
  relive run --ask write --deny shell \"tidy up\"
      Ask before every write, and never run a command.
  while read -r url; do relive run -n \"check $url\"; done < urls
      Do not read the input of the loop.")]
pub(crate) struct Args {
    /// What you want the agent to do; `-` reads it from standard input
    #[arg(required_unless_present = "tty")]
    intent: Option<String>,
    /// Run in the background and print the PID
    #[arg(short, long)]
    detach: bool,
    /// The provider and the model, such as openai/gpt-5 or script/demo; default: `default_model` in config.yaml
    #[arg(long, value_name = "PROVIDER/MODEL")]
    model: Option<String>,
    /// A name for the process
    #[arg(long)]
    name: Option<String>,
    /// Take model, system prompt, tools and limits from agents/NAME.yaml, in this directory or beside config.yaml; flags override it. Without such a file, claude, codex, gemini, opencode and qwen are the CLI agents of these names, and acp:COMMAND runs COMMAND as an ACP agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The system prompt, or @ and a file that contains it; AGENTS.md of this directory is appended
    #[arg(long, value_name = "TEXT|@FILE")]
    system: Option<String>,
    #[command(flatten)]
    limits: LimitArgs,
    /// What to do with a tool call whose outcome is unknown after a crash: tell the model, suspend the agent until `relive
    /// resolve`, or repeat the call
    #[arg(long, value_name = "POLICY", value_parser = ["tell_model", "park", "retry"])]
    on_in_doubt: Option<String>,
    /// What to do when the agent reaches a limit of steps, tokens, cost or time
    #[arg(long, value_name = "POLICY", value_parser = ["end", "suspend"])]
    on_budget: Option<String>,
    /// Do not read standard input; otherwise piped text is context for the agent
    #[arg(short = 'n', long, conflicts_with = "stdin")]
    no_stdin: bool,
    /// Read standard input to its end, however long that takes
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Without a terminal, keep waiting instead of failing when the agent needs an approval, a key or a higher limit
    #[arg(long)]
    wait_approval: bool,
    /// The key that detaches; the agent keeps running
    #[arg(long, value_name = "KEY", default_value = key::DETACH, value_parser = key::parse_free_key)]
    detach_key: Key,
    /// `own`: work on a copy of this directory, the default for sealed agents; `here`: work in this directory
    #[arg(long, value_name = "own|here", value_parser = super::resume::parse_workspace)]
    workspace: Option<relive_api::WorkspaceKind>,
    /// What the agent's commands may reach: none, confined or sealed, see `relive exec --help`; default: `isolation.agents` in
    /// config.yaml, otherwise confined if this machine supports it. For a CLI agent, what it may reach itself: none, the
    /// default, or confined, with its own directory writable
    #[arg(long, value_name = "none|confined|sealed")]
    isolation: Option<Isolation>,
    /// Which part of the network the agent's commands reach: full, none or allow:DOMAIN,..., see `relive exec --help`; you are
    /// asked about other domains
    #[arg(long, value_name = "full|none|allow:DOMAIN,...")]
    net: Option<Network>,
    /// Run commands even if this machine cannot enforce all of the isolation
    #[arg(long)]
    allow_degraded: bool,
    /// Let a CLI agent call its provider directly, for a login that has no key. Its tokens and cost are then not limited,
    /// and its usage is the CLI's own claim
    #[arg(long, requires = "agent")]
    no_gateway: bool,
    /// Maximum memory of a CLI agent and its programs, such as 512M or 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "agent")]
    memory: Option<u64>,
    /// Maximum number of processes and threads of a CLI agent and its programs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "agent")]
    pids: Option<u32>,
    /// Maximum number of processors for a CLI agent and its programs, such as 2 or 0.5
    #[arg(long, value_name = "N", value_parser = parse_processors, requires = "agent")]
    cpu: Option<u32>,
    /// Run a CLI agent with its own full-screen interface, in a terminal of its own, where you type what it is to do
    #[arg(short, long, requires = "agent", conflicts_with_all = ["intent", "no_stdin", "stdin", "wait_approval", "yes"])]
    tty: bool,
    #[command(flatten)]
    policy: policy::Args,
    #[command(flatten)]
    environment: crate::environment::EnvironmentArgs,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    if args.tty {
        return terminal::run(context, args).await;
    }
    let request = request(context, args)?;
    let cannot = |error| CommandError::internal("cannot listen for Ctrl-C").because(error);
    let mut interrupts = signal(SignalKind::interrupt()).map_err(cannot)?;
    let Some(client) = open(context, &mut interrupts).await? else { return Ok(INTERRUPTED) };
    let begin = async {
        let created = if args.detach { client.run(&request).await } else { client.run_attended(&request).await };
        created.map_err(|error| explain(context, &request, error.into()))
    };
    let created = start_or_cancel(&client, request.uuid, &mut interrupts, begin).await?;
    let Some(created) = created else { return Ok(INTERRUPTED) };
    if args.detach {
        let failed = async {
            match &args.agent {
                Some(_) => started::failure_of(&client, created.pid).await,
                None => None,
            }
        };
        let failed = tokio::select! {
            failed = failed => failed,
            _ = interrupts.recv() => None,
        };
        return in_background(context, created, failed);
    }
    let (uuid, asked) = (created.uuid.to_string(), Asked::default());
    let manner = Manner {
        detach: args.detach_key,
        unasked: if args.wait_approval { AtQuestion::Wait } else { AtQuestion::Fail },
        arrival: Arrival::First,
        generation: 1,
    };
    let front = Front { pid: created.pid, uuid: &uuid, reach: Reach::Subtree };
    let leave = obey(&client, front, interrupts, None, &asked);
    foreground::run(&client, created, manner, &asked, leave).await
}

/// Connects to the daemon, which may have to be started. Ctrl-C cancels that; then this returns `None`.
async fn open<'a>(context: &'a Context, interrupts: &mut Signal) -> Outcome<Option<Client<'a>>> {
    let client = tokio::select! {
        client = Client::open(context, Start::Always) => client?,
        _ = interrupts.recv() => {
            context.say("interrupted: nothing was started");
            return Ok(None);
        }
    };
    client.ok_or_else(|| CommandError::unavailable("no daemon is running")).map(Some)
}

/// Prints the PID of a process in the background; fails like a shell for a CLI agent that could not be started.
fn in_background(context: &Context, created: Created, failed: Option<NotStarted>) -> Outcome<u8> {
    let Some(NotStarted { error, code }) = failed else {
        let pid = created.pid.to_string();
        let told = if context.json { context.print_json(&created) } else { context.print_line(&pid) };
        let next = format!("relive attach {}", created.pid);
        return told.map(|()| 0).map_err(|error| error.beside_running(created.pid, next));
    };
    if context.json {
        context.print_json(&Answer { answer: created, error: Some(error.detail()) })?;
    } else {
        context.say_on(&crate::report::as_text(&error, &context.err));
    }
    Ok(code)
}

/// What the agent is to do, and what was piped in for it.
fn task(context: &Context, args: &Args) -> Outcome<(String, Option<String>)> {
    let intent = args.intent.clone().unwrap_or_default();
    if intent == "-" {
        if args.no_stdin {
            let message = "`-` reads the intent from standard input, and -n does not read it";
            return Err(CommandError::invalid(message).with_hint("relive run -n \"fix the failing test\""));
        }
        return Ok((stdin::intent()?, None));
    }
    if args.no_stdin {
        return Ok((intent, None));
    }
    let patience = if args.stdin { Patience::Endless } else { Patience::Short };
    let piped = stdin::read(patience)?;
    if let Some(piped) = &piped {
        context.say(&stdin::note(piped));
    }
    let text = piped.map(|piped| piped.text).filter(|text| !text.is_empty());
    Ok((intent, text))
}

impl Args {
    fn resources(&self) -> Resources {
        Resources { memory: self.memory, pids: self.pids, cpu: self.cpu, allow_degraded: self.allow_degraded }
    }
}

fn request(context: &Context, args: &Args) -> Outcome<RunRequest> {
    let cwd = current_directory()?;
    let (intent, piped) = if args.tty { (terminal::intent(args), None) } else { task(context, args)? };
    if intent.trim().is_empty() {
        return Err(CommandError::invalid("the intent is empty: it says what the agent is to do")
            .with_hint("relive run \"fix the failing test\""));
    }
    Ok(RunRequest {
        uuid: new_uuid()?,
        name: args.name.clone(),
        intent,
        context: piped,
        model: args.model.clone(),
        agent: args.agent.clone(),
        system_prompt: args.system.as_deref().map(system_prompt).transpose()?,
        cwd,
        env: args.environment.environment("relive run --env NAME=VALUE \"fix the failing test\"")?,
        shell: crate::inherited::inherited(),
        limits: args.limits.limits(),
        on_in_doubt: args.on_in_doubt.clone(),
        on_budget: args.on_budget.clone(),
        policy: args.policy.by_tool()?,
        yes: args.policy.yes,
        workspace: args.workspace,
        isolation: args.isolation,
        network: args.net.clone(),
        foreground: !args.detach,
        no_gateway: args.no_gateway,
        terminal: args.tty.then(terminal::size),
        resources: args.resources(),
    })
}

fn system_prompt(given: &str) -> Outcome<String> {
    let Some(path) = given.strip_prefix('@') else { return Ok(given.to_owned()) };
    crate::user_file::read_instructions(path.as_ref())
}

/// Nothing configured yet is the first thing a new user meets.
fn explain(context: &Context, request: &RunRequest, error: CommandError) -> CommandError {
    const PROVIDERS: [&str; 6] = ["anthropic", "openai", "gemini", "ollama", "deepseek", "script"];
    let colon = request.model.as_deref().filter(|model| !model.contains('/')).and_then(|model| model.split_once(':'));
    if let Some((provider, model)) = colon.filter(|(provider, _)| PROVIDERS.contains(provider))
        && error.code() == Some(ErrorCode::Invalid)
    {
        return error.with_hint(format!("did you mean `{provider}/{model}`?"));
    }
    let no_model =
        request.model.is_none() && error.code() == Some(ErrorCode::Invalid) && error.message.contains("no model");
    if !no_model {
        return error;
    }
    let is_short = request.intent.chars().count() <= TASK_SHOWN_MAX && !request.intent.contains('\n');
    let task = if is_short { quote(&request.intent) } else { "\"fix the failing test\"".to_owned() };
    error.with_hint(format!(
        "relive run --model {REAL_MODEL} {task}\n\
         It needs a key: export ANTHROPIC_API_KEY=...; `default_model: {REAL_MODEL}` in {} makes it the default.\n\
         Without a key: relive run --model script/demo {task}, or relive demo",
        context.paths.config.display()
    ))
}

/// Returns the directory this command was typed in. One that was removed is named as the shell names it.
pub(crate) fn here() -> Outcome<PathBuf> {
    std::env::current_dir().map_err(|error| {
        let named = std::env::var_os("PWD").map(PathBuf::from).filter(|path| path.is_absolute());
        let message = match named {
            Some(path) => format!("the current directory does not exist any more: {}", path.display()),
            None => "the current directory does not exist any more".to_owned(),
        };
        CommandError::invalid(message).because(error).with_hint("cd")
    })
}

/// The directory this command was typed in.
pub(crate) fn current_directory() -> Outcome<String> {
    here()?.into_os_string().into_string().map_err(|cwd| {
        CommandError::invalid(format!("{}: the name of the current directory is not UTF-8", cwd.display()))
    })
}
