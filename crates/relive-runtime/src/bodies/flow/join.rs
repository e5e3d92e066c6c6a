//! Nodes that worked on copies: their changes are brought together before a node that depends on them starts.

use std::sync::Arc;

use relive_api::FileConflict;
use relive_core::ErrorCode;
use relive_flow::OwnNode;

use super::child::directory_of;
use crate::error::{Error, Result};
use crate::runtime::Runtime;

/// How many files of a conflict are named.
const NAMED: usize = 5;
/// How often a merge is planned again after somebody has changed the files meanwhile.
const TRIES: u32 = 3;

impl Runtime {
    /// Merges the changes of nodes into their directories, one after the other. Merging again what was merged changes
    /// nothing, so a daemon that was killed in between merges all of them again.
    pub(super) async fn merge_nodes(self: &Arc<Self>, cwd: &str, nodes: &[OwnNode]) -> Result<()> {
        if nodes.is_empty() {
            return Ok(());
        }
        // Two nodes that start at once may have the same directories.
        let _alone = self.flows.merging.lock().await;
        for node in nodes {
            self.merge_one(node, directory_of(cwd, node.cwd.as_deref())).await?;
        }
        Ok(())
    }

    async fn merge_one(self: &Arc<Self>, node: &OwnNode, into: String) -> Result<()> {
        let OwnNode { slot, uuid, .. } = node;
        for tried in 1.. {
            match self.merge_node(*uuid, into.clone()).await {
                Ok(merged) if merged.written == 0 && !merged.conflicts.is_empty() => {
                    let message = format!("the changes of {slot} conflict in {}", named(&merged.conflicts));
                    let hint = format!("relive merge {uuid} --into {} --force", relive_types::program::quote(&into));
                    return Err(Error::new(ErrorCode::Conflict, message).with_hint(hint));
                }
                Ok(merged) if merged.verified => break,
                Ok(_) if tried < TRIES => {}
                Err(error) if error.code() == ErrorCode::Conflict && tried < TRIES => {}
                Ok(_) => {
                    let message = format!("{into} changed while the changes of {slot} were merged");
                    return Err(Error::new(ErrorCode::Conflict, message));
                }
                Err(error) => {
                    let force = format!("relive merge {uuid} --into {} --force", relive_types::program::quote(&into));
                    let message = format!("the changes of {slot} cannot be merged: {error}");
                    return Err(Error::new(error.code(), message).with_hint(force));
                }
            }
        }
        Ok(())
    }
}

fn named(conflicts: &[FileConflict]) -> String {
    let more = conflicts.len().saturating_sub(NAMED);
    let paths = conflicts.iter().take(NAMED).map(|conflict| conflict.path.as_str()).collect::<Vec<_>>().join(", ");
    if more == 0 { paths } else { format!("{paths} and {more} more") }
}
