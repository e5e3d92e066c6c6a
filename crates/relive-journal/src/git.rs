//! What a journal says of the repository an agent worked in.

use std::io;

use serde::Deserialize;

use crate::directory::ProcessDirectory;
use crate::record::Git;
use crate::regular;
use crate::scan::for_each_record;

/// The one field of an answer that is of use here.
#[derive(Deserialize)]
struct Noted {
    #[serde(default)]
    git: Option<Git>,
}

/// How the repository stood at the end of a step: what was noted when the next one began, else the last note before.
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
