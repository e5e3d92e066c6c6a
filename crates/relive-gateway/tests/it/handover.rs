//! A gateway that is killed or replaced, while its agents continue.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use relive_fake_model::{Failure, FakeModel, Turn};
use relive_gateway::{Cut, Gateway, HOOKS_PATH, Lease};

use crate::place::{Place, Served, TOKEN, ask_by, client, second_body, wait_until};

const PATH: &str = "/v1/messages";

fn is_over(os_pid: u32) -> bool {
    // Its parent is this process, which does not wait for it.
    let stat = std::fs::read_to_string(format!("/proc/{os_pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

fn kill(served: &Served) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(served.os_pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn url(port: u16, path: &str) -> String {
    format!("http://127.0.0.1:{port}{path}")
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_wait_for_the_gateway_after_one_that_was_killed() {
    let server = FakeModel::start_for_agents([Turn::text("x").usage(300, 7, 0)]);
    let place = Place::new(&server);
    let socket: OwnedFd = relive_gateway::listen(None).unwrap();
    let served = place.start_with_socket(&socket, Lease::default()).await;
    let port = served.port;
    kill(&served);
    served.link.gone().await;
    // Nobody serves the port, and it is not refused.
    let asked = tokio::spawn(served.asking(PATH));
    let waiting = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    assert!(!asked.is_finished() && server.requests().is_empty());
    let successor = place.start_with_socket(&socket, Lease::default()).await;
    assert_eq!(successor.port, port);
    assert_eq!(asked.await.unwrap().0, 200);
    drop(waiting);
    let calls = place.calls();
    assert_eq!((calls.len(), calls[0].0.tokens_in, calls[0].0.tokens_out), (1, 300, 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_at_another_port_is_refused() {
    let server = FakeModel::start_for_agents([Turn::text("x")]);
    let place = Place::new(&server);
    let (socket, other) = (relive_gateway::listen(None).unwrap(), relive_gateway::listen(None).unwrap());
    let port = relive_gateway::port_of(&other).unwrap();
    let started = place.start_gateway();
    let refused = started.link.serve(place.entry(Some(port), Lease::default()), Some(socket)).await;
    assert!(refused.unwrap_err().to_string().contains("the socket listens at"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_retires_ends_its_answers_and_its_successor_gets_all_other_requests() {
    let slow = Turn::text("Hello ").then("there").usage(300, 7, 0).waits_after(2);
    let server = FakeModel::start_for_agents([slow, Turn::text("x").usage(40, 2, 0)]);
    let place = Place::new(&server);
    let socket = relive_gateway::listen(None).unwrap();
    let old = place.start_with_socket(&socket, Lease::default()).await;
    // A connection that stays open for the next request.
    let kept = client();
    let hook = kept.post(url(old.port, HOOKS_PATH)).header("x-api-key", hooks_token()).body("{\"a\":1}");
    assert_eq!(hook.send().await.unwrap().status().as_u16(), 200);
    let streamed = tokio::spawn(old.asking(PATH));
    wait_until("the provider answers", || server.under_way() == 1);
    old.facts(|facts| facts.in_flight == 1).await;
    old.link.lease(place.uuid, Lease { hold: true, ..Lease::default() }).await.unwrap();
    let next = |client| ask_by(client, url(old.port, PATH), TOKEN.to_owned(), second_body());
    let held = tokio::spawn(next(client()));
    old.facts(|facts| facts.held == 1).await;

    old.link.retire().await.unwrap();
    assert!(Gateway::find(place.data(), place.lock()).unwrap().is_none(), "nobody finds it any more");
    let hooks = old.link.hooks(place.uuid, 0).await.unwrap();
    assert_eq!(hooks.len(), 1);
    let waiting = tokio::spawn(next(client()));
    let new = place.start_gateway();
    new.link.inherit(place.uuid, hooks).await.unwrap();
    let copy = socket.try_clone().unwrap();
    new.link.serve(place.entry(Some(old.port), Lease::default()), Some(copy)).await.unwrap();
    let new = Served { port: old.port, ..new };
    // The answer that the old one is passing on counts as one of this process.
    new.facts(|facts| facts.in_flight == 1 && facts.hooks == Some(1)).await;
    let again = tokio::spawn(next(kept));
    for asked in [held, waiting, again] {
        assert_eq!(asked.await.unwrap().0, 200);
    }
    assert!(place.calls().iter().all(|(call, _)| call.number != 1 && call.tokens_in == 40), "{:?}", place.calls());
    server.let_go();
    let (status, text) = streamed.await.unwrap();
    assert!(status == 200 && text.contains("message_stop"), "{status} {text}");
    new.facts(|facts| facts.in_flight == 0).await;
    let mut calls: Vec<_> = place.calls().into_iter().map(|(call, _)| call).collect();
    calls.sort_by_key(|call| call.number);
    let counted: Vec<_> = calls.iter().map(|call| (call.number, call.tokens_in, call.cut)).collect();
    assert_eq!(counted, [(1, 300, None), (2, 40, None), (3, 40, None), (4, 40, None)]);
    assert_eq!(server.requests().len(), 4, "none is made twice");
    let pid = old.os_pid;
    drop(old);
    wait_until("it has ended", || is_over(pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_a_retired_gateway_that_is_killed_are_ended_by_its_successor() {
    let server = FakeModel::start_for_agents([Turn::text("Hello ").then("there").after(Failure::Stall(2))]);
    let place = Place::new(&server);
    let socket = relive_gateway::listen(None).unwrap();
    let old = place.start_with_socket(&socket, Lease::default()).await;
    let asked = tokio::spawn(old.asking(PATH));
    wait_until("the provider answers", || server.under_way() == 1);
    old.facts(|facts| facts.in_flight == 1).await;
    old.link.retire().await.unwrap();
    let new = place.start_with_socket(&socket, Lease::default()).await;
    new.facts(|facts| facts.in_flight == 1).await;
    assert!(place.calls().is_empty());
    kill(&old);
    assert_eq!(asked.await.unwrap().0, 0);
    new.facts(|facts| facts.in_flight == 0).await;
    let call = place.calls()[0].0.clone();
    assert_eq!((place.calls().len(), call.cut, call.estimated), (1, Some(Cut::Gateway), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_whose_body_comes_after_its_gateway_has_retired_is_passed_on() {
    let server = FakeModel::start_for_agents([Turn::text("x")]);
    let place = Place::new(&server);
    let socket = relive_gateway::listen(None).unwrap();
    let old = place.start_with_socket(&socket, Lease::default()).await;
    let mut agent = TcpStream::connect(("127.0.0.1", old.port)).unwrap();
    agent.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let (token, body) = (hooks_token(), "{\"a\":1}");
    let head = format!("POST {HOOKS_PATH} HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\nexpect: 100-continue\r\n");
    agent.write_all(format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes()).unwrap();
    let answer = read_some(&mut agent);
    assert!(answer.starts_with("HTTP/1.1 100 "), "it waits for the body: {answer}");
    old.link.retire().await.unwrap();
    let new = place.start_with_socket(&socket, Lease::default()).await;
    agent.write_all(body.as_bytes()).unwrap();
    let answer = read_some(&mut agent);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let hooks = new.link.hooks(place.uuid, 0).await.unwrap();
    assert_eq!((hooks.len(), old.link.hooks(place.uuid, 0).await.unwrap().len()), (1, 0));
}

fn read_some(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 1024];
    let length = stream.read(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn hooks_token() -> String {
    relive_gateway::hooks_token(&relive_gateway::token_hash(TOKEN))
}
