//! An agent whose every step is one model call and one tool call of a given size.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use relive_core::{End, Limits, Moment, ProcessStatus, Timestamp, Uuid, uuid_v7};
use relive_journal::data::{SpaceRules, SpawnRequest};
use relive_journal::payload::Json;
use relive_journal::policy::Policy;
use relive_journal::record::{
    Body, Call, CallEnded, CallStarted, Input, ModelEnded, ModelStarted, OnBudget, OpenedBy, Spawned, Usage,
};
use relive_journal::recovery::{OnInDoubt, Recovery};
use relive_journal::{DataDirectory, Disk, Durability, Io, Opening, ProcessMeta, Writer};

use crate::Result;

/// The text of a typical step of an agent that works on files: short lines, with some quotes.
const TEXT: &str = "pub fn load(path: &Path) -> io::Result<Config> {\n    let text = fs::read_to_string(path)?;\n    \
    // The file may come from an older version: missing fields take their defaults.\n    \
    serde_yaml::from_str(&text).map_err(|error| invalid(\"config\", error))\n}\n";

/// Returns a moment a millisecond after the previous one: of the same length in every record, so that bytes can be
/// counted.
pub(crate) fn now() -> Timestamp {
    static TICKS: AtomicI64 = AtomicI64::new(1_700_000_000_001);
    let mut tick = TICKS.fetch_add(1, Ordering::Relaxed);
    while tick % 10 == 0 {
        tick = TICKS.fetch_add(1, Ordering::Relaxed);
    }
    Timestamp::from_millisecond(tick).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Returns the same moment on both clocks, on a machine that was started two weeks before.
pub(crate) fn moment() -> Moment {
    let at = now();
    Moment { at, up_ms: u64::try_from(at.as_millisecond() - 1_698_700_000_000).unwrap_or(0) }
}

pub(crate) fn uuid() -> Uuid {
    let mut random = [0; 10];
    let at = now();
    random[2..].copy_from_slice(&at.as_millisecond().to_be_bytes());
    uuid_v7(at, random)
}

/// Opens a data directory like a daemon, with its own threads.
pub(crate) fn data_directory(root: &Path) -> Result<DataDirectory> {
    let io = Io::new(Disk::new());
    Ok(DataDirectory::open(root, io, SpaceRules::default())?)
}

pub(crate) fn opening(data: &DataDirectory, by: OpenedBy) -> Result<Opening> {
    Ok(Opening {
        pid: data.next_pid()?,
        by,
        boot_id: "3f7c1c2e-5d0a-4b8e-9a53-6a2f0c9d1e77".to_owned(),
        now: moment(),
        req: None,
        seen: None,
        cause: None,
    })
}

/// Opens a journal for a new incarnation, like a resume.
pub(crate) fn reopen(data: &DataDirectory, uuid: Uuid) -> Result<Writer> {
    let opening = opening(data, OpenedBy::Resume)?;
    let opened = data.open_journal(uuid, &opening, None, |_| Ok::<_, std::convert::Infallible>(Vec::new()));
    Ok(opened.map_err(relive_journal::WriteError::from)?)
}

/// The payload of a step.
#[derive(Debug, Clone)]
pub(crate) struct StepData {
    text: String,
    args: String,
    result: String,
}

impl StepData {
    /// Creates a payload of about this many bytes: a quarter the model's text, a quarter the arguments of the call (as
    /// JSON, a little more), half its result.
    pub(crate) fn of_bytes(bytes: usize) -> Result<Self> {
        let text = |bytes: usize| TEXT.chars().cycle().take(bytes).collect::<String>();
        let args = serde_json::to_string(&serde_json::json!({ "command": text(bytes / 4) }))?;
        Ok(Self { text: text(bytes / 4), args, result: text(bytes / 2) })
    }

    /// Returns the exact number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + self.args.len() + self.result.len()
    }
}

/// A process, and the writer of its journal.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) writer: Writer,
    data: StepData,
    /// Whether the second of a step's two batches is next.
    second: bool,
}

impl Agent {
    /// Creates a process whose first model call is in progress.
    pub(crate) fn spawn(directory: &DataDirectory, data: &StepData) -> Result<Self> {
        let tools = serde_json::value::to_raw_value(&serde_json::json!([{ "name": "shell" }]))?;
        let request = SpawnRequest {
            opening: opening(directory, OpenedBy::Spawn)?,
            spawned: Spawned {
                uuid: uuid(),
                name: None,
                parent_uuid: None,
                budget_uuid: None,
                origin: None,
                body: "agent".to_owned(),
                program: None,
                intent: "do the work".into(),
                cwd: "/home/user/project".to_owned(),
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
            meta: Some(ProcessMeta::new("anthropic/claude-opus-4".to_owned(), "You are a test.".to_owned(), tools)),
            input: Some(Input { id: "first".to_owned(), from: None, text: "do the work".into() }),
            records: Vec::new(),
        };
        let mut writer = directory.spawn(request)?;
        writer.append(moment(), vec![model_started()], Durability::Written)?;
        Ok(Self { writer, data: data.clone(), second: false })
    }

    pub(crate) fn uuid(&self) -> Result<Uuid> {
        Ok(self.writer.directory().uuid().ok_or("a directory without a UUID")?)
    }

    /// Returns the next of a step's two batches: the answer and the intent, or the result and the next model call.
    fn batch(&mut self) -> Vec<Body> {
        self.second = !self.second;
        if self.second {
            vec![model_ended(1, &self.data), call_started(0)]
        } else {
            vec![call_ended(0, &self.data), model_started()]
        }
    }

    pub(crate) fn append(&mut self, durability: Durability) -> Result<()> {
        let batch = self.batch();
        Ok(self.writer.append(moment(), batch, durability)?)
    }

    /// Writes one step with one call.
    pub(crate) fn step(&mut self, durability: Durability) -> Result<()> {
        self.append(durability)?;
        self.append(durability)
    }

    /// Writes one event, like that of a tool call.
    pub(crate) fn event(&mut self) -> Result<()> {
        let step = self.writer.history().step;
        let body = serde_json::json!({ "call": 0, "name": "shell", "state": "started" });
        self.writer.append_event(now(), step, "syscall", &body)?;
        Ok(())
    }

    pub(crate) fn end(&mut self) -> Result<()> {
        let end = End::of(ProcessStatus::Exited { code: 0 });
        Ok(self.writer.append(moment(), vec![Body::Ended(end.into())], Durability::Synced)?)
    }

    /// Returns the bytes of a step's two batches, as they are in the file.
    pub(crate) fn batches_on_disk(directory: &DataDirectory, data: &StepData) -> Result<[Vec<u8>; 2]> {
        let mut agent = Self::spawn(directory, data)?;
        let path = agent.writer.directory().steps();
        let before = std::fs::metadata(&path)?.len();
        agent.append(Durability::Written)?;
        let between = std::fs::metadata(&path)?.len();
        agent.append(Durability::Synced)?;
        let bytes = std::fs::read(&path)?;
        let (before, between) = (usize::try_from(before)?, usize::try_from(between)?);
        Ok([bytes[before..between].to_vec(), bytes[between..].to_vec()])
    }

    /// Creates a journal of about this many bytes, without syncs.
    pub(crate) fn with_history(directory: &DataDirectory, bytes: u64, checkpoint: Checkpoint) -> Result<Self> {
        let mut agent = Self::spawn(directory, &StepData::of_bytes(4096)?)?;
        let steps = agent.writer.directory().steps();
        let mut length = 0;
        while length < bytes {
            for _ in 0..64 {
                agent.step(Durability::Written)?;
            }
            length = std::fs::metadata(&steps)?.len();
        }
        match checkpoint {
            Checkpoint::None => {}
            Checkpoint::Recent => agent.writer.checkpoint()?,
        }
        for _ in 0..4 {
            agent.step(Durability::Synced)?;
        }
        Ok(agent)
    }
}

/// Whether a long journal has a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checkpoint {
    None,
    /// Four steps before its end.
    Recent,
}

pub(crate) fn model_started() -> Body {
    Body::ModelStarted(ModelStarted {
        model: "anthropic/claude-opus-4".to_owned(),
        reserved_tokens: 8192,
        reserved_cost_usd: None,
        purpose: None,
    })
}

pub(crate) fn model_ended(calls: u32, data: &StepData) -> Body {
    let call = |number| {
        let id = format!("toolu_01A09q90qw90lq9178{number:02}");
        Some(Call { id, name: "shell".to_owned(), args: Json::parse(&data.args).ok()? })
    };
    Body::ModelEnded(ModelEnded {
        thinking: None,
        text: Some(data.text.as_str().into()),
        calls: (0..calls).filter_map(call).collect(),
        usage: Usage { tokens_in: 12_345, tokens_out: 678, ..Usage::default() },
        carry: None,
        git: None,
    })
}

pub(crate) fn call_started(call: u32) -> Body {
    Body::CallStarted(CallStarted { call, name: "shell".to_owned(), recovery: Recovery::Join, rule: None })
}

pub(crate) fn call_ended(call: u32, data: &StepData) -> Body {
    Body::CallEnded(CallEnded {
        call,
        ok: true,
        result: data.result.as_str().into(),
        settled: None,
        done: false,
        denied: false,
    })
}
