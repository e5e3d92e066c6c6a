//! Switches that break the protocol on purpose: each has to make the torture tests fail.

use std::time::Duration;

pub use relive_agent::faults::is_on;

/// Waits, so that a kill can happen.
pub(crate) async fn delay() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}
