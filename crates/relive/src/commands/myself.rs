//! `relive self`: what a program does about the process it runs inside of.

mod handler;

use relive_api::{EndSelfRequest, SelfInfo, SignalMaskRequest, SignalState};
use relive_core::Limits;

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::time::elapsed;

/// Show or end the process that this command runs in, or block and handle its signals
///
/// Works inside a process: in `exec` programs and in commands of an agent's shell tool. `terminate` and `abandon` do not
/// return: they end the process and everything in it, including this command.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive self                     show this process, its limits and what is left
  relive self terminate --code 3 --reason \"no input\"
  relive self abandon
  relive self mask TERM           block TERM until `relive self unmask TERM`
  relive self on TERM -- ./save   run ./save when TERM arrives; it has 10 s
  relive self off TERM            let TERM end this program again")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// End this process with an exit code, or with a fault
    #[command(before_long_help = "\
Examples:
  relive self terminate --code 3 --reason \"no input\"
  relive self terminate --fault \"the disk is full\"")]
    Terminate(Terminate),
    /// End this process and say that its work was given up: its status is `abandoned`
    #[command(before_long_help = "\
Examples:
  relive self abandon
  ./work || relive self abandon")]
    Abandon,
    /// Block these signals, in addition to those that are blocked
    #[command(before_long_help = "\
Examples:
  relive self mask TERM
  relive self mask TERM INT")]
    Mask(Signals),
    /// Unblock these signals
    #[command(before_long_help = "\
Examples:
  relive self unmask TERM
  relive self unmask TERM INT")]
    Unmask(Signals),
    On(handler::On),
    /// Stop handling these signals
    #[command(before_long_help = "\
Examples:
  relive self off TERM
  relive self off TERM INT")]
    Off(Signals),
    #[command(hide = true)]
    Watch(handler::Watch),
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("how").required(true).args(["code", "fault"]))]
struct Terminate {
    /// The exit code; 0 is success
    #[arg(long, value_name = "N", conflicts_with = "fault")]
    code: Option<u8>,
    /// The reason, recorded with the end of the process
    #[arg(long, value_name = "TEXT", requires = "code", conflicts_with = "fault")]
    reason: Option<String>,
    /// End the process as `faulted`, with this message
    #[arg(long, value_name = "TEXT")]
    fault: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Signals {
    /// The signals: TERM, INT, PAUSE or RESUME
    #[arg(required = true, value_name = "SIGNAL")]
    signals: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    if let Some(Verb::Watch(watch)) = &args.verb {
        return handler::watch(context, watch).await;
    }
    let client = Client::open(context, Start::IfHistories).await?;
    let client = client
        .ok_or_else(|| CommandError::invalid("this command does not run inside a process").with_hint("relive ps"))?;
    match &args.verb {
        None | Some(Verb::Watch(_)) => show(&client).await,
        Some(Verb::Terminate(Terminate { code, reason, fault })) => {
            let request = match (code, fault) {
                (_, Some(fault)) => EndSelfRequest::Fault { fault: fault.clone() },
                (code, None) => EndSelfRequest::Exit { code: code.unwrap_or_default(), reason: reason.clone() },
            };
            end(&client, &request).await
        }
        Some(Verb::Abandon) => end(&client, &EndSelfRequest::Abandon).await,
        Some(Verb::Mask(Signals { signals })) => {
            change(&client, SignalMaskRequest { block: signals.clone(), ..SignalMaskRequest::default() }).await
        }
        Some(Verb::Unmask(Signals { signals })) => {
            change(&client, SignalMaskRequest { unblock: signals.clone(), ..SignalMaskRequest::default() }).await
        }
        Some(Verb::On(on)) => handler::on(&client, on).await,
        Some(Verb::Off(Signals { signals })) => {
            change(&client, SignalMaskRequest { off: signals.clone(), ..SignalMaskRequest::default() }).await
        }
    }
}

/// Ends the process, and with it this command, unless that only acts as the process.
async fn end(client: &Client<'_>, request: &EndSelfRequest) -> Outcome<u8> {
    let ended = client.end_self(request).await?;
    if client.context().json {
        client.context().print_json(&ended)?;
    } else {
        let name = ended.pids.first().map_or_else(|| "the process".to_owned(), |pid| format!("process {pid}"));
        client.context().print_line(&format!("ended {name}"))?;
    }
    Ok(0)
}

async fn show(client: &Client<'_>) -> Outcome<u8> {
    let info = client.self_info().await?;
    if client.context().json {
        client.context().print_json(&info)?;
    } else {
        client.context().print(&table(&info))?;
    }
    Ok(0)
}

/// Changes the signals of the process that asks.
async fn change(client: &Client<'_>, request: SignalMaskRequest) -> Outcome<u8> {
    let id = client.self_info().await?.uuid.to_string();
    say_signals(client.context(), &client.set_signals(&id, &request).await?)
}

/// Says what the process does with signals from now on.
fn say_signals(context: &Context, state: &SignalState) -> Outcome<u8> {
    if context.json {
        context.print_json(state)?;
    } else {
        let SignalState { blocked, handled, pending, .. } = state;
        let [blocked, handled, pending] = [blocked, handled, pending].map(|names| list(names));
        context.print(&format!("BLOCKED  {blocked}\nHANDLED  {handled}\nPENDING  {pending}\n"))?;
    }
    Ok(0)
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// `TERM` and `sigterm` are `SIGTERM`.
fn full_name(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    if name.starts_with("SIG") { name } else { format!("SIG{name}") }
}

fn table(info: &SelfInfo) -> String {
    let SelfInfo { pid, uuid, name, parent_uuid, limits, left, blocked, handled, pending } = info;
    let name = name.as_ref().map(|name| format!("NAME     {name}\n")).unwrap_or_default();
    let parent = parent_uuid.map_or("none".to_owned(), |parent| parent.to_string());
    let signals = [("BLOCKED", blocked), ("HANDLED", handled), ("PENDING", pending)];
    let signals = signals.into_iter().filter(|(_, names)| !names.is_empty());
    let signals: String = signals.map(|(title, names)| format!("{title}  {}\n", list(names))).collect();
    let limits = words(*limits);
    // Without a limit nothing can be used up.
    let left = if *left == Limits::default() { String::new() } else { format!("LEFT     {}\n", words(*left)) };
    format!("PID      {pid}\nUUID     {uuid}\n{name}PARENT   {parent}\nLIMITS   {limits}\n{left}{signals}")
}

fn words(limits: Limits) -> String {
    let Limits { max_steps, max_tokens, max_cost_usd, timeout_ms } = limits;
    let parts = [
        max_steps.map(|steps| format!("{steps} steps")),
        max_tokens.map(|tokens| format!("{tokens} tokens")),
        max_cost_usd.map(|cost| format!("${cost}")),
        timeout_ms.map(elapsed),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_may_be_written_as_people_do() {
        assert_eq!(["TERM", "sigterm", "SIGINT"].map(full_name), ["SIGTERM", "SIGTERM", "SIGINT"]);
    }

    #[test]
    fn what_is_not_limited_is_not_listed() {
        assert_eq!(words(Limits::default()), "none");
        assert_eq!(
            words(Limits { max_steps: Some(3), max_tokens: Some(10), ..Limits::default() }),
            "3 steps, 10 tokens"
        );
    }
}
