//! `relive resolve`: a human's word on a call that is in doubt, or that may not be made unasked.

use relive_api::{PendingCall, Process, Resolution, ResolveRequest};
use relive_core::{ErrorCode, Pid, SuspendReason, Uuid};
use serde::Serialize;

use super::report_affected;
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::parked;

/// Decide about a call: whether it may be made, or what became of it
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive resolve 5                    what it waits for, what is known, what can be said
  relive resolve 5 --allow --always   it may make this call, and every later one of this tool
  relive resolve 5 --deny --reason \"use git mv\"
  relive resolve 5 --not-done         a call in doubt: it did not happen")]
#[command(group(clap::ArgGroup::new("outcome")))]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
    /// The call may be made
    #[arg(long, group = "outcome")]
    allow: bool,
    /// The call may not be made; the model is told so
    #[arg(long, group = "outcome")]
    deny: bool,
    /// The answer holds for every later call of the tool in this process
    #[arg(long, conflicts_with_all = ["done", "not_done", "retry"], requires = "outcome")]
    always: bool,
    /// Why, for the model
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["done", "not_done", "retry"], requires = "outcome")]
    reason: Option<String>,
    /// In doubt: it happened
    #[arg(long, group = "outcome")]
    done: bool,
    /// In doubt: it did not happen, and shall not
    #[arg(long, group = "outcome")]
    not_done: bool,
    /// In doubt: run it again, whatever it did
    #[arg(long, group = "outcome")]
    retry: bool,
}

/// `resolve --json` without a decision.
#[derive(Serialize)]
struct Waiting<'a> {
    pid: Pid,
    uuid: Uuid,
    suspend_reason: Option<SuspendReason>,
    approval: Option<&'a PendingCall>,
    in_doubt: &'a [PendingCall],
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let decisions = [
        (args.allow, Resolution::Allow, "resumed: the call is allowed"),
        (args.deny, Resolution::Deny, "resumed: the call is denied"),
        (args.done, Resolution::Done, "resumed: the call happened"),
        (args.not_done, Resolution::NotDone, "resumed: the call did not happen"),
        (args.retry, Resolution::Retry, "resumed: the call is run again"),
    ];
    let Some((_, outcome, done)) = decisions.into_iter().find(|(said, ..)| *said) else {
        return show(context, &args.id, &client.process(&args.id).await?);
    };
    // Answers what is asked now, and nothing that is asked a moment later.
    let process = client.process(&args.id).await?;
    let id = process.approval.as_ref().or(process.in_doubt.first()).map(|call| call.id);
    let request = ResolveRequest { outcome, always: args.always, reason: args.reason.clone(), id };
    let affected = client.resolve(&args.id, &request).await?;
    report_affected(context, &args.id, &affected, done, None)
}

fn show(context: &Context, id: &str, process: &Process) -> Outcome<u8> {
    let Some(told) = parked::describe(process) else {
        let message = format!("`{id}` does not wait for an answer: it is {}", process.display);
        return Err(CommandError::new(ErrorCode::Conflict, message).with_hint(format!("relive info {id}")));
    };
    if context.json {
        let Process { pid, uuid, suspend_reason, approval, in_doubt, .. } = process;
        let waiting =
            Waiting { pid: *pid, uuid: *uuid, suspend_reason: *suspend_reason, approval: approval.as_ref(), in_doubt };
        context.print_json(&waiting)?;
    } else {
        context.print(&told)?;
    }
    Ok(0)
}
