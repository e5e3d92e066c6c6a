//! `wait --needs-me`: waits until something is in the inbox.

use std::collections::BTreeSet;
use std::time::Duration;

use relive_api::{Change, Item};
use relive_core::{ErrorCode, Uuid};
use serde_json::{Value, json};

use crate::client::{Client, Start};
use crate::commands::targets::{Scope, Targets};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::approval::exact;
use crate::render::time::{as_millis, elapsed};

/// How long a daemon that went away is waited for before it is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Why the stream is no longer read.
enum Stopped {
    Needs(Box<Item>),
    /// All that were named have ended.
    Over,
    Failed(relive_client::Error),
}

impl From<relive_client::Error> for Stopped {
    fn from(error: relive_client::Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) async fn run(context: &Context, targets: &Targets, timeout: Option<Duration>) -> Outcome<u8> {
    let client = Client::open(context, Start::Always).await?;
    let client = client.ok_or_else(|| CommandError::unavailable("no daemon is running"))?;
    let mut named = BTreeSet::new();
    if !targets.ids.is_empty() {
        for target in targets.expand(&client, Scope::Living).await? {
            if let Some(error) = target.error {
                return Err(error);
            }
            let process = client.process(&target.id).await?;
            match (process.dead_at, relive_api::item_of(&process)) {
                (Some(_), Some(item)) => return tell(context, Some(item)),
                // It can need nobody any more.
                (Some(_), None) => {}
                (None, _) => drop(named.insert(process.uuid)),
            }
        }
    }
    if named.is_empty() && !targets.ids.is_empty() {
        return tell(context, None);
    }
    let waiting = wait(&client, named);
    let found = match timeout {
        None => waiting.await?,
        Some(timeout) => match tokio::time::timeout(timeout, waiting).await {
            Ok(found) => found?,
            Err(_) => {
                let message = format!("nothing needs you after {}", elapsed(as_millis(timeout)));
                return Err(CommandError::new(ErrorCode::Timeout, message).with_hint("relive inbox"));
            }
        },
    };
    tell(context, found)
}

/// Says what needs a person, or that nothing can any more.
fn tell(context: &Context, found: Option<Item>) -> Outcome<u8> {
    match found {
        Some(item) if context.json => context.print_json(&json!({ "item": item }))?,
        Some(item) => {
            let name = item.name.as_deref().map(|name| format!(" ({})", exact(name))).unwrap_or_default();
            context.print_line(&format!("PID {}{name}: {}: {}", item.pid, item.kind.word(), exact(&item.text)))?;
        }
        None if context.json => context.print_json(&json!({ "item": null }))?,
        None => context.say("all of them have ended, and nothing needs you"),
    }
    Ok(0)
}

/// Waits for the first item, of these processes if any are named; `None` if all of those have ended without one.
async fn wait(client: &Client<'_>, named: BTreeSet<Uuid>) -> Outcome<Option<Item>> {
    let mut watched = Watched::new(named);
    let mut last = None;
    // Whether the daemon was stopped on purpose: it is then not started here.
    let mut stopped = false;
    loop {
        let read = client.follow_all(&mut last, async |event| {
            stopped = false;
            if let Some(stopped) = watched.hear(&event.name, &event.data) {
                return Err(stopped);
            }
            watched.look(client).await.map_or(Ok(()), Err)
        });
        let read = read.await;
        stopped |= matches!(&read, Ok(())) || matches!(&read, Err(Stopped::Failed(error)) if is_going(error));
        match read {
            Err(Stopped::Needs(item)) => return Ok(Some(*item)),
            Err(Stopped::Over) => return Ok(None),
            Err(Stopped::Failed(error)) if !error.is_transient() => return Err(error.into()),
            Err(Stopped::Failed(_)) | Ok(()) => {
                tokio::time::sleep(AGAIN_AFTER).await;
                if !stopped {
                    // Starts a daemon if there is none.
                    client.inbox().await?;
                }
            }
        }
    }
}

/// Tells whether a daemon says that it goes away.
fn is_going(error: &relive_client::Error) -> bool {
    error.code() == Some(ErrorCode::Unavailable)
}

/// The processes that are waited for, as the stream tells of them.
struct Watched {
    /// The processes that have not ended yet.
    named: BTreeSet<Uuid>,
    is_any: bool,
    /// The processes received since the stream began; absent after `ready`.
    listed: Option<BTreeSet<Uuid>>,
    /// The items among them: the stream has another order than the inbox.
    items: Vec<Item>,
    /// The processes that were not received although the list of ended processes may be incomplete.
    unknown: BTreeSet<Uuid>,
}

impl Watched {
    fn new(named: BTreeSet<Uuid>) -> Self {
        Self { is_any: named.is_empty(), named, listed: None, items: Vec::new(), unknown: BTreeSet::new() }
    }

    /// Looks up the processes that the stream has not mentioned; `Some` if there is nothing left to wait for.
    async fn look(&mut self, client: &Client<'_>) -> Option<Stopped> {
        for uuid in std::mem::take(&mut self.unknown) {
            let process = match client.process(&uuid.to_string()).await {
                Ok(process) => Some(process),
                Err(error) if error.code() == Some(ErrorCode::NotFound) => None,
                // The stream reports it when it changes.
                Err(_) => continue,
            };
            if let Some(item) = process.as_ref().and_then(relive_api::item_of) {
                return Some(Stopped::Needs(Box::new(item)));
            }
            if process.is_none_or(|process| process.dead_at.is_some()) {
                self.named.remove(&uuid);
            }
        }
        (!self.is_any && self.named.is_empty()).then_some(Stopped::Over)
    }

    /// Takes in an event; `Some` if nothing more is waited for.
    fn hear(&mut self, name: &str, data: &str) -> Option<Stopped> {
        match name {
            "reset" => (self.listed, self.items) = (Some(BTreeSet::new()), Vec::new()),
            "ready" => {
                relive_api::sort_items(&mut self.items);
                if let Some(first) = std::mem::take(&mut self.items).into_iter().next() {
                    return Some(Stopped::Needs(Box::new(first)));
                }
                let is_all = !serde_json::from_str::<Value>(data).is_ok_and(|ready| ready["incomplete"] == true);
                // The stream has reported every process that lives or needs somebody: the others have ended, and were seen.
                if let Some(listed) = self.listed.take().filter(|_| !self.is_any) {
                    if is_all {
                        self.named.retain(|uuid| listed.contains(uuid));
                    } else {
                        self.unknown = self.named.difference(&listed).copied().collect();
                    }
                }
            }
            _ => {
                let change = serde_json::from_str::<Change>(data).ok()?;
                if let Some(listed) = &mut self.listed {
                    listed.insert(change.uuid);
                }
                if !self.is_any && !self.named.contains(&change.uuid) {
                    return None;
                }
                // A process that is listed twice has changed.
                self.items.retain(|item| item.uuid != change.uuid);
                match change.item {
                    Some(item) if self.listed.is_some() => {
                        self.items.push(item);
                        return None;
                    }
                    Some(item) => return Some(Stopped::Needs(Box::new(item))),
                    None => {}
                }
                if change.process.is_none_or(|process| process.dead_at.is_some()) {
                    self.named.remove(&change.uuid);
                }
            }
        }
        (!self.is_any && self.named.is_empty()).then_some(Stopped::Over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::processes::tests::process;

    /// Hears of these events; whether and how the wait is over after them.
    fn check(named: &[u32], events: &[(&str, Option<u32>, &str)], expect: Option<&str>) {
        let mut watched = Watched::new(named.iter().map(|pid| process(*pid, 0).uuid).collect());
        let mut stopped = None;
        for (name, pid, extra) in events {
            let data = match pid {
                None => (*extra).to_owned(),
                Some(pid) => {
                    let mut process = process(*pid, 0);
                    if *extra == "dead" {
                        process.dead_at = Some(process.created_at);
                    }
                    let item = (*extra == "stalled").then(|| relive_api::Process { stalled: true, ..process.clone() });
                    let item = item.as_ref().and_then(relive_api::item_of);
                    serde_json::to_string(&Change { uuid: process.uuid, process: Some(process), item }).unwrap()
                }
            };
            stopped = watched.hear(name, &data);
        }
        let stopped = stopped.map(|stopped| match stopped {
            Stopped::Needs(_) => "needs",
            Stopped::Over => "over",
            Stopped::Failed(_) => "failed",
        });
        assert_eq!(stopped, expect, "{named:?} {events:?}");
    }

    #[test]
    fn a_wait_is_over_when_something_needs_a_person_or_all_that_were_named_have_ended() {
        let (reset, ready) = (("reset", None, "{}"), ("ready", None, "{}"));
        let change = |pid, extra| ("change", Some(pid), extra);
        check(&[], &[reset, ready], None);
        check(&[], &[reset, ready, change(3, "stalled")], Some("needs"));
        check(&[5], &[reset, change(3, "stalled"), change(5, "")], None);
        check(&[5], &[reset, change(5, "stalled"), ready], Some("needs"));
        check(&[5], &[reset, change(5, "stalled"), change(5, ""), ready], None);
        check(&[5, 6], &[reset, change(5, ""), change(6, ""), ready, change(5, "dead")], None);
        check(&[5], &[reset, change(5, ""), ready, change(5, "dead")], Some("over"));
        // It has ended before everything was told, and was seen: nothing tells of it.
        check(&[5], &[reset, change(3, ""), ready], Some("over"));
        check(&[5], &[reset, change(3, ""), ("ready", None, r#"{"incomplete":true}"#)], None);
        check(&[5], &[ready], None);
    }

    #[test]
    fn the_first_item_of_the_inbox_is_returned() {
        let stalled = |pid, since: &str| {
            let process = relive_api::Process { stalled: true, ..process(pid, 0) };
            let item = relive_api::item_of(&process).map(|item| Item { since: since.parse().unwrap(), ..item });
            serde_json::to_string(&Change { uuid: process.uuid, process: Some(process), item }).unwrap()
        };
        let mut watched = Watched::new(BTreeSet::new());
        assert!(watched.hear("reset", "{}").is_none());
        assert!(watched.hear("change", &stalled(3, "2026-11-18T12:00:02Z")).is_none());
        assert!(watched.hear("change", &stalled(4, "2026-11-18T12:00:01Z")).is_none());
        let first = watched.hear("ready", "{}");
        assert!(matches!(&first, Some(Stopped::Needs(item)) if item.uuid == process(4, 0).uuid), "the oldest");
    }

    #[test]
    fn one_that_an_incomplete_list_does_not_have_is_looked_at() {
        let uuid = |pid| process(pid, 0).uuid;
        let mut watched = Watched::new([uuid(5), uuid(6)].into());
        let change = Change { uuid: uuid(6), process: Some(process(6, 0)), item: None };
        watched.hear("reset", "{}");
        watched.hear("change", &serde_json::to_string(&change).unwrap());
        assert!(watched.hear("ready", r#"{"incomplete":true}"#).is_none());
        assert_eq!(watched.unknown, [uuid(5)].into());
    }
}
