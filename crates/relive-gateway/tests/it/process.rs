//! The gateway's process, for the tests of this crate.

fn main() {
    relive_gateway::main()
}
