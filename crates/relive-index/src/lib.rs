//! A derived index of the journals, so that looking up a process does not read them.
//!
//! The journals are authoritative. The index may be deleted at any time: it is rebuilt from the data directory, and
//! until then [`Index::is_complete`] is `false` and "not found" means "not known yet". A database that is damaged, or
//! that another version wrote, is deleted.
//!
//! Everything here blocks, so callers run it on a thread for blocking I/O. One connection serves all callers in turn.

#![forbid(unsafe_code)]

mod closing;
mod error;
mod fill;
mod glob;
mod id;
mod index;
mod page;
mod row;
mod schema;
mod tree;
mod usage;
mod write;

pub use error::{Error, Result};
pub use fill::{Entry, Refreshed, entries};
pub use glob::{PATTERN_MAX, matches};
pub use index::{CANDIDATES_MAX, Index, PidEntry};
pub use page::{Cursor, Filter, Order, Outcome, PAGE_MAX, Page};
pub use row::{Freshness, Incarnation, Row, State};
pub use tree::Dependent;
pub use usage::{USAGE_MAX, UsageBy, UsageRow};
