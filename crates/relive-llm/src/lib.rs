//! The [`Model`] trait, the messages that go through it, and the providers behind it.
//!
//! A model is named `provider/model`, and [`open`] turns that name into a [`Model`]. `genai` knows the wire formats;
//! this crate decides how a question is sent, what a failure means and what an answer costs.
//!
//! **Invariant:** nothing here reads the environment or a file: the caller says which key and which server are used.
//!
//! **Invariant:** no error and no `Debug` output holds a key.
//!
//! **Invariant:** a price that is not known is absent, never zero.
//!
//! Retries are absent on purpose: the agent loop decides when to ask again, because it records every attempt.

#![forbid(unsafe_code)]

mod access;
mod adapter;
mod carry;
mod client;
mod conversation;
mod failure;
mod model;
mod prices;
mod providers;
mod request;
mod stream;
mod windows;

use std::sync::Arc;

use relive_types::model_name::NoSuchModel;

pub use access::{Access, Secret};
pub use adapter::Timeouts;
pub use conversation::Conversation;
pub use model::{Answer, Delta, Message, Model, ModelError, Purpose, Question, ToolCall, estimated_tokens};
pub use prices::{Price, Prices};
pub use providers::{Provider, provider, providers, split_name};
pub use windows::Windows;

/// The reason why a model cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No provider has this name.
    #[error(transparent)]
    UnknownProvider(#[from] NoSuchModel),
    /// The provider needs a key, and the caller gave none.
    #[error("{provider} needs a key: {variable} is not set")]
    NeedsKey {
        /// Its name in [`providers()`].
        provider: &'static str,
        /// The environment variable that usually holds the key.
        variable: &'static str,
    },
    /// The address of the server is not a URL that can be used.
    #[error("{variable} is not a server address: {reason}")]
    BadUrl {
        /// The environment variable that usually holds the address.
        variable: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The HTTP client could not be built.
    #[error("the HTTP client cannot be created: {0}")]
    Client(String),
}

/// Opens the model of this name, `provider/model`. Nothing is sent yet.
pub fn open(name: &str, access: Access, prices: &Prices, windows: &Windows) -> Result<Arc<dyn Model>, OpenError> {
    let timeouts = Timeouts::of(name);
    open_with(name, access, prices, windows, timeouts)
}

/// Opens a model as [`open`] does, with the caller's own timeouts.
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
