//! A client for blocking threads.

use std::future::Future;
use std::io;

use tokio::runtime::Runtime;

use super::client::Client;

/// A client and the runtime for its requests.
#[derive(Debug)]
pub struct BlockingClient {
    executor: Runtime,
    client: Client,
}

impl BlockingClient {
    /// Creates a client with a runtime of its own, on the calling thread.
    pub fn new(client: Client) -> io::Result<Self> {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { executor, client })
    }

    /// Runs a request, and waits for the answer.
    pub fn call<'a, F: Future>(&'a self, ask: impl FnOnce(&'a Client) -> F) -> F::Output {
        self.executor.block_on(ask(&self.client))
    }
}
