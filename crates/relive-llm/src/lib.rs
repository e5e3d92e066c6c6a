//! Relive's models: the providers an agent can think with, behind [`Model`].
//!
//! A model is named `provider/model`. It is reached through `genai`, which knows the wire formats; what a question and
//! an answer are, what a failure means and what an answer costs is decided here.
//!
//! Always holds: nothing here reads the environment or a file, so whose key and whose server are used is the caller's
//! to say. No error, and nothing that is shown, holds a key. A price that is not known is absent, never zero.
//!
//! Deliberately not here: asking again after a failure, which is the loop's.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access;
mod adapter;
mod carry;
mod client;
mod failure;
pub mod model;
mod prices;
mod providers;
mod request;
mod windows;

use std::sync::Arc;

pub use access::{Access, Secret};
pub use adapter::Timeouts;
pub use model::Model;
pub use prices::{Price, Prices};
pub use providers::{Provider, provider, providers};
pub use windows::Windows;

/// Why there is no such model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Nobody is called so.
    #[error("there is no model `{name}`: {}", providers::advice(name, closest.as_deref()))]
    UnknownProvider {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        closest: Option<String>,
    },
    /// The provider wants a key, and there is none.
    #[error("{provider} needs a key, and {variable} is not set")]
    NeedsKey {
        /// Which provider.
        provider: &'static str,
        /// Where its key is looked for.
        variable: &'static str,
    },
    /// The address of the server is none.
    #[error("{variable} is no address of a server: {reason}")]
    BadUrl {
        /// Where it came from.
        variable: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// No connection can be made from this machine.
    #[error("no provider can be reached: {0}")]
    Client(String),
}

/// The model of this name, `provider/model`. Nothing is sent.
pub fn open(name: &str, access: Access, prices: &Prices, windows: &Windows) -> Result<Arc<dyn Model>, OpenError> {
    let timeouts = Timeouts::of(name);
    open_with(name, access, prices, windows, timeouts)
}

/// The same with a patience of the caller's own.
pub fn open_with(
    name: &str,
    access: Access,
    prices: &Prices,
    windows: &Windows,
    timeouts: Timeouts,
) -> Result<Arc<dyn Model>, OpenError> {
    let adapter = adapter::Adapter::new(name, access, prices, windows, timeouts)?;
    Ok(Arc::new(adapter))
}
