//! Deaths and stops at a moment that a test chooses.

/// Kills this process if a test asked for its death at this point.
#[cfg(feature = "faults")]
pub(crate) fn die_at(point: &str) {
    if is_on(point) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Returns whether a test asked for this.
#[cfg(feature = "faults")]
pub(crate) fn is_on(point: &str) -> bool {
    std::env::var("RELIVE_FAULTS").is_ok_and(|switches| switches.split(',').any(|switch| switch == point))
}

#[cfg(not(feature = "faults"))]
pub(crate) fn is_on(_point: &str) -> bool {
    false
}

#[cfg(not(feature = "faults"))]
pub(crate) fn die_at(_point: &str) {}
