//! A start with many ended processes, next to a start with only the living ones.

use std::fs;
use std::hint::black_box;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use relive_core::{Pid, Uuid};
use relive_journal::{DataDirectory, Durability};

use crate::Result;
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, seconds};
use crate::sample::{Agent, StepData, data_directory, uuid};
use crate::table::{Mark, Row, milliseconds};

const LIVE: usize = 100;

/// How many journals share their files: a file can have 65,000 names on ext4.
const LINKS_MAX: usize = 30_000;

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let (few, many) = (place.directory("start-few")?, place.directory("start-many")?);
    for root in [&few, &many] {
        fill_live(root)?;
    }
    fill_ended(&many, options.histories)?;
    let (mut pair, mut last) = (Rounds::default(), 0);
    for round in 0..=options.rounds {
        let (alone, _) = seconds(|| start(&few))?;
        let (among, found) = seconds(|| start(&many))?;
        last = found;
        // The first round warms up.
        if round > 0 {
            pair.add(among, alone);
        }
    }
    if last != LIVE {
        return Err(format!("a start found {last} live processes where {LIVE} are").into());
    }
    fs::remove_dir_all(many.join("live"))?;
    let (rebuilt, _) = seconds(|| start(&many))?;
    leave_histories(&many, place)?;
    let histories = options.histories;
    Ok(vec![
        Row {
            name: format!("start: {histories} ended, {LIVE} live"),
            ours: milliseconds(pair.ours()),
            peer: format!("{}  only the {LIVE}", milliseconds(pair.peer())),
            ratio: pair.ratio(),
            mark: Mark::AtMost(1.2),
        },
        Row {
            name: "  once, after live/ was lost".to_owned(),
            ours: milliseconds(rebuilt),
            peer: format!("{}  with live/", milliseconds(pair.ours())),
            ratio: (rebuilt / pair.ours()).into(),
            mark: Mark::None,
        },
    ])
}

fn start(root: &Path) -> Result<usize> {
    let directory = data_directory(root)?;
    Ok(black_box(directory.live()?).len())
}

/// Leaves the ended processes to the next row that needs them.
fn leave_histories(root: &Path, place: &Place) -> Result<()> {
    let directory = data_directory(root)?;
    for live in directory.live()? {
        crate::place::remove(directory.directory(live.uuid).path())?;
    }
    Ok(fs::rename(root.join("steps"), place.histories())?)
}

/// Fills a new data directory with ended processes: those that an earlier row has left, or new ones.
pub(super) fn with_histories(root: &Path, histories: usize, place: &Place) -> Result<()> {
    if place.histories().exists() {
        fs::create_dir(root)?;
        fs::rename(place.histories(), root.join("steps"))?;
    } else {
        fill_ended(root, histories)?;
    }
    // Missing files are created here, not in the measured daemon.
    data_directory(root).map(drop)
}

fn fill_live(root: &Path) -> Result<()> {
    let directory = data_directory(root)?;
    let data = StepData::of_bytes(1024)?;
    for _ in 0..LIVE {
        let mut agent = Agent::spawn(&directory, &data)?;
        for _ in 0..20 {
            agent.step(Durability::Written)?;
        }
        agent.writer.checkpoint()?;
    }
    Ok(())
}

/// Creates ended processes, each with its own journal, which a start must not read at all.
fn fill_ended(root: &Path, histories: usize) -> Result<()> {
    let directory = data_directory(root)?;
    directory.reserve_pids(histories + 1)?;
    let model = ended(&directory)?;
    let mut meta = PathBuf::new();
    for number in 0..histories {
        if number % 10_000 == 0 {
            eprintln!("start: making histories, {number} of {histories}");
        }
        let made = directory.directory(uuid());
        fs::create_dir(made.path())?;
        fs::write(made.steps(), model.journal_of(made.uuid().ok_or("no UUID")?, directory.next_pid()?)?)?;
        if number % LINKS_MAX == 0 {
            meta = made.process_meta();
            fs::write(&meta, &model.meta)?;
        } else {
            fs::hard_link(&meta, made.process_meta())?;
        }
    }
    Ok(())
}

/// A template for journals: creating each like a daemon would take hours of syncs.
struct Model {
    uuid: String,
    pid: String,
    journal: String,
    meta: Vec<u8>,
}

impl Model {
    /// Returns the same journal for another process.
    fn journal_of(&self, uuid: Uuid, pid: Pid) -> Result<Vec<u8>> {
        let journal = self.journal.replace(&self.uuid, &uuid.to_string());
        let journal = journal.replace(&self.pid, &format!("\"pid\":{pid},"));
        let mut bytes = Vec::with_capacity(journal.len());
        for line in journal.lines() {
            let (record, _) = line.rsplit_once(",\"crc\":").ok_or("a line without its checksum")?;
            let crc = crc32c::crc32c_append(crc32c::crc32c(record.as_bytes()), b"}");
            writeln!(bytes, "{record},\"crc\":\"{crc:08x}\"}}")?;
        }
        Ok(bytes)
    }
}

/// Returns the files of a new ended process.
fn ended(directory: &DataDirectory) -> Result<Model> {
    let mut agent = Agent::spawn(directory, &StepData::of_bytes(1024)?)?;
    agent.end()?;
    let uuid = agent.uuid()?;
    directory.retire(uuid, agent.writer.history())?;
    let pid = agent.writer.history().incarnation().ok_or("a history without a PID")?.pid;
    let files = directory.directory(uuid);
    Ok(Model {
        uuid: uuid.to_string(),
        pid: format!("\"pid\":{pid},"),
        journal: fs::read_to_string(files.steps())?,
        meta: fs::read(files.process_meta())?,
    })
}
