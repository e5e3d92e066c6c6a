//! Random requests: methods, paths, headers and bodies that are almost valid, and arbitrary bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use relive_daemon::in_process::Caller;

use crate::any_request::{Place, UUID};

const OTHER_METHODS: [&str; 5] = ["PUT", "DELETE", "HEAD", "OPTIONS", "get"];
pub(crate) const VERBS: [&str; 26] = [
    "",
    "/wait",
    "/pause",
    "/resume",
    "/signal",
    "/signals",
    "/input",
    "/resolve",
    "/proceed",
    "/abort",
    "/lineage",
    "/journal",
    "/events",
    "/journal?follow=true",
    "/events?follow=true&after=1.1",
    "/journal?after=%ff",
    "/rename",
    "/remove",
    "/diff",
    "/diff?from=4294967295&to=0&text=true",
    "/diff?from=-1",
    "/rewind",
    "/restore",
    "/merge",
    "/flow",
    "/node",
];
pub(crate) const PLACES: [&str; 25] = [
    "/v1/daemon",
    "/v1/processes",
    "/v1/processes?all=true",
    "/v1/processes?all=maybe",
    "/v1/programs",
    "/v1/resumable",
    "/v1/gc",
    "/v1/flows",
    "/v1/self",
    "/v1/self/end",
    "/v1/handles",
    "/v1/handles/release",
    "/v1/usage?by=day,model",
    "/v1/usage?by=nothing&since=0",
    "/v1/blame",
    "/v1/workspaces",
    "/v1/workspaces/remove",
    "/v1/creations/01900000-0000-7000-8000-00000000000a/cancel",
    "/v1/creations/%00/cancel",
    "/v1/processes?limit=18446744073709551615&cursor=%00",
    "/v1/resumable?limit=0&cursor=x",
    "/v1/",
    "*",
    "//",
    "http://relive/v1/daemon",
];
pub(crate) const BODIES: [&str; 31] = [
    "",
    "{}",
    "null",
    "[]",
    "{",
    "\"x\"",
    "1e999",
    "{\"signal\": \"STOP\"}",
    "{\"signal\": \"0\"}",
    "{\"signal\": \"\\u0000\"}",
    "{\"now\": true}",
    "{\"subtree\": true}",
    "{\"timeout_ms\": 1}",
    "{\"timeout_ms\": 18446744073709551615}",
    "{\"outcome\": \"allow\"}",
    "{\"id\": \"m\", \"text\": \"hello\"}",
    "{\"id\": \"\", \"text\": \"\"}",
    "{\"block\": [\"USR1\"], \"unblock\": [\"HUP\"]}",
    "{\"all\": true, \"dry_run\": true}",
    "{\"fork\": \"01900000-0000-7000-8000-00000000000b\"}",
    "{\"from_step\": 4294967295}",
    "{\"input\": \"x\", \"max_steps\": 0}",
    "{\"target\": \"1\", \"to\": \"1\", \"as\": \"owner\"}",
    "{\"target\": \"1\"}",
    "{\"name\": \"../x\"}",
    "{\"to_step\": 4294967295, \"force\": true}",
    "{\"step\": 1, \"paths\": [\"..\", \"\"], \"cwd\": \"\"}",
    "{\"into\": \"relative\", \"dry_run\": true}",
    "{\"path\": \"/dev/zero\", \"line\": 18446744073709551615}",
    "{\"id\": \"../..\", \"dry_run\": true}",
    "{\"how\": \"exit\", \"code\": 1e9}",
];

/// Valid requests, so that the code after the parser is tested as well.
pub(crate) const FITTING: [(&str, &str, &str); 29] = [
    ("POST", "/v1/processes/1/pause", "{\"now\": true}"),
    ("POST", "/v1/processes/1/resume", "{}"),
    ("POST", "/v1/processes/1/resume", "{\"input\": \"x\"}"),
    ("POST", "/v1/processes/1/signal", "{\"signal\": \"USR1\"}"),
    ("POST", "/v1/processes/1/signal", "{\"signal\": \"STOP\"}"),
    ("POST", "/v1/processes/1/signals", "{\"block\": [\"USR1\"]}"),
    ("POST", "/v1/processes/1/input", "{\"id\": \"m\", \"text\": \"hello\"}"),
    ("POST", "/v1/processes/1/resolve", "{\"outcome\": \"allow\"}"),
    ("POST", "/v1/processes/1/wait", "{\"timeout_ms\": 1}"),
    ("POST", "/v1/processes/1/wait", "{}"),
    ("POST", "/v1/processes/1/proceed", "{}"),
    ("GET", "/v1/processes/1", ""),
    ("GET", "/v1/processes/1/journal", ""),
    ("GET", "/v1/processes/1/events?follow=true", ""),
    ("GET", "/v1/processes/1/lineage", ""),
    ("GET", "/v1/processes?all=true", ""),
    ("POST", "/v1/processes/1/signals", "{\"block\": [\"TERM\"], \"unblock\": [\"INT\"]}"),
    ("POST", "/v1/processes/1/rename", "{\"name\": \"another\"}"),
    ("POST", "/v1/processes/1/remove", ""),
    ("GET", "/v1/processes/1/diff?from=0&to=1", ""),
    ("POST", "/v1/processes/1/rewind", "{\"to_step\": 1, \"dry_run\": true}"),
    ("POST", "/v1/processes/1/merge", "{\"dry_run\": true}"),
    ("POST", "/v1/handles", "{\"target\": \"1\", \"to\": \"1\", \"as\": \"observer\"}"),
    ("POST", "/v1/handles/release", "{\"target\": \"1\", \"of\": \"1\"}"),
    ("GET", "/v1/handles", ""),
    ("GET", "/v1/self", ""),
    ("POST", "/v1/blame", "{\"path\": \"/dev/zero\"}"),
    ("GET", "/v1/usage?by=day", ""),
    ("GET", "/v1/workspaces", ""),
];

fn id() -> impl Strategy<Value = String> {
    let known = ["0", "2", "01900000", "%31", "..", "%2e%2e%2f", "%ff", "%00", "%", "18446744073709551616", "-1"];
    prop_oneof![
        8 => select(vec!["1", UUID]).prop_map(str::to_owned),
        3 => select(known.to_vec()).prop_map(str::to_owned),
        1 => "[!-~]{0,40}"
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (id(), select(VERBS.to_vec())).prop_map(|(id, verb)| format!("/v1/processes/{id}{verb}")),
        2 => select(PLACES.to_vec()).prop_map(str::to_owned),
        1 => "/[!-~]{0,60}",
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        12 => select(BODIES.to_vec()).prop_map(|body| body.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..200),
        1 => (0..200_usize).prop_map(|depth| "[".repeat(depth * 100).into_bytes()),
    ]
}

/// Headers about the body; the length may be wrong.
fn framing() -> impl Strategy<Value = &'static str> {
    prop_oneof![8 => Just("length"), 2 => Just("chunked"), 1 => select(vec!["short", "long", "none", "both", "twice"])]
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let headers = prop_oneof![
        16 => Just(String::new()),
        8 => "[a-z0-9-]{1,8}".prop_map(|id| format!("relive-request-id: {id}\r\n")),
        1 => Just(format!("relive-request-id: {}\r\n", "x".repeat(200))),
        1 => Just("connection: upgrade\r\nupgrade: websocket\r\n".to_owned()),
        1 => Just("expect: 100-continue\r\n".to_owned()),
        1 => "[ -~]{0,60}".prop_map(|line| format!("{line}\r\n")),
    ];
    let version = prop_oneof![8 => Just("HTTP/1.1"), 2 => Just("HTTP/1.0"), 1 => Just("HTTP/2.0")];
    let method = prop_oneof![6 => Just("POST"), 3 => Just("GET"), 1 => select(OTHER_METHODS.to_vec())];
    let fits =
        select(FITTING.to_vec()).prop_map(|(method, path, body)| (method, path.to_owned(), body.as_bytes().to_vec()));
    let target = prop_oneof![fits, (method, path(), body())];
    (target, version, headers, framing()).prop_map(|((method, path, body), version, headers, framing)| {
        let length = body.len();
        let (framing, body) = match framing {
            "chunked" => ("transfer-encoding: chunked\r\n".to_owned(), chunked(&body)),
            "short" => (format!("content-length: {}\r\n", length / 2), body),
            "long" => (format!("content-length: {}\r\n", length + 9), body),
            "none" => (String::new(), body),
            "both" => (format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n"), chunked(&body)),
            "twice" => (format!("content-length: {length}\r\ncontent-length: {}\r\n", length + 1), body),
            _ => (format!("content-length: {length}\r\n"), body),
        };
        let head = format!("{method} {path} {version}\r\nhost: relive\r\n{headers}{framing}\r\n");
        [head.into_bytes(), body].concat()
    })
}

fn chunked(body: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n0\r\n\r\n"].concat()
}

/// One request, several on one connection, or bytes.
fn client() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => request(),
        2 => proptest::collection::vec(request(), 2..5).prop_map(|requests| requests.concat()),
        1 => (request(), any::<prop::sample::Index>()).prop_map(|(request, at)| {
            let end = at.index(request.len());
            request[..end].to_vec()
        }),
        1 => proptest::collection::vec(any::<u8>(), 0..400),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_makes_the_daemon_panic_hang_or_answer_500() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400);
    let (place, strategy) = (Place::new().await, client());
    let (mut runner, mut statuses) = (TestRunner::default(), BTreeMap::<Option<u16>, u32>::new());
    for number in 0..cases {
        let bytes = strategy.new_tree(&mut runner).unwrap().current();
        let caller = if number % 2 == 0 { Caller::Process(UUID.parse().unwrap()) } else { Caller::Person };
        *statuses.entry(place.check(caller, &bytes).await).or_default() += 1;
        if number % 50 == 0 {
            place.check_alive().await;
        }
    }
    place.check_alive().await;
    println!("{statuses:?}");
    for expected in [200, 400, 403, 404] {
        assert!(statuses.contains_key(&Some(expected)), "the requests do not get far: {statuses:?}");
    }
}
