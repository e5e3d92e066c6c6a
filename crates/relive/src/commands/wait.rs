//! `relive wait`: observes the end of a process and exits with its code. The process is left alone.

use std::time::Duration;

use relive_api::{Process, WaitAnswer};
use relive_client::Waited;
use relive_core::ErrorCode;

use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::time::{as_millis, elapsed};

/// Wait for a process to end, and exit with its code
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive wait 5
  relive wait fixer --timeout 10m || echo \"not done, or failed: $?\"")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
    /// Give up after this long, with exit code 124; the process keeps running
    #[arg(long, value_name = "DURATION", value_parser = relive_types::duration::parse)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let process = client.process(&args.id).await?;
    let answer = match client.wait(&args.id, &process.uuid.to_string(), args.timeout).await? {
        Waited::Answer(answer) => *answer,
        Waited::TimedOut => timed_out(&process),
    };
    if context.json {
        context.print_json(&answer)?;
        return Ok(answer.exit_code);
    }
    if answer.timed_out {
        let timeout = elapsed(args.timeout.map_or(0, as_millis));
        let message = format!("PID {} has not ended after {timeout}, and keeps running", answer.pid);
        let error = CommandError::new(ErrorCode::Timeout, message);
        return Err(error.with_hint(format!("relive wait {}", args.id)));
    }
    if let Some(exit) = answer.exit.as_ref().filter(|_| context.err.is_terminal) {
        context.say(&format!("PID {}: {}", answer.pid, exit.reason));
    }
    Ok(answer.exit_code)
}

fn timed_out(process: &Process) -> WaitAnswer {
    WaitAnswer {
        pid: process.pid,
        uuid: process.uuid,
        status: None,
        why: None,
        exit: None,
        timed_out: true,
        exit_code: ErrorCode::Timeout.exit_code(),
        note: None,
    }
}
