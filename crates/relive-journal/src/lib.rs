//! Relive's history on disk.
//!
//! **A process is its journal; what runs is only the journal's current writer.** This crate owns the files: the directory
//! of each process ([`ProcessDirectory`]), its journal ([`Writer`], [`History`]), its events ([`EventLog`]), and the data directory
//! that holds them all. It never runs anything and never looks at the world outside its files.
//!
//! What always holds: nothing is acknowledged before it is synced; nothing acknowledged is ever changed or cut;
//! everything but `steps.jsonl`, `process-meta.json` and `blobs/` is derived and may be deleted. Every change to a file
//! goes through [`Disk`]. Everything here blocks; [`Pool`] has the threads for it.

#![forbid(unsafe_code)]

mod beside;
mod checkpoint;
pub mod conversation;
pub mod data;
mod directory;
mod disk;
pub mod events;
#[cfg(feature = "faults")]
pub mod faults;
pub mod files;
mod git;
mod hash;
pub mod history;
mod hook;
mod info;
pub mod journal;
mod line;
mod meta;
mod opening;
mod outline;
pub mod payload;
mod plan;
pub mod policy;
mod pool;
mod profile;
pub mod reader;
pub mod record;
pub mod recovery;
mod regular;
mod scan;
mod signals;
mod writer;

pub use beside::{PendingSync, SyncedEnd};
pub use data::DataDirectory;
pub use directory::ProcessDirectory;
pub use disk::{Counts, Disk, DiskFile};
pub use events::EventLog;
pub use hash::{Hash, NotAHash};
pub use history::History;
pub use info::{INTENT_MAX, JournalState, KnownFiles, ProcInfo};
pub use journal::{Journal, JournalError, LocalJournal, OpenJournal, Progress};
pub use line::{LINE_MAX, VERSION};
pub use meta::{Instructions, ProcessMeta};
pub use opening::{OpenFailure, Opening, Seen};
pub use plan::{CRASH_LOOP_MAX, Next, Plan};
pub use pool::{JOBS_MAX, JobLost, Pool, THREADS_MAX};
pub use regular::is_damage;
pub use scan::{Health, Hole, Problem};
pub use writer::{Durability, Io, WriteError, Writer};
