//! The behaviour cases, with the real binary and a daemon of its own for each test.
//!
//! A case is told through the command line alone; a test looks into files only where the case is about files.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "tests make and damage files as a person would")]

mod answered_elsewhere;
mod approvals;
mod attention;
mod attribution;
mod attribution_signals;
mod authority;
mod budgets;
mod cli_acp;
mod cli_agents;
mod cli_confined;
mod cli_gateway;
mod cli_pool;
mod cli_subagents;
mod cli_terminal;
mod collecting;
mod completions;
mod configuring;
mod conflicts;
mod connections;
mod context;
mod credentials;
mod daemon;
#[cfg(feature = "faults")]
mod dashboard;
#[path = "../support/dice.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod dice;
mod doubts;
mod enter;
mod environments;
mod forks;
#[path = "../support/freezer.rs"]
mod freezer;
mod habits;
mod handlers;
mod handles;
mod hang_ups;
#[path = "../support/hasty.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod hasty;
mod impostors;
mod inbox;
mod inherited;
mod interactive;
mod isolation;
mod isolation_escapes;
mod isolation_layouts;
mod journal;
mod keepers_stopped;
mod killing;
mod lists;
mod looking;
mod losses;
mod models;
mod network;
mod not_started;
mod odd_files;
mod old_pids;
mod outputs;
mod own_sockets;
mod pauses;
mod pauses_kept;
mod piping;
mod recovery;
mod requests;
mod resuming;
mod rules;
mod screen;
mod secrets;
mod sessions_costs;
mod sessions_crowd;
mod sessions_ends;
mod sessions_foreground;
mod sessions_logs;
mod sessions_lost;
mod sessions_messages;
mod sessions_restart;
mod sessions_signals;
mod sessions_spare;
mod sessions_stages;
mod sessions_support;
mod sessions_tampering;
mod sessions_terminal;
mod shell;
mod shell_stuck;
mod signals;
mod slow_clients;
mod sockets_gone;
mod start_and_stop;
mod surface;
mod time;
mod tracing;
mod trees;
mod trees_again;
mod trees_environments;
mod trees_files;
mod trees_hostile;
mod trees_limits;
mod trees_results;
mod trees_stopped;
mod trees_waiting;
mod truth;
mod typed;
mod waiting;
mod workspaces;
mod workspaces_bits;
mod workspaces_cancelled;
mod workspaces_gone;
mod workspaces_hostile;
mod workspaces_kept;
mod workspaces_killed;
mod workspaces_others;
mod workspaces_partial;
mod workspaces_random;
mod workspaces_removed;
mod workspaces_shared;
mod workspaces_support;
mod workspaces_told;
mod workspaces_undo;
mod world;
