//! The numbered cases of docs/cases.md, each by its number.

mod collecting;
mod forks;
mod journal;
mod killing;
mod pauses;
mod recovery;
mod requests;
mod resuming;
mod tracing;
mod waiting;
