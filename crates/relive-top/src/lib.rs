//! The terminal dashboard: everything that waits for a person, the tree of processes, and what each of them does.
//!
//! [`State`] is pure: it takes inputs (keys, changes of processes, the clock) and returns effects; [`draw`] turns it into
//! a screen. Only [`run`] touches the terminal, the daemon and other programs. Each action is a command of Relive's own
//! command line, which is shown.

mod actions;
mod attached;
mod content;
mod counts;
mod draft;
mod draw;
mod drive;
mod elsewhere;
mod key;
mod keyboard;
mod keys;
mod overlay;
mod pasted;
mod results;
mod rows;
mod runner;
mod selection;
mod signals;
mod state;
mod status;
mod terminal;
mod text;

pub use content::{Compared, Content, Line, Outcome, Part, Tab};
pub use draw::draw;
pub use drive::{Failure, Options, run};
pub use key::{Erase, Key};
pub use keyboard::AT_ONCE;
pub use rows::{Row, RowKind};
pub use state::{Batch, Drawn, Effect, Finished, Input, Look, Output, Overlay, Prompt, State};
