//! The requests about trees of processes.

use relive_api::{Created, FlowRequest, FlowStatus, NodeRequest, NodeResumed};

use crate::client::Client;
use crate::error::Error;
use crate::http::segment;

impl Client {
    pub async fn start_flow(&self, request: &FlowRequest) -> Result<Created, Error> {
        self.post("/v1/flows".into(), request).await
    }

    pub async fn flow(&self, id: &str) -> Result<FlowStatus, Error> {
        self.get(format!("/v1/processes/{}/flow", segment(id))).await
    }

    pub async fn resume_node(&self, id: &str, request: &NodeRequest) -> Result<NodeResumed, Error> {
        self.tell(id, "node", request).await
    }
}
