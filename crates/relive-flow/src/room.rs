//! Whether a tree has room: processes that are kept running never leave their places to others.

use crate::file::{Run, SupervisorFile};
use crate::flow::Definition;
use crate::restart::Policy;

/// Why a tree could never run as a whole: its services take all places.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{services} services (`restart: permanent`){} need {} places, but limits.max_children is {places}",
    place(at.as_deref()),
    services + others.min(&1)
)]
pub struct TooManyServices {
    /// The child with the supervisor that has too many, if it is not the file itself.
    pub at: Option<String>,
    pub services: usize,
    /// How many other processes wait for a place.
    pub others: usize,
    pub places: usize,
}

fn place(at: Option<&str>) -> String {
    at.map(|at| format!(" below `{at}`")).unwrap_or_default()
}

impl Definition {
    /// Refuses a tree whose services take all places: so many processes of one parent run at once.
    pub fn fits(&self, places: usize) -> Result<(), TooManyServices> {
        match self {
            Self::Compose(file) => {
                let services = file.nodes.iter().filter(|node| node.is_service()).count();
                check(None, services, file.nodes.len() - services, places)
            }
            Self::Supervisor(file) => supervisor(None, file, places),
        }
    }
}

impl Definition {
    /// Returns how many levels of processes are below the tree.
    #[must_use]
    pub fn levels(&self) -> u32 {
        match self {
            Self::Compose(_) => 1,
            Self::Supervisor(file) => levels(file),
        }
    }
}

fn levels(file: &SupervisorFile) -> u32 {
    let below = file.children.iter().map(|child| match &child.run {
        Run::Supervisor(nested) => levels(nested),
        Run::Task(_) => 0,
    });
    1 + below.max().unwrap_or_default()
}

fn supervisor(at: Option<&str>, file: &SupervisorFile, places: usize) -> Result<(), TooManyServices> {
    let services = file.children.iter().filter(|child| child.restart == Policy::Permanent).count();
    check(at, services, file.children.len() - services, places)?;
    for child in &file.children {
        match &child.run {
            Run::Supervisor(nested) => supervisor(Some(&child.name), nested, places)?,
            Run::Task(_) => {}
        }
    }
    Ok(())
}

fn check(at: Option<&str>, services: usize, others: usize, places: usize) -> Result<(), TooManyServices> {
    if services + others.min(1) <= places {
        return Ok(());
    }
    Err(TooManyServices { at: at.map(str::to_owned), services, others, places })
}
