//! `relive daemon stop`.

use std::time::{Duration, Instant};

use relive_core::ErrorCode;
use rustix::process::{Pid, test_kill_process};
use serde_json::json;

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// Agents are given the time to reach their boundary.
const GONE_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(crate) async fn run(context: &Context) -> Outcome<u8> {
    let stopped = stopped(context).await?;
    if context.json {
        context.print_json(&json!({ "running": false, "stopped": stopped.is_some(), "os_pid": stopped }))?;
    } else {
        let line = match stopped {
            Some(os_pid) => format!("the daemon has stopped (pid {os_pid})"),
            None => "the daemon is not running".into(),
        };
        context.print_line(&line)?;
    }
    Ok(0)
}

/// Stops it and returns when it is gone: its pid, or `None` where there was none.
pub(super) async fn stopped(context: &Context) -> Outcome<Option<u32>> {
    let Some(client) = Client::open(context, Start::Never).await? else { return Ok(None) };
    let stopping = match client.stop_daemon().await {
        Ok(stopping) => stopping,
        // Somebody else stopped it in the same moment.
        Err(_) if Client::open(context, Start::Never).await?.is_none() => return Ok(None),
        Err(error) => return Err(error),
    };
    if stopping.pausing > 0 && context.err.is_terminal {
        context.say(&format!("pausing {} agents at their next boundary", stopping.pausing));
    }
    let begun = Instant::now();
    while is_alive(stopping.os_pid) {
        if begun.elapsed() > GONE_WITHIN {
            let message =
                format!("the daemon (pid {}) is still stopping after {} s", stopping.os_pid, GONE_WITHIN.as_secs());
            return Err(CommandError::new(ErrorCode::Timeout, message).with_hint("relive daemon status"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(Some(stopping.os_pid))
}

/// A daemon that nobody has waited for yet, because the machine's first process takes its time, is gone all the same.
fn is_alive(os_pid: u32) -> bool {
    let pid = i32::try_from(os_pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid).is_ok()) && !is_zombie(os_pid)
}

fn is_zombie(os_pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{os_pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}
