//! `relive resolve`: answers an approval or a question, or resolves a call in doubt.

use relive_api::{Affected, PendingCall, PendingQuestion, Process, Resolution, ResolveRequest, chosen};
use relive_core::{ErrorCode, Pid, SuspendReason, Uuid};
use relive_types::CommandRule;
use relive_types::rule::RuleError;
use serde::Serialize;

use super::report_affected;
use super::run::questions;
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::{approval, parked};
use crate::terminal::Look;

/// Allow or deny a tool call, answer a question, or say what became of a call in doubt
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive resolve 5                      show what waits for an answer
  relive resolve 5 --allow
  relive resolve 5 --allow --always     do not ask about this command again
  relive resolve 5 --allow --always --rule 'shell:git status*'
  relive resolve 5 --deny --reason \"use git mv\"
  relive resolve 5 --answer \"use main\"   answer the agent's question
  relive resolve 5 --not-done           a call in doubt did not happen")]
#[command(group(clap::ArgGroup::new("outcome")))]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// Allow the call
    #[arg(long, group = "outcome")]
    allow: bool,
    /// Deny the call; the model is told
    #[arg(long, group = "outcome")]
    deny: bool,
    /// Remember the answer in this process: for the same shell command, or for every call of another tool
    #[arg(long, conflicts_with_all = ["done", "not_done", "retry", "answer"], requires = "outcome")]
    always: bool,
    /// With --allow --always: allow these commands, such as 'shell:git status*', or all calls of a tool
    #[arg(long, value_name = "RULE", requires = "always", requires = "allow")]
    rule: Option<String>,
    /// The reason, for the model
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["done", "not_done", "retry", "answer"], requires = "outcome")]
    reason: Option<String>,
    /// In doubt: the call happened
    #[arg(long, group = "outcome")]
    done: bool,
    /// In doubt: the call did not happen, and must not be repeated
    #[arg(long, group = "outcome")]
    not_done: bool,
    /// In doubt: repeat the call, whatever it did before
    #[arg(long, group = "outcome")]
    retry: bool,
    /// Answer the question of the agent, in your own words or with the number of a choice
    #[arg(long, value_name = "TEXT", group = "outcome", allow_hyphen_values = true)]
    answer: Option<String>,
    /// Refuse unless the pending question has this number (`question` in `relive inbox --json`)
    #[arg(long, value_name = "N", requires = "outcome")]
    question: Option<u64>,
}

/// The answer of `resolve --json` without a decision.
#[derive(Serialize)]
struct Waiting<'a> {
    pid: Pid,
    uuid: Uuid,
    suspend_reason: Option<SuspendReason>,
    approval: Option<&'a PendingCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<&'a PendingQuestion>,
    in_doubt: &'a [PendingCall],
    /// What a call that writes a file would change, as people read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let decisions = [
        (args.allow, Resolution::Allow, "the call is allowed"),
        (args.deny, Resolution::Deny, "the call is denied"),
        (args.done, Resolution::Done, "the call happened"),
        (args.not_done, Resolution::NotDone, "the call did not happen"),
        (args.retry, Resolution::Retry, "the call is repeated"),
    ];
    if let Some(answer) = &args.answer {
        let asked = client.process(&args.id).await?.question;
        let choices = asked.as_ref().map(|asked| asked.choices.as_slice()).unwrap_or_default();
        let answer = chosen(answer, choices).unwrap_or_default();
        let request = ResolveRequest::answer(answer, args.question.or(asked.as_ref().map(|asked| asked.id)));
        let affected = client.resolve(&args.id, &request).await?;
        return report(context, &args.id, &affected, "the question is answered");
    }
    let Some((_, outcome, done)) = decisions.into_iter().find(|(said, ..)| *said) else {
        return show(context, &args.id, &client.process(&args.id).await?);
    };
    // Answers the present question, and not one that is asked a moment later.
    let process = client.process(&args.id).await?;
    let call = process.approval.as_ref().or(process.in_doubt.first());
    let rule = rule(args, call)?;
    let id = args.question.or(call.map(|call| call.id));
    let request =
        ResolveRequest { always: args.always, reason: args.reason.clone(), id, rule, ..ResolveRequest::new(outcome) };
    let affected = client.resolve(&args.id, &request).await?;
    let stored = request.rule.map(|rule| format!("; stored the rule {}", approval::exact(&rule.to_string())));
    report(context, &args.id, &affected, &format!("{done}{}", stored.unwrap_or_default()))
}

/// Says what was answered, and whether the process runs with that.
fn report(context: &Context, id: &str, affected: &Affected, answered: &str) -> Outcome<u8> {
    let done = match affected.paused.first() {
        None => format!("resumed: {answered}"),
        Some(pid) => format!("stays paused: {answered} (to let it run: relive resume {pid})"),
    };
    report_affected(context, id, affected, &done, None)
}

/// Returns the rule that a permanent answer stores; `None` if it applies to every call of the tool.
fn rule(args: &Args, call: Option<&PendingCall>) -> Outcome<Option<CommandRule>> {
    let Some(call) = call.filter(|_| args.always && args.allow) else { return Ok(None) };
    match &args.rule {
        None => approval::rule_for_always(call),
        Some(tool) if *tool == call.tool => Ok(None),
        Some(rule) => {
            let rule: CommandRule =
                rule.parse().map_err(|error: RuleError| CommandError::invalid(error.to_string()))?;
            match approval::command(call) {
                Some(command) if rule.matches(command) => Ok(Some(rule)),
                Some(_) | None => {
                    let message = format!("`{rule}` does not match the call that is asked about");
                    Err(CommandError::invalid(message).with_hint(format!("relive resolve {}", args.id)))
                }
            }
        }
    }
}

fn show(context: &Context, id: &str, process: &Process) -> Outcome<u8> {
    let told = parked::describe(process, &context.out, |call| questions::shown(process, call, &context.out));
    let Some(told) = told else {
        let state =
            if process.dead_at.is_some() { "it has ended".to_owned() } else { format!("it is {}", process.display) };
        let message = format!("`{id}` does not wait for an answer: {state}");
        return Err(CommandError::new(ErrorCode::Conflict, message).with_hint(format!("relive info {id}")));
    };
    if context.json {
        let Process { pid, uuid, suspend_reason, approval, question, in_doubt, .. } = process;
        let writing = approval.as_ref().filter(|call| approval::written_file(call).is_some());
        let diff = writing.map(|call| questions::shown(process, call, &Look::plain()).text);
        let (suspend_reason, approval, question) = (*suspend_reason, approval.as_ref(), question.as_ref());
        let waiting = Waiting { pid: *pid, uuid: *uuid, suspend_reason, approval, question, in_doubt, diff };
        context.print_json(&waiting)?;
    } else {
        context.print(&format!("{}{}", parked::then_paused(process), told.text))?;
    }
    Ok(0)
}
