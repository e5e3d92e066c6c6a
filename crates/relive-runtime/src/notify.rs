//! The command of `notify:` hears of every new item of the inbox.
//!
//! It is the user's own command, as the configuration has it; what an agent says reaches it in the environment only. At
//! most [`RUNNING_MAX`] run at once, each for at most [`WITHIN`], and nothing waits for any of them.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use relive_api::Item;
use relive_core::Uuid;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::Semaphore;

use crate::feed::FeedReader;
use crate::runtime::Runtime;

const RUNNING_MAX: usize = 4;
const WITHIN: Duration = Duration::from_secs(10);
/// How often changes are looked at.
const PACE: Duration = Duration::from_millis(200);
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
        let runtime = Arc::downgrade(runtime);
        tokio::spawn(async move {
            if let Err(problem) = run(&command, &item, &link).await
                && let Some(runtime) = runtime.upgrade()
            {
                runtime.warn_once(format!("the command of `notify` failed: {problem}"));
            }
            drop(place);
        });
    }
}

/// Runs the command for an item, to its end or to the end of its time.
async fn run(command: &str, item: &Item, link: &str) -> Result<(), String> {
    let who = item.name.clone().unwrap_or_else(|| format!("PID {}", item.pid));
    let text: String = item.text.chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect();
    let mut shell = tokio::process::Command::new("/bin/sh");
    shell.args(["-c", command]).current_dir("/").process_group(0).kill_on_drop(true);
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.env("RELIVE_TITLE", format!("{who}: {}", item.kind.word())).env("RELIVE_TEXT", text);
    shell.env("RELIVE_KIND", item.kind.word()).env("RELIVE_UUID", item.uuid.to_string()).env("RELIVE_LINK", link);
    shell.env("RELIVE_ANSWER", item.answers.first().map_or("", |answer| answer.command.as_str()));
    let mut child = shell.spawn().map_err(|error| error.to_string())?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    match tokio::time::timeout(WITHIN, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(status.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => {
            // What it has started goes with it.
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait().await;
            Err(format!("it took longer than {} s", WITHIN.as_secs()))
        }
    }
}
