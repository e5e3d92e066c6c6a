//! Trees of processes, as whoever asks may use them.

use relive_api::{Created, FlowRequest, FlowStatus, NodeRequest, NodeResumed};
use relive_core::{Limits, Rights};

use super::Access;
use crate::error::Result;

impl Access {
    /// Starts a tree; below the process that asks, if it is one.
    pub async fn start_flow(&self, request: FlowRequest) -> Result<Created> {
        self.may_use(request.uuid).await?;
        let started = self.runtime.start_flow(self.process()?, request).await;
        self.without_stranger(started).await
    }

    /// Returns the state of a tree. Of the processes of its nodes only whoever owns it sees all; others are told of those
    /// that they may see.
    pub async fn flow_status(&self, id: &str) -> Result<FlowStatus> {
        let found = self.find(id, Rights::Observer).await?;
        let mut status = self.runtime.flow_status(&found).await?;
        if self.find(&found, Rights::Owner).await.is_ok() {
            return Ok(status);
        }
        for node in &mut status.nodes {
            if let Some(uuid) = node.uuid
                && self.find(&uuid.to_string(), Rights::Observer).await.is_err()
            {
                (node.uuid, node.pid, node.exit, node.reason, node.hint) = (None, None, None, None, None);
            }
        }
        Ok(status)
    }

    /// Has a node of a compose file continue.
    pub async fn resume_node(&self, id: &str, request: NodeRequest, request_id: Option<String>) -> Result<NodeResumed> {
        // A controller decides when a process runs, not for how long.
        let needed = if request.limits == Limits::default() { Rights::Controller } else { Rights::Owner };
        let id = self.find(id, needed).await?;
        self.runtime.resume_node(self.cause(&id).await?, &id, request, request_id).await
    }
}
