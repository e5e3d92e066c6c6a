//! Programs that change or remove the files of their own session: none is hidden by that, and none escapes a kill.

#![expect(clippy::disallowed_methods, reason = "tests damage files as a program would")]

use std::path::Path;

use relive_session::directory::{Found, SessionDirectory, boot_id};
use relive_session::exit::{EndedBy, ExitRecord};
use relive_session::proc;
use relive_session::protocol::{Outcome, Verb};
use relive_session::sessions::{SessionStatus, Sessions};
use relive_session::spec::Spec;
use relive_session::stage::{SessionResult, Stage};
use relive_session::tree::Plan;

use crate::harness::*;

/// Held by tests whose sessions lose their directories: only the cgroups of all tests then tell whose they are.
static WITHOUT_DIRECTORY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const STAYS: &str = "setsid sh -c 'echo there; exec sleep 1000' & sleep 1000";

fn sessions() -> Sessions {
    Sessions::new(Lab::shim(), boot_id().unwrap(), ladder().plan.prefix.clone())
}

/// Without cgroups and namespaces.
fn weakest(script: &str) -> Spec {
    Spec { tree: Plan { prefix: ladder().plan.prefix.clone(), ..Plan::default() }, ..shell(script) }
}

/// A program that has started another one, and how they are known.
struct Victim {
    running: Running,
    members: Vec<i32>,
}

impl Victim {
    async fn launch(lab: &Lab, name: &str, spec: &Spec) -> Self {
        let running = lab.launch(name, spec).await;
        running.prints("there").await;
        let Ok(Outcome::Stat(stat)) = running.connection.request(Verb::Stat).await else { panic!("no stat") };
        assert!(stat.members.len() > 1, "{stat:?}");
        Self { running, members: stat.members }
    }

    fn path(&self) -> &Path {
        self.running.directory.path()
    }

    fn remove(&self, names: &[&str]) {
        for name in names {
            tempfile::TempPath::try_from_path(self.path().join(name)).unwrap().close().unwrap();
        }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn kill_shim(&self) {
        // SAFETY: the shim's pid, which we have not reaped.
        assert_eq!(unsafe { libc::kill(self.running.connection.shim_pid(), libc::SIGKILL) }, 0);
    }

    async fn is_found_ended(&self) -> ExitRecord {
        match within("it to be found", sessions().find(self.path())).await.unwrap() {
            SessionStatus::Ended(record) => record,
            other @ (SessionStatus::NeverRan | SessionStatus::Alive(_)) => panic!("{other:?}"),
        }
    }

    /// Nothing of it runs, and the next owner finds the same end.
    async fn is_over(&self, record: &ExitRecord) {
        assert!(self.members.iter().all(|pid| !is_alive(*pid)), "{record:?}");
        assert!(proc::shims().unwrap().iter().all(|(_, path)| path != self.path()), "{record:?}");
        assert_eq!(self.is_found_ended().await, *record);
    }
}

/// A record as the program could have copied it from another session.
async fn forged(lab: &Lab) -> ExitRecord {
    lab.run("real", &spec(&["true"])).await.0
}

#[tokio::test]
async fn a_program_that_removes_its_directory_is_ended_and_not_launched_again() {
    let _alone = WITHOUT_DIRECTORY.lock().await;
    let lab = Lab::new();
    for (name, spec) in [("removed", shell(STAYS)), ("removed-weakest", weakest(STAYS))] {
        let victim = Victim::launch(&lab, name, &spec).await;
        victim.remove(&["lock", "ctl", "state", "log", "exit.new"]);
        rustix::fs::rmdir(victim.path()).unwrap();
        let record = victim.is_found_ended().await;
        assert_eq!(record.why, Some(EndedBy::ShimLost));
        victim.is_over(&record).await;
    }
}

#[tokio::test]
async fn a_program_that_removes_lock_and_socket_is_not_of_another_boot() {
    let lab = Lab::new();
    for (name, spec) in [("unlocked", shell(STAYS)), ("unlocked-weakest", weakest(STAYS))] {
        let victim = Victim::launch(&lab, name, &spec).await;
        victim.remove(&["lock", "ctl"]);
        let record = victim.is_found_ended().await;
        assert_eq!(record.result, SessionResult::Signaled(libc::SIGKILL), "its shim tells the end");
        assert_eq!(record.why, Some(EndedBy::ShimLost), "whoever killed it says why");
        victim.is_over(&record).await;
    }
}

#[tokio::test]
async fn a_program_without_lock_and_with_a_forged_end_is_found_alive() {
    let lab = Lab::new();
    let forged = forged(&lab).await;
    let running = lab.launch("hidden", &spec(&["cat"])).await;
    running.reaches(Stage::Running).await;
    std::fs::write(running.directory.path().join("exit"), serde_json::to_string(&forged).unwrap()).unwrap();
    tempfile::TempPath::try_from_path(running.directory.path().join("lock")).unwrap().close().unwrap();
    let status = within("it to be found", sessions().find(running.directory.path())).await.unwrap();
    let SessionStatus::Alive(connection) = status else { panic!("{status:?}") };
    assert_eq!(connection.request(Verb::CloseInput).await, Ok(Outcome::Done));
    let record = within("the end", connection.ended()).await.unwrap();
    assert_eq!((&record.result, record.host_pid == forged.host_pid), (&SessionResult::Exited(0), false));
    assert!(matches!(running.left().await, Found::Ended(left) if left == record));
}

#[tokio::test]
async fn a_forged_end_without_lock_and_socket_does_not_replace_the_true_one() {
    let lab = Lab::new();
    let forged = forged(&lab).await;
    for (name, spec) in [("forged-end", shell(STAYS)), ("forged-end-weakest", weakest(STAYS))] {
        let victim = Victim::launch(&lab, name, &spec).await;
        victim.write("exit", &serde_json::to_string(&forged).unwrap());
        victim.remove(&["lock", "ctl"]);
        let record = victim.is_found_ended().await;
        assert_eq!(record.result, SessionResult::Signaled(libc::SIGKILL));
        victim.is_over(&record).await;
    }
}

#[tokio::test]
async fn a_program_that_kills_its_shim_and_forges_its_end_has_no_such_end() {
    let lab = Lab::new();
    let forged = forged(&lab).await;
    for (name, spec) in [("alone", shell(STAYS)), ("alone-weakest", weakest(STAYS))] {
        if name == "alone" && ladder().rungs.tree == "pid-namespace" {
            continue; // Everything dies with the shim, so nothing disproves the record.
        }
        let victim = Victim::launch(&lab, name, &spec).await;
        victim.write("exit", &serde_json::to_string(&forged).unwrap());
        victim.kill_shim();
        assert!(within("the loss", victim.running.connection.ended()).await.is_err());
        let record = victim.is_found_ended().await;
        assert_eq!(record.why, Some(EndedBy::ShimLost));
        victim.is_over(&record).await;
    }
}

#[tokio::test]
async fn a_program_whose_files_say_that_it_never_ran_is_not_launched_again() {
    let lab = Lab::new();
    for (name, spec) in [("never", shell(STAYS)), ("never-weakest", weakest(STAYS))] {
        let victim = Victim::launch(&lab, name, &spec).await;
        victim.remove(&["lock", "ctl", "state"]);
        victim.write("lock", &boot_id().unwrap());
        let record = victim.is_found_ended().await;
        victim.is_over(&record).await;
    }
}

#[tokio::test]
async fn a_running_session_is_found_without_its_directory() {
    let _alone = WITHOUT_DIRECTORY.lock().await;
    let lab = Lab::new();
    let victim = Victim::launch(&lab, "unnamed", &shell(STAYS)).await;
    let sessions_dir = lab.dir.path();
    // Sessions of other tests have cgroups of the same kind of name, so only this one is asked about.
    let runs = async || sessions().running_in(sessions_dir).await.unwrap().iter().any(|path| path == victim.path());
    assert!(runs().await);
    drop(SessionDirectory::create(sessions_dir.join("9")).unwrap());
    victim.kill_shim();
    assert!(within("the loss", victim.running.connection.ended()).await.is_err());
    if ladder().rungs.tree.starts_with("cgroup") {
        assert!(runs().await, "by its cgroup");
    }
    within("the end", sessions().end_all(sessions_dir)).await.unwrap();
    assert!(victim.members.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(sessions().running_in(sessions_dir).await.unwrap(), [] as [&Path; 0]);
}

#[tokio::test]
async fn a_program_does_not_hold_back_its_own_end() {
    let _alone = WITHOUT_DIRECTORY.lock().await;
    let lab = Lab::new();
    let spoilt = |name: &str, what: &str| {
        let script = format!("cd {}/{name} && {what}; echo there; read line; exit 3", lab.dir.path().display());
        (name.to_owned(), shell(&script))
    };
    for (name, spec) in [
        spoilt("directory", "mkdir exit"),
        spoilt("new-directory", "rm -f exit.new; mkdir exit.new"),
        spoilt("link", "ln -sf /nowhere/at/all exit.new"),
        spoilt("gone", "rm -rf ../gone"),
    ] {
        let running = lab.launch(&name, &spec).await;
        match name.as_str() {
            "gone" => wait_until("it to be gone", || !running.directory.path().exists()).await,
            _ => running.prints("there").await,
        }
        assert_eq!(running.connection.request(Verb::CloseInput).await, Ok(Outcome::Done));
        assert_eq!(running.ended().await.result, SessionResult::Exited(3), "{name}");
        let shim = running.connection.shim_pid();
        wait_until("its shim to be gone", || !is_alive(shim)).await;
    }
}

#[tokio::test]
async fn a_program_that_replaces_its_directory_is_ended_and_not_launched_again() {
    let _alone = WITHOUT_DIRECTORY.lock().await;
    let lab = Lab::new();
    let with = [("link", "ln -s /tmp $D"), ("loop", "ln -s $D $D"), ("file", "touch $D")];
    for (name, replace) in with {
        for (name, plain) in [(name.to_owned(), shell as fn(&str) -> Spec), (format!("{name}-weakest"), weakest)] {
            let directory = lab.dir.path().join(&name);
            let victim = Victim::launch(&lab, &name, &plain(STAYS)).await;
            let aside = lab.dir.path().join(format!("{name}-aside"));
            rustix::fs::rename(&directory, aside).unwrap();
            let done = std::process::Command::new("sh").args(["-c", replace]).env("D", &directory).status().unwrap();
            assert!(done.success());
            let record = victim.is_found_ended().await;
            assert_eq!(record.why, Some(EndedBy::ShimLost), "{name}");
            assert!(victim.members.iter().all(|pid| !is_alive(*pid)), "{name}");
            assert_eq!(victim.is_found_ended().await.why, Some(EndedBy::ShimLost), "{name}: it is not launched again");
        }
    }
}
