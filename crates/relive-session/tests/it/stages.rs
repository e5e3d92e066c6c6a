//! From the launch to the end: the answers in every stage, and the remains.

use relive_session::directory::{Found, boot_id};
use relive_session::exit::EndedBy;
use relive_session::protocol::{Outcome, Verb};
use relive_session::sessions::{Ran, Sessions};
use relive_session::spec::{Namespace, Spec};
use relive_session::stage::{SessionResult, Stage};

use crate::harness::*;

fn failure(result: &SessionResult) -> (&str, &str) {
    let SessionResult::Error(failure) = result else { panic!("{result:?} is no error") };
    (&failure.stage, &failure.errno)
}

#[tokio::test]
async fn case_30_a_program_runs_and_its_end_is_on_the_disk() {
    let lab = Lab::new();
    let (record, _) = lab.run("true", &spec(&["true"])).await;
    assert_eq!((record.result, record.why), (SessionResult::Exited(0), None));
    let (record, _) = lab.run("false", &spec(&["false"])).await;
    assert_eq!(record.result, SessionResult::Exited(1));

    let (record, _) = lab.run("missing", &spec(&["no-such-program"])).await;
    assert_eq!(failure(&record.result), ("execve", "ENOENT"));
    let (record, _) = lab.run("no-directory", &Spec { cwd: "/no/such/directory".into(), ..spec(&["true"]) }).await;
    assert_eq!(failure(&record.result), ("chdir", "ENOENT"));
    let (record, _) = lab.run("no-program", &spec(&["/etc/passwd"])).await;
    assert_eq!(failure(&record.result), ("execve", "EACCES"));

    let cwd = lab.dir.path().to_string_lossy().into_owned();
    let there = Spec { cwd: cwd.clone(), ..spec(&["sh", "-c", "pwd; printf '%s|' \"$@\"", "sh", "a b", "", "ü"]) };
    let running = lab.launch("arguments", &there).await;
    let record = running.ended().await;
    assert_eq!(running.printed(), format!("{cwd}\na b||ü|"));
    let Found::Ended(on_disk) = running.left().await else { panic!("no exit record") };
    assert_eq!(on_disk, record);
    assert!(record.used.max_rss_kb > 0);
}

#[tokio::test]
async fn a_gated_program_runs_only_after_proceed() {
    let lab = Lab::new();
    let running = lab.launch("gated", &gated(shell("echo ran"))).await;
    let ready = running.reaches(Stage::Ready).await;
    let own_pids = ladder().rungs.tree == "pid-namespace";
    assert_eq!(ready.child_pid, if own_pids { Some(2) } else { ready.host_pid });
    assert_eq!(running.printed(), "");
    assert_eq!(running.connection.request(Verb::Proceed).await, Ok(Outcome::Done));
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
    assert_eq!(running.printed(), "ran\n");
    assert_eq!(running.connection.request(Verb::Proceed).await, Ok(Outcome::NoProcess));
}

#[tokio::test]
async fn case_31_signals_are_delivered_when_the_program_runs_and_sigkill_at_once() {
    let lab = Lab::new();
    let term = || Verb::signal(libc::SIGTERM);
    let running = lab.launch("term", &spec(&["sleep", "1000"])).await;
    running.reaches(Stage::Running).await;
    assert_eq!(running.connection.request(term()).await, Ok(Outcome::Done));
    let record = running.ended().await;
    assert_eq!((record.result, record.why), (SessionResult::Signaled(libc::SIGTERM), Some(EndedBy::Signal)));
    assert_eq!(running.connection.request(term()).await, Ok(Outcome::NoProcess));

    let running = lab.launch("kept", &gated(spec(&["sleep", "1000"]))).await;
    running.reaches(Stage::Ready).await;
    assert_eq!(running.connection.request(term()).await, Ok(Outcome::Kept));
    assert_eq!(running.connection.seen().borrow().snapshot.stage, Stage::Ready);
    assert_eq!(running.connection.request(Verb::Proceed).await, Ok(Outcome::Done));
    assert_eq!(running.ended().await.result, SessionResult::Signaled(libc::SIGTERM));

    let running = lab.launch("at-once", &gated(shell("echo ran"))).await;
    running.reaches(Stage::Ready).await;
    let kill = Verb::signal(libc::SIGKILL);
    assert_eq!(running.connection.request(kill).await, Ok(Outcome::Done));
    assert_eq!(running.ended().await.result, SessionResult::Signaled(libc::SIGKILL));
    assert_eq!(running.printed(), "");
}

#[tokio::test]
async fn an_interrupt_reaches_the_programs_whole_group_as_on_a_terminal() {
    let lab = Lab::new();
    let running = lab.launch("int", &shell("echo up; sleep 1000; echo after")).await;
    running.prints("up\n").await;
    // A shell that is interrupted before its command started continues with it.
    let is_sleep = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    loop {
        let Ok(Outcome::Stat(stat)) = running.connection.request(Verb::Stat).await else { panic!("no stat") };
        if stat.members.iter().any(is_sleep) {
            break;
        }
    }
    let interrupt = Verb::signal(libc::SIGINT);
    assert_eq!(running.connection.request(interrupt).await, Ok(Outcome::Done));
    assert_eq!(running.ended().await.result, SessionResult::Signaled(libc::SIGINT));
    assert_eq!(running.printed(), "up\n");
}

#[tokio::test]
async fn case_32_an_aborted_program_never_ran() {
    let lab = Lab::new();
    let running = lab.launch("abort", &gated(shell("echo ran"))).await;
    running.reaches(Stage::Ready).await;
    assert_eq!(running.connection.request(Verb::Abort { by: None }).await, Ok(Outcome::Done));
    let record = running.ended().await;
    assert_eq!((record.result, record.why), (SessionResult::Aborted, Some(EndedBy::Abort)));
    assert_eq!(running.printed(), "");

    // Requested at once, it arrives before ready or at the gate: nothing runs in either case.
    let running = lab.launch("early", &gated(shell("echo ran"))).await;
    let answer = running.connection.request(Verb::Abort { by: None }).await;
    assert!(matches!(answer, Ok(Outcome::Kept | Outcome::Done)), "{answer:?}");
    assert_eq!(running.ended().await.result, SessionResult::Aborted);
    assert_eq!(running.printed(), "");

    let running = lab.launch("running", &spec(&["sleep", "1000"])).await;
    running.reaches(Stage::Running).await;
    let Ok(Outcome::WrongStage { message }) = running.connection.request(Verb::Abort { by: None }).await else {
        panic!("aborted")
    };
    assert!(message.contains("running"), "{message}");
    assert_eq!(running.connection.request(Verb::Kill).await, Ok(Outcome::Done));
    let record = running.ended().await;
    assert_eq!((record.result, record.why), (SessionResult::Signaled(libc::SIGKILL), Some(EndedBy::Kill)));
}

#[tokio::test]
async fn case_33_the_host_pid_is_the_pid_on_the_host() {
    let lab = Lab::new();
    for (name, namespace, seen_as) in [("init", Namespace::Pid, 2), ("no-init", Namespace::PidWithoutInit, 1)] {
        let script = Spec { namespace, ..shell("echo $$; read line; exit 7") };
        let running = lab.launch(name, &script).await;
        let stage = within("a stage", running.connection.wait_for(|seen| seen.snapshot.stage >= Stage::Running)).await;
        if let Some(SessionResult::Error(failure)) = stage.unwrap().snapshot.result {
            eprintln!("skipped: no PID namespace here ({}/{})", failure.stage, failure.errno);
            return;
        }
        running.prints("\n").await;
        let snapshot = running.connection.seen().borrow().snapshot.clone();
        assert_eq!(running.printed().trim(), seen_as.to_string());
        assert_eq!(snapshot.child_pid, Some(seen_as));
        assert_eq!(snapshot.init_pid.is_some(), namespace == Namespace::Pid);
        let host = snapshot.host_pid.unwrap();
        let command = std::fs::read_to_string(format!("/proc/{host}/comm")).unwrap();
        assert_eq!(command, "sh\n", "the program's own, not its init's");
        assert_eq!(running.connection.write(b"go on\n").await, Ok(Outcome::Done));
        let record = running.ended().await;
        assert_eq!(record.result, SessionResult::Exited(7));
        assert_eq!((record.host_pid, record.child_pid), (snapshot.host_pid, Some(seen_as)));
    }
}

/// Milliseconds since the boot.
fn up_ms() -> u64 {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(since.tv_sec).unwrap() * 1000 + u64::try_from(since.tv_nsec).unwrap() / 1_000_000
}

#[tokio::test]
async fn ran_tells_until_when_a_program_has_run_and_settles_nothing() {
    let lab = Lab::new();
    let boot = boot_id().unwrap();
    let ran = async |boot: &str, name: &str| {
        let sessions = Sessions::new(Lab::shim(), boot.to_owned(), "relive-test".to_owned());
        sessions.ran(&lab.dir.path().join(name)).await.unwrap()
    };
    assert_eq!(ran(&boot, "none").await, None);
    let running = lab.launch("here", &spec(&["sleep", "1000"])).await;
    running.reaches(Stage::Running).await;
    assert_eq!(ran(&boot, "here").await, Some(Ran::StillRuns));
    assert_eq!(ran("another boot", "here").await, None, "whoever has the lock is not its shim");
    let before = up_ms();
    running.connection.request(Verb::Kill).await.unwrap();
    let record = running.ended().await;
    running.left().await;
    let up_ms_of_end = record.up_ms.unwrap();
    assert!((before..=up_ms()).contains(&up_ms_of_end));
    for seen_from in [boot.as_str(), "another boot"] {
        let until = Ran::Until { boot_id: boot.clone(), up_ms: up_ms_of_end };
        assert_eq!(ran(seen_from, "here").await, Some(until), "its record names its own boot");
    }
}
