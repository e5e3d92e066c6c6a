//! `relive self on`: a command of the process for a signal.
//!
//! The daemon records that the process handles the signal, and each time that it gets it. A watcher in the process's
//! session follows that journal and runs the command. It needs no daemon to stay, continues after the last record that
//! it has seen, and ends with the session. A signal whose watcher is gone is handled by nobody; a TERM still kills when
//! its grace is over, and a KILL at once.

mod queue;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use relive_api::{OnSignal, SignalMaskRequest};
use relive_client::{Event, Source};
use relive_core::Uuid;
use serde::Deserialize;

use self::queue::{Delivery, Turn};
use super::{full_name, say_signals};
use crate::client::Client;
use crate::context::{Context, new_uuid, say};
use crate::error::{CommandError, Outcome};

/// How often a watcher looks for the next daemon.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How many signals for other commands are remembered: the last ones.
const EARLIER_MAX: usize = 64;

/// Run a command when a signal arrives
///
/// The command runs in the session of the process, with the environment and directory of `relive self on` and with
/// RELIVE_SIGNAL set to the name of the signal; its output goes to the output of the program. It runs once per signal.
/// The commands of all signals run one after the other, in the order in which the signals were delivered. After TERM,
/// the process is killed when its grace period of 10 s is over; a command that finishes earlier can end it with `relive
/// self terminate`. A handled INT or PAUSE only runs the command; a handled RESUME also resumes the process. A blocked
/// signal is handled when it is unblocked. A later `on` for the same signal replaces the command. KILL cannot be
/// handled. An agent's shell tool refuses `on`, because its commands end before the agent does.
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
    /// The name of the signal
    signal: String,
    /// The UUID of the process that receives it
    #[arg(long)]
    uuid: Uuid,
    /// The UUID of the call of `relive self on`
    #[arg(long)]
    id: Uuid,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(super) async fn on(client: &Client<'_>, args: &On) -> Outcome<u8> {
    let uuid = client.self_info().await?.uuid;
    let (signal, id) = (full_name(&args.signal), new_uuid()?);
    // First, so that nothing is handled that nobody could run the command for.
    let mut watcher = start_watcher(&signal, uuid, id, &args.command)
        .map_err(|error| CommandError::internal("cannot start the process that waits for the signal").because(error))?;
    let request = SignalMaskRequest { on: Some(OnSignal { signal, id }), ..SignalMaskRequest::default() };
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
    /// The process has ended.
    Over,
    Lost,
}

impl From<relive_client::Error> for Stop {
    fn from(_: relive_client::Error) -> Self {
        Self::Lost
    }
}

pub(super) async fn watch(context: &Context, args: &Watch) -> Outcome<u8> {
    let (uuid, mut last, mut watched) = (args.uuid.to_string(), None, Watched::new(&args.signal, args.id));
    loop {
        // Whatever goes wrong, the next daemon may answer. Where nobody does, this ends with the session.
        if let Some(client) = Client::beside(context).await {
            let take = async |event: Event| {
                if let Some(turn) = watched.follow(&event)? {
                    queue::wait_for_earlier(&turn.earlier).await;
                    run(args).await;
                    queue::say_done(turn.seq);
                }
                Ok(())
            };
            match client.follow_while_it_lasts(&uuid, Source::Journal, &mut last, take).await {
                Err(Stop::Replaced | Stop::Over) => return Ok(0),
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

/// The fields of a record that the watcher reads.
#[derive(Deserialize)]
struct Mask {
    kind: String,
    seq: u64,
    #[serde(default)]
    handled: Vec<String>,
    on: Option<OnSignal>,
    delivered: Option<String>,
}

/// The commands of a process at a place of its journal, as one of their watchers sees them.
struct Watched {
    signal: String,
    id: Uuid,
    is_registered: bool,
    /// The registration that counts, by signal.
    commands: HashMap<String, Uuid>,
    /// The signals that earlier commands run for: those run first.
    earlier: Vec<Delivery>,
}

impl Watched {
    fn new(signal: &str, id: Uuid) -> Self {
        let (commands, earlier) = (HashMap::new(), Vec::new());
        Self { signal: signal.to_owned(), id, is_registered: false, commands, earlier }
    }

    /// Reads the next record, and returns the turn of this command if the record delivers its signal.
    fn follow(&mut self, event: &Event) -> Result<Option<Turn>, Stop> {
        let Ok(mask) = serde_json::from_str::<Mask>(&event.data) else { return Ok(None) };
        match mask.kind.as_str() {
            "signal_mask" => {}
            // What another incarnation of the process does is not for this watcher, which was left behind.
            "ended" if self.is_registered => return Err(Stop::Over),
            _ => return Ok(None),
        }
        if let Some(on) = mask.on {
            if on.id == self.id {
                self.is_registered = true;
            } else if on.signal == self.signal && self.is_registered {
                return Err(Stop::Replaced);
            }
            self.commands.insert(on.signal, on.id);
        }
        if self.is_registered && !mask.handled.contains(&self.signal) {
            return Err(Stop::Replaced);
        }
        self.commands.retain(|signal, _| mask.handled.contains(signal));
        let Some(id) = mask.delivered.and_then(|signal| self.commands.get(&signal).copied()) else { return Ok(None) };
        if id == self.id {
            return Ok(Some(Turn { seq: mask.seq, earlier: std::mem::take(&mut self.earlier) }));
        }
        self.earlier.push(Delivery { id, seq: mask.seq });
        let excess = self.earlier.len().saturating_sub(EARLIER_MAX);
        self.earlier.drain(..excess);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads these records, the fields of `signal_mask` each, and says for which of them the command runs, until it is
    /// replaced, and after which others.
    fn turns(records: &[&str]) -> Vec<(u64, Vec<u64>)> {
        let mut watched = Watched::new("SIGTERM", "01990000-0000-7000-8000-000000000001".parse().unwrap());
        let mut turns = Vec::new();
        for (seq, fields) in records.iter().enumerate() {
            let data = fields.replace("MINE", "01990000-0000-7000-8000-000000000001");
            let data = data.replace("OTHER", "01990000-0000-7000-8000-000000000002");
            let data = format!(r#"{{"kind":"signal_mask","seq":{seq},"blocked":[],{data}}}"#);
            match watched.follow(&Event { name: "record".into(), id: "1.1".into(), data }) {
                Ok(turn) => turns.extend(
                    turn.map(|Turn { seq, earlier }| (seq, earlier.into_iter().map(|delivery| delivery.seq).collect())),
                ),
                Err(_) => break,
            }
        }
        turns
    }

    fn runs(records: &[&str]) -> Vec<u64> {
        turns(records).into_iter().map(|(seq, _)| seq).collect()
    }

    #[test]
    fn a_command_runs_for_what_is_delivered_between_its_registration_and_the_next() {
        const DELIVERED: &str = r#""handled":["SIGTERM"],"delivered":"SIGTERM""#;
        const OTHER_SIGNAL: &str = r#""handled":["SIGTERM","SIGINT"],"delivered":"SIGINT""#;
        const MINE: &str = r#""handled":["SIGTERM"],"on":{"signal":"SIGTERM","id":"MINE"}"#;
        const OTHER: &str = r#""handled":["SIGTERM"],"on":{"signal":"SIGTERM","id":"OTHER"}"#;
        const BESIDE: &str = r#""handled":["SIGTERM","SIGINT"],"on":{"signal":"SIGINT","id":"OTHER"}"#;
        const MINE_TOO: &str = r#""handled":["SIGTERM","SIGINT"],"on":{"signal":"SIGTERM","id":"MINE"}"#;
        const BOTH: &str = r#""handled":["SIGTERM","SIGINT"],"delivered":"SIGTERM""#;
        const OFF: &str = r#""handled":["SIGINT"]"#;
        assert_eq!(runs(&[DELIVERED, OTHER, DELIVERED, MINE, DELIVERED, DELIVERED]), [4, 5]);
        assert_eq!(runs(&[MINE, BESIDE, OTHER_SIGNAL, DELIVERED]), [3]);
        assert_eq!(runs(&[MINE, OTHER, DELIVERED]), [0; 0]);
        assert_eq!(runs(&[MINE, OFF, DELIVERED]), [0; 0]);
        // Each waits for those of other commands that came before, also before its registration, and once.
        let records = [BESIDE, OTHER_SIGNAL, MINE_TOO, OTHER_SIGNAL, BOTH, BOTH, OTHER_SIGNAL];
        assert_eq!(turns(&records), [(4, vec![1, 3]), (5, vec![])]);
    }
}
