//! The keeper's process, for the tests of this crate.

fn main() {
    // A test is outside, unless its data directory says otherwise.
    relive_keeper::main(|_, data| rustix::fs::statat(data, "inside", rustix::fs::AtFlags::empty()).is_err())
}
