//! An allocator that counts the bytes in use, and a table to measure with it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use relive_core::{
    Moment, Pid, Recovered, Settings, Spec, SuspendReason, Suspension, Table, Timestamp, UsageTotals, uuid_v7,
};

static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// The system allocator, with a counter.
pub(crate) struct Counting;

// SAFETY: every call is passed to the system allocator unchanged; the counter does not touch the allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(block, layout) }
    }
}

pub(crate) fn bytes_in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

pub(crate) fn now() -> Moment {
    Moment { at: Timestamp::UNIX_EPOCH, up_ms: 0 }
}

/// Returns a table with `count` suspended processes with names, directories and intents of ordinary length, ten
/// children each.
pub(crate) fn suspended(count: u32) -> Table {
    let mut table = Table::new(Settings::default(), Pid(0));
    for number in 1..=count {
        let mut random = [0; 10];
        random[6..].copy_from_slice(&number.to_be_bytes());
        let usage = UsageTotals { step: 12, tokens_in: 34_567, tokens_out: 8_901, ..UsageTotals::default() };
        let spec = Spec {
            name: Some(format!("reviewer-{number}")),
            intent: "Read the change, run its tests, and write down what a careful reviewer would ask about it".into(),
            cwd: format!("/home/somebody/projects/service-{number}"),
            model: Some("anthropic/claude-sonnet-4-5".into()),
            usage,
            ..Spec::new(Pid(number), uuid_v7(now().at, random), Pid((number - 1) / 10), now())
        };
        let suspension = Some(Suspension { asked_at: now().at, reason: SuspendReason::User, cause: None });
        assert_eq!(table.recover(spec, Recovered { suspension, ..Recovered::default() }, now()), Ok(()));
    }
    table
}
