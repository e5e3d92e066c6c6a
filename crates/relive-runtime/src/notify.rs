//! The command of `notify:` hears of every new item of the inbox.
//!
//! It is the user's own command, as the configuration has it; what an agent says reaches it in the environment only. At
//! most [`RUNNING_MAX`] run at once, each for at most [`WITHIN`], and nothing waits for any of them. Each has a parent of its
//! own that ends it in time, with everything that it has started, also if the daemon is killed: this program executed again
//! under the name [`NOTIFIER`].

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use relive_api::Item;
use relive_core::Uuid;
use relive_session::tree::below;
use relive_types::text::exact;
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, getpgrp, getpid, kill_current_process_group, set_child_subreaper, wait};
use tokio::sync::Semaphore;

use crate::feed::FeedReader;
use crate::runtime::Runtime;

/// The name under which this program runs one command of `notify:`.
pub const NOTIFIER: &str = "relive-notifier";

const RUNNING_MAX: usize = 4;
const WITHIN: Duration = Duration::from_secs(10);
/// How long a kill may take: a process that the kernel holds does not end.
const KILLED_WITHIN: Duration = Duration::from_secs(1);
/// How often changes are looked at.
const PACE: Duration = Duration::from_millis(200);
/// The exit codes of a shell for a command that is not there, and for one that cannot be executed.
const NOT_FOUND: i32 = 127;
const UNUSABLE: i32 = 126;
/// How much of a text is passed on.
const TEXT_MAX: usize = 1_000;

/// The items that were told of, and the commands that run.
struct Notifier {
    /// The last item of each process that was told of.
    told: HashMap<Uuid, String>,
    running: Arc<Semaphore>,
}

impl Runtime {
    /// Tells the command of `notify:` about new items, until the runtime ends.
    pub(crate) fn run_notifications(self: &Arc<Self>) {
        let (runtime, started) = (Arc::downgrade(self), self.now());
        let (mut position, mut bell) = (self.changes.feed().last(), self.changes.feed().bell());
        let mut notifier = Notifier { told: HashMap::new(), running: Arc::new(Semaphore::new(RUNNING_MAX)) };
        tokio::spawn(async move {
            if let Some(runtime) = runtime.upgrade()
                && runtime.live.now().notify.is_some()
                && let Ok(inbox) = runtime.inbox().await
            {
                for item in inbox.items {
                    // What waited before was told of by an earlier daemon, except for what ended while there was none:
                    // this daemon has recorded it.
                    let is_new =
                        item.since >= started || item.has_ended() && runtime.changes.feed().has_noted(item.uuid);
                    if !is_new {
                        notifier.told.insert(item.uuid, item.id);
                    } else {
                        notifier.hear(&runtime, item.uuid, Some(item));
                    }
                }
            }
            loop {
                if bell.wait_for(|last| *last > position).await.is_err() {
                    return;
                }
                tokio::time::sleep(PACE).await;
                let Some(next) = notifier.look(&runtime, position).await else { return };
                position = next;
            }
        });
    }
}

impl Notifier {
    /// Looks at what has changed after a position, and returns the next one; `None` if the runtime is gone.
    async fn look(&mut self, runtime: &Weak<Runtime>, position: u64) -> Option<u64> {
        let runtime = runtime.upgrade()?;
        if runtime.live.now().notify.is_none() {
            self.told.clear();
            return Some(runtime.changes.feed().last());
        }
        let mut reader = FeedReader::after(Arc::clone(&runtime), position);
        for change in reader.next().await.changes {
            self.hear(&runtime, change.uuid, change.item);
        }
        Some(reader.position())
    }

    fn hear(&mut self, runtime: &Arc<Runtime>, uuid: Uuid, item: Option<Item>) {
        let Some(item) = item else {
            self.told.remove(&uuid);
            return;
        };
        if self.told.insert(uuid, item.id.clone()).is_some_and(|told| told == item.id) {
            return;
        }
        let Some(command) = runtime.live.now().notify.clone() else { return };
        let Ok(place) = Arc::clone(&self.running).try_acquire_owned() else {
            runtime
                .warn_once(format!("`notify` was not run for some items: {RUNNING_MAX} of its commands run already"));
            return;
        };
        let link = format!("file://{}", runtime.directory(uuid).path().display());
        // A library has no program that could be the parent.
        let Some(program) = runtime.settings.keeper.clone() else { return };
        let runtime = Arc::downgrade(runtime);
        tokio::spawn(async move {
            if let Err(problem) = run(&program, &command, &item, &link).await
                && let Some(runtime) = runtime.upgrade()
            {
                let failed = "the command of `notify` failed";
                let at = runtime.now().strftime("%Y-%m-%d %H:%M:%S UTC");
                // Whether it has failed since a change of the configuration, only the time tells.
                runtime.warnings.warn_instead(failed, format!("{failed} at {at}: {problem}"));
            }
            drop(place);
        });
    }
}

/// Runs the command for an item, to its end or to the end of its time.
async fn run(program: &Path, command: &str, item: &Item, link: &str) -> Result<(), String> {
    let who = item.name.clone().unwrap_or_else(|| format!("PID {}", item.pid));
    let text: String = exact(&item.text).chars().take(TEXT_MAX).collect();
    let mut notifier = tokio::process::Command::new(program);
    notifier.arg0(NOTIFIER).arg(command).current_dir("/").process_group(0);
    notifier.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    notifier.env("RELIVE_TITLE", format!("{who}: {}", item.kind.word())).env("RELIVE_TEXT", text);
    notifier.env("RELIVE_KIND", item.kind.word()).env("RELIVE_UUID", item.uuid.to_string()).env("RELIVE_LINK", link);
    notifier.env("RELIVE_ANSWER", item.answers.first().map_or("", |answer| answer.command.as_str()));
    let status = notifier.status().await.map_err(|error| error.to_string())?;
    match status.signal() {
        None if status.success() => Ok(()),
        Some(signal) if signal == Signal::KILL.as_raw() => {
            Err(format!("it, or something that it started, took longer than {} s", WITHIN.as_secs()))
        }
        // What a shell says.
        None if status.code() == Some(NOT_FOUND) => Err("exit code 127: a command in it was not found".to_owned()),
        None if status.code() == Some(UNUSABLE) => Err("exit code 126: a command in it cannot be executed".to_owned()),
        None | Some(_) => Err(status.to_string()),
    }
}

/// Runs one command of `notify:` as its parent, until everything that it has started has ended. After [`WITHIN`] all of that is
/// killed, also what has a process group or a session of its own, and so is this process.
pub fn main() -> ! {
    const SIGNALED: i32 = 128;
    static IS_LATE: AtomicBool = AtomicBool::new(false);
    let Some(command) = std::env::args_os().nth(1) else { std::process::exit(UNUSABLE) };
    // Whatever loses its parent becomes a child of this process.
    let adopts = set_child_subreaper(Some(getpid()));
    let deadline = std::thread::Builder::new().spawn(|| {
        std::thread::sleep(WITHIN);
        IS_LATE.store(true, Ordering::SeqCst);
        below::kill_all(KILLED_WITHIN);
        let _ = kill_current_process_group(Signal::KILL);
    });
    if adopts.is_err() || deadline.is_err() || getpgrp() != getpid() {
        std::process::exit(UNUSABLE);
    }
    let status = std::process::Command::new("/bin/sh").arg("-c").arg(command).status();
    while !matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
    while IS_LATE.load(Ordering::SeqCst) {
        // The signal tells the daemon.
        std::thread::park();
    }
    std::process::exit(status.map_or(UNUSABLE, |status| match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, signal) => SIGNALED + signal.unwrap_or_default(),
    }))
}
