//! `relive run -t`: a CLI agent with its own full-screen interface.

use std::io::{self, IsTerminal as _};

use relive_api::TerminalSize;
use tokio::signal::unix::{SignalKind, signal};

use super::Args;
use crate::client::refuse_output;
use crate::commands::attach::{self, Input};
use crate::commands::interrupts::{INTERRUPTED, start_or_cancel};
use crate::commands::started;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::terminal::raw;

/// Returns the size of this terminal.
pub(super) fn size() -> TerminalSize {
    let (rows, columns) = raw::size();
    TerminalSize { rows, columns }
}

/// Returns what lists show in place of a task, which is typed in the terminal.
pub(super) fn intent(args: &Args) -> String {
    format!("{} in its own terminal", args.agent.as_deref().unwrap_or_default())
}

/// Starts the agent, and stays at its terminal unless it is to run in the background.
pub(super) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let detached = format!("relive run -d -t --agent {}", args.agent.as_deref().unwrap_or("claude"));
    if context.json && !args.detach {
        let message = "run -t in the foreground has no JSON: stdout belongs to the agent";
        return Err(CommandError::invalid(message).with_hint(detached));
    }
    if !args.detach && !io::stdin().is_terminal() {
        let message = "-t needs a terminal on stdin, and there is none";
        return Err(CommandError::invalid(message).with_hint(detached));
    }
    let request = super::request(context, args)?;
    if !args.detach {
        // Before there is a program that nobody follows.
        refuse_output(&context.paths, "an agent").map_err(|error| error.with_hint(detached))?;
    }
    let cannot = |error| CommandError::internal("cannot listen for Ctrl-C").because(error);
    let mut interrupts = signal(SignalKind::interrupt()).map_err(cannot)?;
    let Some(client) = super::open(context, &mut interrupts).await? else { return Ok(INTERRUPTED) };
    let begin = async { client.run(&request).await.map_err(|error| super::explain(context, &request, error.into())) };
    let created = start_or_cancel(&client, request.uuid, &mut interrupts, begin).await?;
    let Some(created) = created else { return Ok(INTERRUPTED) };
    let failed = tokio::select! {
        failed = started::failure_of(&client, created.pid) => failed,
        _ = interrupts.recv() => {
            // The program is being started: it is left to that.
            if !args.detach {
                let pid = created.pid;
                context.say(&format!("detached, PID {pid} keeps running: relive attach {pid}"));
                return Ok(INTERRUPTED);
            }
            None
        }
    };
    if args.detach || failed.is_some() {
        return super::in_background(context, created, failed);
    }
    let process = client.process(&created.uuid.to_string()).await?;
    let Some(session) = process.session.as_ref().filter(|session| session.pty) else {
        let pid = created.pid;
        context.say(&format!("PID {pid} has not started yet, see `relive pool`: relive attach {pid}"));
        return Ok(0);
    };
    let leave = async {
        interrupts.recv().await;
    };
    attach::program(&client, args.detach_key, &process, session, Input::of_stdin(), leave).await
}
