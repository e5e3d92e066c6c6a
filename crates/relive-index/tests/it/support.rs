//! A data directory with processes, and an index that is updated as the daemon would.

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use relive_core::{End, Limits, Moment, Pid, ProcessStatus, SuspendReason, Timestamp, Uuid, uuid_v7};
use relive_index::{Index, Row};
use relive_journal::data::{ClockReading, Collected, GcRules, SpaceRules, SpawnRequest};
use relive_journal::policy::Policy;
use relive_journal::record::{Body, Ended, OnBudget, OpenedBy, Paused, Spawned};
use relive_journal::recovery::OnInDoubt;
use relive_journal::{DataDirectory, Disk, Durability, Io, Opening, WriteError, Writer};

pub(crate) const NAMES: [Option<&str>; 4] = [None, Some("worker"), Some("worker-2"), Some("tést")];
pub(crate) const DIRECTORIES: [&str; 4] = ["/", "/home/user", "/home/user/project", "/home/user0"];

/// Returns a moment later than all earlier ones.
pub(crate) fn now() -> Timestamp {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    let tick = TICKS.fetch_add(1, Ordering::Relaxed);
    Timestamp::from_millisecond(1_700_000_000_000 + i64::try_from(tick).unwrap()).unwrap()
}

fn moment() -> Moment {
    let at = now();
    Moment { at, up_ms: u64::try_from(at.as_millisecond() - 1_600_000_000_000).unwrap() }
}

/// Returns a UUID that ends in a repeating digit, so that suffixes are shared.
fn uuid() -> Uuid {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut random = [0; 10];
    random[..8].copy_from_slice(&count.to_be_bytes());
    random[9] = u8::try_from(count % 5).unwrap();
    uuid_v7(now(), random)
}

pub(crate) struct World {
    pub(crate) temp: tempfile::TempDir,
    pub(crate) data: DataDirectory,
    pub(crate) index: Index,
}

impl World {
    pub(crate) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let temp = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let rules = SpaceRules { reserve_bytes: 0, floor_bytes: 0 };
        let data = DataDirectory::open(temp.path(), Io::default(), rules).unwrap();
        let index = Index::open(temp.path()).unwrap();
        index.mark_complete().unwrap();
        Self { temp, data, index }
    }

    fn opening(&self, by: OpenedBy) -> Opening {
        Opening {
            pid: self.data.next_pid().unwrap(),
            by,
            boot_id: "boot".to_owned(),
            now: moment(),
            req: None,
            seen: None,
            cause: None,
        }
    }

    fn tell(&self, writer: &Writer) {
        self.index.upsert(&Row::of(writer.history()).unwrap()).unwrap();
    }

    pub(crate) fn begin(&self, name: Option<&str>, cwd: &str) -> Uuid {
        self.begin_below(None, name, cwd)
    }

    pub(crate) fn begin_below(&self, parent_uuid: Option<Uuid>, name: Option<&str>, cwd: &str) -> Uuid {
        let spawned = Spawned {
            uuid: uuid(),
            name: name.map(str::to_owned),
            parent_uuid,
            budget_uuid: None,
            origin: None,
            body: "agent".to_owned(),
            program: None,
            intent: "do the work".into(),
            cwd: cwd.to_owned(),
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
        };
        let opening = self.opening(OpenedBy::Spawn);
        let (meta, input, records) = (None, None, Vec::new());
        let writer = self.data.spawn(SpawnRequest { opening, spawned, meta, input, records }).unwrap();
        self.tell(&writer);
        writer.directory().uuid().unwrap()
    }

    /// Opens the journal for a new incarnation.
    pub(crate) fn open(&self, uuid: Uuid) -> Writer {
        let opening = self.opening(OpenedBy::Resume);
        let opened = self.data.open_journal(uuid, &opening, None, |_| Ok::<_, Infallible>(Vec::new()));
        let writer = opened.map_err(WriteError::from).unwrap();
        self.tell(&writer);
        writer
    }

    pub(crate) fn end(&self, uuid: Uuid, code: i32) {
        self.end_as(uuid, End::of(ProcessStatus::Exited { code }).into());
    }

    /// Ends a process while nobody looks.
    pub(crate) fn end_unseen(&self, uuid: Uuid) {
        let ended = Ended::from(End::of(ProcessStatus::Exited { code: 0 }));
        self.end_as(uuid, Ended { unseen: true, ..ended });
    }

    fn end_as(&self, uuid: Uuid, ended: Ended) {
        let mut writer = self.open(uuid);
        writer.append(moment(), vec![Body::Ended(ended)], Durability::Synced).unwrap();
        self.tell(&writer);
        self.data.retire(uuid, writer.history()).unwrap();
    }

    pub(crate) fn pause(&self, uuid: Uuid) {
        let mut writer = self.open(uuid);
        let paused = Paused { reason: SuspendReason::User, asked_at: now(), resume_at: None, cause: None, req: None };
        writer.append(moment(), vec![Body::Paused(paused)], Durability::Synced).unwrap();
        self.tell(&writer);
    }

    /// Assigns a PID to a process that is in no journal.
    pub(crate) fn alias(&self, uuid: Uuid) {
        let pid = self.data.next_pid().unwrap();
        self.data.note_pid(pid, uuid);
        self.index.note_pids([(pid, uuid)]).unwrap();
    }

    pub(crate) fn collect(&self, uuid: Uuid) {
        let wall = now();
        let clock = ClockReading { wall, since_boot_ms: 0, boot_id: "boot".to_owned() };
        let rules = GcRules { retention_days: None, max_entries: Some(0), older_than_ms: None };
        let survey = self.data.survey(rules, &clock).unwrap();
        let Some(candidate) = survey.candidates.iter().find(|candidate| candidate.uuid == uuid) else { return };
        assert_eq!(self.data.collect(candidate, wall).unwrap(), Collected::Gone);
        self.index.remove(uuid, wall).unwrap();
    }

    /// Restarts like a daemon that finds no index.
    pub(crate) fn delete_index(&mut self) {
        self.index = Index::in_memory().unwrap();
        Disk::new().remove_tree(&self.temp.path().join("index")).unwrap();
        self.open_index();
    }

    /// Restarts like a daemon.
    pub(crate) fn open_index(&mut self) {
        self.index = Index::in_memory().unwrap();
        self.index = Index::open(self.temp.path()).unwrap();
    }

    pub(crate) fn rebuild(&self) {
        self.index.rebuild(relive_index::entries(&self.data)).unwrap();
    }

    pub(crate) fn last_pid(&self) -> Pid {
        self.data.last_pid()
    }
}
