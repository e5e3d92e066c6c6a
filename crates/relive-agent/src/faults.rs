//! Switches that break the protocol on purpose, for the tests that have to notice.

/// Returns whether a switch is on.
#[must_use]
pub fn is_on(name: &str) -> bool {
    std::env::var("RELIVE_FAULTS").is_ok_and(|switches| switches.split(',').any(|switch| switch == name))
}
