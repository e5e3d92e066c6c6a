//! Classes, bodies and deadlines of requests, on a clock that is stopped between events.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use futures_util::future::join_all;
use relive_api::REQUEST_ID_HEADER;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::*;

struct Place {
    router: Router,
    stop: watch::Sender<bool>,
    done: Arc<AtomicUsize>,
}

impl Place {
    fn new() -> Self {
        let (stop, stopping) = watch::channel(false);
        let (traffic, done) = (Traffic::new(stopping), Arc::new(AtomicUsize::new(0)));
        let slowly = |done: Arc<AtomicUsize>| async move {
            tokio::time::sleep(Duration::from_secs(45)).await;
            done.fetch_add(1, Ordering::Relaxed);
            "done"
        };
        let (verb, read) = (Arc::clone(&done), Arc::clone(&done));
        let routes =
            |class: Class, routes: Router| routes.route_layer(from_fn_with_state((traffic.clone(), class), admit));
        let control = Router::new().route("/control", post(async || "done"));
        let others = Router::new()
            .route("/v1/processes/7/slow", post(move || slowly(verb)).get(move || slowly(read)))
            .route("/echo", post(async |body: Bytes| body))
            .route("/panics", post(async || -> &'static str { panic!("on purpose") }))
            .route(
                "/endless",
                get(async || Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>())),
            );
        let streams = Router::new().route("/wait", post(async || std::future::pending::<()>().await));
        let router = routes(Class::Control, control)
            .merge(routes(Class::Others, others))
            .merge(routes(Class::Streams, streams))
            .layer(axum::extract::DefaultBodyLimit::max(BODY_MAX))
            .layer(from_fn_with_state(traffic.clone(), whole));
        Self { router, stop, done }
    }

    async fn ask(&self, method: &str, path: &str, body: impl Into<Body>) -> Response {
        self.ask_as(None, method, path, body).await
    }

    async fn ask_as(&self, id: Option<&str>, method: &str, path: &str, body: impl Into<Body>) -> Response {
        let mut request = axum::http::Request::builder().method(method).uri(path);
        if let Some(id) = id {
            request = request.header(REQUEST_ID_HEADER, id);
        }
        self.send(request.extension(Caller::Person).body(body.into()).unwrap()).await
    }

    async fn send(&self, request: Request) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }
}

async fn text(response: Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_verb_that_takes_too_long_is_answered_with_timeout_and_goes_on() {
    let place = Place::new();
    let begun = Instant::now();
    let response = place.ask("POST", "/v1/processes/7/slow", "").await;
    assert_eq!((response.status(), begun.elapsed().as_secs()), (StatusCode::REQUEST_TIMEOUT, 30));
    assert!(response.headers().contains_key(VERSION_HEADER));
    let said = text(response).await;
    assert!(said.contains("TIMEOUT") && said.contains("it continues") && said.contains("relive info 7"), "{said}");
    assert_eq!(place.done.load(Ordering::Relaxed), 0);
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(place.done.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_of_a_verb_under_way_gets_its_answer() {
    let place = Place::new();
    let first = place.ask_as(Some("a"), "POST", "/v1/processes/7/slow", "").await;
    assert_eq!(first.status(), StatusCode::REQUEST_TIMEOUT);
    let begun = Instant::now();
    let second = place.ask_as(Some("a"), "POST", "/v1/processes/7/slow", "").await;
    assert_eq!((second.status(), begun.elapsed().as_secs()), (StatusCode::OK, 15));
    assert_eq!(place.done.load(Ordering::Relaxed), 1, "it was done once");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_takes_too_long_is_given_up() {
    let place = Place::new();
    let response = place.ask("GET", "/v1/processes/7/slow", "").await;
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(place.done.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn programs_leave_streams_for_the_person() {
    let place = Place::new();
    let wait = |caller: Option<Caller>| {
        let mut request = axum::http::Request::builder().method("POST").uri("/wait");
        if let Some(caller) = caller {
            request = request.extension(caller);
        }
        place.send(request.body(Body::empty()).unwrap())
    };
    let program = Caller::Process(relive_core::Uuid::from_u128(7));
    let mut held = Box::pin(join_all((0..STREAMS_INSIDE_MAX).map(|_| Box::pin(wait(Some(program))))));
    assert!(tokio::time::timeout(Duration::from_millis(1), &mut held).await.is_err());
    for caller in [Some(program), Some(Caller::Unknown), None] {
        assert_eq!(wait(caller).await.status(), StatusCode::SERVICE_UNAVAILABLE, "{caller:?}");
    }
    let person = tokio::time::timeout(Duration::from_millis(1), wait(Some(Caller::Person))).await;
    assert!(person.is_err(), "the person waits");
    drop(held);
    assert!(tokio::time::timeout(Duration::from_millis(1), wait(Some(program))).await.is_err(), "there is room again");
}

#[tokio::test(start_paused = true)]
async fn a_full_class_refuses_at_once_and_takes_nothing_from_the_others() {
    let place = Place::new();
    let waiting: Vec<_> = (0..Class::Streams.max()).map(|_| Box::pin(place.ask("POST", "/wait", ""))).collect();
    let slow: Vec<_> =
        (0..Class::Others.max()).map(|_| Box::pin(place.ask("POST", "/v1/processes/7/slow", ""))).collect();
    let mut busy = Box::pin(async { tokio::join!(join_all(waiting), join_all(slow)) });
    let busy_for_now = tokio::time::timeout(Duration::from_millis(1), &mut busy).await;
    assert!(busy_for_now.is_err());
    let begun = Instant::now();
    for path in ["/wait", "/echo"] {
        let response = place.ask("POST", path, "x").await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        let said = text(response).await;
        assert!(said.contains("UNAVAILABLE") && said.contains("relive daemon status"), "{said}");
    }
    assert_eq!(place.ask("POST", "/control", "").await.status(), StatusCode::OK);
    assert!(begun.elapsed() < Duration::from_millis(10));
    // A request that continues after its client was told keeps its place; a wait whose client hung up does not.
    drop(busy);
    assert_eq!(place.ask("POST", "/echo", "x").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    let wait = tokio::time::timeout(Duration::from_millis(1), place.ask("POST", "/wait", "")).await;
    assert!(wait.is_err(), "it waits");
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(place.ask("POST", "/echo", "x").await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_length_takes_room_until_its_end() {
    let place = Place::new();
    let mut endless = Vec::new();
    for _ in 0..Class::Others.max() {
        endless.push(place.ask("GET", "/endless", "").await);
    }
    assert_eq!(place.ask("POST", "/echo", "x").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(endless.pop());
    assert_eq!(place.ask("POST", "/echo", "x").await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_body_has_10_seconds_and_8_mib() {
    let place = Place::new();
    let drops = futures_util::stream::unfold((), async |()| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Ok::<_, std::io::Error>(Bytes::from_static(b"x")), ()))
    });
    let begun = Instant::now();
    let response = place.ask("POST", "/echo", Body::from_stream(drops)).await;
    assert_eq!((response.status(), begun.elapsed().as_secs()), (StatusCode::REQUEST_TIMEOUT, 10));
    let without_end = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 4096])));
    let response = place.ask("POST", "/echo", Body::from_stream(without_end)).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(place.ask("POST", "/echo", vec![0; BODY_MAX + 1]).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(place.ask("POST", "/echo", vec![0; BODY_MAX]).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn long_bodies_have_a_limit_together_and_short_ones_are_always_taken() {
    let place = Place::new();
    let half = || {
        let bytes = Bytes::from(vec![0; BODY_MAX]);
        let begins = futures_util::stream::once(async { Ok::<_, std::io::Error>(bytes) });
        Body::from_stream(begins.chain(futures_util::stream::pending()))
    };
    let many: Vec<_> = (0..BODIES_MAX_BYTES / BODY_MAX).map(|_| Box::pin(place.ask("POST", "/echo", half()))).collect();
    let mut many = Box::pin(join_all(many));
    assert!(tokio::time::timeout(Duration::from_millis(1), &mut many).await.is_err());
    let long = || vec![b'x'; SHORT_BODY + 1];
    assert_eq!(place.ask("POST", "/echo", long()).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(place.ask("POST", "/echo", "x").await.status(), StatusCode::OK);
    drop(many);
    assert_eq!(place.ask("POST", "/echo", long()).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_stops_takes_no_new_work() {
    let place = Place::new();
    place.stop.send_replace(true);
    let response = place.ask("POST", "/echo", "x").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(response).await.contains("stopping"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_is_answered_and_its_room_is_free_again() {
    let place = Place::new();
    for _ in 0..Class::Others.max() + 1 {
        assert_eq!(place.ask_as(Some("p"), "POST", "/panics", "").await.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
