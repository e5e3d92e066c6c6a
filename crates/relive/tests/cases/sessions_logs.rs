//! `logs` of a program: what it printed, as it printed it.

use std::io::{BufRead as _, BufReader, Read as _};

use super::world::World;

#[test]
fn logs_of_a_program_are_its_output_on_its_own_streams_also_after_the_end() {
    let world = World::new();
    let program = world.exec(&[], &["sh", "-c", "echo one; echo two >&2; echo three; printf four"]);
    world.ends(&program, 0);
    for _ in 0..2 {
        let shown = world.relive(&["logs", &program.uuid]).ok();
        assert_eq!((shown.stdout.as_str(), shown.stderr.as_str()), ("one\nthree\nfour", "two\n"));
        let last = world.relive(&["logs", "-n", "1", &program.uuid]).ok();
        assert_eq!((last.stdout.as_str(), last.stderr.as_str()), ("four", ""));
        assert_eq!(world.relive(&["logs", "-f", &program.uuid]).ok().stdout, "one\nthree\nfour");
        let objects = world.relive(&["logs", "--json", &program.uuid]).ok().json_lines();
        let text = |stream: &str| -> String {
            let of = objects.iter().filter(|object| object["kind"] == "output" && object["stream"] == stream);
            of.map(|object| object["text"].as_str().unwrap()).collect()
        };
        assert_eq!((text("stdout").as_str(), text("stderr").as_str()), ("one\nthree\nfour", "two\n"));
        assert!(objects.iter().all(|object| object["pid"] == program.pid && object["at"].is_string()));
        let timed = world.relive(&["logs", "-t", "--utc", &program.uuid]).ok().stdout;
        assert!(timed.lines().all(|line| line.split_once("Z ").is_some_and(|(at, _)| at.contains(':'))), "{timed}");
        // Without the daemon that ran it, all of it is still there.
        world.kill_daemon();
    }
}

#[test]
fn logs_are_followed_to_the_end() {
    let world = World::new();
    let program =
        world.exec(&["--name", "slow"], &["sh", "-c", "echo begun; while [ ! -e go ]; do sleep 0.01; done; echo end"]);
    let mut follower = world.start(&["logs", "-f", "slow"]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    std::fs::write(world.work().join("go"), "").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "end");
    assert!(lines.next().is_none());
    assert!(follower.wait().unwrap().success());
    world.ends(&program, 0);
}

/// `RELIVE_LOG_MB` is how much (128): more than a log keeps.
#[test]
fn logs_that_are_followed_are_whole_however_much_there_is() {
    const CHUNK: usize = 8 << 20;
    let megabytes: usize = std::env::var("RELIVE_LOG_MB").map_or(128, |text| text.parse().unwrap());
    let chunks = megabytes.div_ceil(CHUNK >> 20);
    let world = World::new();
    // It waits for its reader after every chunk; nobody holds it back.
    let script = format!(
        "n=0; while [ $n -lt {chunks} ]; do yes $(printf %07d $n) | head -c {CHUNK}; n=$((n + 1)); \
         while [ ! -e go$n ]; do sleep 0.005; done; done"
    );
    let program = world.exec(&[], &["sh", "-c", &script]);
    let mut follower = world.start(&["logs", "-f", &program.uuid]);
    let mut output = follower.stdout.take().unwrap();
    let mut chunk = vec![0; CHUNK];
    for number in 0..chunks {
        output.read_exact(&mut chunk).unwrap();
        let line = format!("{number:07}\n");
        let wrong = chunk.chunks_exact(line.len()).position(|found| found != line.as_bytes());
        assert_eq!(wrong, None, "in chunk {number} of {chunks}");
        std::fs::write(world.work().join(format!("go{}", number + 1)), "").unwrap();
    }
    assert_eq!(output.read(&mut chunk).unwrap(), 0, "there is more");
    assert!(follower.wait().unwrap().success());
    world.ends(&program, 0);
}

#[test]
fn lost_output_is_reported_by_info_logs_wait_and_exec() {
    let world = World::new();
    // Files smaller than a segment of a log, for the daemon and for the shims it starts.
    let relive = world.command(&[]).get_program().to_str().unwrap().to_owned();
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -f 14336; exec \"$0\" daemon start", &relive]);
    limited.envs(world.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert!(limited.status().unwrap().success());
    let prints = ["exec", "--name", "much", "--", "sh", "-c", "yes | head -c 12000000"];
    world.relive(&prints).fails(125, &["some of the output is missing"]);
    world.relive(&["logs", "much"]).fails(0, &["some of the output is missing"]);
    world.relive(&["wait", "much"]).fails(0, &["output of PID 1: some is missing: it could not be written to disk"]);
    assert_eq!(world.info("much")["session"]["output_lost"], true);
    assert_eq!(world.relive(&["wait", "--json", "much"]).ok().json()["output_lost"], true);
    assert!(world.relive(&["info", "much"]).ok().stdout.contains("some is missing"));
    world.relive(&["exec", "--", "sh", "-c", "yes | head -c 12000000; exit 7"]).fails(7, &["some of the output"]);
}

#[test]
fn dropped_output_is_reported() {
    let world = World::new();
    let program = world.exec(&[], &["sh", "-c", "yes | head -c 100000000"]);
    world.ends(&program, 0);
    let session = world.info(&program.uuid)["session"].clone();
    assert!(session["output_dropped"].as_u64().unwrap() > 30_000_000, "{session}");
    assert!(world.relive(&["info", &program.uuid]).ok().stdout.contains("were dropped to make room"));
    world.relive(&["logs", &program.uuid]).fails(0, &["were dropped"]);
}

#[test]
fn a_log_that_somebody_has_cut_off_says_so() {
    let world = World::new();
    let program = world.exec(&[], &["sh", "-c", "echo one; sleep 0.1; echo two"]);
    world.ends(&program, 0);
    assert_eq!(world.relive(&["logs", &program.uuid]).ok().stderr, "");
    let quiet = world.exec(&[], &["true"]);
    world.ends(&quiet, 0);
    assert_eq!(world.relive(&["logs", &quiet.uuid]).ok().stderr, "");
    let log = std::fs::File::options().write(true).open(world.directory(&program.uuid).join("sessions/1/log")).unwrap();
    log.set_len(30).unwrap();
    let cut = world.relive(&["logs", &program.uuid]).ok().stderr;
    assert!(cut.contains("bytes of the log are missing: somebody has cut it off"), "{cut}");
    log.set_len(0).unwrap();
    world.relive(&["logs", &program.uuid]).fails(125, &["somebody has changed its log", "log was cut off"]);
}

#[test]
fn a_log_that_was_replaced_is_blamed_and_not_the_terminal() {
    let world = World::new();
    let program = world.exec(&[], &["echo", "one"]);
    world.ends(&program, 0);
    let session = world.directory(&program.uuid).join("sessions/1");
    for replaced in ["mkdir log", "mkfifo log", "ln -s log log", "ln -s /dev/zero log", "echo other > log"] {
        let script = format!("rm -rf log && {replaced}");
        let done = std::process::Command::new("sh").args(["-c", &script]).current_dir(&session).status().unwrap();
        assert!(done.success(), "{replaced}");
        for logs in [vec!["logs"], vec!["logs", "-n", "1"], vec!["logs", "-f"], vec!["logs", "--json"]] {
            let words: Vec<&str> = logs.into_iter().chain([program.uuid.as_str()]).collect();
            let shown = world.relive(&words);
            let said = format!("{}{}", shown.stdout, shown.stderr);
            assert!(
                shown.code == 125 && said.contains("somebody has changed its log"),
                "{replaced}: {words:?}: {said}"
            );
        }
    }
}
