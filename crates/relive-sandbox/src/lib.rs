//! Isolation: what one program may reach on this machine.
//!
//! Four steps, each of which can be tested alone:
//! 1. [`Policy`] is a request: a word (`none`, `confined`, `sealed`), single namespaces, additions to the default lists.
//! 2. [`Surroundings::look`] reads what the request meets here: which of its paths exist, where the repository is.
//! 3. [`Plan::new`] is pure: it decides every mount, namespace and filter, and what this machine cannot hold.
//! 4. [`Prepared::new`] turns the plan into system calls. [`Prepared::enter`] and [`Prepared::lock`] make them, in the
//!    program's process before it executes, without allocating.
//!
//! **Invariants:**
//! - what is deeper in the file system is mounted later, so a hidden directory inside of a writable one stays hidden,
//!   and so does everything of a hidden directory except the parts that are shown;
//! - every source is opened before anything is mounted, and no mount follows a symbolic link;
//! - a guarantee that cannot be given is an error, or is listed in [`Plan::degraded`].
//!
//! Sessions, processes and the daemon are not known here.

mod capabilities;
mod filter;
mod git;
mod landlock;
mod mounts;
mod places;
mod plan;
mod planted;
mod policy;
mod prepared;
mod probe;
mod real_path;
mod state;
mod surroundings;
mod system;

pub use places::Places;
pub use plan::{Capabilities, Filter, Landlock, Mount, Plan, PlanError, RootMount};
pub use planted::{GuardedDirectory, NotDisabled};
pub use policy::{GitConfig, Isolation, NamespaceKind, Namespaces, Network, Policy, Unheld};
pub use prepared::{PrepareError, Prepared, Refused};
pub use probe::{Machine, map_ids, probe};
pub use state::{Fixed, FoundState, Missing, State};
pub use surroundings::{GitDirectory, Shape, Surroundings, executes, hidden, protected};
