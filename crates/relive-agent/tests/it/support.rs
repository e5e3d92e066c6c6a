//! A working directory with a secret next to it, and a runtime that only records.
//!
//! The directory is deep inside a temporary one, so a path that got out would still not get far.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_agent::tool::{ChildEnd, ChildRequest, Context, Host, OwnEnd, PrivatePaths, Tool, ToolResult};
use relive_agent::tools;
use relive_journal::Pool;
use relive_journal::recovery::Recovery;
use relive_session::sessions::Sessions;
use relive_types::{Timestamp, Uuid};
use serde_json::Value;

/// A runtime whose clock is tokio's.
#[derive(Debug)]
pub(crate) struct FakeHost {
    began: tokio::time::Instant,
    pub(crate) spawned: Mutex<Vec<ChildRequest>>,
    pub(crate) ends: Mutex<BTreeMap<Uuid, ChildEnd>>,
    pub(crate) own_ends: Mutex<Vec<OwnEnd>>,
    ids: Mutex<u128>,
}

impl FakeHost {
    pub(crate) const BEGAN: Timestamp = Timestamp::UNIX_EPOCH;
}

impl Host for FakeHost {
    fn now(&self) -> Timestamp {
        Self::BEGAN + self.began.elapsed()
    }

    fn new_uuid(&self) -> Uuid {
        let mut ids = self.ids.lock().unwrap();
        *ids += 1;
        Uuid::from_u128(*ids)
    }

    fn environment(&self) -> BoxFuture<'static, Result<Vec<(String, String)>, String>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn spawn_agent(&self, request: ChildRequest) -> BoxFuture<'static, Result<(), String>> {
        let refused = request.model.as_deref() == Some("no/such");
        if !refused {
            self.spawned.lock().unwrap().push(request);
        }
        std::future::ready(if refused { Err("unknown model no/such".to_owned()) } else { Ok(()) }).boxed()
    }

    fn end_self(&self, how: OwnEnd) -> BoxFuture<'static, Result<(), String>> {
        self.own_ends.lock().unwrap().push(how);
        std::future::ready(Ok(())).boxed()
    }

    fn exists(&self, uuid: Uuid) -> BoxFuture<'static, bool> {
        let exists = self.spawned.lock().unwrap().iter().any(|child| child.uuid == uuid);
        std::future::ready(exists).boxed()
    }

    fn wait_agent(&self, _: Uuid, uuid: Uuid) -> BoxFuture<'static, Result<ChildEnd, String>> {
        match self.ends.lock().unwrap().get(&uuid).cloned() {
            Some(end) => std::future::ready(Ok(end)).boxed(),
            None => std::future::pending().boxed(),
        }
    }
}

/// Deeper than any path of the tests goes up.
const DEPTH: usize = 20;

/// A working directory `work`, with a file `secret` next to it.
pub(crate) struct World {
    folder: tempfile::TempDir,
    pub(crate) outside: PathBuf,
    pub(crate) cwd: PathBuf,
    pub(crate) host: Arc<FakeHost>,
    pub(crate) context: Context,
}

pub(crate) const SECRET: &str = "the secret outside";

impl World {
    #[expect(clippy::disallowed_methods, reason = "what it makes is the test's own")]
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().canonicalize().unwrap().join("d/".repeat(DEPTH));
        let cwd = outside.join("work");
        std::fs::create_dir_all(&cwd).unwrap();
        std::fs::write(outside.join("secret"), SECRET).unwrap();
        let host = Arc::new(FakeHost {
            began: tokio::time::Instant::now(),
            spawned: Mutex::default(),
            ends: Mutex::default(),
            own_ends: Mutex::default(),
            ids: Mutex::default(),
        });
        let context = Context {
            uuid: Uuid::max(),
            cwd: cwd.clone(),
            private: PrivatePaths::new(|| Box::new([])),
            host: Arc::clone(&host) as Arc<dyn Host>,
            pool: Pool::default(),
            slow_pool: Pool::new("slow", 2, 64),
            // No test here launches a program: that takes the real binary.
            sessions: Arc::new(Sessions::new("/proc/self/exe".into(), String::new(), "test".to_owned())),
            isolation: relive_session::spec::Policy::default(),
            proxy: None,
            journal: None,
            inherited: None,
            folder: outside.join("sessions"),
        };
        Self { folder, outside, cwd, host, context }
    }

    #[expect(clippy::disallowed_methods, reason = "what it makes is the test's own")]
    pub(crate) fn put(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.cwd.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn link(&self, target: impl AsRef<Path>, path: &str) {
        std::os::unix::fs::symlink(target, self.cwd.join(path)).unwrap();
    }

    pub(crate) fn pipe(&self, path: &str) {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, self.cwd.join(path), mode).unwrap();
    }

    /// Creates a file of this length without disk space.
    pub(crate) fn sparse(&self, path: &str, bytes: u64) {
        self.put(path, "");
        let file = std::fs::File::options().write(true).open(self.cwd.join(path)).unwrap();
        file.set_len(bytes).unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> String {
        std::fs::read_to_string(self.cwd.join(path)).unwrap()
    }

    /// Returns the names in the working directory.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.cwd)
    }

    /// Returns whether everything outside the working directory is unchanged.
    pub(crate) fn outside_is_untouched(&self) -> bool {
        let mut above = self.folder.path().to_path_buf();
        let levels = (0..DEPTH).all(|_| {
            let alone = names(&above) == ["d"];
            above.push("d");
            alone
        });
        let secret = std::fs::read_to_string(self.outside.join("secret")).unwrap_or_default();
        levels && names(&above) == ["secret", "work"] && secret == SECRET
    }

    pub(crate) async fn prepare(&self, tool: &str, args: Value) -> Result<Recovery, ToolResult> {
        find(tool).prepare(self.context.clone(), args.to_string()).await
    }

    pub(crate) async fn run(&self, tool: &str, args: Value, recovery: Recovery) -> ToolResult {
        find(tool).run(self.context.clone(), args.to_string(), recovery, "key:1".to_owned()).await
    }

    /// Prepares and runs a call.
    pub(crate) async fn call(&self, tool: &str, args: Value) -> ToolResult {
        match self.prepare(tool, args.clone()).await {
            Ok(recovery) => self.run(tool, args, recovery).await,
            Err(failed) => failed,
        }
    }

    /// Makes a call that must succeed.
    pub(crate) async fn works(&self, tool: &str, args: Value) -> String {
        let result = self.call(tool, args.clone()).await;
        assert!(result.ok, "{tool} {args}: {}", result.text);
        result.text
    }

    /// Makes a call that must be refused with these words.
    pub(crate) async fn refused(&self, tool: &str, args: Value, words: &str) {
        let result = self.call(tool, args.clone()).await;
        assert!(!result.ok && result.text.contains(words), "{tool} {args}: {result:?}, not {words:?}");
    }
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn find(tool: &str) -> Arc<dyn Tool> {
    tools::find(tool).unwrap()
}
