//! Events that only repeat the journal are derived from it: every reader sees each of them once, in one order.

use relive_journal::data::ForkPoint;
use relive_journal::events::EventReader;
use relive_journal::journal::Event;
use relive_journal::payload::Text;
use relive_journal::reader::{Cursor, Entry, Item};
use relive_journal::record::{AskedFor, Body, CallEnded, ModelEnded, ModelStarted, OpenedBy, Partial};
use relive_journal::recovery::Recovery;
use relive_journal::{Durability, OpenJournal, Pool, ProcessDirectory, WriteError, Writer};
use serde_json::{Value, json};

use crate::golden::opened_copy;
use crate::support::{
    Fixture, append, call_ended, call_started, cases, completed, input, lines, model_ended, model_started, moment, now,
    open_journal, opening, paused, resumed, step, uuid_of,
};

fn rest(reader: &mut EventReader) -> Vec<Entry> {
    let items = std::iter::from_fn(|| reader.next_item().unwrap());
    let entry = |item| match item {
        Item::Record(entry) => entry,
        Item::Damaged { offset } => panic!("damaged at {offset}"),
    };
    items.map(entry).collect()
}

fn all_after(directory: &ProcessDirectory, after: Cursor) -> Vec<Entry> {
    rest(&mut EventReader::new(directory, after))
}

fn field(entry: &Entry, name: &str) -> Value {
    serde_json::from_str::<Value>(&entry.line).unwrap()[name].clone()
}

/// What was told, with the pieces of an answer joined: in how many of them it comes is nobody's business.
fn told(events: &[Entry]) -> Vec<(String, String)> {
    let mut told: Vec<(String, String)> = Vec::new();
    for event in events {
        let key = format!("{}.{} {}", event.id.epoch, event.id.seq, event.kind);
        let text = field(event, "text").as_str().unwrap_or_default().to_owned();
        match told.last_mut() {
            Some((last, said)) if *last == key && matches!(event.kind.as_str(), "text" | "thinking") => {
                said.push_str(&text);
            }
            Some(_) | None => told.push((key, text)),
        }
    }
    told
}

/// Readers that join at any event see the rest, and one that joins at the beginning sees what the others saw live.
fn check_readers(directory: &ProcessDirectory, live: &[Entry]) {
    assert!(live.is_sorted_by_key(|event| event.id), "{live:#?}");
    let whole = told(live);
    assert_eq!(told(&all_after(directory, Cursor::default())), whole);
    for (place, last) in live.iter().enumerate() {
        let mut seen = live[..=place].to_vec();
        seen.extend(all_after(directory, last.id));
        assert_eq!(told(&seen), whole, "after {}", last.id);
    }
}

#[tokio::test]
async fn events_of_a_step_are_derived_and_take_no_space() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let directory = writer.directory().clone();
    append(&mut writer, vec![model_started()]);
    append(&mut writer, vec![model_ended("first", 1), call_started(0, Recovery::Rerun)]);
    append(&mut writer, vec![call_ended(0, &"é".repeat(300)), model_started()]);
    append(&mut writer, vec![model_ended("last", 0), completed()]);
    let events = all_after(&directory, Cursor::default());
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["model", "text", "call", "call_result", "model", "text"]);
    assert_eq!(field(&events[0], "model"), "script/test");
    assert_eq!(field(&events[1], "text"), "first");
    assert_eq!((field(&events[2], "call"), field(&events[2], "name")), (json!(0), json!("tool")));
    assert!(field(&events[2], "args").is_string());
    assert_eq!((field(&events[3], "ok"), field(&events[3], "name")), (json!(true), json!("tool")));
    assert_eq!(field(&events[3], "text"), json!("é".repeat(100)));
    assert!(!directory.events().exists());
    check_readers(&directory, &events);
}

#[test]
fn only_the_result_of_a_call_that_was_never_made_has_its_arguments() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    append(&mut writer, vec![model_started()]);
    append(&mut writer, vec![model_ended("three calls", 3), call_started(1, Recovery::Rerun)]);
    let ended = |call, ok, denied| {
        let Body::CallEnded(ended) = call_ended(call, "no such file") else { panic!("it is one") };
        Body::CallEnded(CallEnded { ok, denied, ..ended })
    };
    append(&mut writer, vec![ended(0, false, false), ended(1, false, false), ended(2, false, true)]);
    let events = all_after(writer.directory(), Cursor::default());
    let results: Vec<Value> =
        events.iter().filter(|event| event.kind == "call_result").map(|event| field(event, "args")).collect();
    assert!(results[0].is_string() && results[1].is_null() && results[2].is_string(), "{results:?}");
    check_readers(writer.directory(), &events);
}

#[tokio::test]
async fn the_result_of_a_call_whose_event_was_stored_has_no_arguments() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let directory = writer.directory().clone();
    append(&mut writer, vec![model_started(), model_ended("two calls", 2)]);
    let mut open = OpenJournal::new(writer, Pool::default());
    // A CLI agent makes its calls itself: they have an event, and no `call_started`.
    let made = Event { at: now(), kind: "call", body: json!({"call": 1, "name": "tool", "args": "{}"}) };
    let failed = |call| {
        let Body::CallEnded(ended) = call_ended(call, "exit 1") else { panic!("it is one") };
        Body::CallEnded(CallEnded { ok: false, ..ended })
    };
    open.append(moment(), vec![made], vec![failed(0), failed(1)], Durability::Synced).await.unwrap();
    // The calls of a later answer have the same numbers.
    open.append(moment(), vec![], vec![model_started(), model_ended("one call", 2), failed(1)], Durability::Synced)
        .await
        .unwrap();
    let events = all_after(&directory, Cursor::default());
    let results: Vec<Value> =
        events.iter().filter(|event| event.kind == "call_result").map(|event| field(event, "args")).collect();
    assert!(results[0].is_string() && results[1].is_null() && results[2].is_string(), "{results:?}");
    check_readers(&directory, &events);
}

#[test]
fn a_summary_is_announced_and_not_shown() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    step(&mut writer, "one", "x");
    let Body::ModelStarted(started) = model_started() else { panic!("it is one") };
    let summary = Body::ModelStarted(ModelStarted { purpose: Some(AskedFor::Summary), ..started });
    let partial = Body::Partial(Partial { text: Some("in brief".into()), ..Partial::default() });
    append(&mut writer, vec![summary, partial]);
    let events = all_after(writer.directory(), Cursor::default());
    assert_eq!(field(&events[events.len() - 1], "for"), "summary");
    assert!(events.iter().all(|event| field(event, "text") != "in brief"));
}

#[test]
fn a_fork_shows_what_it_did_itself() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    step(&mut writer, "one", "x");
    let mut fork = fixture.fork(uuid_of(&writer), ForkPoint::End).unwrap();
    assert_eq!(all_after(fork.directory(), Cursor::default()), []);
    step(&mut fork, "two", "y");
    let texts: Vec<Value> = all_after(fork.directory(), Cursor::default())
        .iter()
        .filter(|event| event.kind == "text")
        .map(|event| field(event, "text"))
        .collect();
    assert_eq!(texts, ["two"]);
}

#[test]
fn no_events_are_derived_from_journals_of_older_versions() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    let fixture = opened_copy(&golden);
    let uuid = "018bcfe5-6800-7707-8707-070707070707".parse().unwrap();
    let directory = fixture.data.directory(uuid);
    let stored = lines(&std::fs::read(directory.events()).unwrap()).len();
    let old = all_after(&directory, Cursor::default());
    assert!(stored > 0);
    assert_eq!(old.len(), stored);
    let mut writer = fixture.resume(uuid);
    step(&mut writer, "by a newer one", "x");
    let events = all_after(&directory, Cursor::default());
    assert_eq!(events[..stored], old);
    let kinds: Vec<&str> = events[stored..].iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["model", "text", "call", "call_result"]);
    check_readers(&directory, &events);
}

/// A step whose events are derived, and one that was cut off: its pieces are in the file, each with the place of its text in
/// the answer, beside events of their own.
pub(crate) fn make_golden(fixture: &Fixture) {
    let mut writer = crate::additions::spawn(fixture);
    step(&mut writer, "one", "x");
    append(&mut writer, vec![model_started()]);
    let bodies =
        [("model_retry", json!({"attempt": 2})), ("text", json!({"text": "cut "})), ("text", json!({"text": "o"}))];
    let events = bodies.into_iter().map(|(kind, body)| Event { at: now(), kind, body });
    let mut open = OpenJournal::new(writer, Pool::default());
    let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
    executor.block_on(open.write_events(events.collect()));
}

pub(crate) fn check_golden(fixture: &Fixture) {
    let directory = fixture.data.directory(crate::additions::uuid());
    let stored = lines(&std::fs::read(directory.events()).unwrap()).len();
    let events = all_after(&directory, Cursor::default());
    let shown: Vec<(String, u64, Value)> =
        events.iter().map(|event| (event.kind.clone(), event.id.part, field(event, "text"))).collect();
    let derived = ["model", "text", "call", "call_result", "model"];
    assert_eq!(shown.iter().map(|(kind, ..)| kind.as_str()).take(5).collect::<Vec<_>>(), derived);
    assert_eq!((stored, shown.len()), (3, derived.len() + stored));
    let own: Vec<(&str, u64)> = shown[5..].iter().map(|(kind, part, _)| (kind.as_str(), *part)).collect();
    assert_eq!(own, [("model_retry", 1), ("text", 5), ("text", 6)], "a piece counts as many parts as bytes");
    check_readers(&directory, &events);
}

/// A process that asks, is answered in pieces, is interrupted and crashes, and somebody who watches.
struct Watched {
    fixture: Fixture,
    open: Option<OpenJournal>,
    pool: Pool,
    directory: ProcessDirectory,
    pending: Vec<Event>,
    /// What was said of the answer under way.
    answer: Option<(String, String)>,
    reader: EventReader,
    live: Vec<Entry>,
    said: u32,
}

impl Watched {
    fn new() -> Self {
        let fixture = Fixture::new();
        let writer = fixture.spawn();
        let (pool, directory) = (Pool::new("test", 2, 8), writer.directory().clone());
        let reader = EventReader::new(&directory, Cursor::default());
        let open = Some(OpenJournal::new(writer, pool.clone()));
        Self { fixture, open, pool, directory, pending: Vec::new(), answer: None, reader, live: Vec::new(), said: 0 }
    }

    async fn record(&mut self, batch: Vec<Body>, durability: Durability) {
        let events = std::mem::take(&mut self.pending);
        self.open.as_mut().unwrap().append(moment(), events, batch, durability).await.unwrap();
    }

    fn say(&mut self, kind: &'static str) {
        self.said += 1;
        let piece = format!("é{} ", self.said);
        let Some((thinking, text)) = &mut self.answer else { return };
        if kind == "text" {
            text.push_str(&piece)
        } else {
            thinking.push_str(&piece)
        }
        self.pending.push(Event { at: now(), kind, body: json!({ "text": piece }) });
    }

    async fn end_answer(&mut self, whole: bool) {
        let Some((thinking, text)) = self.answer.take() else { return };
        let (thinking, text) = (Some(Text::from(thinking.as_str())), Some(Text::from(text.as_str())));
        if whole {
            let Body::ModelEnded(answer) = model_ended("", 1) else { panic!("it is one") };
            let answer = Body::ModelEnded(ModelEnded { thinking, text, ..answer });
            self.record(vec![answer], Durability::Deferred).await;
            self.record(vec![call_started(0, Recovery::Rerun)], Durability::Beside).await;
            // In the file, so that no crash leaves the call open.
            self.record(vec![call_ended(0, "x")], Durability::Written).await;
        } else {
            self.record(vec![Body::Partial(Partial { thinking, text, ..Partial::default() })], Durability::Synced)
                .await;
        }
    }

    /// Opens the journal again, once the last sync beside its writer is over.
    fn reopen(&self) -> Writer {
        let opening = opening(self.fixture.data.next_pid().unwrap(), OpenedBy::Recovery);
        loop {
            match open_journal(&self.fixture.data, self.directory.uuid().unwrap(), &opening) {
                Err(WriteError::Busy { .. }) => std::thread::yield_now(),
                opened => return opened.unwrap(),
            }
        }
    }

    async fn does(&mut self, what: u8) {
        match what {
            0..=2 if self.answer.is_none() => {
                self.record(vec![model_started()], Durability::Deferred).await;
                self.answer = Some(<(String, String)>::default());
            }
            0 | 1 => self.say("text"),
            2 => self.say("thinking"),
            3 | 4 => {
                let events = std::mem::take(&mut self.pending);
                self.open.as_mut().unwrap().settle(events).await.unwrap();
            }
            5 => {
                self.said += 1;
                let pause = vec![paused(relive_core::SuspendReason::User), resumed()];
                let batch =
                    if self.said.is_multiple_of(2) { pause } else { vec![input(&self.said.to_string(), "and then?")] };
                self.record(batch, Durability::Synced).await;
            }
            6 => self.end_answer(true).await,
            7 => self.end_answer(false).await,
            8 => self.pending.push(Event { at: now(), kind: "note", body: json!({}) }),
            _ => {
                (self.answer, self.open) = (None, None);
                self.pending.clear();
                self.open = Some(OpenJournal::new(self.reopen(), self.pool.clone()));
            }
        }
        self.live.extend(rest(&mut self.reader));
    }
}

fn watch(actions: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut watched = Watched::new();
        for action in actions {
            watched.does(*action).await;
        }
        check_readers(&watched.directory, &watched.live);
        watched.end_answer(true).await;
        watched.does(3).await;
        check_readers(&watched.directory, &watched.live);
    });
}

#[test]
fn pieces_that_were_shown_are_cut_off_and_never_shown_again() {
    // Asked, two pieces that are shown, one that is not, the answer.
    watch(&[0, 0, 3, 0, 3, 0, 6, 3]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut watched = Watched::new();
        for action in [0, 2, 3, 0, 3] {
            watched.does(action).await;
        }
        assert_eq!(lines(&std::fs::read(watched.directory.events()).unwrap()).len(), 2);
        for action in [0, 6, 3] {
            watched.does(action).await;
        }
        assert_eq!(std::fs::read(watched.directory.events()).unwrap(), b"");
        let shown: Vec<String> = told(&watched.live).into_iter().map(|(_, text)| text).collect();
        assert_eq!(shown, ["", "é1 ", "é2 é3 ", "", "x"]);
    });
}

proptest::proptest! {
    #![proptest_config(cases(200))]
    #[test]
    fn every_reader_sees_every_event_once(actions in proptest::collection::vec(0_u8..10, 1..40)) {
        watch(&actions);
    }
}
