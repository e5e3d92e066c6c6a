//! The process model, as its callers see it.

mod names;
mod pauses;
mod processes;
mod random;
mod records;
mod release;
mod states;
mod support;
