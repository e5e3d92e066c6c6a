//! Programs fill the disk that Relive's own files are on, while the daemon dies.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use relive_api::{PauseRequest, ResumeRequest, WaitAnswer};
use relive_client::{BlockingClient, Error, Waited};
use relive_core::{ErrorCode, ProcessStatus, Uuid};
use relive_session::log::{Item, Reader};

use crate::daemon::{Daemon, Places};
use crate::dice::{Dice, fresh_seed, number};
use crate::left;
use crate::oracle::Oracle;
use crate::programs::{command, request};

const DISK: &str = "size=24m";
/// Below this nothing new is accepted. Programs of others take the rest.
const FLOOR_MB: u32 = 4;
/// How many programs are begun between two kills.
const PROGRAMS: u64 = 4;
/// What a program that fills the disk exits with.
const FILLS: u64 = 99;
/// How long a program may take to end when no more are begun.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A small disk below the data directory of a run.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    /// Nothing where disks cannot be mounted.
    fn mount(at: &'a Path) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|done| done.status.success()).then_some(Self(at))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// A program that was accepted.
struct Accepted {
    uuid: Uuid,
    code: u64,
}

/// One run.
struct Run<'a> {
    places: &'a Places,
    oracle: &'a Oracle,
    client: BlockingClient,
    dice: Dice,
    accepted: Vec<Accepted>,
    refused: usize,
}

impl Run<'_> {
    /// Begins a program. On a full disk it may be refused.
    fn exec(&mut self, code: u64, command: &str) {
        let uuid = self.dice.uuid();
        let request = request(self.places, uuid, command);
        match self.client.call(|client| client.exec(&request)) {
            Ok(started) => {
                self.oracle.exists(uuid, started.pid);
                self.accepted.push(Accepted { uuid, code });
            }
            Err(Error::Refused(detail)) if detail.code == ErrorCode::Exhausted => self.refused += 1,
            Err(error) => self.oracle.violation(format!("a program was refused: {error:?}")),
        }
    }

    /// Begins a program that fills the disk for a moment, and others that are in need of it.
    fn begin(&mut self) {
        let filler = self.places.data.join("filler");
        let (full_ms, lines) = (self.dice.between(50, 400), self.places.lines.display());
        let fill = format!(
            "echo \"$RELIVE_SESSION x\" >> {lines}; echo begun; cat /dev/zero > {file} 2>/dev/null; \
             sleep 0.{full_ms:03}; rm -f {file}; echo over; exit {FILLS}",
            file = filler.display()
        );
        self.exec(FILLS, &fill);
        for _ in 0..PROGRAMS {
            let code = self.dice.between(0, 7);
            let pauses = [self.dice.between(0, 60), self.dice.between(0, 300)];
            let command = command(self.places, code, self.dice.chance(20), pauses);
            self.exec(code, &command);
        }
        // Not one that fills the disk: it would stay full.
        let others: Vec<Uuid> = self.accepted.iter().filter(|one| one.code != FILLS).map(|one| one.uuid).collect();
        if let Some(accepted) = self.dice.pick(&others) {
            // Whether that can be recorded or not: it is resumed in the end.
            let (id, now) = (accepted.to_string(), PauseRequest { subtree: false, now: true });
            let _ = self.client.call(|client| client.pause(&id, &now));
        }
    }

    /// Every program that was accepted ended as it did, or could not be started and did nothing.
    fn check(&self) {
        let lines = fs::read_to_string(&self.places.lines).unwrap_or_default();
        let (mut exited, mut not_started) = (0, 0);
        for Accepted { uuid, code } in &self.accepted {
            let id = uuid.to_string();
            let Some(answer) = self.ended(&id) else { continue };
            let ran = lines_of(&self.places.lines, &id);
            match &answer.status {
                Some(ProcessStatus::Exited { code: ended }) => {
                    assert_eq!((*ended, ran), (*code as i32, 1), "{answer:?}");
                    self.check_output(&id);
                    exited += 1;
                }
                Some(ProcessStatus::StartupFailed { .. }) => {
                    assert_eq!(ran, 0, "{answer:?}\n{lines}");
                    not_started += 1;
                }
                Some(ProcessStatus::Abandoned | ProcessStatus::Killed { .. } | ProcessStatus::Faulted { .. })
                | None => {
                    self.oracle.violation(format!("{id} did not end so: {answer:?}\n{}", self.places.log_tail()));
                }
            }
        }
        println!("{exited} exited, {not_started} could not be started, {} refused", self.refused);
        assert!(exited > 0 && self.refused + not_started > 0, "the disk was never full");
    }

    /// Resumes a program if it is suspended, and waits for its end. While the disk is still full, that is tried again.
    fn ended(&self, id: &str) -> Option<WaitAnswer> {
        let begun = Instant::now();
        loop {
            // One that has ended would be started again.
            if self.client.call(|client| client.process(id)).unwrap().paused {
                let resume = ResumeRequest::default();
                let _ = self.client.call(|client| client.resume(id, &resume));
            }
            match self.client.call(|client| client.wait(id, id, Some(Duration::from_millis(500)))) {
                Ok(Waited::Answer(answer)) if !answer.timed_out => return Some(*answer),
                Ok(Waited::Answer(_) | Waited::TimedOut) => {}
                Err(Error::Refused(detail)) if detail.code == ErrorCode::Exhausted => {}
                Err(error) => {
                    self.oracle.violation(format!("no answer to a wait for {id}: {error:?}"));
                    return None;
                }
            }
            assert!(begun.elapsed() < ENDS_WITHIN, "{id} does not end\n{}", self.places.log_tail());
        }
    }

    /// The output is whole, or its loss is told.
    fn check_output(&self, id: &str) {
        let info = self.client.call(|client| client.process(id)).unwrap();
        let session = info.session.unwrap();
        let mut reader = Reader::open(Path::new(&session.folder), 0).unwrap();
        let (mut printed, mut gaps) = (String::new(), 0);
        while let Some(item) = reader.next().unwrap() {
            match item {
                Item::Chunk(chunk) => printed.push_str(&String::from_utf8_lossy(&chunk.bytes)),
                Item::Gap { .. } => gaps += 1,
            }
        }
        assert!(printed == "begun\nover\n" || gaps > 0 || session.output_lost, "{printed:?} of {session:?}");
    }
}

fn lines_of(lines: &Path, uuid: &str) -> usize {
    fs::read_to_string(lines).unwrap_or_default().lines().filter(|line| line.contains(uuid)).count()
}

/// `RELIVE_FULL` is how often the daemon is killed (12).
#[test]
fn programs_on_a_disk_that_they_fill_have_their_true_ends() {
    let kills = number("RELIVE_FULL").unwrap_or(12);
    let seed = number("RELIVE_SEED").unwrap_or_else(fresh_seed);
    println!("RELIVE_SEED={seed}");
    let (places, oracle) = (Places::new(None, 10_000), Oracle::default());
    let config = format!("limits: {{floor_mb: {FLOOR_MB}}}\n");
    fs::write(places.root.join("config/relive/config.yaml"), config).unwrap();
    let Some(disk) = Disk::mount(&places.data) else { return eprintln!("skipped: nothing can be mounted here") };
    let start = || -> Daemon {
        let mut daemon = places.start();
        places.until_it_answers(&mut daemon).unwrap();
        daemon
    };
    let mut daemon = start();
    let (client, dice) = (places.client(), Dice::new(seed));
    let mut run = Run { places: &places, oracle: &oracle, client, dice, accepted: Vec::new(), refused: 0 };
    for _ in 0..kills {
        run.begin();
        std::thread::sleep(Duration::from_millis(run.dice.between(0, 400)));
        daemon.kill();
        daemon = start();
    }
    run.check();
    left::no_zombies(daemon.pid(), &oracle);
    daemon.stop(&run.client).unwrap();
    left::nothing(&places, &oracle);
    assert_eq!(oracle.lock().violations, Vec::<String>::new());
    drop(disk);
    places.remove();
}
