//! Which answers are remembered, and for how long.

use super::*;

fn key(number: usize) -> Key {
    Key { id: number.to_string(), request: Hash::of(b"") }
}

/// Serves a request with this answer, and returns whether the handler was called.
async fn is_served(repeats: &Repeats, number: usize, status: StatusCode, bytes: usize) -> bool {
    let finish = Finish { repeats: repeats.clone(), key: key(number), under_way: repeats.find(&key(number)) };
    let mut served = false;
    let init = async || {
        served = true;
        (status, Bytes::from(vec![b'x'; bytes]))
    };
    let reply = finish.under_way.get_or_init(init).await.clone();
    assert_eq!(reply, (status, Bytes::from(vec![b'x'; bytes])));
    served
}

fn remembered(repeats: &Repeats) -> usize {
    let inner = repeats.lock();
    assert!(inner.under_way.is_empty());
    assert_eq!(inner.order.len(), inner.remembered.len());
    inner.remembered.len()
}

#[tokio::test(start_paused = true)]
async fn short_answers_are_remembered_and_failures_are_not() {
    let repeats = Repeats::default();
    let check = async |number, status, bytes, again| {
        assert!(is_served(&repeats, number, status, bytes).await);
        assert_eq!(is_served(&repeats, number, status, bytes).await, again, "{status} {bytes}");
    };
    check(1, StatusCode::OK, 2, false).await;
    check(2, StatusCode::OK, ANSWER_MAX, false).await;
    check(3, StatusCode::OK, ANSWER_MAX + 1, true).await;
    check(4, StatusCode::SERVICE_UNAVAILABLE, 2, true).await;
    check(5, StatusCode::INTERNAL_SERVER_ERROR, 2, true).await;
    check(6, StatusCode::CONFLICT, 2, false).await;
    check(7, StatusCode::NOT_FOUND, 2, false).await;
    assert_eq!(remembered(&repeats), 4);
}

#[tokio::test(start_paused = true)]
async fn the_last_1024_are_remembered() {
    let repeats = Repeats::default();
    for number in 0..3 * REMEMBERED_MAX {
        assert!(is_served(&repeats, number, StatusCode::OK, 2).await);
        assert!(remembered(&repeats) <= REMEMBERED_MAX);
    }
    assert!(!is_served(&repeats, 2 * REMEMBERED_MAX, StatusCode::OK, 2).await, "the oldest that is left");
    assert!(is_served(&repeats, 2 * REMEMBERED_MAX - 1, StatusCode::OK, 2).await);
    assert_eq!(remembered(&repeats), REMEMBERED_MAX);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_remembered_for_10_minutes() {
    let repeats = Repeats::default();
    is_served(&repeats, 1, StatusCode::OK, 2).await;
    tokio::time::advance(REMEMBERED_FOR - Duration::from_secs(1)).await;
    is_served(&repeats, 2, StatusCode::OK, 2).await;
    assert!(!is_served(&repeats, 1, StatusCode::OK, 2).await);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(is_served(&repeats, 1, StatusCode::OK, 2).await);
    assert!(!is_served(&repeats, 2, StatusCode::OK, 2).await);
    assert_eq!(remembered(&repeats), 2);
}

#[tokio::test]
async fn a_handler_that_never_answered_is_forgotten() {
    let repeats = Repeats::default();
    let first = Finish { repeats: repeats.clone(), key: key(1), under_way: repeats.find(&key(1)) };
    let second = Finish { repeats: repeats.clone(), key: key(1), under_way: repeats.find(&key(1)) };
    assert!(Arc::ptr_eq(&first.under_way, &second.under_way));
    drop(first);
    assert_eq!(repeats.lock().under_way.len(), 1, "another still tries");
    drop(second);
    assert_eq!(remembered(&repeats), 0);
}
