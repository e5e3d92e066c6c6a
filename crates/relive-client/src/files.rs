//! Requests about the files that processes work on.

use relive_api::{
    Blame, BlameRequest, DiffQuery, FilesChanged, FilesDiff, MergeRequest, OwnWorkspace, OwnWorkspaces,
    RemoveWorkspaceRequest, RestoreRequest, RewindRequest, Rewound,
};

use super::client::Client;
use super::error::Error;
use super::http::segment;
use super::silence::LongWork;

#[expect(missing_docs, reason = "the requests are described in relive_api")]
impl Client {
    pub async fn diff(&self, id: &str, query: DiffQuery) -> Result<FilesDiff, Error> {
        let DiffQuery { from, to, text } = query;
        let steps = [("from", from), ("to", to)];
        let steps: String = steps.iter().filter_map(|(key, step)| Some(format!("&{key}={}", (*step)?))).collect();
        self.get(format!("/v1/processes/{}/diff?text={text}{steps}", segment(id))).await
    }

    pub async fn rewind(&self, id: &str, request: &RewindRequest) -> Result<Rewound, Error> {
        self.post_until_done(format!("/v1/processes/{}/rewind", segment(id)), request, LongWork::Other).await
    }

    pub async fn restore(&self, id: &str, request: &RestoreRequest) -> Result<FilesChanged, Error> {
        self.post_until_done(format!("/v1/processes/{}/restore", segment(id)), request, LongWork::Other).await
    }

    pub async fn merge(&self, id: &str, request: &MergeRequest) -> Result<FilesChanged, Error> {
        self.post_until_done(format!("/v1/processes/{}/merge", segment(id)), request, LongWork::Other).await
    }

    pub async fn blame(&self, request: &BlameRequest) -> Result<Blame, Error> {
        self.post("/v1/blame".into(), request).await
    }

    pub async fn workspaces(&self) -> Result<OwnWorkspaces, Error> {
        self.get("/v1/workspaces".into()).await
    }

    pub async fn remove_workspace(&self, request: &RemoveWorkspaceRequest) -> Result<OwnWorkspace, Error> {
        self.post_until_done("/v1/workspaces/remove".into(), request, LongWork::Other).await
    }
}
