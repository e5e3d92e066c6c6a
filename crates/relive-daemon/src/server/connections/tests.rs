//! Which connection is closed for another.

use std::time::Duration;

use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::Instant;

use super::*;
use crate::server::traffic;

struct Place {
    connections: Connections,
    router: Router,
    stop: watch::Sender<bool>,
}

impl Place {
    fn new() -> Self {
        let (stop, stopping) = watch::channel(false);
        let traffic = traffic::Traffic::new(stopping.clone());
        let router = Router::new()
            .route("/quick", get(async || "quick"))
            .route("/never", get(async || std::future::pending::<()>().await))
            .layer(axum::middleware::from_fn_with_state(traffic, traffic::whole));
        Self { connections: Connections::new(stopping), router, stop }
    }

    fn connect(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(4096);
        self.connections.serve(server, |_| Caller::Person, self.router.clone(), None);
        client
    }

    async fn ask(&self, path: &str) -> DuplexStream {
        let mut client = self.connect();
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        client
    }
}

/// Returns whether the daemon still has the connection.
async fn is_open(client: &mut DuplexStream) -> bool {
    tokio::time::timeout(Duration::from_millis(1), client.read(&mut [0; 4096])).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn the_oldest_silent_connection_makes_room_and_a_request_never_does() {
    let place = Place::new();
    let mut served = place.ask("/never").await;
    let mut silent: Vec<DuplexStream> = Vec::new();
    for _ in 1..CONNECTIONS_MAX {
        silent.push(place.connect());
    }
    let mut newest = place.ask("/quick").await;
    let mut answer = vec![0; 4096];
    let count = newest.read(&mut answer).await.unwrap();
    assert!(answer[..count].ends_with(b"quick"));
    assert!(is_open(&mut served).await);
    assert!(!is_open(&mut silent[0]).await);
    assert!(is_open(&mut silent[1]).await);
    // Far more than the limit.
    let mut crowd: Vec<DuplexStream> = Vec::new();
    for _ in 0..3 * CONNECTIONS_MAX {
        crowd.push(place.connect());
        tokio::task::yield_now().await;
    }
    assert!(is_open(&mut served).await);
    assert!(place.connections.open().by_number.len() <= CONNECTIONS_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_connection_beyond_the_limit_is_refused_while_all_are_served() {
    let place = Place::new();
    let mut served = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        served.push(place.ask("/never").await);
    }
    assert!(!is_open(&mut place.connect()).await);
    served.truncate(CONNECTIONS_MAX - 1);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(is_open(&mut place.connect()).await);
}

#[tokio::test(start_paused = true)]
async fn the_end_is_waited_for_no_longer_than_told() {
    let place = Place::new();
    let (idle, served) = (place.connect(), place.ask("/never").await);
    let begun = Instant::now();
    place.stop.send_replace(true);
    place.connections.closed_within(Duration::from_secs(1)).await;
    assert_eq!(begun.elapsed().as_secs(), 1);
    drop(served);
    let begun = Instant::now();
    place.connections.closed_within(Duration::from_secs(1)).await;
    assert_eq!(begun.elapsed().as_secs(), 0);
    drop(idle);
}

#[tokio::test(start_paused = true)]
async fn connections_are_accepted_only_as_fast_as_they_are_looked_at() {
    let place = Place::new();
    let mut clients = Vec::new();
    for _ in 0..NEW_MAX {
        let (client, server) = tokio::io::duplex(4096);
        place.connections.serve(server, |_| Caller::Person, place.router.clone(), place.connections.accepts().await);
        clients.push(client);
    }
    assert!(futures_util::FutureExt::now_or_never(place.connections.accepts()).is_none(), "none was looked at");
    tokio::task::yield_now().await;
    assert!(place.connections.accepts().await.is_some());
}
