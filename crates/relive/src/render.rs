//! How things look to a person. Pure: from values to text.

pub(crate) mod event;
pub(crate) mod journal;
pub(crate) mod line;
pub(crate) mod parked;
pub(crate) mod processes;
pub(crate) mod size;
pub(crate) mod steps;
pub(crate) mod table;
pub(crate) mod time;
