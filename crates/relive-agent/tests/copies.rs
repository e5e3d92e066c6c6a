//! How much memory a step takes: as much late in a conversation as early, up to the `Model` trait.
//!
//! A test binary of its own, because an allocator counts for all threads.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(dead_code, reason = "the stage is that of the other tests")]

#[path = "it/stage.rs"]
mod stage;
#[path = "it/support.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use relive_agent::Exit;
use relive_llm::{Answer, Delta, Model, ModelError, Question, ToolCall};
use stage::Stage;

const STEPS: usize = 1_200;
/// How many steps around an early and a late one are looked at.
const WINDOW: usize = 100;
const BYTES: usize = 4096;

static ALLOCATED: AtomicU64 = AtomicU64::new(0);

/// The system allocator, which counts what it was ever asked for. What is copied is allocated first.
struct Counting;

// SAFETY: every call is passed to the system allocator unchanged; the counter does not touch the allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Asks for a file in each step, and notes how much was allocated when it is asked.
#[derive(Debug, Default)]
struct Reader {
    allocated: Mutex<Vec<u64>>,
}

impl Model for Reader {
    fn reserved_tokens(&self) -> u64 {
        1000
    }

    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Answer, ModelError>> {
        let mut allocated = self.allocated.lock().unwrap();
        allocated.push(ALLOCATED.load(Ordering::Relaxed));
        let call = ToolCall {
            id: format!("call-{:06}", question.answers),
            name: "read".to_owned(),
            args: r#"{"path":"f"}"#.to_owned(),
        };
        let said = if allocated.len() > STEPS { Delta::Text("done".to_owned()) } else { Delta::Call(call) };
        std::future::ready(Ok(stream::iter([Ok(said)]).boxed())).boxed()
    }
}

/// The steps that write a checkpoint, or for which a list grows, take more: the median is of one that does neither.
fn median(steps: &[u64]) -> u64 {
    let mut steps = steps.to_vec();
    steps.sort_unstable();
    steps[steps.len() / 2]
}

#[tokio::test]
async fn a_late_step_copies_no_more_than_an_early_one() {
    let mut stage = Stage::new([]);
    let model = Arc::new(Reader { allocated: Mutex::new(Vec::with_capacity(STEPS + 1)) });
    stage.agent.model = Arc::clone(&model) as Arc<dyn Model>;
    stage.world.put("f", "x".repeat(BYTES));
    let exit = stage.run().await.exit;
    assert!(matches!(exit, Exit::Completed), "{exit:?}");
    let allocated = model.allocated.lock().unwrap();
    let steps: Vec<u64> = allocated.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps.len(), STEPS);
    let (early, late) = (median(&steps[WINDOW..2 * WINDOW]), median(&steps[STEPS - WINDOW..]));
    eprintln!("{early} bytes are allocated for an early step, {late} for a late one");
    // Numbers become longer, by less than this.
    assert!(late <= early + 256, "{early} bytes for an early step, {late} for a late one");
    // The file, its result in the conversation and in the journal, and what carries them there.
    assert!(late <= 14 * BYTES as u64, "{late} bytes for a step of {BYTES}");
}
