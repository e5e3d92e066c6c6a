//! The state of an agent's git repository according to the journal.

use std::io;

use serde::Deserialize;

use crate::directory::ProcessDirectory;
use crate::record::Git;
use crate::regular;
use crate::scan::for_each_record;

/// The only field of an answer that is needed here.
#[derive(Deserialize)]
struct Noted {
    #[serde(default)]
    git: Option<Git>,
}

/// Returns the state of the repository at the end of a step: the one recorded when the next step began, else the last
/// one before.
pub(crate) fn after(directory: &ProcessDirectory, step: u32) -> io::Result<Option<Git>> {
    let mut last = None;
    for_each_record(&regular::open(&directory.steps())?, |head, line| {
        if head.kind == "model_ended"
            && head.step <= step.saturating_add(1)
            && let Ok(Noted { git: Some(git) }) = serde_json::from_slice(line)
        {
            last = Some(git);
        }
    })?;
    Ok(last)
}
