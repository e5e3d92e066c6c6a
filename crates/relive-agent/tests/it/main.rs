//! The scripted model and the tools, used as the loop uses them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agents;
mod bounds;
mod cancel;
mod confinement;
mod costs;
mod crash;
mod files;
mod freezing;
mod retry;
mod script;
mod stage;
mod support;
