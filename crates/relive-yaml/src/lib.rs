//! YAML without types, with the place of every key and value, and mistakes as people see them.
//!
//! What a file may say is decided by the crates that read files.

#![forbid(unsafe_code)]

mod problem;
mod value;
mod words;

pub use problem::{Problem, Source, report};
pub use value::{Entry, Value};

use serde_saphyr::Spanned;

/// The most text that a file may have after its aliases are replaced, in bytes.
const TEXT_MAX: usize = 4 << 20;

/// How deep values may be nested: supervisors of supervisors need 28 levels, and each one takes room on the stack.
pub(crate) const DEPTH_MAX: usize = 40;

/// Reads the text of a file, or returns the mistake that prevents it.
pub fn read(source: &Source<'_>) -> Result<Spanned<Value>, Problem> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_total_scalar_bytes: TEXT_MAX, max_depth: DEPTH_MAX },
    };
    serde_saphyr::from_str_with_options(source.text(), options).map_err(|error| source.mistake(&error))
}
