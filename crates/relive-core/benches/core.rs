//! Measures the process model: the bytes of each suspended process, and listing and signalling next to the simplest
//! code that does the same walk in the same run. Only the bytes are a gate; the ratios are for people to read.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "../tests/support/counting.rs"]
mod counting;

use std::hint::black_box;
use std::time::{Duration, Instant};

use relive_core::{Aim, Cause, Event, Pid, Settings, Signal, Spec, Table, Urgency, Uuid, View, Why};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const LISTED: u32 = 100_000;
const SIGNALLED: u32 = 10_000;
const ROUNDS: usize = 21;
const MAX_BYTES_EACH: usize = 800;

/// Returns the median time of several rounds, each on a fresh input.
fn median<I, O>(mut input: impl FnMut() -> I, mut run: impl FnMut(I) -> O) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let input = input();
            let start = Instant::now();
            let output = black_box(run(black_box(input)));
            let time = start.elapsed();
            drop(output);
            time
        })
        .collect();
    times.sort();
    times[ROUNDS / 2]
}

fn report(what: &str, time: Duration, raw: Duration) {
    let ratio = time.as_secs_f64() / raw.as_secs_f64();
    println!("{what}: {time:.1?}, raw {raw:.1?}, ratio {ratio:.1}");
}

fn main() {
    memory();
    list();
    signal();
}

fn memory() {
    let before = counting::bytes_in_use();
    let table = counting::suspended(LISTED);
    let each = (counting::bytes_in_use() - before) / LISTED as usize;
    println!("{LISTED} suspended processes: {each} bytes each, gate {MAX_BYTES_EACH}");
    assert!(each <= MAX_BYTES_EACH, "{each} bytes each");
    drop(table);
}

/// Lists every process as a view, next to copying a vector of the same views.
fn list() {
    let table = counting::suspended(LISTED);
    let views: Vec<View<'_>> = table.processes(counting::now()).collect();
    let time = median(|| &table, |table| table.processes(counting::now()).collect::<Vec<_>>());
    let raw = median(|| &views, |views| views.to_vec());
    report(&format!("list {LISTED}, collected"), time, raw);
    let time = median(|| &table, |table| table.processes(counting::now()).for_each(|view| drop(black_box(view))));
    let raw = median(|| &views, |views| views.iter().cloned().for_each(|view| drop(black_box(view))));
    report(&format!("list {LISTED}, iterated"), time, raw);
}

/// The size of a process in memory, with only the fields that a walk and a signal need.
struct Node {
    children: Vec<u32>,
    signalled: bool,
    _rest: [u64; 30],
}

/// Gives every node ten children.
fn parent(number: u32) -> u32 {
    (number - 1) / 10
}

/// Ends a tree, next to a walk of a plain tree that sets a flag and collects the nodes it reached.
fn signal() {
    let mut table = Table::new(Settings::default(), Pid(0));
    let mut nodes: Vec<Node> = Vec::new();
    for number in 0..SIGNALLED {
        let parent_pid = if number == 0 { Pid::RUNTIME } else { Pid(parent(number) + 1) };
        let spec = Spec::new(Pid(number + 1), Uuid::from_u128(u128::from(number) + 1), parent_pid, counting::now());
        assert_eq!(table.spawn(spec), Ok(()));
        assert!(table.apply(Pid(number + 1), Event::Start, counting::now()).is_ok());
        nodes.push(Node { children: Vec::new(), signalled: false, _rest: [0; 30] });
        if number > 0 {
            nodes[parent(number) as usize].children.push(number);
        }
    }
    let raw = median(
        || (),
        |()| {
            let (mut reached, mut stack) = (Vec::new(), vec![0_u32]);
            while let Some(at) = stack.pop() {
                let node = &mut nodes[at as usize];
                node.signalled = black_box(true);
                reached.push(Pid(at + 1));
                stack.extend(node.children.iter().rev());
            }
            reached
        },
    );
    let (cause, urgency, aim) = (Cause::runtime(Why::User), Urgency::Boundary, Aim::Subtree);
    for (signal, what) in [(Signal::Kill, "kill"), (Signal::Pause, "pause")] {
        let send = |mut table: Table| {
            for pid in table.subtree(Pid(1)) {
                let event = Event::Signal { signal, cause, urgency, aim };
                assert!(table.apply(pid, event, counting::now()).is_ok());
            }
            table
        };
        let time = median(|| table.clone(), send);
        report(&format!("{what} a tree of {SIGNALLED}"), time, raw);
    }
}
