//! New CLI agents.

use std::sync::Arc;

use relive_api::{Created, Environment, Isolated, RunRequest, TerminalSize, WorkspaceKind};
use relive_cli_agent::Dialect;
use relive_core::program::{Namespace, Stdio};
use relive_core::{ErrorCode, Limits, Pid, Program};
use relive_journal::policy::Policy;
use relive_journal::record::{Body, CliRecord, OnBudget, Spawned};
use relive_types::{CliAgent, Isolation, Network};

use super::{Above, Draft};
use crate::bodies::{ACP_PREFIX, NoRoute, knows_state, route};
use crate::error::{Error, Result};
use crate::instructions::{self, NamedCli};
use crate::pools::FILE_WITHIN;
use crate::runtime::{ProcessRef, Runtime};
use crate::spec::raised;

impl Runtime {
    /// Creates a CLI agent.
    pub(super) async fn create_cli(
        self: &Arc<Self>,
        above: Above,
        parent: Option<ProcessRef>,
        request: RunRequest,
        named: NamedCli,
        hash: String,
    ) -> Result<Created> {
        let NamedCli { agent, terminal, env, isolation, network, limits } = named;
        let (_, on_budget) = super::words_of(&request)?;
        check(&request, &agent, parent)?;
        let limits = raised(limits, request.limits);
        check_time(limits, on_budget, &agent)?;
        let mut isolated = self.cli_isolation(&above, &request, (isolation, network), &agent).await?;
        let model = request.model.as_deref().map(model_of_cli).or(agent.model.clone());
        let agent = CliAgent {
            model,
            yes: request.yes,
            until_idle: request.foreground && request.terminal.is_none(),
            no_gateway: request.no_gateway,
            isolated: isolated.as_ref().is_some_and(|isolated| !isolated.isolation.is_none()),
            ..agent
        };
        let agent = if request.terminal.is_some() { in_terminal(agent, terminal)? } else { agent };
        let program = Program { shell: above.shell(request.shell.clone()), ..program_of(&agent, &request) };
        let workspace = request.workspace.unwrap_or(WorkspaceKind::Here);
        let environment = with_variables(above.environment.unwrap_or(request.env), env)?;
        // The limits of a run hold for its nodes too.
        let (tokens_above, cost_above) = match parent {
            Some(parent) => self.left_to_spend(parent.uuid).await,
            None => (None, None),
        };
        let enforced = Limits {
            max_tokens: limits.max_tokens.or(tokens_above),
            max_cost_usd: limits.max_cost_usd.or(cost_above),
            ..limits
        };
        self.check_limits(enforced, &agent, &environment).await?;
        // Last: a copy that is made for a refused request would stay.
        let place = self.place_for_program(request.uuid, request.cwd, workspace, &mut isolated).await?;
        let text = instructions::with_context(&request.intent, request.context.as_deref(), request.uuid);
        let mut records = place.records;
        // Whoever sits at the terminal types the first message, too.
        let first = request.terminal.is_none().then_some(text);
        records.push(Body::Cli(CliRecord { agent: Some(Box::new(agent)), ..CliRecord::default() }));
        let draft = Draft {
            spawned: Spawned {
                uuid: request.uuid,
                name: request.name,
                parent_uuid: parent.map(|parent| parent.uuid),
                budget_uuid: None,
                origin: None,
                body: "cli".to_owned(),
                program: Some(program),
                intent: request.intent.into(),
                cwd: place.cwd,
                isolated,
                limits,
                on_in_doubt: self.live.now().on_in_doubt,
                on_budget: on_budget.unwrap_or(OnBudget::End),
                env_names: environment.names().map(str::to_owned).collect(),
                policy: Policy::default(),
                root_uuid: above.root_uuid,
                depth: above.depth,
                workspace: place.own,
                shell: None,
                request: Some(hash),
            },
            meta: None,
            environment,
            first,
            parent: Pid::RUNTIME,
            records,
            creation: None,
            is_new: false,
        };
        self.create_with_copy(above.parent, draft).await
    }

    /// Returns what a CLI agent may reach: everything, unless a person, its file or a process above it says otherwise.
    async fn cli_isolation(
        &self,
        above: &Above,
        request: &RunRequest,
        named: (Option<Isolation>, Option<Network>),
        agent: &CliAgent,
    ) -> Result<Option<Isolated>> {
        let isolation = request.isolation.or(named.0).unwrap_or_default();
        let wanted = Isolated {
            isolation,
            network: self.network(isolation, request.network.clone().or(named.1)),
            allow_degraded: request.resources.allow_degraded,
            ..Isolated::default()
        };
        let Some(isolated) = above.isolated(wanted) else { return Ok(None) };
        check_reach(&isolated, agent)?;
        self.check_machine(&isolated).await?;
        Ok(Some(isolated))
    }

    /// Refuses limits that nobody could enforce.
    async fn check_limits(&self, limits: Limits, agent: &CliAgent, environment: &Environment) -> Result<()> {
        let Limits { max_steps, max_tokens, max_cost_usd, timeout_ms: _ } = limits;
        let name = &agent.agent;
        if max_steps.is_some() {
            let message = format!("--max-steps cannot be used with the CLI agent `{name}`: it decides that itself");
            return Err(Error::new(ErrorCode::Invalid, message).with_hint(command(agent, "--timeout 30m")));
        }
        if max_tokens.is_none() && max_cost_usd.is_none() {
            return Ok(());
        }
        let (owned, env) = (agent.clone(), environment.clone());
        let found = match self.bodies.cli.gateways.is_possible() {
            true => self.pools.files.run_within(FILE_WITHIN, move || route(&owned, &env)).await?,
            false => Err(NoRoute::NoGateway),
        };
        let unpriced = || {
            let model = agent.model.as_ref().filter(|_| max_cost_usd.is_some())?;
            let model = format!("{}/{model}", crate::bodies::provider_of(agent));
            self.live.now().prices.of(&model).is_none().then_some(model)
        };
        match (found, unpriced()) {
            (Err(why), _) => {
                let message = format!(
                    "the CLI agent `{name}` can only be limited in time: its model calls do not pass through Relive, \
                     because {why}"
                );
                Err(Error::new(ErrorCode::Invalid, message).with_hint(command(agent, "--timeout 30m")))
            }
            (Ok(_), Some(model)) => {
                Err(Error::new(ErrorCode::Invalid, crate::bodies::unpriced(&model))
                    .with_hint(crate::bodies::PRICES_HINT))
            }
            (Ok(_), None) => Ok(()),
        }
    }
}

/// Returns a model in the words of its CLI: without the provider.
pub(crate) fn model_of_cli(model: &str) -> String {
    model.split_once('/').map_or(model, |(_, name)| name).to_owned()
}

fn program_of(agent: &CliAgent, request: &RunRequest) -> Program {
    Program {
        argv: agent.command.clone(),
        stdio: match request.terminal {
            Some(TerminalSize { rows, columns }) => Stdio::Pty { rows, columns },
            None => Stdio::Pipes,
        },
        gate: false,
        namespace: Namespace::Host,
        resources: request.resources,
        foreground: false,
        one_output: false,
        shell: None,
        enter: None,
    }
}

fn with_variables(
    mut environment: Environment,
    env: std::collections::BTreeMap<String, String>,
) -> Result<Environment> {
    for (name, value) in env {
        environment.set(name, value);
    }
    super::check_environment(&environment)?;
    Ok(environment)
}

/// Returns an agent that runs with its own full-screen interface.
fn in_terminal(agent: CliAgent, terminal: Vec<String>) -> Result<CliAgent> {
    let name = &agent.agent;
    if terminal.is_empty() {
        let message = format!("Relive does not know the full-screen interface of the CLI agent `{name}`");
        let hint = "set `terminal` in agents/NAME.yaml, or run it as any program: relive exec -t -- COMMAND";
        return Err(Error::new(ErrorCode::Invalid, message).with_hint(hint));
    }
    if agent.yes {
        let message = format!("-y cannot be used with -t: `{name}` asks for permission in its own terminal");
        return Err(Error::new(ErrorCode::Invalid, message).with_hint("set its permissions there"));
    }
    Ok(CliAgent { command: terminal, terminal: true, ..agent })
}

/// Refuses what only native agents can do.
fn check(request: &RunRequest, agent: &CliAgent, asking: Option<ProcessRef>) -> Result<()> {
    check_command(agent, asking)?;
    check_model(agent, request.model.as_deref())?;
    let name = &agent.agent;
    let asked = [
        ("--system", request.system_prompt.is_some()),
        ("--allow, --ask and --deny", !request.policy.is_empty()),
        ("--on-in-doubt", request.on_in_doubt.is_some()),
    ];
    match asked.into_iter().find(|(_, asked)| *asked) {
        Some((flag, _)) => {
            let message = format!("{flag} cannot be used with the CLI agent `{name}`: it decides that itself");
            let hint = "its requests for permission are answered with `relive resolve`, or all of them with -y";
            Err(Error::new(ErrorCode::Invalid, message).with_hint(hint))
        }
        None => Ok(()),
    }
}

/// Returns a command that runs an agent with these flags, for a hint.
fn command(agent: &CliAgent, flags: &str) -> String {
    let last = if agent.terminal { "-t" } else { "\"...\"" };
    format!("relive run --agent {} {flags} {last}", relive_types::program::quote(&agent.agent))
}

/// Refuses to suspend an agent at a limit of time: its shim ends it then, also where there is no daemon.
fn check_time(limits: Limits, on_budget: Option<OnBudget>, agent: &CliAgent) -> Result<()> {
    let name = &agent.agent;
    match (limits.timeout_ms, on_budget) {
        (Some(timeout_ms), Some(OnBudget::Suspend)) => {
            let message = format!(
                "--on-budget suspend cannot be used with the time limit of the CLI agent `{name}`: at that limit it always ends"
            );
            // Its file may be where the limit is, so the command that works is the one without --on-budget.
            let flags = format!("--timeout {}s", timeout_ms.div_ceil(1000));
            Err(Error::new(ErrorCode::Invalid, message).with_hint(command(agent, &flags)))
        }
        (_, Some(OnBudget::Suspend | OnBudget::End) | None) => Ok(()),
    }
}

/// Refuses a command in place of a name, unless a person typed it: a process could run any program with it.
fn check_command(agent: &CliAgent, asking: Option<ProcessRef>) -> Result<()> {
    if asking.is_none() || !agent.agent.starts_with(ACP_PREFIX) {
        return Ok(());
    }
    let message = format!("`{}`: only a person can name an agent by its command", agent.agent);
    Err(Error::new(ErrorCode::Invalid, message).with_hint("write agents/NAME.yaml beside config.yaml"))
}

/// Refuses a model that the agent could not be told: that of the request, or that of its file.
fn check_model(agent: &CliAgent, asked: Option<&str>) -> Result<()> {
    let CliAgent { agent: name, with_model, dialect, model, .. } = agent;
    let is_named = asked.is_some() || model.is_some();
    if !is_named || !with_model.is_empty() || dialect != Dialect::Acp.name() {
        return Ok(());
    }
    let source = match asked {
        Some(_) => "--model".to_owned(),
        None => format!("`model:` in agents/{name}.yaml"),
    };
    let message = format!("{source} cannot be used with the CLI agent `{name}`: its own settings name its model");
    let hint = "set it there, or `with_model` in agents/NAME.yaml";
    Err(Error::new(ErrorCode::Invalid, message).with_hint(hint))
}

/// Refuses an isolation in which a CLI agent could not work.
fn check_reach(isolated: &Isolated, agent: &CliAgent) -> Result<()> {
    let name = &agent.agent;
    let refused = |message: String, hint: String| Err(Error::new(ErrorCode::Invalid, message).with_hint(hint));
    match (isolated.isolation, isolated.reach()) {
        (Isolation::Sealed, _) => {
            let message = format!("the CLI agent `{name}` cannot be sealed: it could not reach its model");
            refused(message, command(agent, "--isolation confined --net full"))
        }
        (Isolation::None | Isolation::Confined, Network::None | Network::Allow(_)) => {
            let message = format!(
                "the CLI agent `{name}` needs the network of this machine: the gateway of its model calls is on the \
                 loopback, which a network of its own does not reach"
            );
            refused(message, command(agent, &format!("--isolation {} --net full", isolated.isolation)))
        }
        // Below another process it reaches no more than that one.
        (Isolation::Confined, Network::Full) if isolated.within.is_none() && !knows_state(agent) => {
            let message = format!(
                "the CLI agent `{name}` cannot be confined: Relive does not know the directory of its conversations"
            );
            refused(message, "name it in agents/NAME.yaml, like `state: [~/.mine]`".to_owned())
        }
        (Isolation::None | Isolation::Confined, Network::Full) => Ok(()),
    }
}
