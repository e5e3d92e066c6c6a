//! A gateway in its own process, between agents and a server that plays their provider.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod full_disk;
mod handover;
mod place;
mod strangers;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use relive_fake_model::{Failure, FakeModel, Turn};
use relive_gateway::{Cut, Exhausted, Gateway, HOOKS_PATH, Lease};

use place::{Place, TOKEN, body, wait_until};

const APIS: [(&str, &str); 3] =
    [("anthropic", "/v1/messages"), ("responses", "/v1/responses"), ("chat", "/v1/chat/completions")];

#[tokio::test(flavor = "multi_thread")]
async fn bytes_pass_unchanged_and_usage_is_exact() {
    for (api, path) in APIS {
        let server = FakeModel::start_for_agents([Turn::text("Hello ").then("there").usage(300, 7, 100)]);
        let place = Place::of(&server, path);
        let served = place.start().await;
        let direct = place.ask_at(&server.base_url(), "planted", path).await;
        let through = served.ask(path).await;
        assert_eq!(through, direct, "{api}");
        let keys: Vec<_> = server.requests().into_iter().map(|request| request.key).collect();
        assert_eq!(keys, [Some("planted".to_owned()), Some("planted".to_owned())], "{api}");
        let calls = place.calls();
        assert_eq!(calls.len(), 1, "{api}");
        let (call, _) = &calls[0];
        assert_eq!((call.tokens_in, call.tokens_out, call.cache_read), (300, 7, 100), "{api}");
        assert_eq!((call.estimated, call.cut, call.status), (false, None, Some(200)), "{api}");
        assert_eq!(call.model.as_deref(), Some("m"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_works_only_at_its_port_and_no_key_is_in_a_file() {
    let server = FakeModel::start_for_agents([Turn::text("x")]);
    let place = Place::new(&server);
    let served = place.start().await;
    let (status, text) = place.ask_at(&served.base(), "planted", "/v1/messages").await;
    assert!(status == 401 && text.contains("uses a key from its settings"), "{status} {text}");
    // The settings of claude say nothing about the key of another agent, nor about the token of a hook.
    for path in ["/v1/responses", "/v1/models", HOOKS_PATH] {
        let (status, text) = place.ask_at(&served.base(), "planted", path).await;
        assert!(status == 401 && text.contains("is not that of its process"), "{path}: {status} {text}");
    }
    assert!(server.requests().is_empty() && place.calls().is_empty());
    served.ask("/v1/messages").await;
    for file in std::fs::read_dir(place.directory()).unwrap() {
        let text = String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap()).into_owned();
        assert!(!text.contains("planted") && !text.contains(TOKEN), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_post_is_a_model_call() {
    let server = FakeModel::start_for_agents([Turn::text("x")]);
    let place = Place::new(&server);
    let served = place.start().await;
    for method in ["PUT", "PATCH", "DELETE", "OPTIONS"] {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let request = place::client().request(method.clone(), format!("{}/v1/messages", served.base()));
        let answered = request.header("x-api-key", TOKEN).body(body()).send().await.unwrap();
        assert_eq!(answered.status(), 404, "{method}");
    }
    assert!(server.requests().is_empty() && place.calls().is_empty());
    assert_eq!(served.ask("/v1/messages").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_call_goes_on_when_it_is_released() {
    let server = FakeModel::start_for_agents([Turn::text("x")]);
    let place = Place::new(&server);
    let served = place.start_with(Lease { hold: true, ..Lease::default() }).await;
    let asked = tokio::spawn(served.asking("/v1/messages"));
    served.facts(|facts| facts.held == 1 && facts.in_flight == 0).await;
    assert!(server.requests().is_empty() && place.calls().is_empty());
    served.link.lease(place.uuid, Lease::default()).await.unwrap();
    assert_eq!(asked.await.unwrap().0, 200);
    assert_eq!(place.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_spent_and_the_next_call_is_refused_in_the_shape_of_the_provider() {
    for (api, path) in APIS {
        let server = FakeModel::start_for_agents([Turn::text("x").usage(90, 10, 0)]);
        let place = Place::of(&server, path);
        let served = place.start_with(Lease { tokens_left: Some(100), ..Lease::default() }).await;
        assert_eq!(served.ask(path).await.0, 200, "{api}");
        let (status, text) = served.ask(path).await;
        assert_eq!(status, if api == "responses" { 429 } else { 402 }, "{api}: {text}");
        assert!(
            text.contains(if api == "anthropic" { "billing_error" } else { "insufficient_quota" }),
            "{api}: {text}"
        );
        assert_eq!(server.requests().len(), 1, "{api}");
        let calls = place.calls();
        assert!(calls[1].0.refused.is_some() && calls[1].0.tokens_in == 0, "{api}");
        // The daemon has counted the first one, and grants more.
        let lease = Lease { settled: calls[0].1, tokens_left: Some(1), ..Lease::default() };
        served.link.lease(place.uuid, lease.clone()).await.unwrap();
        assert_eq!(served.ask(path).await.0, 200, "{api}");
        // Where it is to wait, it does.
        served.link.lease(place.uuid, Lease { exhausted: Exhausted::Hold, ..lease }).await.unwrap();
        let asked = tokio::spawn(served.asking(path));
        served.facts(|facts| facts.held == 1).await;
        served.link.lease(place.uuid, Lease::default()).await.unwrap();
        assert_eq!(asked.await.unwrap().0, 200, "{api}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_the_permission_of_the_daemon() {
    let server = FakeModel::start_for_agents([Turn::text("x")]);
    let place = Place::new(&server);
    let served = place.start_with(Lease { permitted: Some(0), ..Lease::default() }).await;
    let asked = tokio::spawn(served.asking("/v1/messages"));
    let facts = served.facts(|facts| !facts.wanted.is_empty()).await;
    assert_eq!((facts.wanted[0].number, facts.wanted[0].model.as_str()), (1, "anthropic/m"));
    assert!(server.requests().is_empty());
    served.link.lease(place.uuid, Lease { permitted: Some(1), ..Lease::default() }).await.unwrap();
    assert_eq!(asked.await.unwrap().0, 200);
    let asked = tokio::spawn(served.asking("/v1/messages"));
    served.facts(|facts| facts.wanted.first().is_some_and(|wanted| wanted.number == 2)).await;
    let refuse = Some("no price".to_owned());
    served.link.lease(place.uuid, Lease { permitted: Some(1), refuse, ..Lease::default() }).await.unwrap();
    let (status, text) = asked.await.unwrap();
    assert!(status == 402 && text.contains("no price"), "{status} {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_is_passed_on_as_far_as_it_came_and_estimated() {
    for (api, path) in APIS {
        let server = FakeModel::start_for_agents([Turn::text("Hello ").then("there").after(Failure::Cut(2))]);
        let place = Place::of(&server, path);
        let served = place.start().await;
        assert_eq!(served.ask(path).await.0, 0, "{api}: the connection breaks, too");
        wait_until("it is recorded", || place.calls().len() == 1);
        let call = place.calls()[0].0.clone();
        assert_eq!((call.cut, call.estimated), (Some(Cut::Upstream), true), "{api}");
        assert!(call.tokens_in > 0, "{api}: {call:?}");
        assert_eq!(served.ask(path).await.0, 200, "{api}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_hangs_up_ends_its_call() {
    let server = FakeModel::start_for_agents([Turn::text("Hello ").then("there").after(Failure::Stall(2))]);
    let place = Place::new(&server);
    let served = place.start().await;
    let asked = tokio::spawn(served.asking("/v1/messages"));
    served.facts(|facts| facts.in_flight == 1).await;
    wait_until("the provider answers", || server.under_way() == 1);
    asked.abort();
    served.facts(|facts| facts.in_flight == 0).await;
    let call = place.calls()[0].0.clone();
    assert_eq!((call.cut, call.estimated), (Some(Cut::Agent), true));
    wait_until("the provider hears of it", || server.under_way() == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_forgotten_has_all_its_calls_recorded_and_no_port() {
    let server = FakeModel::start_for_agents([Turn::text("Hello ").then("there").after(Failure::Stall(2))]);
    let place = Place::new(&server);
    let served = place.start().await;
    let asked = tokio::spawn(served.asking("/v1/messages"));
    served.facts(|facts| facts.in_flight == 1).await;
    wait_until("the provider answers", || server.under_way() == 1);
    served.link.forget(place.uuid).await.unwrap();
    assert_eq!(place.calls().len(), 1);
    assert_eq!(asked.await.unwrap().0, 0);
    wait_until("nobody listens", || std::net::TcpStream::connect(("127.0.0.1", served.port)).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_provider_are_passed_on_and_cost_nothing() {
    let failing = Turn::text("x").after(Failure::Status(500, None)).after(Failure::Status(429, Some("3".into())));
    let server = FakeModel::start_for_agents([failing]);
    let place = Place::new(&server);
    let served = place.start().await;
    let (status, text) = served.ask("/v1/messages").await;
    assert!(status == 500 && text.contains("fake 500"), "{status} {text}");
    assert_eq!(served.ask("/v1/messages").await.0, 429);
    assert_eq!(served.ask("/v1/messages").await.0, 200);
    let calls: Vec<_> = place.calls().into_iter().map(|(call, _)| (call.status, call.tokens_in)).collect();
    assert_eq!(calls, [(Some(500), 0), (Some(429), 0), (Some(200), 100)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_resets_late_is_waited_for() {
    let server = FakeModel::start_for_agents([Turn::text("x").after(Failure::Status(429, Some("3600".into())))]);
    let place = Place::new(&server);
    let served = place.start().await;
    let asked = tokio::spawn(served.asking("/v1/messages"));
    let facts = served.facts(|facts| facts.limited_until_ms.is_some() && facts.held == 1).await;
    let left = facts.limited_until_ms.unwrap() - jiff::Timestamp::now().as_millisecond();
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    assert!(!asked.is_finished() && server.requests().len() == 1);
    let call = place.calls()[0].0.clone();
    assert_eq!((call.status, call.tokens_in), (Some(429), 0));
    assert!(call.resets_at.is_some());
    asked.abort();
    served.facts(|facts| facts.held == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_outlives_its_daemon_and_the_next_daemon_finds_it() {
    let server = FakeModel::start_for_agents([Turn::text("x")]);
    let place = Place::new(&server);
    let served = place.start().await;
    let os_pid = served.os_pid;
    let port = served.port;
    // The daemon is gone, and with it its lock.
    let mut place = place;
    drop(served);
    place.lock_again();
    assert_eq!(place.ask_at(&format!("http://127.0.0.1:{port}"), TOKEN, "/v1/messages").await.0, 200);
    let found = Gateway::find(place.data(), place.lock()).unwrap().unwrap();
    assert_eq!(found.os_pid(), Some(os_pid));
    let link = found.talk(|_, _| {}).unwrap();
    assert_eq!(link.list().await.unwrap(), [place.uuid]);
    assert_eq!(link.serve(place.entry(Some(port), Lease::default()), None).await.unwrap(), port);
    link.forget(place.uuid).await.unwrap();
    drop(link);
    let path = format!("/proc/{os_pid}");
    // With nothing to do and no daemon it ends. Its parent is this process, which does not wait for it.
    let is_over = || {
        let stat = std::fs::read_to_string(format!("{path}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    wait_until("the gateway has ended", is_over);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_killed_in_an_answer_loses_no_call_and_its_successor_has_the_port() {
    let turn = Turn::text("Hello ").then("there").after(Failure::Stall(2));
    let server = FakeModel::start_for_agents([turn]);
    let place = Place::new(&server);
    let served = place.start().await;
    let asked = tokio::spawn(served.asking("/v1/messages"));
    served.facts(|facts| facts.in_flight == 1).await;
    wait_until("the provider answers", || server.under_way() == 1);
    assert!(place.calls().is_empty());
    let pid = rustix::process::Pid::from_raw(i32::try_from(served.os_pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    served.link.gone().await;
    assert_eq!(asked.await.unwrap().0, 0);
    let port = served.port;
    let served = place.start_at(Some(port), Lease::default()).await;
    assert_eq!(served.port, port);
    let call = place.calls()[0].0.clone();
    assert_eq!((call.cut, call.estimated), (Some(Cut::Gateway), true));
    assert!(call.tokens_in > 0);
    assert_eq!(served.ask("/v1/messages").await.0, 200);
    let numbers: Vec<_> = place.calls().iter().map(|(call, _)| call.number).collect();
    assert_eq!(numbers, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_holder_of_the_lock_is_answered() {
    let server = FakeModel::start_for_agents([Turn::text("x")]);
    let place = Place::new(&server);
    let served = place.start().await;
    let mut stranger = UnixStream::connect(place.data().join("gateway")).unwrap();
    stranger.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stranger.write_all(b"hello 1\n").unwrap();
    let mut answer = String::new();
    stranger.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "refused\n");
    assert_eq!(served.ask("/v1/messages").await.0, 200);
    // Its memory is nobody's.
    assert!(std::fs::read(format!("/proc/{}/environ", served.os_pid)).is_err() || rustix::process::getuid().is_root());
    assert!(!body().contains("planted"));
}
