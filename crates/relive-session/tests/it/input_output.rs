//! Input and output: nothing is lost, and a slow client delays nobody.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::Command;

use relive_session::connection::Connection;
use relive_session::log::{Item, Reader, Stream};
use relive_session::protocol::{Outcome, Verb};
use relive_session::spec::{OnFullDisk, Pace, Size, Spec, Stdio};
use relive_session::stage::{SessionResult, Stage};

use crate::harness::*;

fn on_a_terminal(spec: Spec) -> Spec {
    Spec { stdio: Stdio::Pty(Size { rows: 24, columns: 80 }), ..spec }
}

#[tokio::test]
async fn case_35_typed_input_is_echoed_like_on_a_terminal() {
    let lab = Lab::new();
    let running = lab.launch("echo", &on_a_terminal(spec(&["cat"]))).await;
    running.reaches(Stage::Running).await;
    assert_eq!(running.connection.write(b"hi\n").await, Ok(Outcome::Done));
    running.prints("hi\r\nhi\r\n").await;
    assert_eq!(running.connection.request(Verb::CloseInput).await, Ok(Outcome::Done));
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
    assert_eq!(running.ended().await.result, SessionResult::Exited(0), "an end can be looked at twice");
}

#[tokio::test]
async fn case_35_the_size_set_at_the_gate_is_what_the_program_sees() {
    let lab = Lab::new();
    let running = lab.launch("size", &gated(on_a_terminal(spec(&["stty", "size"])))).await;
    running.reaches(Stage::Ready).await;
    let size = Size { rows: 33, columns: 111 };
    assert_eq!(running.connection.request(Verb::Resize(size)).await, Ok(Outcome::Done));
    assert_eq!(running.connection.request(Verb::Proceed).await, Ok(Outcome::Done));
    running.ended().await;
    assert_eq!(running.printed(), "33 111\r\n");
}

#[tokio::test]
async fn case_35_an_interrupt_typed_at_the_terminal_reaches_the_program() {
    let lab = Lab::new();
    let running = lab.launch("interrupt", &on_a_terminal(shell("echo there; exec sleep 1000"))).await;
    running.prints("there").await;
    running.connection.write(b"\x03").await.unwrap();
    assert_eq!(running.ended().await.result, SessionResult::Signaled(libc::SIGINT));
}

#[tokio::test]
async fn case_35_64_kb_of_input_arrive_whole() {
    let lab = Lab::new();
    let input = vec![b'x'; 64 * 1024];
    let running = lab.launch("pipe", &spec(&["wc", "-c"])).await;
    assert_eq!(running.connection.write(&input).await, Ok(Outcome::Done));
    assert_eq!(running.connection.request(Verb::CloseInput).await, Ok(Outcome::Done));
    running.ended().await;
    assert_eq!(running.printed().trim(), "65536");

    let counts = shell("stty raw -echo; echo there; head -c 65536 | wc -c");
    let running = lab.launch("terminal", &on_a_terminal(counts)).await;
    running.prints("there").await;
    assert_eq!(running.connection.write(&input).await, Ok(Outcome::Done));
    running.ended().await;
    assert!(running.printed().contains("65536"), "{:?}", running.printed());
}

#[tokio::test]
async fn case_35_the_last_output_is_in_the_log_before_the_end() {
    let lab = Lab::new();
    for (name, spec) in [("pipes", shell("seq 30000")), ("terminal", on_a_terminal(shell("seq 30000")))] {
        let (record, printed) = lab.run(name, &spec).await;
        assert_eq!(record.result, SessionResult::Exited(0));
        let lines: Vec<u32> = printed.lines().map(|line| line.trim_end().parse().unwrap()).collect();
        assert!(lines.iter().copied().eq(1..=30000), "{} lines", lines.len());
    }
}

#[tokio::test]
async fn output_of_a_reopened_terminal_is_read() {
    let lab = Lab::new();
    let script = "t=$(tty); exec </dev/null >/dev/null 2>&1; echo closed > $CLOSED; until [ -e $GO ]; do sleep 0.01; done; \
        exec > $t; seq 30000; echo done";
    let (closed, go) = (lab.dir.path().join("closed"), lab.dir.path().join("go"));
    let mut program = on_a_terminal(shell(script));
    program.env.push(("CLOSED".into(), closed.display().to_string()));
    program.env.push(("GO".into(), go.display().to_string()));
    let running = lab.launch("again", &program).await;
    wait_until("it to be closed", || closed.exists()).await;
    // The shim has read everything by the time of its second answer.
    for _ in 0..2 {
        running.connection.request(Verb::Stat).await.unwrap();
    }
    std::fs::File::options().write(true).create_new(true).open(go).unwrap();
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
    assert!(running.printed().ends_with("30000\r\ndone\r\n"));
}

#[tokio::test]
async fn waiting_input_delays_nothing_else() {
    let lab = Lab::new();
    let running = lab
        .launch(
            "waits",
            &shell("read -r signal < /dev/null; trap 'exec wc -c' USR1; echo there; while :; do sleep 0.01; done"),
        )
        .await;
    running.prints("there").await;
    let connection = running.connection.clone();
    let write = tokio::spawn(async move { connection.write(&vec![b'x'; 200_000]).await });
    let Ok(Outcome::Stat(stat)) = running.connection.request(Verb::Stat).await else { panic!("no answer meanwhile") };
    assert_eq!(stat.snapshot.stage, Stage::Running);
    assert!(!write.is_finished(), "a pipe has no room for this");
    running.connection.request(Verb::signal(libc::SIGUSR1)).await.unwrap();
    assert_eq!(within("the write", write).await.unwrap(), Ok(Outcome::Done));
    running.connection.request(Verb::CloseInput).await.unwrap();
    running.ended().await;
    assert!(running.printed().contains("200000"));
    let Ok(answer) = running.connection.write(b"late").await else { panic!("gone without a word") };
    assert_eq!(answer, Outcome::NoProcess);
}

#[tokio::test]
async fn a_reader_that_reconnects_continues_at_its_offset() {
    let lab = Lab::new();
    let running = lab.launch("offsets", &shell("echo one; read line; echo two")).await;
    running.prints("one\n").await;
    let Some(Item::Chunk(first)) = Reader::open(running.directory.path(), 0).unwrap().next().unwrap() else { panic!() };
    assert_eq!(first.bytes, b"one\n");

    let second = Connection::adopt(running.directory.ctl_connect().unwrap()).await.unwrap();
    assert_eq!(second.request(Verb::Attach).await, Ok(Outcome::Done));
    within("the log's end", second.wait_for(|seen| seen.log_end >= first.next)).await.unwrap();
    drop(running.connection);
    second.write(b"go on\n").await.unwrap();
    within("the log to grow", second.wait_for(|seen| seen.log_end > first.next)).await.unwrap();
    let record = within("the end", second.ended()).await.unwrap();
    let mut reader = Reader::open(running.directory.path(), first.next).unwrap();
    let Some(Item::Chunk(rest)) = reader.next().unwrap() else { panic!() };
    assert_eq!((rest.bytes.as_slice(), rest.next), (&b"two\n"[..], record.log_end));
}

/// Prints more than twenty times as much as its log keeps.
fn prints_much() -> Spec {
    Spec { log_max_bytes: 512 * 1024, pace: Pace::Held, ..shell("seq 1500000") }
}

#[tokio::test]
async fn a_program_waits_for_a_reader_that_needs_all_output() {
    let lab = Lab::new();
    let running = lab.launch("held", &prints_much()).await;
    let reader = Connection::adopt(running.directory.ctl_connect().unwrap()).await.unwrap();
    assert_eq!(reader.request(Verb::Attach).await, Ok(Outcome::Done));
    let mut log = Reader::open(running.directory.path(), 0).unwrap();
    let (mut read, mut next, mut end) = (0, 1, None);
    while end.is_none_or(|end| read < end) {
        match log.next().unwrap() {
            Some(Item::Chunk(chunk)) => {
                let newlines = chunk.bytes.iter().filter(|byte| **byte == b'\n').count();
                (read, next) = (chunk.next, next + newlines);
                assert_eq!(reader.request(Verb::Hold { read }).await.map(|_| ()), Ok(()));
            }
            Some(gap @ Item::Gap { .. }) => panic!("{gap:?}"),
            None => {
                let seen = within("more", reader.wait_for(|seen| seen.log_end > read || seen.ended.is_some())).await;
                end = seen.unwrap().ended.map(|record| record.log_end);
            }
        }
    }
    assert_eq!(next, 1_500_001);
}

#[tokio::test]
async fn a_program_continues_when_its_reader_disconnects() {
    let lab = Lab::new();
    let running = lab.launch("left", &prints_much()).await;
    let reader = Connection::adopt(running.directory.ctl_connect().unwrap()).await.unwrap();
    assert_eq!(reader.request(Verb::Hold { read: 0 }).await, Ok(Outcome::Done));
    assert_eq!(reader.request(Verb::Attach).await, Ok(Outcome::Done));
    within("it to wait", reader.wait_for(|seen| seen.log_end >= 64 * 1024)).await.unwrap();
    let stat = async || match running.connection.request(Verb::Stat).await {
        Ok(Outcome::Stat(stat)) => stat,
        other => panic!("{other:?}"),
    };
    let held = stat().await.log_end;
    lab.run("meanwhile", &shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")).await;
    assert_eq!((stat().await.log_end, stat().await.snapshot.stage), (held, Stage::Running));
    drop(reader);
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
}

#[tokio::test]
async fn a_client_that_never_reads_delays_nobody() {
    let lab = Lab::new();
    let running = lab.launch("clogged", &shell("read line; seq 200000")).await;
    running.reaches(Stage::Running).await;
    let deaf = std::fs::File::from(running.directory.ctl_connect().unwrap());
    // Until neither side accepts more.
    for id in 0.. {
        let request = format!("{{\"id\":{id},\"verb\":\"stat\"}}\n{{\"id\":{id},\"verb\":\"attach\"}}");
        match (&deaf).write(request.as_bytes()) {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    running.connection.write(b"go on\n").await.unwrap();
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
    assert!(running.printed().ends_with("200000\n"));
}

#[tokio::test]
async fn an_invalid_request_is_answered_with_an_error() {
    let lab = Lab::new();
    let running = lab.launch("nonsense", &spec(&["cat"])).await;
    let raw = std::fs::File::from(running.directory.ctl_connect().unwrap());
    let check = async |sent: &[u8], expect: &str| {
        (&raw).write_all(sent).unwrap();
        let mut packet = vec![0; 65536];
        loop {
            match (&raw).read(&mut packet) {
                Ok(length) if packet[..length].starts_with(b"{\"kind\":\"reply\"") => {
                    let reply = String::from_utf8_lossy(&packet[..length]);
                    return assert!(reply.contains(expect), "{reply}");
                }
                Ok(0) => panic!("hung up on"),
                Ok(_) => {}
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    within("answers", async {
        check(b"not json", "\"outcome\":\"unknown\"").await;
        check(b"{\"id\":7,\"verb\":\"dance\"}", "\"id\":7,\"outcome\":\"unknown\"").await;
        check(b"{\"id\":8,\"verb\":\"signal\",\"number\":99}", "EINVAL").await;
        check(b"{\"id\":9,\"verb\":\"store\",\"name\":\"x\"}", "unknown").await;
        check(&[b' '; 70_000], "unknown").await;
    })
    .await;
    running.connection.request(Verb::CloseInput).await.unwrap();
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
}

#[tokio::test]
async fn a_stored_descriptor_is_kept_for_the_next_owner() {
    let lab = Lab::new();
    let running = lab.launch("store", &spec(&["cat"])).await;
    let (mut read, write) = std::io::pipe().unwrap();
    let write = OwnedFd::from(write);
    assert_eq!(running.connection.store("mine", write.as_fd()).await, Ok(Outcome::Done));
    let number = write.as_raw_fd();
    drop((write, running.connection));

    let next = Connection::adopt(running.directory.ctl_connect().unwrap()).await.unwrap();
    let Ok(Outcome::Stat(stat)) = next.request(Verb::Stat).await else { panic!("no stat") };
    assert_eq!(stat.stored, ["mine"]);
    let (outcome, copy) = next.copy("mine").await.unwrap();
    assert!(outcome == Outcome::Done && copy.is_some(), "a copy, and the shim keeps its own");
    drop(copy);
    let (outcome, back) = next.take("mine").await.unwrap();
    assert_eq!(outcome, Outcome::Done);
    let mut back = std::fs::File::from(back.unwrap_or_else(|| panic!("no descriptor for {number}")));
    back.write_all(b"still open").unwrap();
    drop(back);
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still open", "and nobody else holds it");
    let (outcome, none) = next.take("mine").await.unwrap();
    assert!(matches!(outcome, Outcome::Failed { .. }) && none.is_none());
    next.request(Verb::Kill).await.unwrap();
    within("the end", next.ended()).await.unwrap();
}

#[tokio::test]
async fn an_output_held_open_outside_the_tree_does_not_delay_the_end() {
    let lab = Lab::new();
    let running = lab.launch("held-open", &shell("echo $$; read line; echo last")).await;
    running.prints("\n").await;
    let Ok(Outcome::Stat(stat)) = running.connection.request(Verb::Stat).await else { panic!("no stat") };
    let program = stat.members.last().unwrap();
    let held = std::fs::OpenOptions::new().write(true).open(format!("/proc/{program}/fd/1")).unwrap();
    running.connection.write(b"go on\n").await.unwrap();
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
    assert!(running.printed().ends_with("last\n"));
    drop(held);
}

/// Unmounts it at the end in any case.
struct SmallDisk<'a>(&'a std::path::Path);

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_loses_only_output() {
    let lab = Lab::new();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=512k", "none"]).arg(lab.dir.path()).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: no small disk can be mounted here");
    }
    let _disk = SmallDisk(lab.dir.path());
    let filler = lab.dir.path().join("filler");
    Command::new("fallocate").args(["-l", "200k"]).arg(&filler).status().unwrap();
    let running = lab.launch("full", &shell("read line; seq 200000; exit 3")).await;
    let program_ended = || running.connection.seen().borrow().snapshot.host_pid.is_some_and(|pid| !is_alive(pid));
    running.reaches(Stage::Running).await;
    running.connection.write(b"begin\n").await.unwrap();
    wait_until("the program to end", program_ended).await;
    // The disk stays full: the record has reserved space.
    let record = running.ended().await;
    assert_eq!((record.result.clone(), record.output_lost), (SessionResult::Exited(3), true));
    assert_eq!(running.directory.read_exit().unwrap(), Some(record));
}

#[tokio::test]
async fn a_program_that_may_lose_nothing_waits_for_space_on_a_full_disk() {
    let lab = Lab::new();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=512k", "none"]).arg(lab.dir.path()).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: no small disk can be mounted here");
    }
    let _disk = SmallDisk(lab.dir.path());
    let spec = Spec { on_full_disk: OnFullDisk::Wait, ..shell("read line; exec seq 60000") };
    let running = lab.launch("full", &spec).await;
    running.reaches(Stage::Running).await;
    let path = lab.dir.path().join("filler");
    let mut filler = std::fs::File::options().write(true).create_new(true).open(&path).unwrap();
    while filler.write_all(&[b'x'; 1024]).is_ok() {}
    drop(filler);
    running.connection.write(b"begin\n").await.unwrap();
    let host_pid = running.connection.seen().borrow().snapshot.host_pid.unwrap();
    let waits_in = || std::fs::read_to_string(format!("/proc/{host_pid}/wchan")).unwrap_or_default();
    wait_until("the program to wait for its reader", || waits_in().contains("pipe_write")).await;
    rustix::fs::unlink(&path).unwrap();
    let record = running.ended().await;
    assert_eq!((record.result.clone(), record.output_lost), (SessionResult::Exited(0), false));
    let expect: String = (1..=60000).map(|number| format!("{number}\n")).collect();
    let printed = running.printed();
    assert!(printed == expect, "{} bytes of {}", printed.len(), expect.len());
}

#[tokio::test]
async fn an_end_is_recorded_on_a_full_disk() {
    let lab = Lab::new();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=512k", "none"]).arg(lab.dir.path()).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: no small disk can be mounted here");
    }
    let _disk = SmallDisk(lab.dir.path());
    let running = lab.launch("full", &shell("read line; exit 3")).await;
    running.reaches(Stage::Running).await;
    let filler = lab.dir.path().join("filler");
    let mut filler = std::fs::File::options().write(true).create_new(true).open(filler).unwrap();
    while filler.write_all(&[b'x'; 1024]).is_ok() {}
    running.connection.write(b"leave\n").await.unwrap();
    let record = running.ended().await;
    assert_eq!(record.result, SessionResult::Exited(3));
    assert_eq!(running.directory.read_exit().unwrap(), Some(record));
}

#[tokio::test]
async fn a_closed_output_keeps_its_pipe_s_content_and_fails_later_writes() {
    let lab = Lab::new();
    let script = "printf 1; printf up >&2; read go; printf 2; echo \"printf: $?\" >&2; exec printf 3";
    let running = lab.launch("closed", &shell(&format!("trap '' PIPE; {script}"))).await;
    running.prints("up").await;
    assert_eq!(running.connection.request(Verb::CloseOutput { stream: Stream::Out }).await, Ok(Outcome::Done));
    running.connection.write(b"\n").await.unwrap();
    assert_eq!(running.ended().await.result, SessionResult::Exited(1));
    let printed = running.printed();
    assert!(printed.starts_with('1') || printed.starts_with("up1"), "{printed}");
    assert!(printed.contains("printf: 1") && !printed.contains('2') && !printed.contains('3'), "{printed}");

    let running = lab.launch("terminal", &on_a_terminal(spec(&["sleep", "1000"]))).await;
    running.reaches(Stage::Running).await;
    let refused = running.connection.request(Verb::CloseOutput { stream: Stream::Out }).await;
    assert!(matches!(refused, Ok(Outcome::WrongStage { .. })), "{refused:?}");
}
