//! How things look to a person. Pure: from values to text.

pub(crate) mod approval;
pub(crate) mod diff;
pub(crate) mod event;
pub(crate) mod exit;
pub(crate) mod files;
pub(crate) mod journal;
pub(crate) mod line;
pub(crate) mod live;
pub(crate) mod parked;
pub(crate) mod processes;
pub(crate) mod size;
pub(crate) mod steps;
pub(crate) mod summary;
pub(crate) mod table;
pub(crate) mod time;
