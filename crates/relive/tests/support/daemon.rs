//! The real daemon on a data directory of its own, and its violent death.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use relive_api::StopQuery;
use relive_client::{BlockingClient, Client, Retry};

/// How long a start or a stop may take.
const WITHIN: Duration = Duration::from_secs(60);
/// How a client that repeats its requests looks for a daemon that was killed.
const RETRY: Retry = Retry { within: Duration::from_secs(5), every: Duration::from_millis(3) };

/// Where one run has its things. They stay if the run found something.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) root: PathBuf,
    pub(crate) data: PathBuf,
    /// The agents' working directory; their scripts are in it.
    pub(crate) work: PathBuf,
    /// The file outside that `append_outside` writes to.
    pub(crate) world: PathBuf,
    /// The file outside that commands and programs write to.
    pub(crate) lines: PathBuf,
    pub(crate) socket: PathBuf,
    faults: Option<String>,
}

impl Places {
    /// `ended_max` is how many ended histories the collector leaves.
    pub(crate) fn new(faults: Option<&str>, ended_max: u32) -> Self {
        let root = tempfile::Builder::new().prefix("relive-test-").tempdir().unwrap().keep();
        let places = Self {
            data: root.join("data"),
            work: root.join("work"),
            world: root.join("world"),
            lines: root.join("lines"),
            socket: root.join("socket"),
            faults: faults.map(str::to_owned),
            root,
        };
        fs::create_dir_all(&places.work).unwrap();
        let config = places.root.join("config/relive");
        fs::create_dir_all(&config).unwrap();
        // The commands write to a file outside of their directory.
        let text = format!(
            "tools: {{shell: allow}}\nisolation: {{agents: none}}\ngc: {{retention_days: 0, max_entries: {ended_max}, interval_seconds: 3600}}\n"
        );
        fs::write(config.join("config.yaml"), text).unwrap();
        places
    }

    /// A client that repeats its requests until they are answered.
    pub(crate) fn client(&self) -> BlockingClient {
        self.client_with(RETRY)
    }

    /// A client that asks once.
    pub(crate) fn client_that_asks_once(&self) -> BlockingClient {
        self.client_with(Retry::NEVER)
    }

    fn client_with(&self, retry: Retry) -> BlockingClient {
        BlockingClient::new(Client::new(&self.socket).with_data(&self.data).with_retry(retry)).unwrap()
    }

    fn serve(&self, socket: &Path, log: File) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relive"));
        command.args(["daemon", "serve"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.env("RELIVE_DATA_DIR", &self.data).env("RELIVE_SOCKET", socket);
        command.env("XDG_CONFIG_HOME", self.root.join("config")).env("HOME", &self.root);
        command.env_remove("RELIVE_FAULTS");
        if let Some(faults) = &self.faults {
            command.env("RELIVE_FAULTS", faults);
        }
        command.spawn().unwrap()
    }

    /// Starts the daemon. On return it has taken the data directory or is about to.
    pub(crate) fn start(&self) -> Daemon {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.root.join("log")).unwrap();
        Daemon { child: self.serve(&self.socket, log) }
    }

    /// Waits until the daemon answers, and says how long that took. `Err` if it does not.
    pub(crate) fn until_it_answers(&self, daemon: &mut Daemon) -> Result<Duration, String> {
        let (begun, client) = (Instant::now(), self.client_that_asks_once());
        while begun.elapsed() < WITHIN {
            if client.call(Client::daemon).is_ok() {
                return Ok(begun.elapsed());
            }
            if let Some(status) = daemon.child.try_wait().unwrap() {
                return Err(format!("the daemon left by itself: {status}\n{}", self.log_tail()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(format!("the daemon does not answer\n{}", self.log_tail()))
    }

    /// Check I: a second daemon on the same directory leaves, and says why.
    pub(crate) fn second_is_refused(&self) -> Result<(), String> {
        let path = self.root.join("second-log");
        let mut second = self.serve(&self.root.join("second-socket"), File::create(&path).unwrap());
        let status = wait_within(&mut second);
        let said = fs::read_to_string(&path).unwrap_or_default();
        match status {
            Some(status) if !status.success() && said.contains("in use by") => Ok(()),
            Some(status) => Err(format!("I: a second daemon was not refused: {status}, it said {said}")),
            None => {
                second.kill().unwrap();
                second.wait().unwrap();
                Err("I: a second daemon runs on the same data directory".to_owned())
            }
        }
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.root.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Whatever the daemons warned of that they should not have.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let log = fs::read_to_string(self.root.join("log")).unwrap_or_default();
        log.lines().filter(|line| line.contains("warning:") || line.contains("panicked")).map(str::to_owned).collect()
    }

    pub(crate) fn remove(self) {
        fs::remove_dir_all(&self.root).unwrap();
    }
}

/// A daemon that this test started.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
}

impl Daemon {
    /// SIGKILL, and gone when this returns.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop as a user does.
    pub(crate) fn stop(mut self, client: &BlockingClient) -> Result<(), String> {
        let _ = client.call(|client| client.stop_daemon(Some(self.pid()), StopQuery::default()));
        match wait_within(&mut self.child) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("the daemon did not stop well: {status}")),
            None => {
                self.kill();
                Err("the daemon does not stop".to_owned())
            }
        }
    }
}

fn wait_within(child: &mut Child) -> Option<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < WITHIN {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}
