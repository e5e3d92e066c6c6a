//! The processes whose programs run, according to the kernel.
//!
//! A program can write any journal into its own directory, or remove the directory. It cannot hide its shim, so a process
//! whose program runs is never taken for one that has ended or never existed.

use std::collections::{BTreeSet, HashMap};

use relive_core::Uuid;
use relive_journal::DataDirectory;
use relive_session::proc::{self, Stat};

use crate::unrecovered::Failure;

/// The processes of a data directory that have shims.
#[derive(Debug, Default)]
pub(super) struct Running {
    shims: BTreeSet<Uuid>,
    programs: BTreeSet<Uuid>,
}

impl Running {
    pub(super) fn look(data: &DataDirectory) -> Self {
        let steps = data.root().join("steps");
        // Markers have to do where nobody may look at other processes.
        let shims: HashMap<i32, Option<Uuid>> = proc::shims()
            .unwrap_or_default()
            .iter()
            .map(|(shim, folder)| {
                let process = folder.strip_prefix(&steps).ok().and_then(|below| below.components().next());
                let uuid = process.and_then(|process| Uuid::try_parse(process.as_os_str().to_str()?).ok());
                (shim.pid, uuid)
            })
            .collect();
        if shims.values().all(Option::is_none) {
            return Self::default();
        }
        // A shim that has told the end of its program has no children.
        let all: Vec<Stat> = proc::all().unwrap_or_default().into_iter().filter(Stat::lives).collect();
        let below = all.iter().filter(|stat| !shims.contains_key(&stat.identity.pid));
        let programs = below.filter_map(|stat| shims.get(&stat.parent).copied().flatten()).collect();
        Self { shims: shims.into_values().flatten().collect(), programs }
    }

    pub(super) fn with_shims(&self) -> impl Iterator<Item = Uuid> {
        self.shims.iter().copied()
    }

    /// Returns the failure of a process whose program runs, although its directory says that there is none.
    pub(super) fn contradicts(&self, data: &DataDirectory, uuid: Uuid) -> Option<Failure> {
        if !self.programs.contains(&uuid) {
            return None;
        }
        let directory = data.directory(uuid);
        if std::fs::symlink_metadata(directory.path()).is_err() {
            return Some(Failure::contradicted(&directory, "it was removed, and its program runs"));
        }
        let (history, _) = data.history(uuid).ok()?;
        let says = "its journal says that it has ended, and its program runs";
        history.ended().map(|_| Failure::contradicted(&directory, says))
    }
}
