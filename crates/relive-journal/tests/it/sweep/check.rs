//! Checks the promises on a data directory that was left behind.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use relive_core::{Pid, Timestamp, Uuid};
use relive_journal::data::Known;
use relive_journal::payload::Blobs;
use relive_journal::record::OpenedBy;
use relive_journal::{
    DataDirectory, Disk, Durability, Health, History, Io, Opening, ProcInfo, ProcessDirectory, ProcessMeta,
};

use super::oracle::{Fact, Oracle, Process};
use super::script::{self, SPACE};
use crate::support::{at_moment, input, open, open_journal, opening};

/// When a checker resumes a process; always the same, so that most worlds contain the same journals.
const LATER: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// Which processes are resumed after the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resume {
    Live,
    All,
}

/// Opens the data directory below `root`, checks everything in it against the oracle, and continues with `resume`,
/// which the oracle records.
pub(crate) fn check(root: &Path, disk: Disk, oracle: &mut Oracle, resume: Resume, bare: &Bare) -> Vec<String> {
    let data = match DataDirectory::open(root, Io::new(disk), SPACE) {
        Ok(data) => data,
        Err(error) => return vec![format!("the data directory does not open: {error}")],
    };
    let mut checker = Checker { data, root, bare, ended: BTreeSet::new(), violations: Vec::new() };
    checker.whole(oracle);
    if checker.violations.is_empty() {
        checker.resume(oracle, resume);
    }
    checker.violations
}

struct Checker<'a> {
    data: DataDirectory,
    root: &'a Path,
    bare: &'a Bare,
    ended: BTreeSet<Uuid>,
    violations: Vec<String>,
}

impl Checker<'_> {
    fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(what());
        }
    }

    fn whole(&mut self, oracle: &Oracle) {
        let leftovers = fs::read_dir(self.root.join("tmp")).unwrap().count();
        self.require(leftovers == 0, || format!("{leftovers} leftovers in tmp/"));
        let live: BTreeSet<Uuid> = match self.data.live() {
            Ok(live) => live.into_iter().map(|live| live.uuid).collect(),
            Err(error) => return self.violations.push(format!("what is live cannot be told: {error}")),
        };
        for (uuid, process) in &oracle.processes {
            self.process(*uuid, process, live.contains(uuid));
        }
        let strangers = self.data.uuids().unwrap().into_iter().filter(|uuid| !oracle.processes.contains_key(uuid));
        let strangers: Vec<Uuid> = strangers.collect();
        self.require(strangers.is_empty(), || format!("nobody asked for {strangers:?}"));
        let highest = oracle.pids.iter().copied().fold(Pid::RUNTIME, Pid::max);
        let next = self.data.next_pid().unwrap();
        self.require(next > highest, || format!("PID {next} is given out, and {highest} was"));
    }

    fn process(&mut self, uuid: Uuid, process: &Process, live: bool) {
        let name = process.name;
        let allowed: &[&str] = match (process.begun, process.collected) {
            (_, Fact::Acknowledged) => &["collected"],
            (_, Fact::Asked) => &["here", "collected"],
            (Fact::Acknowledged, Fact::Not) => &["here"],
            (Fact::Asked | Fact::Not, Fact::Not) => &["here", "never"],
        };
        let known = self.data.known(uuid).unwrap();
        let found = match &known {
            Known::Here(_) => "here",
            Known::Collected(_) => "collected",
            Known::Never => "never",
        };
        self.require(allowed.contains(&found), || format!("{name} is {found:?}, and may be {allowed:?}"));
        match known {
            Known::Here(directory) => self.history(uuid, process, &directory, live),
            Known::Collected(_) | Known::Never => {
                self.require(!live, || format!("{name} is {found:?}, and live"));
                let exists = self.data.directory(uuid).path().exists();
                self.require(!exists, || format!("{name} is {found:?}, and half of it is here"));
            }
        }
    }

    fn history(&mut self, uuid: Uuid, process: &Process, directory: &ProcessDirectory, live: bool) {
        let name = process.name;
        let bytes = fs::read(directory.steps()).unwrap();
        self.require(bytes.starts_with(&process.journal), || {
            let same = bytes.iter().zip(&process.journal).take_while(|(a, b)| a == b).count();
            format!("{name}: of {} acknowledged bytes {same} are there", process.journal.len())
        });
        let (history, health) = match self.data.history(uuid) {
            Ok(read) => read,
            Err(error) => return self.violations.push(format!("{name} cannot be read: {error}")),
        };
        let whole = matches!(health, Health::Good | Health::Torn { .. });
        self.require(whole, || format!("{name} is {health:?}"));
        let identity = history.identity.as_ref().map(|identity| identity.spawned.uuid);
        self.require(identity == Some(uuid), || format!("{name} says that it is {identity:?}"));
        let meta = ProcessMeta::read(directory);
        self.require(meta.is_ok() || script::is_program(name), || format!("{name}: {meta:?}"));
        let ended = history.ended().is_some();
        if ended {
            self.ended.insert(uuid);
        }
        self.require(ended != live, || format!("{name} has ended: {ended}, and is live: {live}"));
        match process.ended {
            Fact::Not => self.require(!ended, || format!("{name} has ended, and nobody asked for it")),
            Fact::Asked => {}
            Fact::Acknowledged => self.require(ended, || format!("{name} has not ended, and that was acknowledged")),
        }
        self.derived(uuid, name, directory, &bytes, &(history, health));
        self.blobs(name, directory, &bytes);
        if let Some((source, original)) = &process.fork_of {
            let prefix = own_beginning(&bytes, uuid).map(|end| &bytes[..end]).unwrap_or_default();
            let holds = !prefix.is_empty() && original.starts_with(prefix);
            self.require(holds, || format!("{name} does not begin as its original"));
            // A fork never had records that the origin lost.
            if let Ok(now) = fs::read(self.data.directory(*source).steps()) {
                self.require(now.starts_with(prefix), || format!("{name} has records that its original lost"));
            }
        }
    }

    /// Checks that every answer is the same from the journal alone.
    fn derived(
        &mut self,
        uuid: Uuid,
        name: &str,
        directory: &ProcessDirectory,
        journal: &[u8],
        with: &(History, Health),
    ) {
        let without = self.bare.history(uuid, journal);
        self.require(*with == without, || format!("{name}: a checkpoint changes its history"));
        let (with, without) = (ProcInfo::read(directory).unwrap(), ProcInfo::of(&without.0));
        self.require(with == without, || format!("{name}: its snapshot says {with:?}, and its journal {without:?}"));
    }

    fn blobs(&mut self, name: &str, directory: &ProcessDirectory, journal: &[u8]) {
        let blobs = Blobs::new(Disk::new(), directory.path());
        for line in journal.split(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(line);
            let named = text
                .split("\"$blob\":\"")
                .skip(1)
                .chain(text.contains("\"kind\":\"repair\"").then(|| text.split("\"blob\":\"").nth(1)).flatten());
            for rest in named {
                let Some(Ok(hash)) = rest.get(..64).map(str::parse) else { continue };
                let found = blobs.get(hash).map(|_| ());
                self.require(found.is_ok(), || format!("{name}: {found:?}"));
            }
        }
    }

    fn resume(&mut self, oracle: &mut Oracle, resume: Resume) {
        let uuids = self.data.uuids().unwrap();
        for uuid in uuids {
            let name = oracle.processes[&uuid].name;
            if self.ended.contains(&uuid) && resume == Resume::Live {
                continue;
            }
            let pid = self.data.next_pid().unwrap();
            oracle.pids.push(pid);
            let opening = Opening { now: at_moment(LATER), ..opening(pid, OpenedBy::Resume) };
            let appended = open_journal(&self.data, uuid, &opening).and_then(|mut writer| {
                writer.append(at_moment(LATER), vec![input("after", "after")], Durability::Synced)?;
                Ok(writer)
            });
            let after = self.data.history(uuid).unwrap();
            match appended {
                Ok(writer) if after.1 == Health::Good && after.0 == *writer.history() => {
                    oracle.reopen(uuid, fs::read(writer.directory().steps()).unwrap());
                }
                Ok(_) => self.violations.push(format!("{name} was appended to and is now {:?}", after.1)),
                Err(error) => self.violations.push(format!("{name} cannot be resumed: {error}")),
            }
        }
    }
}

/// Returns where a process's own records begin in its journal: before the `opened` that precedes its own `spawned`.
fn own_beginning(journal: &[u8], uuid: Uuid) -> Option<usize> {
    let own = format!("\"uuid\":\"{uuid}\"");
    let (mut before, mut start) = (0, 0);
    for line in journal.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        if text.contains("\"kind\":\"spawned\"") && text.contains(&own) {
            return Some(before);
        }
        before = start;
        start += line.len();
    }
    None
}

/// A data directory with journals only, to read them without derived files.
pub(crate) struct Bare {
    _temp: tempfile::TempDir,
    data: DataDirectory,
    /// Most worlds contain the same journals.
    known: RefCell<HashMap<Vec<u8>, (History, Health)>>,
}

impl Bare {
    pub(crate) fn new(temp: tempfile::TempDir) -> Self {
        let data = open(temp.path(), Io::default());
        Self { _temp: temp, data, known: RefCell::default() }
    }

    #[expect(clippy::disallowed_methods, reason = "a copy to compare with")]
    fn history(&self, uuid: Uuid, journal: &[u8]) -> (History, Health) {
        if let Some(known) = self.known.borrow().get(journal) {
            return known.clone();
        }
        let directory = self.data.directory(uuid);
        fs::create_dir_all(directory.path()).unwrap();
        fs::write(directory.steps(), journal).unwrap();
        let read = self.data.history(uuid).unwrap();
        self.known.borrow_mut().insert(journal.to_vec(), read.clone());
        read
    }
}
