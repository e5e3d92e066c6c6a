//! Real tools at `confined`. A tool that does not run at `none` is not on this machine.

use std::net::ToSocketAddrs as _;
use std::process::Command;

use relive_proxy::{PORT, Settings};
use relive_sandbox::{Isolation, Network};
use relive_session::spec::Spec;
use relive_session::stage::SessionResult;

use super::world::World;

const TOOLS: &[(&str, &str)] = &[
    (
        "cargo",
        "mkdir -p crate/src && cd crate && printf '[package]\\nname = \"a\"\\nedition = \"2021\"\\n[workspace]\\n' > Cargo.toml && \
         echo 'fn main() { println!(\"built\"); }' > src/main.rs && cargo build -q --offline && ./target/debug/a",
    ),
    ("gcc", "echo 'int main(void) { return 0; }' > a.c && gcc -o a a.c && ./a"),
    ("venv", "python3 -m venv --without-pip venv && venv/bin/python -c 'import ssl, sqlite3'"),
    ("pytest", "echo 'def test_a(): assert 1' > test_a.py && python3 -m pytest -q test_a.py"),
    (
        "multiprocessing",
        "python3 -c 'import multiprocessing as m; p = m.Pool(2); assert p.map(abs, [-1]) == [1]; p.close(); p.join()'",
    ),
    ("threads", "python3 -c 'import threading as t; x = t.Thread(target=print); x.start(); x.join()'"),
    (
        "sqlite",
        "python3 -c 'import sqlite3; c = sqlite3.connect(\"db\"); c.execute(\"pragma journal_mode=wal\"); c.execute(\"create table t(a)\")'",
    ),
    (
        "npm",
        "mkdir -p package app && echo '{\"name\":\"p\",\"version\":\"1.0.0\"}' > package/package.json && cd app && \
         echo '{\"name\":\"app\"}' > package.json && npm install --offline --no-audit --no-fund ../package && test -e node_modules/p",
    ),
    ("node", "node -e 'require(\"os\").networkInterfaces(); require(\"fs\").writeFileSync(\"node-file\", \"x\")'"),
    ("strace", "strace -f -o trace true && test -s trace"),
    ("ssh", "ssh -V && ! ssh-add -l"),
    ("git", "git init -q other && cd other && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"),
    (
        "git branches",
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; \
         git commit -q --allow-empty -m x; git checkout -q -B side && echo x > s && git add s && git commit -qm s && \
         git stash -q && git rebase -q HEAD~0 && git worktree add -q --detach tree && git worktree remove tree",
    ),
    ("tmux", "tmux -L relive-test new -d true"),
    (
        "playwright with chromium",
        "NODE_PATH=\"$(npm root -g)\" node -e 'require(\"playwright\").chromium.launch({args: [\"--no-sandbox\"]}).then(b => b.close())'",
    ),
];

/// The variables by which tools find their own files.
fn variables() -> Vec<(String, String)> {
    let kept = ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "PYENV_ROOT", "NODE_EXTRA_CA_CERTS"];
    kept.iter().filter_map(|&name| Some((name.to_owned(), std::env::var(name).ok()?))).collect()
}

#[tokio::test]
async fn case_76_real_tools_work_at_confined() {
    let Some(world) = World::new("tools").await else { return };
    let variables = variables();
    for (number, (tool, script)) in TOOLS.iter().enumerate() {
        let script = format!("cd \"$(mktemp -d ./tool-XXXXXX)\" && {script}");
        let spec = |isolation| Spec { env: variables.clone(), ..world.spec(isolation, &script) };
        let (open, printed) = world.run_spec(&format!("none-{number}"), &spec(Isolation::None)).await;
        if open.result != SessionResult::Exited(0) {
            eprintln!("skipped: {tool} does not work here at all: {printed}");
            continue;
        }
        let (held, printed) = world.run_spec(&format!("held-{number}"), &spec(Isolation::Confined)).await;
        assert_eq!(held.result, SessionResult::Exited(0), "{tool}: {printed}");
    }
}

/// Returns the host of the registry of npm; nothing if npm is not there.
fn registry() -> Option<String> {
    let asked = Command::new("npm").args(["config", "get", "registry"]).output().ok()?;
    let url = String::from_utf8(asked.stdout).ok()?;
    let host = url.trim().strip_prefix("https://")?.split('/').next()?;
    (!host.contains([':', '@'])).then(|| host.to_owned())
}

#[tokio::test]
async fn case_77_npm_installs_with_a_list_that_has_its_registry_and_says_which_host_is_missing_otherwise() {
    let Some(world) = World::new("npm").await else { return };
    let Some(registry) = registry() else {
        return eprintln!("skipped: npm is not there, or has a registry without TLS");
    };
    // Not from the user's cache.
    let script = "cd \"$(mktemp -d ./npm-XXXXXX)\" && echo '{\"name\":\"app\"}' > package.json && \
                  npm install --cache ./cache --no-audit --no-fund --fetch-retries=0 is-number@7.0.0 && \
                  test -e node_modules/is-number";
    let open = Spec { env: variables(), ..world.spec(Isolation::None, script) };
    let (record, printed) = world.run_spec("none", &open).await;
    if record.result != SessionResult::Exited(0) {
        return eprintln!("skipped: npm install does not work here at all: {printed}");
    }
    // A registry of one's own may have a private address.
    let addresses = (registry.as_str(), 443).to_socket_addrs().unwrap().map(|address| address.ip().to_string());
    let with_registry: Vec<String> = addresses.chain([registry.clone()]).collect();
    for (name, allow) in [("listed", with_registry), ("missing", vec!["example.com".to_owned()])] {
        let mut spec = Spec { env: variables(), ..world.spec(Isolation::Confined, script) };
        spec.isolation.policy.network = Network::Proxy(PORT);
        spec.proxy =
            Some(Settings { allow: allow.iter().map(|rule| rule.parse().unwrap()).collect(), ..Settings::default() });
        let (record, printed) = world.run_spec(name, &spec).await;
        let works = record.result == SessionResult::Exited(0);
        assert_eq!(works, name == "listed", "{name}: {printed}");
        assert!(works || printed.contains(&format!("{registry} is not in the allow list")), "{name}: {printed}");
    }
}
