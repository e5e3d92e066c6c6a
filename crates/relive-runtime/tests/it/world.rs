//! A data directory of its own for each test, and daemons on it that nothing but a test drives.
//!
//! A daemon here has an executor of one thread that runs only while a test waits for something. So a test sees every
//! state for as long as it likes, and a daemon that is dropped has died between two polls, as by `kill -9`.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use relive_api::{
    Affected, Created, InputRequest, Paths, PauseRequest, Process, Resolution, ResumeRequest, Resumed, RunRequest,
    SignalMaskRequest, SignalRequest, SignalState, WaitAnswer,
};
use relive_config::Config;
use relive_core::{Pid, Uuid};
use relive_journal::data::OpenError;
use relive_journal::faults::{Faults, Injection, PowerCut, Switches};
use relive_journal::record::{Body, OpenedBy};
use relive_journal::{DataDirectory, Disk, Io, OpenFailure, Opening, Pool, WriteError};
use relive_runtime::{Clock, Pools, Result, Runtime, Settings};
use serde_json::Value;
use tempfile::TempDir;

use crate::clocks::Clocks;
pub(crate) use crate::requests::{PAUSE, PAUSE_NOW, answer, mask, message, new_uuid, resume, signal};

/// So long that only a test that would never end reaches it, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A data directory and what is beside it.
pub(crate) struct World {
    root: TempDir,
    config: Config,
    scripts: Cell<u32>,
    pub(crate) clocks: Arc<Clocks>,
    moves_clocks: bool,
}

/// A runtime on the data directory of a world. Dropping it is `kill -9`.
pub(crate) struct Daemon {
    executor: tokio::runtime::Runtime,
    pub(crate) runtime: Arc<Runtime>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(configure: impl FnOnce(&mut Config)) -> Self {
        let root = tempfile::Builder::new().prefix("rt").tempdir().unwrap();
        for directory in ["work", "run", "data"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let mut config = Config::default();
        config.git_notes.0 = false;
        configure(&mut config);
        Self { root, config, scripts: Cell::new(0), clocks: Arc::default(), moves_clocks: false }
    }

    /// One whose daemons see only the clocks that the test moves.
    pub(crate) fn with_clocks() -> Self {
        Self { moves_clocks: true, ..Self::new() }
    }

    fn clock(&self) -> Clock {
        if self.moves_clocks {
            Clock::with(self.clocks.boot_id(), Arc::<Clocks>::clone(&self.clocks))
        } else {
            Clock::new().unwrap()
        }
    }

    /// Returns when bodies last ran, as the pulse says.
    pub(crate) fn pulse(&self) -> Option<u64> {
        let text = fs::read_to_string(self.data().join("pulse")).ok()?;
        serde_json::from_str::<Value>(text.lines().next()?).ok()?["up"].as_u64()
    }

    /// Returns `proc-info.json` of a process.
    pub(crate) fn info_file(&self, uuid: Uuid) -> Value {
        self.lines(uuid, "proc-info.json").remove(0)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    pub(crate) fn configure(&mut self, configure: impl FnOnce(&mut Config)) {
        configure(&mut self.config);
    }

    /// Writes a script and returns the name of its model.
    pub(crate) fn script(&self, yaml: &str) -> String {
        self.scripts.set(self.scripts.get() + 1);
        let path = self.work().join(format!("script{}.yaml", self.scripts.get()));
        fs::write(&path, yaml).unwrap();
        format!("script/{}", path.display())
    }

    fn paths(&self) -> Paths {
        let below = |name: &str| self.root.path().join(name);
        Paths { data: self.data(), config: below("config/config.yaml"), socket: below("run/socket"), log: below("log") }
    }

    /// Opens the data directory. A job of the daemon before may have it for a moment.
    fn open(&self, disk: Disk) -> Result<DataDirectory, OpenError> {
        let begun = Instant::now();
        let settings = Settings::from(&self.config);
        let io = Io::new(disk);
        loop {
            match DataDirectory::open(&self.data(), io.clone(), settings.space) {
                Err(OpenError::Held { .. }) if begun.elapsed() < DEADLINE => std::thread::sleep(LOOK_EVERY),
                opened => return opened,
            }
        }
    }

    /// Waits until nothing of the last daemon has the data directory any more.
    pub(crate) fn let_go(&self) {
        drop(self.open(Disk::new()).unwrap());
    }

    /// Starts a daemon, which recovers what the last one left.
    pub(crate) fn start(&self) -> Daemon {
        self.start_on(Disk::new()).unwrap()
    }

    /// Returns a disk that fails so, and knows what a power cut would leave.
    pub(crate) fn faults(&self, injection: Injection) -> Arc<Faults> {
        let begun = Instant::now();
        loop {
            // The last jobs of the daemon before may still remove files.
            match Faults::new(&self.data(), injection, Switches::default()) {
                Ok(faults) => return Arc::new(faults),
                Err(error) => assert!(begun.elapsed() < DEADLINE, "{error}"),
            }
        }
    }

    /// Returns the journal of a process as a power cut would leave it now.
    pub(crate) fn after_power_cut(&self, faults: &Faults, uuid: Uuid) -> String {
        let to = tempfile::tempdir_in(self.root.path()).unwrap();
        faults.power_cut(&to.path().join("data"), PowerCut::Strict).unwrap();
        fs::read_to_string(to.path().join("data/steps").join(uuid.to_string()).join("steps.jsonl")).unwrap_or_default()
    }

    /// Starts a daemon on a disk that may fail.
    pub(crate) fn start_on(&self, disk: Disk) -> Result<Daemon, String> {
        // The test looks after each poll of a task, so that it misses no state.
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1).build().unwrap();
        let data = Arc::new(self.open(disk).map_err(|error| error.to_string())?);
        let runtime = Runtime::new(data, Pools::default(), Settings::from(&self.config), self.clock(), &self.paths());
        executor.block_on(runtime.recover()).map_err(|error| error.to_string())?;
        Ok(Daemon { executor, runtime })
    }

    /// Appends records to a journal, as a daemon did that died right after.
    pub(crate) fn append(&self, uuid: Uuid, by: OpenedBy, records: Vec<Body>) {
        let data = self.open(Disk::new()).unwrap();
        let clock = self.clock();
        let pid = data.next_pid().unwrap();
        let (boot_id, now) = (clock.boot_id(), clock.moment());
        let opening = Opening { pid, by, boot_id, now, req: None, seen: None, cause: None };
        let begun = Instant::now();
        loop {
            let records = records.clone();
            match data.open_journal(uuid, &opening, None, |_| Ok::<_, std::convert::Infallible>(records)) {
                // A process that another test starts has all files open until it executes its program.
                Err(OpenFailure::Write(WriteError::Busy { .. })) if begun.elapsed() < DEADLINE => {
                    std::thread::sleep(LOOK_EVERY);
                }
                opened => {
                    drop(opened.unwrap());
                    return;
                }
            }
        }
    }

    fn lines(&self, uuid: Uuid, file: &str) -> Vec<Value> {
        let path = self.data().join("steps").join(uuid.to_string()).join(file);
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the records of a journal.
    pub(crate) fn records(&self, uuid: Uuid) -> Vec<Value> {
        self.lines(uuid, "steps.jsonl")
    }

    /// Returns the records of one kind.
    pub(crate) fn of_kind(&self, uuid: Uuid, kind: &str) -> Vec<Value> {
        self.records(uuid).into_iter().filter(|record| record["kind"] == kind).collect()
    }

    /// Returns the kinds of the records from the `skip`-th on.
    pub(crate) fn kinds(&self, uuid: Uuid, skip: usize) -> Vec<String> {
        self.records(uuid).iter().skip(skip).map(|record| record["kind"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the events of one kind.
    pub(crate) fn events(&self, uuid: Uuid, kind: &str) -> Vec<Value> {
        self.lines(uuid, "events.jsonl").into_iter().filter(|event| event["kind"] == kind).collect()
    }

    /// Returns the files of a process that this operating system process has open.
    pub(crate) fn open_files(&self, uuid: Uuid) -> Vec<PathBuf> {
        let directory = self.data().join("steps").join(uuid.to_string());
        let all = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        all.filter(|path| path.starts_with(&directory)).collect()
    }

    /// Returns a request to run an agent on this model.
    pub(crate) fn request(&self, model: &str) -> RunRequest {
        RunRequest {
            workspace: None,
            isolation: None,
            network: None,
            foreground: false,
            no_gateway: false,
            terminal: None,
            resources: Default::default(),
            uuid: new_uuid(),
            name: None,
            intent: "do it".to_owned(),
            context: None,
            model: Some(model.to_owned()),
            agent: None,
            system_prompt: None,
            cwd: self.work().display().to_string(),
            env: Default::default(),
            shell: None,
            limits: Default::default(),
            on_in_doubt: None,
            on_budget: None,
            policy: Default::default(),
            yes: false,
        }
    }

    /// Returns a request to run an agent that asks a model which never answers.
    pub(crate) fn hanging(&self) -> RunRequest {
        self.request(&self.script("turns: [{hang: true}]"))
    }

    /// Returns a request to run an agent that asks a person before it writes `file`.
    pub(crate) fn asking(&self, file: &str) -> RunRequest {
        let call = format!("{{name: write, args: {{path: {file}, content: text}}}}");
        let model = self.script(&format!("turns: [{{calls: [{call}]}}, {{hang: true}}]"));
        let mut request = self.request(&model);
        request.policy.insert("write".to_owned(), "ask".to_owned());
        request
    }
}

impl Daemon {
    /// Lets the daemon run until something is done.
    pub(crate) fn block<T>(&self, work: impl Future<Output = T>) -> T {
        self.executor.block_on(async {
            match tokio::time::timeout(DEADLINE, work).await {
                Ok(done) => done,
                Err(_) => panic!("waited for {DEADLINE:?}"),
            }
        })
    }

    /// Lets the daemon run until there is something.
    #[track_caller]
    pub(crate) fn until<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        self.look_until(what, LOOK_EVERY, look)
    }

    /// Lets the daemon run until there is something that may be gone in a moment: looks after each poll of a task.
    #[track_caller]
    pub(crate) fn catch<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        self.look_until(what, Duration::ZERO, look)
    }

    #[track_caller]
    fn look_until<T>(&self, what: &str, every: Duration, mut look: impl FnMut() -> Option<T>) -> T {
        self.executor.block_on(async {
            let begun = Instant::now();
            loop {
                if let Some(found) = look() {
                    return found;
                }
                assert!(begun.elapsed() < DEADLINE, "waited for {DEADLINE:?}: {what}");
                if every.is_zero() {
                    tokio::task::yield_now().await;
                } else {
                    tokio::time::sleep(every).await;
                }
            }
        })
    }

    /// Lets no job of the disk begin until the returned value is dropped.
    pub(crate) fn hold_disk(&self) -> mpsc::Sender<()> {
        let pools = self.runtime.pools();
        Self::hold(&[&pools.journal, &pools.reads, &pools.bulk])
    }

    /// Lets no job of these pools begin until the returned value is dropped.
    pub(crate) fn hold(pools: &[&Pool]) -> mpsc::Sender<()> {
        let (release, held) = mpsc::channel();
        let held = Arc::new(Mutex::new(held));
        for pool in pools {
            for _ in 0..pool.threads_max() {
                let held = Arc::clone(&held);
                assert!(pool.try_spawn(move || {
                    let _ = held.lock().unwrap().recv();
                }));
            }
        }
        release
    }

    /// Asks for something and hangs up right after: the future is polled once and dropped.
    pub(crate) fn hang_up<T>(&self, verb: impl Future<Output = T>) {
        self.executor.block_on(async {
            let mut verb = std::pin::pin!(verb);
            let first = std::future::poll_fn(|cx| std::task::Poll::Ready(verb.as_mut().poll(cx).is_ready())).await;
            assert!(!first, "it is over before the client could hang up");
        });
    }

    /// Returns a process as `ps` lists it now, if it has not ended.
    pub(crate) fn listed(&self, uuid: Uuid) -> Option<Process> {
        let list = self.runtime.processes(false).now_or_never().unwrap().unwrap();
        list.processes.into_iter().find(|process| process.uuid == uuid)
    }

    /// Returns the word `ps` shows for a process; `dead` if it is not listed.
    pub(crate) fn display(&self, uuid: Uuid) -> String {
        self.listed(uuid).map_or_else(|| "dead".to_owned(), |process| process.display)
    }

    #[track_caller]
    pub(crate) fn until_display(&self, uuid: Uuid, display: &str) {
        self.until(&format!("{uuid} is {display}, not {}", self.display(uuid)), || {
            (self.display(uuid) == display).then_some(())
        });
    }

    /// Lets the daemon run until a process costs no task any more.
    #[track_caller]
    pub(crate) fn until_at_rest(&self, uuid: Uuid) {
        self.until("no owner", || (!self.runtime.has_owner(uuid)).then_some(()));
    }

    /// Lets the daemon run until no file of a process is open.
    #[track_caller]
    pub(crate) fn until_closed(&self, world: &World, uuid: Uuid) {
        let journal = world.data().join("steps").join(uuid.to_string()).join("steps.jsonl");
        assert!(!world.open_files(uuid).contains(&journal), "the journal is open");
        self.until("no descriptor", || world.open_files(uuid).is_empty().then_some(()));
    }

    /// Lets the daemon run until the journal of a process has so many records of a kind.
    #[track_caller]
    pub(crate) fn until_records(&self, world: &World, uuid: Uuid, kind: &str, count: usize) {
        self.until(&format!("{count} records {kind}"), || (world.of_kind(uuid, kind).len() >= count).then_some(()));
    }

    pub(crate) fn run(&self, request: RunRequest) -> Created {
        self.block(self.runtime.run(request)).unwrap()
    }

    /// Runs an agent until its model was asked, which never answers.
    pub(crate) fn run_hanging(&self, world: &World) -> Created {
        let created = self.run(world.hanging());
        self.until_records(world, created.uuid, "model_started", 1);
        created
    }

    /// Runs an agent and pauses it, in the middle of a model call.
    pub(crate) fn run_suspended(&self, world: &World) -> Created {
        let created = self.run_hanging(world);
        self.pause(created.uuid, PAUSE_NOW, None);
        self.until_display(created.uuid, "suspended");
        created
    }

    /// Runs an agent until it has asked a person.
    pub(crate) fn run_asking(&self, world: &World, file: &str) -> Created {
        let created = self.run(world.asking(file));
        self.until_display(created.uuid, "approval");
        created
    }

    pub(crate) fn info(&self, id: impl ToString) -> Process {
        self.block(self.runtime.process(&id.to_string())).unwrap()
    }

    pub(crate) fn signal(&self, id: impl ToString, name: &str, request: Option<&str>) -> Affected {
        self.try_signal(id, signal(name), request).unwrap()
    }

    pub(crate) fn try_signal(
        &self,
        id: impl ToString,
        signal: SignalRequest,
        request: Option<&str>,
    ) -> Result<Affected> {
        self.block(self.runtime.signal(&id.to_string(), signal, request.map(str::to_owned)))
    }

    pub(crate) fn pause(&self, id: impl ToString, pause: PauseRequest, request: Option<&str>) -> Affected {
        self.block(self.runtime.pause(&id.to_string(), pause, request.map(str::to_owned))).unwrap()
    }

    pub(crate) fn resume(&self, id: impl ToString, resume: ResumeRequest, request: Option<&str>) -> Resumed {
        self.block(self.runtime.resume(&id.to_string(), resume, request.map(str::to_owned))).unwrap()
    }

    /// Sends a message, and returns whether it was new.
    pub(crate) fn send(&self, id: impl ToString, message: InputRequest) -> bool {
        self.block(self.runtime.send(&id.to_string(), message)).unwrap().accepted
    }

    pub(crate) fn answer(&self, id: impl ToString, outcome: Resolution, request: Option<&str>) -> Affected {
        self.block(self.runtime.answer(&id.to_string(), answer(outcome), request.map(str::to_owned))).unwrap()
    }

    pub(crate) fn set_mask(&self, id: impl ToString, mask: SignalMaskRequest, request: Option<&str>) -> SignalState {
        self.block(self.runtime.set_signal_mask(&id.to_string(), mask, request.map(str::to_owned))).unwrap()
    }

    pub(crate) fn pending(&self, uuid: Uuid) -> Vec<String> {
        self.block(self.runtime.signal_mask(&uuid.to_string())).unwrap().pending
    }

    pub(crate) fn wait(&self, id: impl ToString) -> WaitAnswer {
        self.block(self.runtime.wait(&id.to_string(), None)).unwrap()
    }

    pub(crate) fn pid(&self, uuid: Uuid) -> Pid {
        self.listed(uuid).unwrap().pid
    }
}

/// Tells whether a record was asked for by this request. Its id is recorded with the verb, and a message has it alone.
pub(crate) fn is_of(record: &Value, request: &str) -> bool {
    let of = |field: &str| record[field].as_str().is_some_and(|id| id.rsplit(':').next() == Some(request));
    of("req") || of("id")
}
