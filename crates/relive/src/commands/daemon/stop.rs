//! `relive daemon stop`.

use std::time::{Duration, Instant};

use relive_api::StopQuery;
use relive_core::ErrorCode;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::json;

use crate::client::{Client, Start, holder_of_socket, holder_without_socket, meant_data, refuse_unreached};
use crate::context::Context;
use crate::error::{CommandError, Kind, Outcome};

/// Agents get the time to reach their boundary.
const GONE_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The place of the number of threads in `/proc/PID/stat`, counted from the state.
const THREADS: usize = 17;

pub(crate) async fn run(context: &Context) -> Outcome<u8> {
    let stopped = stopped(context, StopQuery { for_good: true }).await?;
    if context.json {
        context.print_json(&json!({ "running": false, "stopped": stopped.is_some(), "os_pid": stopped }))?;
    } else {
        let line = match stopped {
            Some(os_pid) => format!("the daemon has stopped (OS pid {os_pid})"),
            None => "the daemon is not running".into(),
        };
        context.say(&line);
    }
    Ok(0)
}

/// Stops the daemon and returns when it is gone: its OS pid, or `None` if there was none.
///
/// A daemon that is started in the meantime is not stopped.
pub(super) async fn stopped(context: &Context, query: StopQuery) -> Outcome<Option<u32>> {
    let (begun, mut only) = (Instant::now(), None);
    loop {
        let unreached = match told(context, only, query).await {
            Ok(Some(os_pid)) => {
                while is_alive(os_pid) {
                    wait(os_pid, begun).await?;
                }
                return Ok(Some(os_pid));
            }
            Ok(None) => holder_without_socket(context),
            // Another program listens in its place, or it hangs itself. Its refusal is no reason to go past it.
            Err(error) if error.kind == Kind::Unanswered => Some(holder_of_socket(context).ok_or(error)?),
            Err(error) => return Err(error),
        };
        if only.is_none() {
            if let Some(os_pid) = unreached {
                signal(context, os_pid)?;
                while is_alive(os_pid) {
                    wait(os_pid, begun).await?;
                }
                return Ok(Some(os_pid));
            }
            refuse_unreached(context)?;
        }
        // Nothing listens. The daemon may still be stopping, or starting.
        match holder(context) {
            Some(os_pid) if only.is_none_or(|only| only == os_pid) => {
                only = Some(os_pid);
                wait(os_pid, begun).await?;
            }
            Some(_) | None => {
                // It gives up its lock and its socket a little before it is gone.
                while let Some(os_pid) = only.filter(|os_pid| is_alive(*os_pid)) {
                    wait(os_pid, begun).await?;
                }
                return Ok(only);
            }
        }
    }
}

/// Tells the daemon to stop, or only the one with this OS pid. Returns its OS pid, or `None` if nothing listens.
async fn told(context: &Context, only: Option<u32>, query: StopQuery) -> Outcome<Option<u32>> {
    let Some(client) = Client::open(context, Start::Never).await? else { return Ok(None) };
    let Some(stopping) = client.stop_daemon(only, query).await? else { return Ok(None) };
    if stopping.pausing > 0 && context.err.is_terminal {
        context.say(&match stopping.pausing {
            1 => "pausing 1 agent at its next step boundary".to_owned(),
            count => format!("pausing {count} agents at their next step boundaries"),
        });
    }
    Ok(Some(stopping.os_pid))
}

/// Tells the daemon that uses the data directory to stop by SIGTERM, since it does not answer on its socket.
fn signal(context: &Context, os_pid: u32) -> Outcome<()> {
    let failed = |why: &str| {
        let message = format!("the daemon with OS pid {os_pid} does not answer on its socket, and {why}");
        CommandError::unavailable(message).with_hint(format!("kill {os_pid}"))
    };
    let pid = i32::try_from(os_pid).ok().and_then(Pid::from_raw).ok_or_else(|| failed("its OS pid is not valid"))?;
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(()),
        Err(error) => return Err(failed("cannot be signalled").because(std::io::Error::from(error))),
    };
    // Only now: until it is open, its OS pid could become that of another program.
    if !meant_data(context).is_some_and(|data| relive_journal::data::has_locked(data, os_pid)) {
        return Err(failed("cannot be told from another process"));
    }
    match pidfd_send_signal(&process, Signal::TERM) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(failed("cannot be signalled").because(std::io::Error::from(error))),
    }
}

/// Returns the daemon that uses the data directory, if its socket still exists: one without a socket listens elsewhere.
fn holder(context: &Context) -> Option<u32> {
    let data = meant_data(context).filter(|_| context.paths.socket.exists())?;
    relive_journal::data::holder(data)
}

async fn wait(os_pid: u32, begun: Instant) -> Outcome<()> {
    if begun.elapsed() > GONE_WITHIN {
        let message = format!("the daemon (OS pid {os_pid}) is still stopping after {} s", GONE_WITHIN.as_secs());
        return Err(CommandError::new(ErrorCode::Timeout, message).with_hint("relive daemon status"));
    }
    tokio::time::sleep(LOOK_EVERY).await;
    Ok(())
}

/// Returns whether a daemon is alive. One that has ended, but was not reaped by its parent, is not.
fn is_alive(os_pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{os_pid}/stat")).is_ok_and(|stat| !has_ended(&stat))
}

/// The main thread is a zombie before the others have ended, and they hold the lock of the data directory until then.
fn has_ended(stat: &str) -> bool {
    // The name before them is in parentheses and may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or(stat, |(_, rest)| rest).split_ascii_whitespace().collect();
    let is_alone = fields.get(THREADS).is_none_or(|threads| matches!(*threads, "0" | "1"));
    matches!(fields.first(), None | Some(&"Z" | &"X")) && is_alone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_is_gone_when_its_last_thread_is() {
        assert!(is_alive(std::process::id()));
        let stat = |state: &str, threads: u32| {
            format!("7 (a) Z) {state} 1 7 7 0 -1 4227084 1 0 0 0 0 0 0 0 20 0 {threads} 0 5 0 0")
        };
        assert!(has_ended(&stat("Z", 1)));
        assert!(!has_ended(&stat("Z", 3)));
        assert!(!has_ended(&stat("S", 1)));
        assert!(has_ended(""));
    }

    #[test]
    fn the_number_of_threads_is_where_it_is_looked_for() {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count().to_string();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
        assert!(threads != "1" && fields[THREADS] != "1", "{stat}");
    }
}
