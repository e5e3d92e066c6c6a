//! `relive signals`: which signals a process blocks and handles itself, and which wait.

use relive_api::{SignalMaskRequest, SignalState};

use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;

/// Show or change what a process does with signals
///
/// A blocked signal waits until it is unblocked; a PAUSE and a RESUME that both wait cancel each other. A handled signal
/// is passed to the process instead of acting on it: an agent gets it as a message, a program as the operating system's
/// signal. After a TERM the process is killed when its grace of 10 s is over, handled or not. KILL can be neither blocked
/// nor handled.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive signals 5                       show what is blocked, handled and waiting
  relive signals 5 --block TERM,PAUSE    keep TERM and PAUSE waiting
  relive signals 5 --block none          let them act now
  relive signals 5 --handle INT          tell the agent of an INT instead of ending it")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
    /// Block these signals and no others; `none` unblocks all
    #[arg(long, value_name = "SIGNALS", value_delimiter = ',')]
    block: Option<Vec<String>>,
    /// Let the process handle these signals and no others; `none` for none
    #[arg(long, value_name = "SIGNALS", value_delimiter = ',')]
    handle: Option<Vec<String>>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let state = if args.block.is_none() && args.handle.is_none() {
        client.signals(&args.id).await?
    } else {
        let request = SignalMaskRequest { blocked: names(args.block.as_ref()), handled: names(args.handle.as_ref()) };
        client.set_signals(&args.id, &request).await?
    };
    if context.json {
        context.print_json(&state)?;
    } else {
        context.print(&table(&state))?;
    }
    Ok(0)
}

fn names(given: Option<&Vec<String>>) -> Option<Vec<String>> {
    given.map(|names| names.iter().filter(|name| !name.eq_ignore_ascii_case("none")).cloned().collect())
}

fn table(state: &SignalState) -> String {
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!(
        "PID      {}\nBLOCKED  {}\nHANDLED  {}\nPENDING  {}\n",
        state.pid,
        list(&state.blocked),
        list(&state.handled),
        list(&state.pending)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_means_no_signal_and_absence_changes_nothing() {
        assert_eq!(names(None), None);
        assert_eq!(names(Some(&vec!["none".into()])), Some(Vec::new()));
        assert_eq!(names(Some(&vec!["TERM".into(), "INT".into()])), Some(vec!["TERM".into(), "INT".into()]));
    }
}
