//! The shim by itself, for the tests of this crate. The real one is the `relive` program under the shim's name.

fn main() {
    relive_session::shim::main()
}
