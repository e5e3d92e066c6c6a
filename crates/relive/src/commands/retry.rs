//! `relive retry`: a fork of a process that failed, from before the step that failed.

use relive_api::Process;
use relive_core::{Body, ErrorCode};

use super::resume::{self, Changes};
use super::started::{self, Answer, NotStarted};
use super::targets::Told;
use crate::client::Client;
use crate::context::{Context, new_uuid};
use crate::error::{CommandError, Outcome};
use crate::report;

/// Start a new process that repeats the step at which a process failed
///
/// The new process is a fork of the failed one, which does not change. An agent continues after its last step that succeeded; a
/// program starts again.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive retry 5                                  repeat the step that failed
  relive retry 5 --model openai/gpt-5             repeat it with another model
  relive retry 5 --input \"the tests are in t/\"    repeat it with a message")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// A name for the new process
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    changes: Changes,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let process = client.process(&args.id).await?;
    check(&process, args)?;
    let mut request = args.changes.request();
    request.fork = Some(new_uuid()?);
    // It continues where the failed one stopped, on the same files.
    request.workspace = Some(relive_api::WorkspaceKind::Here);
    request.name.clone_from(&args.name);
    let resumed = client.resume(&args.id, &request).await.map_err(|mut error| {
        // The daemon knows of a fork only.
        error.hint = error.hint.map(|hint| hint.replacen("relive resume --fork ", "relive retry ", 1));
        error.hint = error.hint.map(|hint| hint.replacen(" --workspace here", "", 1));
        error
    })?;
    let failed = match started::is_program(process.body) {
        true => started::failure_of(&client, resumed.pid).await,
        false => None,
    };
    if let Some(NotStarted { error, code }) = failed {
        if context.json {
            context.print_json(&Answer { answer: resumed, error: Some(error.detail()) })?;
        } else {
            context.say_on(&report::as_text(&error, &context.err));
        }
        return Ok(code);
    }
    if context.json {
        context.print_json(&resumed)?;
    } else {
        let told = match process.body {
            Body::Exec => resume::tell_of_forked_program(&resumed),
            Body::Agent | Body::Cli | Body::Compose | Body::Supervisor => resume::tell(&resumed, true),
        };
        Told::message(told).with_pid(context, resumed.pid).show(context)?;
    }
    Ok(0)
}

/// Refuses what has not failed.
fn check(process: &Process, args: &Args) -> Outcome<()> {
    let (id, pid) = (&args.id, process.pid);
    let conflict = |message: String| CommandError::new(ErrorCode::Conflict, message);
    let tree = match process.body {
        Body::Agent | Body::Exec | Body::Cli => None,
        Body::Compose => Some("a run of a compose file"),
        Body::Supervisor => Some("a supervisor"),
    };
    if let Some(tree) = tree {
        let hint = match &process.exit {
            Some(exit) if exit.code != 0 => format!("relive resume {id}"),
            Some(_) | None => format!("relive compose status {id}"),
        };
        return Err(conflict(format!("PID {pid} is {tree}, which is resumed and not retried")).with_hint(hint));
    }
    match &process.exit {
        None => Err(conflict(format!("PID {pid} has not ended, so there is nothing to retry"))
            .with_hint(format!("relive resume --fork {id}"))),
        Some(exit) if exit.code == 0 => Err(conflict(format!("PID {pid} did not fail: {}", exit.reason))
            .with_hint(format!("relive resume --fork {id}"))),
        Some(_) => Ok(()),
    }
}
