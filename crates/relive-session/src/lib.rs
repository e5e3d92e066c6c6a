//! OS sessions: any program as a process of Relive that keeps running when the daemon dies.
//!
//! One **shim** per session is the program's parent. It is this program executed again under the name [`SHIM`], single
//! threaded, and it holds what the program needs: its terminal or pipes, its process tree, its log, and at the end its
//! exit record. The daemon only talks to it. The session's [`SessionDirectory`] is its complete interface: a reader of
//! the directory can find out what happened to the session, and a client that connects to it owns it.
//!
//! **Invariants:**
//! - the lock of a directory is held from before the shim exists until it is gone, so a free lock means that there is
//!   no shim, and none is about to start;
//! - a program runs only after the directory says so, so a directory that does not say so means that nothing ran;
//! - the exit record is on the disk before the shim exits, and the last output is in the log before the exit record
//!   exists;
//! - a slow reader of the log delays nobody and learns what it missed, or asks the program to wait and misses nothing.
//!
//! Processes, journals and signals by Relive's names are not here. A session knows only OS signals and OS pids.

pub mod connection;
pub mod descriptors;
pub mod directory;
pub mod errno;
pub mod exit;
mod faults;
pub mod inherited;
pub mod kernel_file;
pub mod launch;
pub mod log;
mod packet;
pub mod peer;
mod probe;
pub mod proc;
pub mod protocol;
pub mod sessions;
pub mod shim;
pub mod spec;
pub mod stage;
pub mod tree;

pub use connection::Connection;
pub use directory::SessionDirectory;
pub use launch::Launcher;

/// The name under which the program becomes a shim.
pub const SHIM: &str = "relive-shim";
