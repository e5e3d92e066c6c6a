//! Switches that break the protocol on purpose: each has to turn the torture tests red.

use std::time::Duration;

pub use relive_agent::faults::is_on;

/// Leaves time for a kill.
pub(crate) async fn dawdle() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}
