//! `relive self on`: a command of the process for a signal.
//!
//! The daemon records that the process handles the signal, and each time that it gets it. A watcher in the process's
//! session follows that journal and runs the command. It needs no daemon to stay, continues after the last record that
//! it has seen, and ends with the session. A signal whose watcher is gone is handled by nobody; a TERM still kills when
//! its grace is over, and a KILL at once.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use relive_api::{SignalCommand, SignalMaskRequest};
use relive_client::{Event, Source};
use relive_core::Uuid;
use serde::Deserialize;

use super::{full_name, say_signals};
use crate::client::Client;
use crate::context::{Context, new_uuid, say};
use crate::error::{CommandError, Outcome};

/// How often a watcher looks for the next daemon.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Run a command when a signal arrives
///
/// The command runs in the session of the process, with the environment and directory of `relive self on` and with
/// RELIVE_SIGNAL set to the name of the signal; its output goes to the output of the program. It runs once per signal, never
/// twice at the same time. After TERM, the process is killed when its grace period of 10 s is over; a command that finishes
/// earlier can end it with `relive self terminate`. A handled INT or PAUSE only runs the command; a handled RESUME also
/// resumes the process. A blocked signal is handled when it is unblocked. A later `on` for the same signal replaces the
/// command. KILL cannot be handled. An agent's shell tool refuses `on`, because its commands end before the agent does.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive self on TERM -- ./save
  relive self on TERM -- sh -c './save && relive self terminate --code 0'
  relive self on INT -- sh -c 'echo \"got $RELIVE_SIGNAL\" >&2'")]
pub(super) struct On {
    /// The signal: TERM, INT, PAUSE or RESUME
    #[arg(value_name = "SIGNAL")]
    signal: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command of `relive self on`, beside the program.
#[derive(Debug, clap::Args)]
pub(super) struct Watch {
    signal: String,
    /// The process.
    #[arg(long)]
    uuid: Uuid,
    /// The registration.
    #[arg(long)]
    id: Uuid,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(super) async fn on(client: &Client<'_>, args: &On) -> Outcome<u8> {
    let uuid = client.self_info().await?.uuid;
    let (signal, id) = (full_name(&args.signal), new_uuid()?);
    // First, so that nothing is handled that nobody could run the command for.
    let mut watcher = start_watcher(&signal, uuid, id, &args.command)
        .map_err(|error| CommandError::internal("cannot start the process that waits for the signal").because(error))?;
    let request = SignalMaskRequest { on: Some(SignalCommand { signal, id }), ..SignalMaskRequest::default() };
    match client.set_signals(&uuid.to_string(), &request).await {
        Ok(state) => say_signals(client.context(), &state),
        Err(error) => {
            let _ = watcher.kill();
            let _ = watcher.wait();
            Err(error)
        }
    }
}

fn start_watcher(signal: &str, uuid: Uuid, id: Uuid, command: &[OsString]) -> io::Result<Child> {
    let (uuid, id) = (uuid.to_string(), id.to_string());
    let mut watcher = Command::new(std::env::current_exe()?);
    watcher.args(["self", "watch", signal, "--uuid", &uuid, "--id", &id, "--"]).args(command);
    // Out of the way of what a terminal sends to the program.
    watcher.stdin(Stdio::null()).process_group(0).spawn()
}

/// Why a watcher stops following.
enum Stop {
    /// The signal is handled no longer, or by another command.
    Replaced,
    Lost,
}

impl From<relive_client::Error> for Stop {
    fn from(_: relive_client::Error) -> Self {
        Self::Lost
    }
}

pub(super) async fn watch(context: &Context, args: &Watch) -> Outcome<u8> {
    let (uuid, mut last, mut registered) = (args.uuid.to_string(), None, Registered::NotYet);
    loop {
        // Whatever goes wrong, the next daemon may answer. Where nobody does, this ends with the session.
        if let Some(client) = Client::beside(context).await {
            let take = async |event: Event| {
                let delivered = registered.follow(&event, &args.signal, args.id)?;
                if delivered == Delivered::Yes {
                    run(args).await;
                }
                Ok(())
            };
            match client.follow_while_it_lasts(&uuid, Source::Journal, &mut last, take).await {
                Err(Stop::Replaced) => return Ok(0),
                Ok(()) | Err(Stop::Lost) => {}
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Runs the command once, to its end.
async fn run(args: &Watch) {
    let Watch { signal, command, .. } = args;
    let Some((program, rest)) = command.split_first() else { return };
    let mut child = Command::new(program);
    child.args(rest).stdin(Stdio::null()).env("RELIVE_SIGNAL", signal);
    let ended = tokio::task::spawn_blocking(move || child.status()).await;
    if let Ok(Err(error)) = ended {
        say(&format!("error: cannot run `{}` for {signal}: {error}", program.display()));
    }
}

/// Whether the command counts at a place of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Registered {
    NotYet,
    Yes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivered {
    Yes,
    No,
}

/// What matters here of a record.
#[derive(Deserialize)]
struct Mask {
    kind: String,
    #[serde(default)]
    handled: Vec<String>,
    on: Option<SignalCommand>,
    delivered: Option<String>,
}

impl Registered {
    /// Reads the next record, and says whether it delivers the signal to this command.
    fn follow(&mut self, event: &Event, signal: &str, id: Uuid) -> Result<Delivered, Stop> {
        let mask = serde_json::from_str::<Mask>(&event.data).ok().filter(|mask| mask.kind == "signal_mask");
        let Some(mask) = mask else { return Ok(Delivered::No) };
        match mask.on {
            Some(on) if on.id == id => *self = Self::Yes,
            Some(on) if on.signal == signal && *self == Self::Yes => return Err(Stop::Replaced),
            Some(_) | None => {}
        }
        match self {
            Self::NotYet => Ok(Delivered::No),
            Self::Yes if !mask.handled.iter().any(|name| name == signal) => Err(Stop::Replaced),
            Self::Yes if mask.delivered.as_deref() == Some(signal) => Ok(Delivered::Yes),
            Self::Yes => Ok(Delivered::No),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads these records, the fields of `signal_mask` each, and says for which of them the command runs, until it is
    /// replaced.
    fn runs(records: &[&str]) -> Vec<usize> {
        let (mut registered, id) = (Registered::NotYet, "01990000-0000-7000-8000-000000000001".parse().unwrap());
        let mut runs = Vec::new();
        for (place, fields) in records.iter().enumerate() {
            let data = fields.replace("MINE", "01990000-0000-7000-8000-000000000001");
            let data = data.replace("OTHER", "01990000-0000-7000-8000-000000000002");
            let data = format!(r#"{{"kind":"signal_mask","blocked":[],{data}}}"#);
            let event = Event { name: "record".into(), id: "1.1".into(), data };
            match registered.follow(&event, "SIGTERM", id) {
                Ok(Delivered::Yes) => runs.push(place),
                Ok(Delivered::No) => {}
                Err(_) => break,
            }
        }
        runs
    }

    #[test]
    fn a_command_runs_for_what_is_delivered_between_its_registration_and_the_next() {
        const DELIVERED: &str = r#""handled":["SIGTERM"],"delivered":"SIGTERM""#;
        const OTHER_SIGNAL: &str = r#""handled":["SIGTERM","SIGINT"],"delivered":"SIGINT""#;
        const MINE: &str = r#""handled":["SIGTERM"],"on":{"signal":"SIGTERM","id":"MINE"}"#;
        const OTHER: &str = r#""handled":["SIGTERM"],"on":{"signal":"SIGTERM","id":"OTHER"}"#;
        const BESIDE: &str = r#""handled":["SIGTERM","SIGINT"],"on":{"signal":"SIGINT","id":"OTHER"}"#;
        const OFF: &str = r#""handled":["SIGINT"]"#;
        assert_eq!(runs(&[DELIVERED, OTHER, DELIVERED, MINE, DELIVERED, DELIVERED]), [4, 5]);
        assert_eq!(runs(&[MINE, BESIDE, OTHER_SIGNAL, DELIVERED]), [3]);
        assert_eq!(runs(&[MINE, OTHER, DELIVERED]), [0; 0]);
        assert_eq!(runs(&[MINE, OFF, DELIVERED]), [0; 0]);
    }
}
