//! OS sessions: any program as a process of ours that does not notice when the daemon dies.
//!
//! One **shim** per session is the program's parent. It is this program executed again under the name [`SHIM`], single
//! threaded, and it holds what the program needs: its terminal or pipes, its tree, its log, and at the end its exit
//! record. The daemon only talks to it. The session's [`SessionDirectory`] is its whole outside: whoever finds the directory can find
//! out what became of the session, and whoever can connect to it owns it.
//!
//! What always holds:
//! - the lock of a directory is held from before the shim exists until it has gone, so a free lock means no shim, and no
//!   shim that is still to come;
//! - a program runs only after the directory says so, so a directory that does not say it means that nothing ran;
//! - the exit record is on the disk before the shim goes; the last output is in the log before the exit record is there;
//! - whoever reads the log slowly holds up nobody and is told what is gone, or asks the program to wait and loses nothing.
//!
//! What is not here: processes, journals, signals by Relive's names. A session knows OS signals and OS pids only.

#![warn(missing_docs)]

pub mod connection;
pub mod directory;
pub mod errno;
pub mod exit;
pub mod launch;
pub mod log;
mod packet;
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
