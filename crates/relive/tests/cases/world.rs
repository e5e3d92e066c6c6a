//! A user with directories of their own, and a daemon nobody else can reach.

use std::cell::Cell;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use relive_journal::events::EventReader;
use relive_journal::reader::{Cursor, Item};
use serde_json::{Value, json};
use tempfile::TempDir;

/// So long that only a test that would never end reaches it, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(15);

/// Waits until something is so.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// Waits until there is something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_after(Duration::ZERO, what, look)
}

/// Waits until there is something that may come so much later.
#[track_caller]
pub(crate) fn wait_after<T>(later: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < later + DEADLINE, "waited for {:?}: {what}", later + DEADLINE);
        std::thread::sleep(LOOK_EVERY);
    }
}

/// One user.
pub(crate) struct World {
    root: TempDir,
    scripts: Cell<u32>,
    /// The uid that commands are typed by, where it is not ours.
    user: Option<u32>,
    environment: Vec<(&'static str, String)>,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A process that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) pid: u64,
    pub(crate) uuid: String,
}

impl Output {
    /// It worked.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.exits(0)
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// It failed so, and says this on stderr.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, said: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        for part in said {
            assert!(self.stderr.contains(part), "no `{part}` in {self:?}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let root = tempfile::Builder::new().prefix("rl").tempdir().unwrap();
        for directory in ["work", "run", "config/relive", "home"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        Self { root, scripts: Cell::new(0), user: None, environment: Vec::new() }
    }

    /// One as whoever runs the tests and, where that is root, one as nobody.
    pub(crate) fn of_each_kind() -> Vec<Self> {
        const NOBODY: u32 = 65534;
        let mut worlds = vec![Self::new()];
        if rustix::process::getuid().is_root() {
            let mut world = Self::new();
            world.user = Some(NOBODY);
            for directory in ["", "work", "run", "config", "config/relive", "home"] {
                let path = world.root.path().join(directory);
                std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
            worlds.push(world);
        }
        worlds
    }

    /// Runs a test that mostly waits in a world of each kind, all at the same time.
    pub(crate) fn in_each_kind(test: impl Fn(&Self) + Sync) {
        let test = &test;
        std::thread::scope(|scope| {
            for world in Self::of_each_kind() {
                scope.spawn(move || test(&world));
            }
        });
    }

    /// Whose world it is, if not that of whoever runs the tests.
    pub(crate) fn user(&self) -> Option<u32> {
        self.user
    }

    pub(crate) fn with_config(yaml: &str) -> Self {
        let world = Self::new();
        world.configure(yaml);
        world
    }

    /// The same user with one more variable in their environment.
    pub(crate) fn with_env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    pub(crate) fn configure(&self, yaml: &str) {
        fs::write(self.root.path().join("config/relive/config.yaml"), yaml).unwrap();
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// How many histories there are.
    pub(crate) fn histories(&self) -> usize {
        let entries = fs::read_dir(self.data().join("steps")).unwrap();
        entries.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count()
    }

    /// Where commands are typed.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relive"));
        command.args(args).current_dir(self.work()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("RELIVE_ASCII", "1");
        command.env("RELIVE_DATA_DIR", self.data());
        for (name, directory) in [("XDG_RUNTIME_DIR", "run"), ("XDG_CONFIG_HOME", "config"), ("HOME", "home")] {
            command.env(name, self.root.path().join(directory));
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        if let Some(user) = self.user {
            // What only root may look into is in nobody's path.
            command.uid(user).gid(user).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        }
        command
    }

    #[track_caller]
    pub(crate) fn relive(&self, args: &[&str]) -> Output {
        output(self.command(args).output().unwrap())
    }

    /// The same with more variables in the environment.
    pub(crate) fn relive_with(&self, environment: &[(&str, &str)], args: &[&str]) -> Output {
        output(self.command(args).envs(environment.iter().copied()).output().unwrap())
    }

    /// In the background, what it says being kept.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// On a terminal of 80 columns, where everything it says is on stdout. Its input is at its end.
    pub(crate) fn on_terminal(&self, line: &str) -> Output {
        let relive = env!("CARGO_BIN_EXE_relive");
        let typed = format!("stty cols 80 rows 24; exec {relive} --color never {line}");
        let mut command = self.command(&[]);
        let mut script = Command::new("script");
        script.args(["-qec", &typed, "/dev/null"]).stdin(Stdio::null()).current_dir(self.work()).env_clear();
        script.envs(command.env("SHELL", "/bin/sh").get_envs().filter_map(|(name, value)| Some((name, value?))));
        output(script.output().unwrap())
    }

    /// A script; the name of its model.
    pub(crate) fn script(&self, yaml: &str) -> String {
        self.scripts.set(self.scripts.get() + 1);
        let path = self.work().join(format!("script{}.yaml", self.scripts.get()));
        fs::write(&path, yaml).unwrap();
        format!("script/{}", path.display())
    }

    /// A model that never says anything.
    pub(crate) fn hanging(&self) -> String {
        self.script("turns: [{hang: true}]")
    }

    /// Runs a script in the background.
    #[track_caller]
    pub(crate) fn run(&self, yaml: &str) -> Begun {
        self.run_with(yaml, &[])
    }

    #[track_caller]
    pub(crate) fn run_with(&self, yaml: &str, flags: &[&str]) -> Begun {
        self.run_model(&self.script(yaml), flags)
    }

    #[track_caller]
    pub(crate) fn run_model(&self, model: &str, flags: &[&str]) -> Begun {
        let mut args = vec!["run", "-d", "--json", "--model", model];
        args.extend(flags);
        args.push("do it");
        begun(&self.relive(&args).ok().json())
    }

    /// One that runs and waits for its model for ever.
    #[track_caller]
    pub(crate) fn run_hanging(&self, flags: &[&str]) -> Begun {
        let begun = self.run_model(&self.hanging(), flags);
        self.await_records(&begun, "model_started", 1);
        begun
    }

    /// What `info` shows, once its body is ready.
    #[track_caller]
    pub(crate) fn info(&self, id: impl ToString) -> Value {
        let id = id.to_string();
        wait_for(&format!("{id} is loaded"), || {
            let info = self.relive(&["info", "--json", &id]).ok().json();
            (info["state"] != "created").then_some(info)
        })
    }

    /// Waits until `info` shows this.
    #[track_caller]
    pub(crate) fn await_field(&self, id: &str, field: &str, value: impl Into<Value>) -> Value {
        let value = value.into();
        wait_for(&format!("{field} of {id} is {value}"), || Some(self.info(id)).filter(|info| info[field] == value))
    }

    #[track_caller]
    pub(crate) fn await_display(&self, id: &str, word: &str) -> Value {
        self.await_field(id, "display", word)
    }

    /// The process of that name, as soon as there is one.
    #[track_caller]
    pub(crate) fn named(&self, name: &str) -> Begun {
        wait_for(&format!("a process called {name}"), || {
            let list = self.relive(&["ps", "-a", "--json"]).ok().json();
            list["processes"].as_array().unwrap().iter().find(|process| process["name"] == name).map(begun)
        })
    }

    /// Ends a process and waits until all that is written about its end is.
    #[track_caller]
    pub(crate) fn end(&self, process: &Begun) {
        self.relive(&["kill", &process.uuid]).ok();
        self.relive(&["wait", &process.uuid]).exits(1);
        self.await_retired(&process.uuid);
    }

    /// Waits until all that is written about an end is: whoever waits for the process is answered before that.
    #[track_caller]
    pub(crate) fn await_retired(&self, uuid: &str) {
        wait_until("its end is on the disk", || !self.data().join("live").join(uuid).exists());
    }

    pub(crate) fn directory(&self, uuid: &str) -> PathBuf {
        self.data().join("steps").join(uuid)
    }

    pub(crate) fn steps_file(&self, uuid: &str) -> PathBuf {
        self.directory(uuid).join("steps.jsonl")
    }

    /// The journal's whole lines, from the disk.
    pub(crate) fn journal(&self, uuid: &str) -> Vec<Value> {
        records(&self.steps_file(uuid))
    }

    /// The events as the files have them: those that are stored, and those that the journal stands for.
    pub(crate) fn events(&self, uuid: &str) -> Vec<Value> {
        let directory = relive_journal::ProcessDirectory::new(self.directory(uuid));
        let mut reader = EventReader::new(&directory, Cursor::default());
        let items = std::iter::from_fn(|| reader.next_item().unwrap());
        let event = |item| match item {
            Item::Record(entry) => serde_json::from_str(&entry.line).ok(),
            Item::Damaged { .. } => None,
        };
        items.filter_map(event).collect()
    }

    /// The journal's records of a kind.
    pub(crate) fn records(&self, uuid: &str, kind: &str) -> Vec<Value> {
        self.journal(uuid).into_iter().filter(|record| record["kind"] == kind).collect()
    }

    #[track_caller]
    pub(crate) fn await_records(&self, of: &Begun, kind: &str, count: usize) {
        wait_until(&format!("{count} records `{kind}`"), || self.records(&of.uuid, kind).len() >= count);
    }

    /// Waits until the model has said this.
    #[track_caller]
    pub(crate) fn await_text(&self, of: &Begun, text: &str) {
        wait_until(&format!("the text `{text}`"), || {
            self.events(&of.uuid).iter().any(|event| event["kind"] == "text" && event["text"] == text)
        });
    }

    /// Waits until the model is being asked for this step.
    #[track_caller]
    pub(crate) fn await_step(&self, of: &Begun, step: u32) {
        wait_until(&format!("step {step} has begun"), || {
            self.records(&of.uuid, "model_started").iter().any(|record| record["step"] == step)
        });
    }

    /// The OS pid of the daemon, if there is one.
    pub(crate) fn daemon_pid(&self) -> Option<u32> {
        let pid = fs::read_to_string(self.data().join("lock")).ok()?.trim().parse().ok()?;
        self.is_daemon(pid).then_some(pid)
    }

    /// Whether this is a living daemon of ours.
    fn is_daemon(&self, pid: u32) -> bool {
        let environment = match fs::read(format!("/proc/{pid}/environ")) {
            Ok(environment) => environment,
            // Nobody but root looks into a daemon.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                return line.ends_with(b"\0daemon\0serve\0");
            }
            Err(_) => return false,
        };
        let ours = format!("RELIVE_DATA_DIR={}", self.data().display());
        environment.split(|byte| *byte == 0).any(|variable| variable == ours.as_bytes())
    }

    /// Kills the daemon with -9 and waits until it is gone.
    #[track_caller]
    pub(crate) fn kill_daemon(&self) -> u32 {
        let pid = self.daemon_pid().unwrap_or_else(|| panic!("there is no daemon"));
        kill(pid, rustix::process::Signal::KILL);
        wait_until("the daemon is gone", || !self.is_daemon(pid));
        pid
    }

    pub(crate) fn socket(&self) -> PathBuf {
        PathBuf::from(self.relive(&["paths", "--json"]).ok().json()["socket"].as_str().unwrap())
    }

    /// A request as any program may send it; the status and the whole body.
    #[track_caller]
    pub(crate) fn http(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        http(&self.socket(), method, path, headers, body)
    }

    /// Asks for a process by a request of our own.
    pub(crate) fn run_request(&self, uuid: &str, model: &str, intent: &str) -> String {
        json!({ "uuid": uuid, "intent": intent, "model": model, "cwd": self.work() }).to_string()
    }
}

impl World {
    /// Ends the programs that would go on without a daemon.
    fn end_sessions(&self) {
        let has_sessions = |entry: fs::DirEntry| entry.path().join("sessions").exists();
        let Ok(mut entries) = fs::read_dir(self.data().join("steps")) else { return };
        if !entries.any(|entry| entry.is_ok_and(has_sessions)) {
            return;
        }
        for pid in self.relive(&["ps", "-q"]).stdout.lines() {
            self.relive(&["kill", "-s", "KILL", pid]);
            self.relive(&["wait", "--timeout", "20s", pid]);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.end_sessions();
        if let Some(pid) = self.daemon_pid() {
            if std::thread::panicking() {
                let log = fs::read_to_string(self.data().join("daemon.log")).unwrap_or_default();
                eprintln!("the daemon's log:\n{log}");
            }
            kill(pid, rustix::process::Signal::KILL);
            wait_until("the daemon is gone", || !self.is_daemon(pid));
        }
        // They outlive their daemon; nothing is to outlive its world.
        crate::sessions_support::end_all(&self.data());
    }
}

pub(crate) fn http(socket: &Path, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let length = body.len();
    let request = format!("{method} {path} HTTP/1.0\r\n{headers}content-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Copies a program in another process. A copy of our own would be open for writing in every process that another test starts
/// meanwhile, and could not be run until those have executed their programs.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

/// Writes a program, in another process for the same reason.
pub(crate) fn write_program(to: &Path, text: &str) {
    let write = "printf %s \"$2\" > \"$1\" && chmod 755 \"$1\"";
    assert!(Command::new("sh").args(["-c", write, "sh"]).arg(to).arg(text).status().unwrap().success());
}

pub(crate) fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // It may have gone by itself.
    let _ = rustix::process::kill_process(pid, signal);
}

pub(crate) fn output(output: std::process::Output) -> Output {
    Output {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// What a command in the background did.
pub(crate) fn finish(child: Child) -> Output {
    output(child.wait_with_output().unwrap())
}

pub(crate) fn begun(value: &Value) -> Begun {
    Begun { pid: value["pid"].as_u64().unwrap(), uuid: value["uuid"].as_str().unwrap().to_owned() }
}

/// What is shown of a UUID.
pub(crate) fn short(uuid: &str) -> String {
    relive_types::short_id::short(uuid.parse().unwrap())
}

fn records(path: &Path) -> Vec<Value> {
    let text = fs::read(path).unwrap_or_default();
    let whole = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    whole.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// That nothing below a directory has changed.
#[track_caller]
pub(crate) fn assert_untouched(directory: &Path, before: &[(PathBuf, Vec<u8>)]) {
    let after = contents(directory);
    let changed = |from: &[(PathBuf, Vec<u8>)], to: &[(PathBuf, Vec<u8>)]| -> Vec<PathBuf> {
        from.iter().filter(|file| !to.contains(file)).map(|(path, _)| path.clone()).collect()
    };
    assert_eq!(changed(before, &after), Vec::<PathBuf>::new(), "changed or gone");
    assert_eq!(changed(&after, before), Vec::<PathBuf>::new(), "new");
}

/// Every file below a directory, with what it holds.
pub(crate) fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else if !fs::symlink_metadata(&path).unwrap().file_type().is_socket() {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}
