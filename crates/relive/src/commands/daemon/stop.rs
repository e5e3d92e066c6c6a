//! `relive daemon stop`.

use std::time::{Duration, Instant};

use relive_core::ErrorCode;
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
        Err(error) => return Err(error.into()),
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

/// One that has ended and was not yet waited for by whoever started it is gone as well.
fn is_alive(os_pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{os_pid}/stat")).is_ok_and(|stat| !has_ended(&stat))
}

fn has_ended(stat: &str) -> bool {
    // The name before it is in parentheses and may hold anything.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().as_bytes().first().copied());
    matches!(state.flatten(), None | Some(b'Z' | b'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_is_gone() {
        assert!(is_alive(std::process::id()));
        assert!(has_ended("7 (relive) Z 1 7"));
        assert!(!has_ended("7 (a) Z) S 1 7"));
        assert!(has_ended(""));
    }
}
