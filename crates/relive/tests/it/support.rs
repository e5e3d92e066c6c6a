//! A place of its own for each test, and the command run in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fake::{Fake, Reply, Request};

/// An empty home, data directory and runtime directory.
pub(crate) struct Place {
    pub dir: TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// With a stand-in for the daemon.
    pub(crate) fn daemon(&self, handler: impl Fn(&Request, Reply) + Send + Sync + 'static) -> Fake {
        Fake::listen(&self.socket(), handler)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("relive/config.yaml")
    }

    #[expect(clippy::disallowed_methods, reason = "a test's own file")]
    pub(crate) fn write(&self, path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relive"));
        command.args(args).env_clear().current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("HOME", self.dir.path()).env("XDG_CONFIG_HOME", self.dir.path());
        command.env("RELIVE_DATA_DIR", self.data()).env("RELIVE_SOCKET", self.socket()).env("LANG", "C.UTF-8");
        command
    }

    pub(crate) fn relive(&self, args: &[&str]) -> Ran {
        let output = self.command(args).output().unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// The one document on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    #[track_caller]
    pub(crate) fn says(self, what: &str) -> Self {
        assert!(self.stderr.contains(what), "no `{what}` in {self:#?}");
        self
    }
}

pub(crate) const UUID: &str = "0198f3c1-0000-7000-8000-000000000005";

/// A process as the daemon describes it.
pub(crate) fn process(pid: u32, ppid: u32) -> Value {
    let mut process = json!({
        "pid": pid, "ppid": ppid, "uuid": UUID, "parent_uuid": null, "origin_uuid": null, "origin_step": null,
        "generation": 1, "successor_pid": null, "name": format!("fixer{pid}"), "body": "agent", "intent": "fix it",
        "cwd": "/w", "state": "running", "paused": false, "paused_at": null, "display": "running",
        "suspend_reason": null, "ending": null, "status": null, "why": null, "killed_by": null, "killed_from": null,
        "exit": null, "step": 3, "max_steps": 20, "tokens_in": 10, "tokens_out": 2, "max_tokens": null,
        "cost_usd": null, "model": "script/x", "suspended_below": 0, "resumable": true, "stalled": false,
        "created_at": "2026-11-15T12:00:00Z", "started_at": null, "dead_at": null, "elapsed_ms": 4000, "resume_at": null,
        "session": null, "agent": null, "workspace": null,
    });
    (process["short"], process["doing"]) = ("00000005".into(), Value::Null);
    process
}

/// What a wait is answered with.
pub(crate) fn ended(code: u8) -> Value {
    let reason = if code == 0 { "completed" } else { "exited" };
    json!({
        "pid": 5, "uuid": UUID, "status": { "kind": "exited", "code": code }, "why": null,
        "exit": { "code": code, "reason": reason, "err": null }, "timed_out": false, "exit_code": code,
    })
}
