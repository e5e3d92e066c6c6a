//! `relive compose`: graphs of processes.

mod down;
mod follow;
mod graph;
mod logs;
mod status;
mod waits;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use relive_api::{Environment, FlowKind, FlowRequest, NodeRequest};
use relive_core::Limits;
use relive_flow::ComposeFile;
use relive_types::program::quote;
use serde_json::json;

use super::limits::LimitArgs;
use super::targets::Told;
use crate::client::{Client, Start};
use crate::context::{Context, new_uuid};
use crate::environment::EnvironmentArgs;
use crate::error::{CommandError, Outcome, keeps_running};
use crate::report::output_failed;
use crate::user_file;

use follow::{Followed, follow};

/// Run a graph of agents and programs
///
/// A file lists nodes: agents (`intent`) and programs (`command`). A node starts when the nodes that it depends on have
/// succeeded. A run of a file is a process, and its nodes are its children: `ps --tree`, `pause --subtree`, `kill` and limits
/// work on it. It continues after a crash of the daemon, and no node is started twice. The commands for a run work on a
/// supervisor too (`relive supervise`), whose children are its nodes.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive compose up build.yaml
      Run a file and wait for it; exit with 0 if no node failed.
  relive compose up -d build.yaml
      Run it in the background, and print its PID, such as 5.
  relive compose status 5
  relive compose resume 5 --node test
      Continue a failed node from its journal, then run what depends on it.
  relive compose down 5")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start a run of a file, and wait for its end
    #[command(before_long_help = "\
Examples:
  relive compose up build.yaml
  relive compose up -d --max-cost 2 build.yaml
  relive compose up --dry-run build.yaml

A file:
  nodes:
    build: {command: [make]}
    review: {intent: 'review the last commit', model: openai/gpt-5}
    report:
      intent: 'write a report about {{ nodes.review.result }}'
      depends_on: [build, review]")]
    Up(UpArgs),
    /// End a run and all its processes
    ///
    /// Programs get SIGTERM, and those that still run after 10 s are killed. `relive resume` continues the run: the nodes
    /// that had not succeeded run again.
    #[command(before_long_help = "\
Examples:
  relive compose down 5
  relive compose down nightly")]
    Down {
        /// The PID, the name, or the UUID of a run or supervisor; the first or last digits of a UUID are enough
        run: String,
    },
    /// Show the nodes of a run
    ///
    /// STARTS is how often a node was started, AFTER what it waits for, and EXIT the exit code of one that ended by itself.
    #[command(before_long_help = "\
Examples:
  relive compose status 5
  relive compose status 5 --json | jq '.nodes[].state'")]
    Status {
        /// The PID, the name, or the UUID of a run or supervisor; the first or last digits of a UUID are enough
        run: String,
    },
    /// Show the output of the nodes of a run
    #[command(before_long_help = "\
Examples:
  relive compose logs 5
  relive compose logs 5 --node test -f")]
    Logs {
        /// The PID, the name, or the UUID of a run or supervisor; the first or last digits of a UUID are enough
        run: String,
        /// Only this node
        #[arg(long, value_name = "NODE")]
        node: Option<String>,
        /// With --node: show new output as it comes
        #[arg(short, long, requires = "node")]
        follow: bool,
    },
    /// Show the graph of a run
    #[command(before_long_help = "\
Examples:
  relive compose graph 5
  relive compose graph 5 --svg > graph.svg")]
    Graph {
        /// The PID, the name, or the UUID of a run or supervisor; the first or last digits of a UUID are enough
        run: String,
        /// Print an SVG image instead of text
        #[arg(long)]
        svg: bool,
    },
    /// Continue one node of a run, then run what depends on it, and nothing else
    #[command(before_long_help = "\
Examples:
  relive compose resume 5 --node test
  relive compose resume 5 --node test --input 'use the old parser'
  relive compose resume 5 --node test --fork --from-step 3")]
    Resume {
        /// The PID, the name, or the UUID of a run or supervisor; the first or last digits of a UUID are enough
        run: String,
        /// The name of the node in the file
        #[arg(long, value_name = "NODE")]
        node: String,
        /// Continue in a fork, which takes the place of the node's process; that one stays as it is
        #[arg(long)]
        fork: bool,
        /// With --fork: start after this step
        #[arg(long, value_name = "N")]
        from_step: Option<u32>,
        /// A message to the agent of the node
        #[arg(long, value_name = "TEXT")]
        input: Option<String>,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Print the JSON schema of compose files, for editors
    #[command(before_long_help = "\
Examples:
  relive compose schema > compose.schema.json
  relive compose schema --supervisor")]
    Schema {
        /// Print the schema of a supervisor file instead
        #[arg(long)]
        supervisor: bool,
    },
}

#[derive(Debug, clap::Args)]
struct UpArgs {
    /// The file; `-` reads standard input
    file: PathBuf,
    /// Run in the background and print the PID
    #[arg(short, long)]
    detach: bool,
    /// Show what would be started, and start nothing
    #[arg(long, conflicts_with = "detach")]
    dry_run: bool,
    /// A name for the run
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    limits: FlowLimits,
    #[command(flatten)]
    environment: EnvironmentArgs,
}

/// The limits of all processes of a tree together.
#[derive(Debug, clap::Args)]
pub(crate) struct FlowLimits {
    /// Maximum number of tokens, of all processes together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: Option<u64>,
    /// Maximum cost in dollars, of all processes together
    #[arg(long, value_name = "USD", value_parser = super::limits::parse_dollars)]
    max_cost: Option<relive_core::Usd>,
    /// End all of them after this time, such as 30m; pauses do not count
    #[arg(long, value_name = "DURATION", value_parser = super::limits::parse_time_limit)]
    timeout: Option<std::time::Duration>,
}

impl FlowLimits {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_steps: None,
            max_tokens: self.max_tokens,
            max_cost_usd: self.max_cost,
            timeout_ms: self.timeout.map(crate::render::time::as_millis),
        }
    }
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    match &args.verb {
        Verb::Up(args) => up(context, args).await,
        Verb::Down { run } => down::run(context, run).await,
        Verb::Status { run } => status::run(context, run).await,
        Verb::Logs { run, node, follow } => logs::run(context, run, node.as_deref(), *follow).await,
        Verb::Graph { run, svg } => {
            let flow = Client::about(context, run).await?.flow(run).await?;
            if context.json {
                context.print_json(&flow)?;
            } else {
                context.print(&if *svg { graph::svg(&flow) } else { graph::text(&flow) })?;
            }
            Ok(0)
        }
        Verb::Resume { run, node, fork, from_step, input, limits } => {
            let (node, input, limits) = (node.clone(), input.clone(), limits.limits());
            let env = crate::environment::of_this_shell();
            let request = NodeRequest { node, fork: *fork, from_step: *from_step, input, limits, env };
            let resumed = Client::about(context, run).await?.resume_node(run, &request).await?;
            if context.json {
                context.print_json(&resumed)?;
            } else {
                let message = format!("resumed node {} of PID {}\n", resumed.node, resumed.pid);
                Told::message(message).with_pid(context, resumed.pid).show(context)?;
                if let Some(note) = &resumed.note {
                    context.say(&format!("note: {note}"));
                }
            }
            Ok(0)
        }
        Verb::Schema { supervisor } => {
            let schema = if *supervisor { relive_flow::SUPERVISOR_SCHEMA } else { relive_flow::COMPOSE_SCHEMA };
            context.print(schema)?;
            Ok(0)
        }
    }
}

/// A file that was read.
#[derive(Debug)]
pub(crate) struct FlowFile {
    /// As it was given.
    pub(crate) name: String,
    pub(crate) text: String,
    /// The directory that the file is in, where its commands run.
    pub(crate) cwd: String,
}

impl FlowFile {
    /// Returns the request that starts the tree of the file.
    pub(crate) fn request(
        self,
        kind: FlowKind,
        name: Option<String>,
        env: Environment,
        limits: &FlowLimits,
    ) -> Outcome<FlowRequest> {
        let (uuid, shell, limits) = (new_uuid()?, crate::inherited::inherited(), limits.limits());
        let Self { name: file, text, cwd } = self;
        Ok(FlowRequest { uuid, name, kind, file, text, cwd, env, shell, limits })
    }
}

/// Reads a file; never one that blocks, or is of unbounded size.
pub(crate) fn read_file(path: &Path) -> Outcome<FlowFile> {
    let name = path.display().to_string();
    let here = super::run::here()?;
    let (text, cwd) = if name == "-" {
        (user_file::read_text(std::io::stdin().lock(), "standard input")?, here)
    } else {
        (user_file::read(path)?, here.join(path).parent().map_or(here.clone(), Path::to_owned))
    };
    let cwd = cwd.into_os_string().into_string();
    let cwd = cwd.map_err(|cwd| CommandError::invalid(format!("{}: the directory is not UTF-8", cwd.display())))?;
    Ok(FlowFile { name, text, cwd })
}

/// Starts a tree, and waits for it unless it runs in the background.
pub(crate) async fn start(context: &Context, request: FlowRequest, detach: bool) -> Outcome<u8> {
    let client = Client::open(context, Start::Always).await?;
    let client = client.ok_or_else(|| CommandError::unavailable("no daemon is running"))?;
    let created = client.start_flow(&request).await?;
    let pid = created.pid;
    let told = match (context.json, detach) {
        (true, _) => context.print_json(&created),
        (false, true) => context.print_line(&pid.to_string()),
        (false, false) => Ok(()),
    };
    // A tree has no terminal to attach to.
    let while_running = |error| output_failed(context, error, &keeps_running(pid), Some(format!("relive wait {pid}")));
    match told {
        Ok(()) if detach => Ok(0),
        Ok(()) => match follow(context, &client, &created).await {
            Ok(Followed { code, reported: Ok(()) }) => Ok(code),
            Ok(Followed { code, reported: Err(error) }) => {
                output_failed(context, error, &format!("PID {pid} has ended with exit code {code}"), None)
            }
            Err(error) => while_running(error),
        },
        Err(error) => while_running(error),
    }
}

async fn up(context: &Context, args: &UpArgs) -> Outcome<u8> {
    let file = read_file(&args.file)?;
    let graph = ComposeFile::parse(&file.name, &file.text).map_err(|error| CommandError::invalid(error.to_string()))?;
    if args.dry_run {
        if context.json {
            let name = |place: usize| &graph.nodes[place].name;
            let nodes: Vec<_> = graph
                .order()
                .into_iter()
                .map(|place| {
                    let on: Vec<_> = graph.nodes[place].depends_on.iter().map(|on| name(on.node)).collect();
                    json!({"name": name(place), "depends_on": on})
                })
                .collect();
            context.print_json(&json!({ "nodes": nodes }))?;
        } else {
            context.print_line(&graph.plan())?;
        }
        return Ok(0);
    }
    let env = args.environment.environment(&format!("relive compose up --env NAME=VALUE {}", quote(&file.name)))?;
    let request = file.request(FlowKind::Compose, args.name.clone(), env, &args.limits)?;
    start(context, request, args.detach).await
}
