//! Programs that attack their shim: their owner still finds them, and can end them.

use std::io::Write as _;

use relive_session::directory::{Found, boot_id};
use relive_session::exit::EndedBy;
use relive_session::proc::Stat;
use relive_session::protocol::{Outcome, Verb};
use relive_session::sessions::{SessionStatus, Sessions};
use relive_session::spec::Spec;
use relive_session::stage::{SessionResult, Stage};
use relive_session::tree::Plan;

use crate::harness::*;

fn stop(pid: i32) {
    // SAFETY: plain numbers; a shim of this test that was not reaped.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
}

/// Keeps a process from opening anything, as a program can do to its shim.
fn forbid_descriptors(pid: i32) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure owned here; a shim of this test that was not reaped.
    assert_eq!(unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const none, std::ptr::null_mut()) }, 0);
}

impl Running {
    /// Writes a file of the session's directory like its program could.
    fn forge(&self, name: &str, text: &str) {
        let path = self.directory.path().join(name);
        let mut file = std::fs::File::options().write(true).create(true).truncate(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn unlink(&self, name: &str) {
        tempfile::TempPath::try_from_path(self.directory.path().join(name)).unwrap().close().unwrap();
    }
}

fn sessions() -> Sessions {
    Sessions::new(Lab::shim(), boot_id().unwrap(), ladder().plan.prefix.clone())
}

async fn found_alive(sessions: &Sessions, running: &Running) -> relive_session::Connection {
    match within("it to be found", sessions.find(running.directory.path())).await.unwrap() {
        SessionStatus::Alive(connection) => connection,
        other @ (SessionStatus::NeverRan | SessionStatus::Ended(_)) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_program_whose_shim_is_stopped_can_be_killed() {
    let lab = Lab::new();
    let running = lab.launch("stopped", &shell("sleep 1000 & sleep 1000")).await;
    let host = running.reaches(Stage::Running).await.host_pid.unwrap();
    stop(running.connection.shim_pid());
    let killed = sessions();
    let killed = killed.order(running.directory.path(), &running.connection, Verb::Kill);
    assert_eq!(within("the kill", killed).await, Ok(Outcome::Done));
    let record = running.ended().await;
    assert_eq!((record.result, record.why), (SessionResult::Signaled(libc::SIGKILL), Some(EndedBy::Kill)));
    assert!(!is_alive(host));
}

#[tokio::test]
async fn whoever_waits_learns_the_end_of_a_program_that_stopped_its_shim() {
    let lab = Lab::new();
    let sessions = sessions();
    let path = lab.dir.path().join("sessions/1");
    let script = "kill -STOP $PPID; exit 7";
    let connection = sessions.launch(&path, &shell(script)).await.unwrap();
    assert_eq!(within("the end", connection.ended()).await.unwrap().result, SessionResult::Exited(7));
    // Also one that found it.
    let running = lab.launch("found", &shell(&format!("read go; {script}"))).await;
    let found = found_alive(&sessions, &running).await;
    found.write(b"go\n").await.unwrap();
    assert_eq!(within("the end", found.ended()).await.unwrap().result, SessionResult::Exited(7));
}

#[tokio::test]
async fn a_program_that_repeatedly_stops_its_shim_can_be_paused_and_killed() {
    let lab = Lab::new();
    let running = lab.launch("again", &shell("echo there; while :; do kill -STOP $PPID; done")).await;
    // In a PID namespace of its own it reaches only its init.
    let shim = running.connection.shim_pid();
    let is_stopped = || Stat::of(shim).is_ok_and(|stat| stat.state == b'T');
    wait_until("the shim to be stopped", || is_stopped() || running.printed().contains("there")).await;
    let sessions = sessions();
    let freeze = sessions.order(running.directory.path(), &running.connection, Verb::Freeze);
    assert_eq!(within("the freeze", freeze).await, Ok(Outcome::Done));
    let kill = sessions.order(running.directory.path(), &running.connection, Verb::Kill);
    assert!(matches!(within("the kill", kill).await, Ok(Outcome::Done) | Err(_)));
    let ended = running.ended().await;
    assert_eq!(ended.result, SessionResult::Signaled(libc::SIGKILL));
    let host = running.connection.seen().borrow().snapshot.host_pid.unwrap();
    assert!(!is_alive(host));
}

#[tokio::test]
async fn the_next_owner_finds_a_program_whose_shim_is_stopped() {
    let lab = Lab::new();
    let running = lab.launch("next", &spec(&["cat"])).await;
    running.reaches(Stage::Running).await;
    stop(running.connection.shim_pid());
    let next = found_alive(&sessions(), &running).await;
    assert_eq!(next.request(Verb::CloseInput).await, Ok(Outcome::Done), "and it is not held still");
    assert_eq!(within("the end", next.ended()).await.unwrap().result, SessionResult::Exited(0));
}

#[tokio::test]
async fn a_program_is_killed_even_if_its_shim_cannot_be_continued() {
    let lab = Lab::new();
    let running = lab.launch("hung", &shell("sleep 1000 & sleep 1000")).await;
    let host = running.reaches(Stage::Running).await.host_pid.unwrap();
    let shim = running.connection.shim_pid();
    // Nothing in the directory leads to the shim any more, it cannot change that, and it is stopped.
    stop(shim);
    running.forge("exit", "{}");
    running.unlink("ctl");
    forbid_descriptors(shim);
    let status = within("it to be found", sessions().find(running.directory.path())).await.unwrap();
    let SessionStatus::Ended(record) = status else { panic!("{status:?}") };
    assert!(!is_alive(host), "{record:?}");
    wait_until("the shim to be gone", || Stat::of(shim).is_err()).await;
}

#[tokio::test]
async fn a_program_whose_socket_is_gone_is_found_alive() {
    let lab = Lab::new();
    let weakest = Spec { tree: Plan { prefix: ladder().plan.prefix.clone(), ..Plan::default() }, ..spec(&["cat"]) };
    for (name, spec) in [("unlinked", spec(&["cat"])), ("unlinked-weakest", weakest)] {
        let running = lab.launch(name, &spec).await;
        running.reaches(Stage::Running).await;
        running.unlink("ctl");
        let next = found_alive(&sessions(), &running).await;
        assert_eq!(next.request(Verb::CloseInput).await, Ok(Outcome::Done), "and it is not held still");
        assert_eq!(within("the end", next.ended()).await.unwrap().result, SessionResult::Exited(0));
        assert!(matches!(running.left().await, Found::Ended(_)));
    }
}

#[tokio::test]
async fn a_program_that_blocks_every_name_of_the_socket_is_found_alive() {
    let lab = Lab::new();
    let script = "cd \"$0\" && rm ctl && mkdir -p ctl/full ctl.new/full && chmod 500 . && echo there && exec cat";
    let path = lab.dir.path().join("blocked").display().to_string();
    let running = lab.launch("blocked", &spec(&["sh", "-c", script, &path])).await;
    running.prints("there").await;
    let next = found_alive(&sessions(), &running).await;
    assert_eq!(next.request(Verb::CloseInput).await, Ok(Outcome::Done), "and it is not held still");
    assert_eq!(within("the end", next.ended()).await.unwrap().result, SessionResult::Exited(0));
    assert!(matches!(running.left().await, Found::Ended(_)));
}

#[tokio::test]
async fn a_program_that_listens_in_the_place_of_its_shim_is_found_alive() {
    let lab = Lab::new();
    let running = lab.launch("impostor", &spec(&["cat"])).await;
    running.reaches(Stage::Running).await;
    running.unlink("ctl");
    let impostor = running.directory.ctl_bind().unwrap();
    let next = found_alive(&sessions(), &running).await;
    assert_eq!(next.shim_pid(), running.connection.shim_pid());
    drop(impostor);
    running.unlink("ctl");
    let _impostor = std::os::unix::net::UnixListener::bind(running.directory.path().join("ctl")).unwrap();
    let next = found_alive(&sessions(), &running).await;
    assert_eq!(next.request(Verb::CloseInput).await, Ok(Outcome::Done), "and it is not held still");
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
}

#[tokio::test]
async fn the_hello_names_the_mechanisms_in_use() {
    let lab = Lab::new();
    let running = lab.launch("hello", &gated(spec(&["true"]))).await;
    let Ok(Outcome::Stat(stat)) = running.connection.request(Verb::Stat).await else { panic!("no stat") };
    assert_eq!(running.connection.rungs(), Some(&stat.rungs));
    let again = found_alive(&sessions(), &running).await;
    assert_eq!(again.rungs(), Some(&stat.rungs), "also to an owner that finds it");
    running.reaches(Stage::Ready).await;
    assert_eq!(running.connection.request(Verb::Proceed).await, Ok(Outcome::Done));
    running.ended().await;
}

#[tokio::test]
async fn open_connections_do_not_lock_the_next_owner_out() {
    let lab = Lab::new();
    let running = lab.launch("crowded", &spec(&["cat"])).await;
    running.reaches(Stage::Running).await;
    let mut held = Vec::new();
    while held.len() < 100 {
        held.extend(running.directory.ctl_connect().ok());
        // The shim accepts them one after the other.
        running.connection.request(Verb::Stat).await.ok();
    }
    let next = found_alive(&sessions(), &running).await;
    assert!(matches!(next.request(Verb::Stat).await, Ok(Outcome::Stat(_))));
    assert_eq!(next.request(Verb::Kill).await, Ok(Outcome::Done));
    within("the end", next.ended()).await.unwrap();
}

#[tokio::test]
async fn a_forged_exit_record_does_not_end_a_session() {
    let lab = Lab::new();
    let (real, _) = lab.run("real", &spec(&["true"])).await;
    let forged = serde_json::to_string(&real).unwrap();
    let running = lab.launch("forged", &spec(&["cat"])).await;
    running.reaches(Stage::Running).await;
    for text in [forged.as_str(), "nonsense", ""] {
        running.forge("exit", text);
        drop(found_alive(&sessions(), &running).await);
    }
    running.forge("state", "nonsense");
    let next = found_alive(&sessions(), &running).await;
    assert_eq!(next.request(Verb::CloseInput).await, Ok(Outcome::Done));
    assert_eq!(within("the end", next.ended()).await.unwrap().result, SessionResult::Exited(0));
    assert!(matches!(running.left().await, Found::Ended(record) if record.host_pid != real.host_pid));
}

#[tokio::test]
async fn a_program_that_kills_its_shim_and_forges_its_end_is_killed() {
    let lab = Lab::new();
    if !ladder().rungs.tree.starts_with("cgroup") {
        return eprintln!("skipped: only a cgroup shows who runs on");
    }
    let (real, _) = lab.run("real", &spec(&["true"])).await;
    // The second outlives the shim: only the first is its child.
    let running = lab.launch("runs-on", &shell("setsid sh -c 'echo there; exec sleep 1000' & sleep 1000")).await;
    running.prints("there").await;
    let Ok(Outcome::Stat(stat)) = running.connection.request(Verb::Stat).await else { panic!("no stat") };
    running.forge("exit", &serde_json::to_string(&real).unwrap());
    // SAFETY: the shim's pid, which we have not reaped.
    assert_eq!(unsafe { libc::kill(running.connection.shim_pid(), libc::SIGKILL) }, 0);
    assert!(within("the loss", running.connection.ended()).await.is_err());
    assert!(matches!(
        within("the find", sessions().find(running.directory.path())).await.unwrap(),
        SessionStatus::Ended(_)
    ));
    assert!(stat.members.iter().all(|pid| !is_alive(*pid)));
}
