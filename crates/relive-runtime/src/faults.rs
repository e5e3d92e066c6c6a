//! Switches that break the protocol on purpose: each has to turn the torture tests red.

use std::time::Duration;

/// Tells whether a switch is on.
#[must_use]
pub fn is_on(name: &str) -> bool {
    std::env::var("RELIVE_FAULTS").is_ok_and(|switches| switches.split(',').any(|switch| switch == name))
}

/// Leaves time for a kill.
pub(crate) async fn dawdle() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}
