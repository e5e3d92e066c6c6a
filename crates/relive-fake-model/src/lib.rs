//! A local server that speaks the wire formats of model providers, for tests.
//!
//! It plays a script. The number of answers in a conversation selects the turn, so a resumed conversation continues at
//! its place and a repeated question gets the same answer. It refuses, with 400 and a reason, everything that the real
//! providers refuse: a call without exactly one result, roles out of order, changed thinking, a missing key. It answers
//! a request for a summary with one, and keeps every request.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, reason = "a test's server that cannot start has failed the test")]

mod history;
mod script;
mod server;
mod summary;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

pub use script::{Failure, Turn};
pub use server::Request;

use server::{Clients, Shared};

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct FakeModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeModel {
    /// Starts the server on a port of its own.
    #[must_use]
    pub fn start(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self::start_for(Clients::Native, turns)
    }

    /// Starts a server for the CLI agents of other vendors, on a port of its own. Their conversations are not checked:
    /// they add messages of their own. A question without tools, such as one for a title, gets an answer outside of the
    /// script.
    #[must_use]
    pub fn start_for_agents(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self::start_for(Clients::Agents, turns)
    }

    fn start_for(clients: Clients, turns: impl IntoIterator<Item = Turn>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::new(clients, turns.into_iter().collect()));
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(server::serve(listener, serving, stopped));
        });
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Returns the address for `ANTHROPIC_BASE_URL`, `GOOGLE_GEMINI_BASE_URL`, `OLLAMA_HOST` and `DEEPSEEK_BASE_URL`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the address for `OPENAI_BASE_URL`.
    #[must_use]
    pub fn openai_base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns how many answers are being sent. An answer whose client has gone does not count.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.shared.under_way()
    }

    /// Sends the rest of all answers that wait, now and later.
    pub fn let_go(&self) {
        self.shared.let_go();
    }

    /// Returns the tokens of all answers that were sent to their end, input and output.
    #[must_use]
    pub fn handed_out(&self) -> (u64, u64) {
        self.shared.handed_out()
    }

    /// Returns all requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests()
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        // The server may have ended with a panic, which the test has seen.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
