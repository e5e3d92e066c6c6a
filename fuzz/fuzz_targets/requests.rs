//! Any bytes at all as a client of the daemon: see `any_request`, which the tests of `relive-daemon` run too.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use relive_daemon::in_process::Caller;
use tokio::runtime::Runtime;

#[path = "../../crates/relive-daemon/tests/it/any_request.rs"]
#[expect(dead_code, reason = "the property test uses the rest")]
mod any_request;

static DAEMON: LazyLock<(Runtime, any_request::Place)> = LazyLock::new(|| {
    let executor = Runtime::new().unwrap();
    let place = executor.block_on(any_request::Place::new());
    (executor, place)
});

fuzz_target!(|bytes: &[u8]| {
    let (executor, place) = &*DAEMON;
    for caller in [Caller::Person, Caller::Process(any_request::UUID.parse().unwrap())] {
        executor.block_on(place.check(caller, bytes));
    }
});
