//! What the tests of this crate share: a data directory of their own, a clock they set, and short names for records.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use relive_core::{
    Cause, End, Limits, Moment, Pid, ProcessStatus, Signal, SuspendReason, Timestamp, Uuid, Why, uuid_v7,
};
use relive_journal::conversation::Message;
use relive_journal::data::{
    ClockReading, Collected, ForkError, ForkPoint, ForkRequest, GcRules, SpaceRules, SpawnRequest,
};
use relive_journal::payload::{Json, Text};
use relive_journal::policy::Policy;
use relive_journal::record::{
    Approval, Body, Call, CallEnded, CallStarted, Compacted, Decision, Doubt, Input, ModelEnded, ModelStarted,
    NewModel, OnBudget, OpenedBy, Outcome, Partial, Paused, Renamed, Resolved, Resumed, ResumedBy, SignalMask,
    Signalled, Spawned, Usage,
};
use relive_journal::recovery::{OnInDoubt, Recovery};
use relive_journal::{
    DataDirectory, Disk, Durability, Hash, Health, History, Io, Opening, ProcessMeta, WriteError, Writer,
};

/// A data directory that goes with the test.
pub(crate) struct Fixture {
    pub(crate) temp: tempfile::TempDir,
    pub(crate) data: DataDirectory,
}

/// No reserve and no floor: tests that are about them set their own.
pub(crate) const NO_SPACE_RULES: SpaceRules = SpaceRules { reserve_bytes: 0, floor_bytes: 0 };

impl Fixture {
    pub(crate) fn new() -> Self {
        let temp = temp();
        let data = open(temp.path(), Io::default());
        Self { temp, data }
    }

    /// As after a restart of the daemon.
    pub(crate) fn reopen(self) -> Self {
        let Self { temp, data } = self;
        drop(data);
        let data = open(temp.path(), Io::default());
        Self { temp, data }
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.data.io().disk
    }

    /// A new process with one message.
    pub(crate) fn spawn(&self) -> Writer {
        self.data.spawn(spawn_request(uuid(), self.data.next_pid().unwrap())).unwrap()
    }

    /// Takes the journal of a process whose writer is gone.
    pub(crate) fn resume(&self, uuid: Uuid) -> Writer {
        open_journal(&self.data, uuid, &opening(self.data.next_pid().unwrap(), OpenedBy::Resume)).unwrap()
    }

    pub(crate) fn history(&self, uuid: Uuid) -> History {
        self.data.history(uuid).unwrap().0
    }

    pub(crate) fn health(&self, uuid: Uuid) -> Health {
        self.data.history(uuid).unwrap().1
    }

    pub(crate) fn fork(&self, source: Uuid, point: ForkPoint) -> Result<Writer, ForkError> {
        let opening = opening(self.data.next_pid().unwrap(), OpenedBy::Spawn);
        self.data.fork(fork_request(uuid(), source, point, opening))
    }

    /// The conversation of a process, one short text a message.
    pub(crate) fn said(&self, uuid: Uuid) -> Vec<String> {
        said(&self.data, uuid, &self.history(uuid))
    }
}

/// In memory where there is such a place: what is tested here is what we ask of the disk, not the disk.
pub(crate) fn temp() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// A conversation, one short text a message.
pub(crate) fn said(data: &DataDirectory, uuid: Uuid, history: &History) -> Vec<String> {
    let journal = std::fs::File::open(data.directory(uuid).steps()).unwrap();
    let head = |text: &Text| text.head(40).to_owned();
    let short = |message: &Message| match message {
        Message::User { id, .. } => format!("user {id}"),
        Message::Summary { text } => format!("summary {}", head(text)),
        Message::Model { step, calls, .. } => format!("model {step} {}", calls.len()),
        Message::Tool { step, call, ok, result, .. } => format!("tool {step} {call} {ok} {}", head(result)),
    };
    history.conversation(&journal).unwrap().iter().map(short).collect()
}

/// Makes a file hold these bytes, behind everybody's back.
pub(crate) fn put(path: &Path, bytes: &[u8]) {
    let mut file = std::fs::OpenOptions::new().create(true).write(true).truncate(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

/// Adds bytes to a file, behind everybody's back.
pub(crate) fn put_after(path: &Path, bytes: &[u8]) {
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

pub(crate) fn remove(path: &Path) {
    Disk::new().remove_tree(path).unwrap();
}

/// Every file below a directory, with what it holds.
pub(crate) fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            found.insert(path, bytes);
        }
    }
    found
}

pub(crate) fn copy_tree(from: &Path, to: &Path) {
    for (path, bytes) in files(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        std::fs::DirBuilder::new().recursive(true).create(target.parent().unwrap()).unwrap();
        put(&target, &bytes);
    }
}

/// The lines of a file, each with its newline.
pub(crate) fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

pub(crate) fn open(root: &Path, io: Io) -> DataDirectory {
    DataDirectory::open(root, io, NO_SPACE_RULES).unwrap()
}

/// Opens a journal for a new incarnation.
pub(crate) fn open_journal(data: &DataDirectory, uuid: Uuid, opening: &Opening) -> Result<Writer, WriteError> {
    Ok(data.open_journal(uuid, opening, None, |_| Ok::<_, Infallible>(Vec::new()))?)
}

/// When the machine of these tests was started.
pub(crate) const BOOT_MS: i64 = 1_699_999_990_000;

/// The same moment by both clocks, of which nobody moves one.
pub(crate) fn at_moment(at: Timestamp) -> Moment {
    Moment { at, up_ms: u64::try_from(at.as_millisecond() - BOOT_MS).unwrap() }
}

pub(crate) fn moment() -> Moment {
    at_moment(now())
}

/// A moment later than every one before it.
pub(crate) fn now() -> Timestamp {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    let tick = TICKS.fetch_add(1, Ordering::Relaxed);
    Timestamp::from_millisecond(1_700_000_000_000 + i64::try_from(tick).unwrap()).unwrap()
}

pub(crate) fn uuid() -> Uuid {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut random = [0; 10];
    random[2..].copy_from_slice(&COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    uuid_v7(now(), random)
}

pub(crate) fn opening(pid: Pid, by: OpenedBy) -> Opening {
    Opening { pid, by, boot_id: "boot".to_owned(), now: moment(), req: None, seen: None, cause: None }
}

pub(crate) fn spawn_request(uuid: Uuid, pid: Pid) -> SpawnRequest {
    let tools = serde_json::value::RawValue::from_string(r#"[{"name":"read"}]"#.to_owned()).unwrap();
    SpawnRequest {
        opening: opening(pid, OpenedBy::Spawn),
        spawned: Spawned {
            uuid,
            name: None,
            parent_uuid: None,
            budget_uuid: None,
            origin: None,
            body: "agent".to_owned(),
            program: None,
            intent: "do the work".into(),
            cwd: "/".to_owned(),
            isolated: None,
            limits: Limits::default(),
            on_in_doubt: OnInDoubt::TellModel,
            on_budget: OnBudget::End,
            env_names: Vec::new(),
            policy: Policy::default(),
            root_uuid: None,
            depth: 0,
            workspace: None,
            shell: None,
            request: None,
        },
        meta: Some(ProcessMeta::new("script/test".to_owned(), "You are a test.".to_owned(), tools)),
        input: Some(Input { id: "first".to_owned(), from: None, text: "do the work".into() }),
        records: Vec::new(),
    }
}

pub(crate) fn fork_request(uuid: Uuid, source: Uuid, point: ForkPoint, opening: Opening) -> ForkRequest {
    let (name, parent_uuid, limits, input, workspace, request, within) = (None, None, None, None, None, None, None);
    ForkRequest { uuid, opening, source, point, name, parent_uuid, limits, input, workspace, request, within }
}

pub(crate) fn input(id: &str, text: &str) -> Body {
    Body::Input(Input { id: id.to_owned(), from: None, text: text.into() })
}

pub(crate) fn model_started() -> Body {
    Body::ModelStarted(ModelStarted {
        model: "script/test".to_owned(),
        reserved_tokens: 100,
        reserved_cost_usd: None,
        purpose: None,
    })
}

/// An answer that asks for `calls` tool calls.
pub(crate) fn model_ended(text: &str, calls: u32) -> Body {
    let call = |number| Call {
        id: format!("id{number}"),
        name: "tool".to_owned(),
        args: Json::parse(&format!(r#"{{"number":{number}}}"#)).unwrap(),
    };
    Body::ModelEnded(ModelEnded {
        thinking: None,
        text: Some(text.into()),
        calls: (0..calls).map(call).collect(),
        usage: Usage { tokens_in: 10, tokens_out: 5, ..Usage::default() },
        carry: None,
        git: None,
    })
}

pub(crate) fn call_started(call: u32, recovery: Recovery) -> Body {
    Body::CallStarted(CallStarted { call, name: "tool".to_owned(), recovery, rule: None })
}

pub(crate) fn call_ended(call: u32, result: &str) -> Body {
    Body::CallEnded(CallEnded { call, ok: true, result: result.into(), done: false, settled: None, denied: false })
}

pub(crate) fn paused(reason: SuspendReason) -> Body {
    Body::Paused(Paused { reason, asked_at: now(), resume_at: None, cause: None, req: None })
}

pub(crate) fn resumed() -> Body {
    Body::Resumed(Resumed { by: ResumedBy::User, cause: None, req: None })
}

pub(crate) fn completed() -> Body {
    Body::Ended(End::of(ProcessStatus::Exited { code: 0 }).into())
}

pub(crate) fn append(writer: &mut Writer, batch: Vec<Body>) {
    writer.append(moment(), batch, Durability::Synced).unwrap();
}

/// One step with one call, as the protocol has it.
pub(crate) fn step(writer: &mut Writer, text: &str, result: &str) {
    writer.append(moment(), vec![model_started()], Durability::Written).unwrap();
    append(writer, vec![model_ended(text, 1), call_started(0, Recovery::Rerun)]);
    append(writer, vec![call_ended(0, result)]);
}

/// Ends a process as the daemon does.
pub(crate) fn end(fixture: &Fixture, mut writer: Writer) -> Uuid {
    append(&mut writer, vec![completed()]);
    fixture.data.retire(uuid_of(&writer), writer.history()).unwrap();
    uuid_of(&writer)
}

/// The clocks, so many days after the first moment there is here.
pub(crate) fn clock(days: i64) -> ClockReading {
    let ms = days * 24 * 60 * 60 * 1000;
    let wall = Timestamp::from_millisecond(1_700_000_000_000 + ms).unwrap();
    ClockReading { wall, since_boot_ms: u64::try_from(ms).unwrap(), boot_id: "boot".to_owned() }
}

pub(crate) const EVERY_ENDED: GcRules = GcRules { retention_days: None, max_entries: Some(0), older_than_ms: None };

/// Collects every history that has ended.
pub(crate) fn collect_all(fixture: &Fixture) -> Vec<Uuid> {
    let candidates = fixture.data.survey(EVERY_ENDED, &clock(0)).unwrap().candidates;
    for candidate in &candidates {
        assert_eq!(fixture.data.collect(candidate, now()).unwrap(), Collected::Gone);
    }
    candidates.into_iter().map(|candidate| candidate.uuid).collect()
}

pub(crate) fn uuid_of(writer: &Writer) -> Uuid {
    writer.directory().uuid().unwrap()
}

pub(crate) fn partial(text: &str) -> Body {
    let usage = Usage { tokens_in: 10, tokens_out: 1, cost_usd: None, estimated: true, ..Usage::default() };
    Body::Partial(Partial { thinking: None, text: Some(text.into()), usage, cause: None })
}

pub(crate) fn doubt(call: u32) -> Body {
    Body::Doubt(Doubt { call, reason: "the shim is lost".to_owned() })
}

pub(crate) fn resolved(call: u32, outcome: Outcome) -> Body {
    Body::Resolved(Resolved { call, outcome, by_policy: false, req: None })
}

pub(crate) fn approval(call: u32, decision: Decision) -> Body {
    Body::Approval(Approval {
        call,
        decision,
        name: None,
        always: false,
        rule: None,
        host: None,
        reason: None,
        req: None,
        key: None,
    })
}

pub(crate) fn compacted(through: u64, summary: &str) -> Body {
    Body::Compacted(Compacted { through, summary: summary.into(), usage: None })
}

pub(crate) fn max_steps(max_steps: u32) -> Body {
    Body::Limits(Limits { max_steps: Some(max_steps), ..Limits::default() }.into())
}

/// A signal by which the process ends.
pub(crate) fn signalled(signal: Signal) -> Body {
    Body::Signalled(Signalled { signal, cause: Cause::runtime(Why::User), end: None, pending: false, req: None })
}

/// A signal that is kept.
pub(crate) fn kept(signal: Signal) -> Body {
    Body::Signalled(Signalled { signal, cause: Cause::runtime(Why::User), end: None, pending: true, req: None })
}

pub(crate) fn signal_mask(blocked: &[Signal], handled: &[Signal]) -> Body {
    let set = |signals: &[Signal]| signals.iter().copied().collect();
    Body::SignalMask(SignalMask { blocked: set(blocked), handled: set(handled), ..SignalMask::default() })
}

pub(crate) fn renamed(name: &str) -> Body {
    Body::Renamed(Renamed { name: name.to_owned(), req: None })
}

pub(crate) fn new_model(model: &str) -> Body {
    Body::Model(NewModel { model: model.to_owned(), req: None })
}

/// The same record, asked for by this request.
pub(crate) fn with_request(mut body: Body, id: &str) -> Body {
    let req = match &mut body {
        Body::Resolved(body) => &mut body.req,
        Body::Approval(body) => &mut body.req,
        Body::Paused(body) => &mut body.req,
        Body::Resumed(body) => &mut body.req,
        Body::Limits(body) => &mut body.req,
        Body::Ended(body) => &mut body.req,
        Body::Signalled(body) => &mut body.req,
        Body::SignalMask(body) => &mut body.req,
        Body::Renamed(body) => &mut body.req,
        Body::Model(body) => &mut body.req,
        Body::Granted(body) => &mut body.req,
        Body::Released(body) => &mut body.req,
        Body::Rewound(body) => &mut body.req,
        Body::Question(body) => &mut body.req,
        Body::Acked(body) => &mut body.req,
        Body::Flow(body) => &mut body.req,
        Body::Opened(_)
        | Body::Cli(_)
        | Body::Proceeded(_)
        | Body::Spawned(_)
        | Body::Input(_)
        | Body::ModelStarted(_)
        | Body::ModelEnded(_)
        | Body::Partial(_)
        | Body::CallStarted(_)
        | Body::CallEnded(_)
        | Body::Doubt(_)
        | Body::Compacted(_)
        | Body::Snapshot(_)
        | Body::Repair(_) => panic!("a `{}` record has no `req`", body.kind()),
    };
    *req = Some(id.to_owned());
    body
}

/// Steps 1 to 4, with a record of every kind that a writer appends after its first.
pub(crate) fn every_kind(writer: &mut Writer) {
    append(writer, vec![max_steps(20), model_started()]);
    let check = Recovery::Check { path: "/f".into(), before: None, after: Some(Hash::of(b"x")) };
    let asked = vec![model_ended("one", 3), approval(0, Decision::Asked), approval(0, Decision::Allowed)];
    append(writer, asked.into_iter().chain([call_started(0, Recovery::Rerun)]).collect());
    append(writer, vec![call_ended(0, "a\u{2028}b"), call_started(1, check)]);
    append(writer, vec![doubt(1), call_started(2, Recovery::Join)]);
    append(writer, vec![resolved(2, Outcome::NotDone), model_started()]);
    append(writer, vec![partial("tw"), paused(SuspendReason::User)]);
    append(writer, vec![with_request(resumed(), "resume"), input("second", "go on")]);
    append(writer, vec![renamed("other"), new_model("script/other.yaml")]);
    let mask = signal_mask(&[Signal::Int, Signal::Pause], &[Signal::Term]);
    append(writer, vec![mask, with_request(kept(Signal::Pause), "pause"), kept(Signal::Int)]);
    step(writer, "two", &"large ".repeat(12_000));
    let through = writer.history().seq;
    step(writer, "three", "3");
    append(writer, vec![compacted(through, "what happened"), model_started()]);
    append(writer, vec![with_request(paused(SuspendReason::User), "early"), model_ended("four", 0)]);
    append(writer, vec![signalled(Signal::Term), with_request(signalled(Signal::Kill), "kill")]);
}

/// A process with every kind of record, three incarnations, a blob, and an end; its writer is gone.
pub(crate) fn varied(fixture: &Fixture) -> Uuid {
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    every_kind(&mut writer);
    append(&mut writer, vec![completed()]);
    drop(writer);
    put_after(&fixture.data.directory(uuid).steps(), b"{\"v\":1,\"se");
    let mut writer = fixture.resume(uuid);
    append(&mut writer, vec![input("third", "more"), model_started()]);
    drop(writer);
    let mut writer = fixture.resume(uuid);
    step(&mut writer, "five", "5");
    append(&mut writer, vec![completed()]);
    uuid
}

/// So many cases, or as many as a soak asks for.
pub(crate) fn cases(usual: u32) -> proptest::test_runner::Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|number| number.parse().ok());
    proptest::test_runner::Config::with_cases(asked.unwrap_or(usual))
}
