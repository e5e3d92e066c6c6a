//! `relive signals`: shows and sets the signals that a process blocks and handles itself, and shows pending ones.

use relive_api::{SignalMaskRequest, SignalState};

use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;

/// Show or change how a process reacts to signals
///
/// A blocked signal stays pending until it is unblocked; a pending PAUSE and a pending RESUME cancel each other. A
/// handled signal is passed to the process instead of acting on it: an agent receives it as a message, a program as a
/// signal of the operating system, unless it chose a command with `relive self on`. After TERM, the process is killed
/// when its grace period of 10 s is over, even if it handles TERM. KILL can be neither blocked nor handled.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive signals 5                     show blocked, handled and pending signals
  relive signals 5 --block TERM,PAUSE  block TERM and PAUSE
  relive signals 5 --block none        unblock all; pending signals act now
  relive signals 5 --handle INT        tell the agent about INT, do not end it")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// Block exactly these signals; `none` unblocks all
    #[arg(long, value_name = "SIGNALS", value_delimiter = ',')]
    block: Option<Vec<String>>,
    /// Let the process handle exactly these signals; `none` handles none
    #[arg(long, value_name = "SIGNALS", value_delimiter = ',')]
    handle: Option<Vec<String>>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let state = if args.block.is_none() && args.handle.is_none() {
        client.signals(&args.id).await?
    } else {
        let (blocked, handled) = (names(args.block.as_ref()), names(args.handle.as_ref()));
        let request = SignalMaskRequest { blocked, handled, ..SignalMaskRequest::default() };
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
