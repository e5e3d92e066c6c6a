//! The runtime in this process: no binary, no socket, no shim.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "tests make and damage files as a person would")]

mod attention;
mod authority;
mod authority_limits;
mod clocks;
mod costs;
mod disks;
mod ends;
mod files;
mod flows;
mod forks;
mod hang_ups;
mod listings;
mod look_ups;
mod managing;
mod owners;
mod pids;
mod recovery;
mod repeats;
mod requests;
mod results;
mod signals;
mod stalls;
mod states;
mod time;
mod told_to_end;
mod trees;
mod unrecovered;
mod world;
