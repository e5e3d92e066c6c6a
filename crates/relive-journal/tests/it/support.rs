//! What the tests of this crate share: a data folder of their own, a clock they set, and short names for records.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use relive_core::{End, Limits, Pid, ProcessStatus, SuspendReason, Timestamp, Uuid, uuid_v7};
use relive_journal::data::{SpaceRules, SpawnRequest};
use relive_journal::payload::Json;
use relive_journal::record::{
    Body, Call, CallEnded, CallStarted, Input, ModelEnded, ModelStarted, OnBudget, OpenedBy, Paused, Resumed,
    ResumedBy, Spawned, Usage,
};
use relive_journal::recovery::{OnInDoubt, Recovery};
use relive_journal::{DataFolder, Disk, Durability, History, Io, Opening, ProcessMeta, Writer};

/// A data folder that goes with the test.
pub(crate) struct Fixture {
    pub(crate) temp: tempfile::TempDir,
    pub(crate) data: DataFolder,
}

/// No reserve and no floor: tests that are about them set their own.
pub(crate) const NO_SPACE_RULES: SpaceRules = SpaceRules { reserve_bytes: 0, floor_bytes: 0 };

impl Fixture {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
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
        self.data.open_writer(uuid, &opening(self.data.next_pid().unwrap(), OpenedBy::Resume)).unwrap()
    }

    pub(crate) fn history(&self, uuid: Uuid) -> History {
        self.data.history(uuid).unwrap().0
    }
}

pub(crate) fn open(root: &Path, io: Io) -> DataFolder {
    DataFolder::open(root, io, NO_SPACE_RULES).unwrap()
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
    Opening { pid, by, boot_id: "boot".to_owned(), at: now() }
}

pub(crate) fn spawn_request(uuid: Uuid, pid: Pid) -> SpawnRequest {
    let tools = serde_json::value::RawValue::from_string(r#"[{"name":"read"}]"#.to_owned()).unwrap();
    SpawnRequest {
        opening: opening(pid, OpenedBy::Spawn),
        spawned: Spawned {
            uuid,
            name: None,
            parent_uuid: None,
            origin: None,
            body: "agent".to_owned(),
            intent: "do the work".into(),
            cwd: "/".to_owned(),
            limits: Limits::default(),
            on_in_doubt: OnInDoubt::TellModel,
            on_budget: OnBudget::End,
        },
        meta: ProcessMeta::new("script/test".to_owned(), "You are a test.".to_owned(), tools),
        input: Some(Input { id: "first".to_owned(), from: None, text: "do the work".into() }),
    }
}

pub(crate) fn input(id: &str, text: &str) -> Body {
    Body::Input(Input { id: id.to_owned(), from: None, text: text.into() })
}

pub(crate) fn model_started() -> Body {
    Body::ModelStarted(ModelStarted { model: "script/test".to_owned(), reserved_tokens: 100 })
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
        usage: Usage { tokens_in: 10, tokens_out: 5, cost_usd: None, estimated: false },
    })
}

pub(crate) fn call_started(call: u32, recovery: Recovery) -> Body {
    Body::CallStarted(CallStarted { call, name: "tool".to_owned(), recovery })
}

pub(crate) fn call_ended(call: u32, result: &str) -> Body {
    Body::CallEnded(CallEnded { call, ok: true, result: result.into(), done: false, settled: None })
}

pub(crate) fn paused(reason: SuspendReason) -> Body {
    Body::Paused(Paused { reason, asked_at: now(), resume_at: None })
}

pub(crate) fn resumed() -> Body {
    Body::Resumed(Resumed { by: ResumedBy::User })
}

pub(crate) fn completed() -> Body {
    Body::Ended(End::of(ProcessStatus::Exited { code: 0 }))
}

pub(crate) fn append(writer: &mut Writer, batch: Vec<Body>) {
    writer.append(now(), batch, Durability::Synced).unwrap();
}

/// One step with one call, as the protocol has it.
pub(crate) fn step(writer: &mut Writer, text: &str, result: &str) {
    writer.append(now(), vec![model_started()], Durability::Written).unwrap();
    append(writer, vec![model_ended(text, 1), call_started(0, Recovery::Rerun)]);
    append(writer, vec![call_ended(0, result)]);
}

pub(crate) fn uuid_of(writer: &Writer) -> Uuid {
    writer.folder().uuid().unwrap()
}
