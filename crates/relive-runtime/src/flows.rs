//! Trees of processes: their state, which is the fold of their records, and what people ask of them.

mod attempts;
mod redo;
mod rejoin;
mod reopen;
mod status;
mod stop_due;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use relive_core::Uuid;
use relive_flow::{Event, Flow};
use relive_journal::payload::{Blobs, Json};
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::record::{Body, FlowRecord};
use relive_journal::{DataDirectory, History};
use tokio::sync::Notify;

use crate::error::Result;
use crate::runtime::Runtime;

pub(crate) use attempts::{Attempt, Attempts};
pub(crate) use reopen::Reopening;
pub(crate) use status::{exit_of, living, reason_of};
pub(crate) use stop_due::DueStop;

/// The trees whose body runs.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    open: Mutex<HashMap<Uuid, Arc<LiveFlow>>>,
    /// Held while the changes of nodes are merged.
    pub(crate) merging: tokio::sync::Mutex<()>,
}

/// A tree whose body runs. Whoever records an event holds the flow from before its decision until it has applied the
/// event, so that the events apply in the order of the journal.
#[derive(Debug)]
pub(crate) struct LiveFlow {
    pub(crate) flow: tokio::sync::Mutex<Flow>,
    /// Told when somebody else than the body has applied an event.
    pub(crate) changed: Notify,
    pub(crate) attempts: Attempts,
}

impl Flows {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<LiveFlow>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(&self, uuid: Uuid, flow: Flow) -> Arc<LiveFlow> {
        let (flow, attempts) = (tokio::sync::Mutex::new(flow), Attempts::default());
        let live = Arc::new(LiveFlow { flow, changed: Notify::new(), attempts });
        self.lock().insert(uuid, Arc::clone(&live));
        live
    }

    pub(crate) fn find(&self, uuid: Uuid) -> Option<Arc<LiveFlow>> {
        self.lock().get(&uuid).cloned()
    }

    /// Has the bodies of all trees look again for nodes to start, because there may be more room.
    pub(crate) fn look_again(&self) {
        self.lock().values().for_each(|live| live.changed.notify_one());
    }

    pub(crate) fn close(&self, uuid: Uuid) {
        self.lock().remove(&uuid);
    }
}

/// A tree as its journal has it.
#[derive(Debug)]
pub(crate) struct RecordedFlow {
    pub(crate) flow: Flow,
    /// The last generation that has ended.
    pub(crate) last_ended: u32,
}

/// Returns the record of an event.
pub(crate) fn record(event: &Event, req: Option<String>) -> serde_json::Result<Body> {
    let event = Some(Json::parse(&serde_json::to_string(event)?)?);
    Ok(Body::Flow(FlowRecord { definition: None, event, req }))
}

/// Returns the last generation of a journal that has ended; 0 if none has.
pub(crate) fn last_ended(history: &History) -> u32 {
    let ended = history.incarnations.iter().rev().find(|incarnation| incarnation.ended.is_some());
    ended.map_or(0, |incarnation| incarnation.generation.0)
}

impl Runtime {
    /// Tells the time of day in milliseconds.
    pub(crate) fn wall_ms(&self) -> u64 {
        u64::try_from(self.now().as_millisecond()).unwrap_or(0)
    }

    /// Reads a tree from its journal.
    pub(crate) async fn recorded_flow(&self, uuid: Uuid) -> Result<RecordedFlow> {
        Ok(self.on_journal(move |data| read(data, uuid)).await??)
    }
}

fn read(data: &DataDirectory, uuid: Uuid) -> io::Result<RecordedFlow> {
    let (history, _) = data.history(uuid)?;
    let directory = data.directory(uuid);
    let blobs = Blobs::new(data.io().disk.clone(), directory.path());
    let mut reader = Reader::new(directory.steps(), Cursor::default());
    let mut flow = None;
    while let Some(item) = reader.next_item()? {
        let Item::Record(entry) = item else { continue };
        if entry.kind != "flow" {
            continue;
        }
        let record: FlowRecord = serde_json::from_str(&entry.line)?;
        if let Some(definition) = &record.definition {
            let definition = blobs.json(definition).map_err(io::Error::other)?;
            flow = Some(Flow::new(serde_json::from_str(&definition)?));
        }
        if let (Some(event), Some(flow)) = (&record.event, &mut flow) {
            let event: Event = serde_json::from_str(&blobs.json(event).map_err(io::Error::other)?)?;
            flow.apply(&event).map_err(io::Error::other)?;
        }
    }
    let flow = flow.ok_or_else(|| io::Error::other("the journal does not describe a tree"))?;
    Ok(RecordedFlow { flow, last_ended: last_ended(&history) })
}
