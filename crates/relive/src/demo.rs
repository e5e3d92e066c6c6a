//! `relive demo`: the promise, shown on real files.
//!
//! A second process writes an agent's journal, one step after the other, each with a tool call that appends to a file
//! outside. It is killed with -9 in the middle of one. Then its journal is opened again: what was acknowledged is
//! there, what was open is settled by looking, the rest is done, and nothing is done twice.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use relive_core::{End, Limits, ProcessStatus, Timestamp, Uuid, uuid_v7};
use relive_journal::data::{ForkPoint, ForkRequest, SpaceRules, SpawnRequest};
use relive_journal::payload::Json;
use relive_journal::record::{
    Body, Call, CallEnded, CallStarted, Input, ModelEnded, ModelStarted, OnBudget, OpenedBy, Spawned, Usage,
};
use relive_journal::recovery::{Finding, OnInDoubt, Recovery, Settlement};
use relive_journal::{DataFolder, Disk, Durability, Hash, Io, Next, Opening, ProcessMeta, Writer};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const STEPS: u32 = 5;
const KILLED_IN_STEP: u32 = 3;

/// The whole show.
pub(crate) fn run() -> Outcome {
    let temp = tempfile::tempdir()?;
    let (data, world) = (temp.path().join("data"), temp.path().join("world.txt"));
    say("An agent is a process, and a process is its journal. One is being written now, by another program.");
    kill_a_writer(&data, &world)?;

    let store = open(&data)?;
    let live = store.live()?;
    let uuid = live.first().ok_or("the journal is gone")?.uuid;
    say("Killed with -9 in mid-step. The next one opens the data folder and finds:");
    println!("    {uuid}  {}", describe(&live[0].history.plan().next));

    let mut writer = store.open_writer(uuid, &opening(&store, OpenedBy::Recovery)?)?;
    settle(&mut writer, &world)?;
    finish(&mut writer, &world)?;
    store.retire(uuid, writer.history())?;
    say("It went on to its end. The world outside, each line written once:");
    print!("{}", indent(&fs::read_to_string(&world)?));

    let fork = store.fork(ForkRequest {
        uuid: new_uuid(),
        opening: opening(&store, OpenedBy::Spawn)?,
        source: uuid,
        point: ForkPoint::Step(2),
        name: None,
        parent_uuid: None,
        limits: None,
        input: None,
    })?;
    let fork_uuid = fork.folder().uuid().ok_or("the fork has no name")?;
    say("Forked from the end of step 2; the original is untouched. Its line:");
    for ancestor in store.lineage(fork_uuid)? {
        println!("    {fork_uuid}  forked from {} at step {}", ancestor.uuid, ancestor.step);
    }
    println!("    it goes on with: {}", describe(&fork.history().plan().next));

    say("The journal is one JSON object a line (jq reads it). Its kinds, in order:");
    println!("    {}", kinds(&writer)?.join(" "));
    say("Everything was removed again.");
    Ok(())
}

/// Starts a writer, reads what it writes, and kills it in the middle of a step.
fn kill_a_writer(data: &Path, world: &Path) -> Outcome {
    let mut child =
        Command::new(std::env::current_exe()?).arg("demo-writer").args([data, world]).stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    for line in lines {
        let line = line?;
        println!("    {line}");
        if line.starts_with(&format!("step {KILLED_IN_STEP}: intent")) {
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// The other program: writes steps, and waits to be killed where the show wants it.
pub(crate) fn write(data: &Path, world: &Path) -> Outcome {
    let store = open(data)?;
    let mut writer = store.spawn(SpawnRequest {
        opening: opening(&store, OpenedBy::Spawn)?,
        spawned: Spawned {
            uuid: new_uuid(),
            name: Some("demo".to_owned()),
            parent_uuid: None,
            origin: None,
            body: "agent".to_owned(),
            intent: "write five lines".into(),
            cwd: "/".to_owned(),
            limits: Limits::default(),
            on_in_doubt: OnInDoubt::TellModel,
            on_budget: OnBudget::End,
        },
        meta: ProcessMeta::new("script/demo".to_owned(), String::new(), serde_json::value::to_raw_value(&[(); 0])?),
        input: Some(Input { id: "1".to_owned(), from: None, text: "write five lines".into() }),
    })?;
    for step in 1..=STEPS {
        ask(&mut writer, step, world)?;
        println!("step {step}: intent journaled and synced");
        act(world, step)?;
        if step == KILLED_IN_STEP {
            loop {
                std::thread::park();
            }
        }
        done(&mut writer)?;
        println!("step {step}: result journaled and synced");
    }
    Ok(())
}

fn ask(writer: &mut Writer, step: u32, world: &Path) -> Outcome {
    let model = ModelStarted { model: "script/demo".to_owned(), reserved_tokens: 0 };
    writer.append(now(), vec![Body::ModelStarted(model)], Durability::Written)?;
    let args = Json::parse(&format!(r#"{{"line":"line {step}"}}"#))?;
    let call = Call { id: format!("call{step}"), name: "append".to_owned(), args };
    let answer = ModelEnded { text: None, thinking: None, calls: vec![call], usage: Usage::default() };
    let before = fs::read(world).ok();
    let after = [before.as_deref().unwrap_or_default(), line(step).as_bytes()].concat();
    let recovery = Recovery::Check {
        path: world.to_owned(),
        before: before.as_deref().map(Hash::of),
        after: Some(Hash::of(&after)),
    };
    let intent = CallStarted { call: 0, name: "append".to_owned(), recovery };
    let batch = vec![Body::ModelEnded(answer), Body::CallStarted(intent)];
    Ok(writer.append(now(), batch, Durability::Synced)?)
}

fn act(world: &Path, step: u32) -> Outcome {
    let disk = Disk::new();
    Ok(disk.append(&disk.open_or_create(world)?, line(step).as_bytes())?)
}

fn done(writer: &mut Writer) -> Outcome {
    let result = CallEnded { call: 0, ok: true, result: "appended".into(), done: false, settled: None };
    Ok(writer.append(now(), vec![Body::CallEnded(result)], Durability::Synced)?)
}

/// What the crash left open is settled by looking.
fn settle(writer: &mut Writer, world: &Path) -> Outcome {
    for open in writer.history().plan().open {
        let found = Finding::File(fs::read(world).ok().as_deref().map(Hash::of));
        let step = writer.history().step;
        match open.recovery.settle(found) {
            Settlement::Done => println!("    step {step}: the file is as the call was to leave it, so it was done"),
            Settlement::Run | Settlement::Adopt => {
                println!("    step {step}: the file is as it was before, so the call is made now");
                act(world, step)?;
            }
            Settlement::Doubt => return Err("the file was changed by somebody else".into()),
        }
        done(writer)?;
    }
    Ok(())
}

fn finish(writer: &mut Writer, world: &Path) -> Outcome {
    while writer.history().completed_step < STEPS {
        let step = writer.history().completed_step + 1;
        ask(writer, step, world)?;
        act(world, step)?;
        done(writer)?;
    }
    let ended = End::of(ProcessStatus::Exited { code: 0 });
    Ok(writer.append(now(), vec![Body::Ended(ended)], Durability::Synced)?)
}

fn kinds(writer: &Writer) -> Outcome<Vec<String>> {
    let lines = BufReader::new(File::open(writer.folder().steps())?).lines();
    let kind = |line: std::io::Result<String>| -> Outcome<String> {
        let record: serde_json::Value = serde_json::from_str(&line?)?;
        Ok(record["kind"].as_str().unwrap_or_default().to_owned())
    };
    lines.map(kind).collect()
}

fn describe(next: &Next) -> String {
    match next {
        Next::Input => "nothing to do until somebody says something".to_owned(),
        Next::Ask { step, .. } => format!("the model is to be asked for step {step}"),
        Next::Calls { step, call } => format!("step {step} was under way: call {call} has an intent and no result"),
    }
}

fn open(data: &Path) -> Outcome<DataFolder> {
    Ok(DataFolder::open(data, Io::default(), SpaceRules::default())?)
}

fn opening(store: &DataFolder, by: OpenedBy) -> Outcome<Opening> {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    Ok(Opening { pid: store.next_pid()?, by, boot_id, at: now() })
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millisecond(i64::try_from(since.as_millis()).unwrap_or(0)).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn new_uuid() -> Uuid {
    let mut random = [0; 10];
    if let Ok(mut source) = File::open("/dev/urandom") {
        let _ = std::io::Read::read_exact(&mut source, &mut random);
    }
    uuid_v7(now(), random)
}

fn line(step: u32) -> String {
    format!("line {step}\n")
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

fn say(text: &str) {
    println!("\n{text}");
}
