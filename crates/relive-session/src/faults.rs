//! Deaths at a moment that a test chooses.

/// Kills this process if a test asked for its death at this point.
#[cfg(feature = "faults")]
pub(crate) fn die_at(point: &str) {
    if std::env::var("RELIVE_FAULTS").is_ok_and(|switches| switches.split(',').any(|switch| switch == point)) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

#[cfg(not(feature = "faults"))]
pub(crate) fn die_at(_point: &str) {}
