//! The behaviour cases, with the real binary and a daemon of its own for each test.
//!
//! A case is told through the command line alone; a test looks into files only where the case is about files.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "tests make and damage files as a person would")]

mod approvals;
mod attribution;
mod budgets;
mod collecting;
mod conflicts;
mod connections;
mod context;
mod credentials;
mod daemon;
#[path = "../support/dice.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod dice;
#[cfg(feature = "faults")]
mod doubts;
mod environments;
mod forks;
#[path = "../support/freezer.rs"]
mod freezer;
mod hang_ups;
#[path = "../support/hasty.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod hasty;
mod journal;
mod killing;
mod looking;
mod models;
mod odd_files;
mod old_pids;
mod pauses;
mod recovery;
mod requests;
mod resuming;
mod sessions_crowd;
mod sessions_ends;
mod sessions_foreground;
mod sessions_logs;
mod sessions_lost;
mod sessions_messages;
mod sessions_restart;
mod sessions_signals;
mod sessions_stages;
mod sessions_support;
mod sessions_terminal;
mod shell;
mod signals;
mod slow_clients;
mod start_and_stop;
mod time;
mod tracing;
mod waiting;
mod world;
