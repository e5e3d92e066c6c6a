//! What the daemon shows and what is on the disk, once nothing moves any more.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use relive_api::{ListQuery, Process};
use relive_client::BlockingClient;
use relive_core::Uuid;
use serde_json::Value;

use crate::daemon::Places;
use crate::model::Item;
use crate::verb::{Decision, Seen};

/// How long the table and the disk may differ after the last client has left.
const SETTLES_WITHIN: Duration = Duration::from_secs(10);
/// They have settled if nothing changes between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(120);

/// The processes, each in its last incarnation.
pub(crate) type Shown = BTreeMap<Uuid, Seen>;

/// Waits until every process is at rest and `live/` names those of the table.
pub(crate) fn settle(places: &Places, client: &BlockingClient) -> Result<Shown, String> {
    let (begun, mut before) = (Instant::now(), None);
    loop {
        let shown = show(places, client);
        match shown {
            Ok(shown) if before.as_ref() == Some(&shown) => return Ok(shown),
            Ok(shown) => before = Some(shown),
            Err(error) if begun.elapsed() > SETTLES_WITHIN => return Err(error),
            Err(_) => before = None,
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What is shown; `Err` says what is still moving, or will never stop.
fn show(places: &Places, client: &BlockingClient) -> Result<Shown, String> {
    let table = list(client, &ListQuery::default())?;
    for process in &table {
        if matches!(process.display.as_str(), "loading" | "pausing") || process.ending.is_some() {
            return Err(format!("{} does not come to rest: {process:?}", process.uuid));
        }
    }
    let uuids: Vec<Uuid> = table.iter().map(|process| process.uuid).collect();
    let listed: BTreeSet<Uuid> = uuids.iter().copied().collect();
    if listed.len() != uuids.len() {
        return Err(format!("a process is in the table twice: {uuids:?}"));
    }
    let marks = fs::read_dir(places.data.join("live")).into_iter().flatten().flatten();
    let marked: BTreeSet<Uuid> = marks.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    if marked != listed {
        let (limbo, unmarked) = (marked.difference(&listed).count(), listed.difference(&marked).count());
        return Err(format!("{limbo} processes have a marker and are not in the table, {unmarked} the reverse"));
    }
    Ok(latest(&list(client, &all())?))
}

fn list(client: &BlockingClient, query: &ListQuery) -> Result<Vec<Process>, String> {
    let list = client.call(|client| client.list(query)).map_err(|error| format!("ps: {error:?}"))?;
    Ok(list.processes)
}

/// Also those that have ended.
fn all() -> ListQuery {
    ListQuery { all: true, ..ListQuery::default() }
}

/// Even where nothing has settled.
pub(crate) fn as_it_is(client: &BlockingClient) -> Shown {
    list(client, &all()).map(|processes| latest(&processes)).unwrap_or_default()
}

fn latest(processes: &[Process]) -> Shown {
    let mut latest: BTreeMap<Uuid, &Process> = BTreeMap::new();
    // Nobody asks for the nodes of trees themselves.
    for process in processes.iter().filter(|process| process.parent_uuid.is_none()) {
        if latest.get(&process.uuid).is_none_or(|seen| seen.pid < process.pid) {
            latest.insert(process.uuid, process);
        }
    }
    latest.into_iter().map(|(uuid, process)| (uuid, Seen::of(process))).collect()
}

/// The records of a journal.
pub(crate) fn all_records(places: &Places, uuid: Uuid) -> Vec<Value> {
    let text = fs::read_to_string(places.data.join("steps").join(uuid.to_string()).join("steps.jsonl"));
    text.unwrap_or_default().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Those that are its own: a fork begins with those of its original.
pub(crate) fn own_records(records: &[Value], uuid: Uuid) -> &[Value] {
    let is_own = |record: &Value| record["kind"] == "spawned" && record["uuid"] == uuid.to_string();
    records.iter().position(is_own).map_or(&[], |place| &records[place..])
}

/// What the records say that somebody can have been promised.
pub(crate) fn items(records: &[Value], texts: &HashSet<String>) -> Vec<Item> {
    let (mut items, mut ended) = (Vec::new(), false);
    for record in records {
        match (record["kind"].as_str().unwrap_or_default(), record["decision"].as_str()) {
            ("spawned", _) => items.push(Item::Created),
            ("input", _) => {
                let text = record["text"].as_str().unwrap_or_default();
                items.extend(texts.contains(text).then(|| Item::Heard(text.to_owned())));
            }
            ("approval", Some("asked")) => items.push(Item::Asked),
            ("approval", Some("allowed")) => items.push(Item::Answered(Decision::Allow)),
            ("approval", _) => items.push(Item::Answered(Decision::Deny)),
            ("question", _) => items.push(match record["answer"].as_str() {
                Some(answer) => Item::Told(answer.to_owned()),
                None => Item::Asked,
            }),
            // A pause that is kept until an answer.
            ("signalled", _) if record["pending"] == true => {}
            ("signalled", _) => items.push(Item::Signalled),
            ("ended", _) => {
                items.push(Item::Ended);
                ended = true;
            }
            ("opened", _) if ended => {
                items.push(Item::Revived);
                ended = false;
            }
            _ => {}
        }
    }
    items
}
