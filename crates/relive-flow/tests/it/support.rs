//! Trees for tests, and a driver that has nothing to start.

use relive_flow::{AtEnd, ComposeFile, Decision, Definition, Event, Flow, Outcome, SlotState, SupervisorFile};
use relive_types::Uuid;

pub(crate) fn compose(text: &str) -> Flow {
    Flow::new(Definition::Compose(ComposeFile::parse("f.yaml", text).unwrap()))
}

pub(crate) fn supervisor(text: &str) -> Flow {
    Flow::new(Definition::Supervisor(SupervisorFile::parse("f.yaml", text).unwrap()))
}

pub(crate) const FAILED: Outcome = Outcome::Failed { code: 3 };

/// A tree that is driven by hand.
#[derive(Debug, Clone)]
pub(crate) struct Driven {
    pub(crate) flow: Flow,
    pub(crate) events: Vec<Event>,
    pub(crate) now_ms: u64,
    next: u128,
}

impl Driven {
    pub(crate) fn new(flow: Flow) -> Self {
        Self { flow, events: Vec::new(), now_ms: 1_000_000, next: 1 }
    }

    pub(crate) fn apply(&mut self, event: Event) {
        self.flow.apply(&event).unwrap();
        self.events.push(event);
    }

    /// Carries out every start there is, and those that follow from them, and returns their slots.
    pub(crate) fn start(&mut self) -> Vec<String> {
        let mut started = Vec::new();
        while self.start_once(&mut started) {}
        started
    }

    fn start_once(&mut self, started: &mut Vec<String>) -> bool {
        let before = started.len();
        for decision in self.flow.decide(self.now_ms, usize::MAX) {
            if let Decision::Start { slot, start } = decision {
                let resumed = matches!(start, relive_flow::Start::Resume { .. });
                let last = self.flow.slots().find(|other| other.name == slot).and_then(|slot| slot.uuid);
                let uuid = last.filter(|_| resumed).unwrap_or_else(|| {
                    self.next += 1;
                    Uuid::from_u128(self.next)
                });
                self.apply(Event::Starting { slot: slot.clone(), uuid, start });
                if self.flow.is_start_awaited(&slot) {
                    self.apply(Event::Started { slot: slot.clone(), uuid });
                }
                started.push(slot);
            }
        }
        started.len() > before
    }

    pub(crate) fn end(&mut self, slot: &str, outcome: Outcome) {
        self.end_as(slot, outcome, AtEnd::default());
    }

    pub(crate) fn end_as(&mut self, slot: &str, outcome: Outcome, at_end: AtEnd) {
        let uuid = self.state(slot).living().unwrap();
        let (at_ms, slot) = (self.now_ms, slot.to_owned());
        self.apply(Event::Ended { slot, uuid, outcome, at_ms, result: None, note: None, at_end });
    }

    pub(crate) fn state(&self, slot: &str) -> SlotState {
        self.flow.slots().find(|other| other.name == slot).unwrap().state.clone()
    }

    pub(crate) fn uuid(&self, slot: &str) -> Option<Uuid> {
        self.flow.slots().find(|other| other.name == slot).unwrap().uuid
    }

    /// The words of all slots.
    pub(crate) fn words(&self) -> String {
        let word = |slot: relive_flow::SlotStatus<'_>| format!("{}={}", slot.name, slot.state.word());
        self.flow.slots().map(word).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn decide(&self) -> Vec<Decision> {
        self.flow.decide(self.now_ms, usize::MAX)
    }

    /// What the next daemon has: the fold of the events, as they are in the journal.
    pub(crate) fn recovered(&self) -> Flow {
        let json = serde_json::to_string(&self.events).unwrap();
        let definition = serde_json::to_string(self.flow.definition()).unwrap();
        let events: Vec<Event> = serde_json::from_str(&json).unwrap();
        let mut flow = Flow::new(serde_json::from_str(&definition).unwrap());
        for event in events {
            flow.apply(&event).unwrap();
        }
        flow
    }
}
