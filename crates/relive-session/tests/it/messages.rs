//! Messages to a program are numbered, so that an owner that does not know what the previous one has written can write
//! all of it again, and the program reads each part once.

use relive_session::connection::Connection;
use relive_session::protocol::{InputState, MessagePart, Outcome, Verb};
use relive_session::stage::Stage;

use crate::harness::*;

async fn input_of(connection: &Connection) -> InputState {
    match connection.request(Verb::Stat).await {
        Ok(Outcome::Stat(stat)) => stat.input.unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn again(running: &Running) -> Connection {
    Connection::adopt(running.directory.ctl_connect().unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_message_that_is_sent_again_by_the_next_owner_is_read_once() {
    let lab = Lab::new();
    let running = lab.launch("cat", &spec(&["cat"])).await;
    assert_eq!(running.connection.write_message(7, b"one\n").await, Ok(Outcome::Done));
    assert_eq!(running.connection.write_message(9, b"two\n").await, Ok(Outcome::Done));
    let next = again(&running).await;
    assert_eq!(input_of(&next).await.written, Some(MessagePart { message: 9, part: 0 }));
    for (number, text) in [(7, "one\n"), (9, "two\n"), (12, "three\n")] {
        assert_eq!(next.write_message(number, text.as_bytes()).await, Ok(Outcome::Done));
    }
    assert_eq!(next.request(Verb::CloseInput).await, Ok(Outcome::Done));
    running.ended().await;
    assert_eq!(running.printed(), "one\ntwo\nthree\n");
}

#[tokio::test]
async fn a_message_that_waits_for_a_slow_program_is_not_queued_twice() {
    let lab = Lab::new();
    let script = "while [ ! -e go ]; do sleep 0.01; done; exec wc -c";
    let mut slow = shell(script);
    slow.cwd = lab.dir.path().display().to_string();
    let running = lab.launch("slow", &slow).await;
    running.reaches(Stage::Running).await;
    // As much as a pipe holds, in two parts.
    let (fills, waits) = (vec![b'x'; 64 * 1024], vec![b'y'; 1000]);
    assert_eq!(running.connection.write_message(1, &fills).await, Ok(Outcome::Done));
    let whole = Some(MessagePart { message: 1, part: 1 });
    let (first, next) = (again(&running).await, again(&running).await);
    for owner in [&first, &next] {
        // The message is sent before the question, on the same connection: it waits when the question is answered.
        tokio::select! {
            biased;
            written = owner.write_message(2, &waits) => panic!("{written:?}"),
            input = input_of(owner) => assert_eq!(input.written, whole),
        }
    }
    drop(first);
    assert!(std::process::Command::new("touch").arg(lab.dir.path().join("go")).status().unwrap().success());
    assert_eq!(within("the message", next.write_message(2, &waits)).await, Ok(Outcome::Done));
    assert_eq!(next.request(Verb::CloseInput).await, Ok(Outcome::Done));
    running.ended().await;
    assert_eq!(running.printed().trim(), "66536");
}

#[tokio::test]
async fn an_input_that_the_program_has_closed_is_not_open() {
    let lab = Lab::new();
    let running = lab.launch("deaf", &shell("exec <&-; echo there; exec sleep 1000")).await;
    running.prints("there").await;
    assert!(!input_of(&running.connection).await.open);
    let failed = running.connection.write_message(1, b"hello\n").await;
    assert!(matches!(&failed, Ok(Outcome::Failed { errno, .. }) if errno == "EPIPE"), "{failed:?}");
    running.connection.request(Verb::Kill).await.unwrap();
    running.ended().await;
}
