//! Finds the PID of an event. Events have the generation of their writer; the journal has its PID.

use std::collections::BTreeMap;

use relive_client::{Error, Event, Source};
use relive_core::Pid;

use crate::client::Client;
use crate::error::Outcome;
use crate::render::line::Line;

#[derive(Debug)]
pub(crate) struct Incarnations {
    uuid: String,
    known: BTreeMap<u32, Option<Pid>>,
}

impl Incarnations {
    pub(crate) fn new(uuid: String, generation: u32, pid: Pid) -> Self {
        Self { uuid, known: BTreeMap::from([(generation, Some(pid))]) }
    }

    /// Returns the PID of the event with this id; the journal is read only for an unknown generation.
    pub(crate) async fn pid_of(&mut self, client: &Client<'_>, id: &str) -> Outcome<Option<Pid>> {
        let Some(generation) = generation(id) else { return Ok(None) };
        if !self.known.contains_key(&generation) {
            self.read(client).await?;
            self.known.entry(generation).or_insert(None);
        }
        Ok(self.known.get(&generation).copied().flatten())
    }

    /// Reads all of them from the journal.
    pub(crate) async fn read(&mut self, client: &Client<'_>) -> Outcome<()> {
        let known = &mut self.known;
        let each = async |event: Event| {
            learn(known, &event.id, &event.data);
            Ok::<_, Error>(())
        };
        Ok(client.read(&self.uuid, Source::Journal, &mut None, each).await?)
    }

    /// Adds one from a record of the journal.
    pub(crate) fn learn(&mut self, id: &str, data: &str) {
        learn(&mut self.known, id, data);
    }
}

fn generation(id: &str) -> Option<u32> {
    id.split_once('.')?.0.parse().ok()
}

fn learn(known: &mut BTreeMap<u32, Option<Pid>>, id: &str, data: &str) {
    let opened = Line::parse(data).filter(|line| line.kind == "opened");
    if let (Some(generation), Some(pid)) = (generation(id), opened.and_then(|line| line.field("pid"))) {
        known.insert(generation, Some(pid));
    }
}
