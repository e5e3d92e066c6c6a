//! Ctrl-C: kills the running programs, removes the files, and ends the program.

use std::path::PathBuf;

use tokio::signal::unix::{SignalKind, signal};

use crate::{Result, daemon, lab, place};

const TRIES: usize = 5;
/// 128 plus the number of SIGINT.
const INTERRUPTED: i32 = 130;

/// Cleans up after SIGINT, SIGTERM and SIGHUP from now on.
pub(crate) fn clean_up_on_signals(root: PathBuf) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let guard = runtime.enter();
    let mut int = signal(SignalKind::interrupt())?;
    let mut term = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    drop(guard);
    std::thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = int.recv() => {}
                _ = term.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        eprintln!("interrupted: removing {}", root.display());
        let _nothing_starts = daemon::kill_all();
        lab::end_interrupted(&runtime, &root);
        // The main thread may still be creating files.
        for _ in 0..TRIES {
            if place::remove(&root).is_ok() {
                break;
            }
        }
        std::process::exit(INTERRUPTED);
    })?;
    Ok(())
}
