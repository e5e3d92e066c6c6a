//! The keeper's process, for the tests of this crate.

fn main() {
    relive_keeper::main()
}
