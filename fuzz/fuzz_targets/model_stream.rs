//! Any bytes at all as the answer of a provider: see `any_stream`, which the tests of `relive-llm` use too.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tokio::runtime::Runtime;

#[path = "../../crates/relive-llm/tests/it/any_stream.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod any_stream;

thread_local! {
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
}

// The first byte picks the wire format. A panic in `genai` is caught by the crate and shows only as a broken answer.
fuzz_target!(|bytes: &[u8]| {
    let [choice, bytes @ ..] = bytes else { return };
    let name = any_stream::NAMES[usize::from(*choice) % any_stream::NAMES.len()];
    RUNTIME.with(|runtime| runtime.block_on(any_stream::check(name, bytes)));
});
