//! Keeps the environments of processes in memory, and in no file.
//!
//! They contain keys, and they have to outlive a daemon that is killed. So a small separate process, the **keeper**,
//! has a copy of them: this program executed again under the name [`KEEPER`]. It listens on `keeper` in the data
//! directory and answers only the daemon that holds the lock of that directory ([`proof`]), so there is one client at a
//! time. A daemon that runs inside of a process is refused: a program may have killed ours and started it.
//!
//! **Invariants:**
//! - the keeper is not dumpable: no other program of its user can read its memory, its descriptors or its environment,
//!   and it leaves no core dump;
//! - it listens only after its starter has proved that it holds the lock, and it ends when nobody is connected and it
//!   keeps nothing, or when its socket was removed;
//! - equal values are kept once, and everything has a limit ([`store`]);
//! - a value is opaque to it, so that a keeper of an earlier version can keep the values of a later daemon.

#![forbid(unsafe_code)]

mod client;
mod process;
mod proof;
mod protocol;
mod store;

pub use client::{Error, Group, HangUp, Keeper};
pub use process::{IsOutside, main};
pub use proof::holds_lock;
pub use protocol::Refusal;
pub use store::{Full, Store};

/// The name under which this program is executed to become the keeper.
pub const KEEPER: &str = "relive-keeper";

/// The keeper's socket in the data directory.
pub const SOCKET: &str = "keeper";

/// The owner of a value: the UUID of a process.
pub type Key = u128;

/// The longest value.
pub const VALUE_MAX_BYTES: usize = 4 << 20;
/// The limit for all different values together.
pub const VALUES_MAX_BYTES: usize = 64 << 20;
/// The limit for the number of keys.
pub const ENTRIES_MAX: usize = 1 << 18;
