//! The client for threads that block.

use std::future::Future;
use std::io;

use tokio::runtime::Runtime;

use super::client::Client;

/// A client and the runtime that its requests are made on.
#[derive(Debug)]
pub struct BlockingClient {
    executor: Runtime,
    client: Client,
}

impl BlockingClient {
    /// Gives a client a runtime of its own, on the thread that calls.
    pub fn new(client: Client) -> io::Result<Self> {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { executor, client })
    }

    /// Has something asked, and waits for the answer.
    pub fn call<'a, F: Future>(&'a self, ask: impl FnOnce(&'a Client) -> F) -> F::Output {
        self.executor.block_on(ask(&self.client))
    }
}
