//! Whether a tree has room: processes that are kept running never leave their places to others.

use crate::file::{Run, SupervisorFile};
use crate::flow::Definition;
use crate::restart::Policy;

/// Why a tree could never run as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{services} processes are kept running (`restart: permanent`){}, and {places} can run at once{}", place(at.as_deref()), rest(*others))]
pub struct Crowded {
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

fn rest(others: usize) -> &'static str {
    if others == 0 { "" } else { ": the others would never start" }
}

impl Definition {
    /// Refuses a tree whose services take all places: so many processes of one parent run at once.
    pub fn fits(&self, places: usize) -> Result<(), Crowded> {
        match self {
            Self::Compose(file) => {
                let services = file.nodes.iter().filter(|node| node.is_service()).count();
                check(None, services, file.nodes.len() - services, places)
            }
            Self::Supervisor(file) => supervisor(None, file, places),
        }
    }
}

fn supervisor(at: Option<&str>, file: &SupervisorFile, places: usize) -> Result<(), Crowded> {
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

fn check(at: Option<&str>, services: usize, others: usize, places: usize) -> Result<(), Crowded> {
    if services + others.min(1) <= places {
        return Ok(());
    }
    Err(Crowded { at: at.map(str::to_owned), services, others, places })
}
