//! The order of commands: each waits for those of signals that were delivered before.
//!
//! Every command has a watcher of its own, which holds the environment and the output of its `relive self on`. All of them
//! read the same journal, so each knows which signals came before its own. What it cannot read there is whether their
//! commands have run: a watcher says so in its name, which the kernel keeps exactly as long as the watcher lives. One that
//! was killed is not waited for.

use std::fs;
use std::time::Duration;

use relive_core::Uuid;

/// How often a watcher looks whether another one is done.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What the name of a watcher begins with; the number of the last record that it is done with follows.
const NAME: &str = "rl-on ";

/// A signal that was delivered to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delivery {
    /// The registration of the command.
    pub(super) id: Uuid,
    /// The record that delivers it.
    pub(super) seq: u64,
}

/// A signal that this watcher runs its command for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) seq: u64,
    pub(super) earlier: Vec<Delivery>,
}

/// Waits until the commands of earlier signals have run.
pub(super) async fn wait_for_earlier(earlier: &[Delivery]) {
    for delivery in earlier {
        // A watcher is there before its command is registered: one that is not there has ended.
        while progress_of(delivery.id).is_some_and(|done| done < delivery.seq) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Says that the command of this record has run.
#[expect(clippy::disallowed_methods, reason = "it is the name of this process, and no file")]
pub(super) fn say_done(seq: u64) {
    // Of the whole process, whichever thread writes it.
    let _ = fs::write("/proc/self/comm", format!("{NAME}{seq}"));
}

/// Returns the last record that a watcher is done with; `None` if there is no such watcher.
fn progress_of(id: Uuid) -> Option<u64> {
    let id = id.to_string();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
    for process in pids {
        let path = process.path();
        let Ok(line) = fs::read(path.join("cmdline")) else { continue };
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let is_watcher = words.get(1..3) == Some(&[b"self".as_slice(), b"watch"]);
        if is_watcher && words.windows(2).take(8).any(|pair| pair == [b"--id".as_slice(), id.as_bytes()]) {
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            return Some(name.trim_end().strip_prefix(NAME).and_then(|seq| seq.parse().ok()).unwrap_or(0));
        }
    }
    None
}
