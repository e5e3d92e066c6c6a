//! The records of a process on a disk that cannot be synced.

use super::*;
use crate::api::Api;
use crate::log;

#[tokio::test]
async fn a_line_whose_sync_failed_is_not_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let auth = Auth { header: String::new(), value: String::new() };
    let entry = Entry {
        uuid: Uuid::from_u128(7),
        port: None,
        token: String::new(),
        upstream: String::new(),
        auth,
        directory: directory.path().to_owned(),
        lease: Lease::default(),
    };
    let (served, _listener) = Served::open(entry, None, Hooks::default(), watch::Sender::new(())).unwrap();
    let fail = |syncs| served.log.lock().unwrap().log.failing_syncs = syncs;
    let asked =
        |number| Asked { number, at: Timestamp::UNIX_EPOCH, api: Api::Chat, model: None, bytes: 400, subagent: None };
    let ended = |number| Ended { tokens_in: 10, ..asked(number).ended(Timestamp::UNIX_EPOCH) };
    fail(2);
    assert_eq!(served.record_begin(&asked(1), || true).await.unwrap(), Begun::Recorded);
    fail(2);
    served.record_end(ended(1)).await.unwrap();
    fail(2);
    assert_eq!(served.record_refusal(ended(2), || true).await.unwrap(), Begun::Recorded);
    // Nobody waits for it any more. There is no space for its end, either.
    fail(1);
    served.log.lock().unwrap().log.failing_ends = 2;
    assert!(served.record_begin(&asked(3), || false).await.is_err());
    let drained = tokio::time::timeout(Duration::from_secs(60), served.drained()).await;
    drained.expect("the call is ended when there is space");
    assert!(!served.log.lock().unwrap().log.has_open_calls(), "the gateway may end before the end is recorded");
    let calls = log::read(directory.path(), 0).unwrap();
    let calls: Vec<_> = calls.iter().map(|(call, _)| (call.number, call.tokens_in)).collect();
    assert_eq!(calls, [(1, 10), (2, 10), (3, 0)]);
    assert_eq!(served.state().logged.unsettled, 20);
    let text = std::fs::read_to_string(directory.path().join(crate::LOG)).unwrap();
    assert_eq!(text.lines().count(), 5, "{text}");
}
