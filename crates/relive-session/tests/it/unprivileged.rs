//! All tests again without privileges, if the user has some.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::harness::copy_program;

const NOBODY: &str = "65534";

#[test]
fn all_tests_pass_unprivileged() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: not root, so all of it is unprivileged already");
    }
    let dir = tempfile::tempdir().unwrap();
    let shared = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), shared).unwrap();
    let copy = |from: &str, name: &str| {
        let to = dir.path().join(name);
        copy_program(Path::new(from), &to);
        to
    };
    let this = std::env::current_exe().unwrap();
    let tests = copy(this.to_str().unwrap(), "it");
    let shim = copy(env!("CARGO_BIN_EXE_session-test-shim"), "shim");
    // Outside of the temporary directories, of which an isolated program has its own.
    let rooms = tempfile::Builder::new().prefix("relive-test-").tempdir_in("/var/lib").unwrap();
    std::fs::set_permissions(rooms.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--bounding-set", "-all"])
        .arg(tests)
        .args(["--skip", "unprivileged::", "--nocapture"])
        .env("SESSION_TEST_SHIM", shim)
        .env("TMPDIR", dir.path())
        .env(crate::isolation::ROOMS, rooms.path())
        .env("HOME", rooms.path())
        .env("RELIVE_LAUNCHES", "60")
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stdout));
    said.lines().filter(|line| line.starts_with("skipped")).for_each(|line| eprintln!("unprivileged: {line}"));
}
