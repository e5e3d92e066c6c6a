//! Measures the memory of a suspended process. This is a binary of its own because it counts every byte of the program.

#[path = "support/counting.rs"]
mod counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const COUNT: u32 = 100_000;
const MAX_BYTES_EACH: usize = 832;

#[test]
fn a_suspended_process_takes_at_most_832_bytes() {
    let before = counting::bytes_in_use();
    let table = counting::suspended(COUNT);
    let each = (counting::bytes_in_use() - before) / COUNT as usize;
    assert_eq!(table.processes(counting::now()).filter(|view| view.paused).count(), COUNT as usize);
    assert!(each <= MAX_BYTES_EACH, "{each} bytes each");
    drop(table);
    assert!(counting::bytes_in_use() - before < COUNT as usize, "all of it is given back");
}
