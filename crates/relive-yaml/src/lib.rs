//! YAML without types, with the place of every key and value, and mistakes as people see them.
//!
//! What a file may say is decided by the crates that read files.

#![forbid(unsafe_code)]

mod problem;
mod value;

pub use problem::{Problem, Source, report};
pub use value::{Entry, Value};

use serde_saphyr::{Error, Spanned};

/// The most text that a file may have after its aliases are replaced, in bytes.
const TEXT_MAX: usize = 4 << 20;

/// Reads the text of a file, or returns the mistake that prevents it.
pub fn read(source: &Source<'_>) -> Result<Spanned<Value>, Problem> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_total_scalar_bytes: TEXT_MAX },
    };
    serde_saphyr::from_str_with_options(source.text(), options).map_err(|error| source.mistake(&error))
}

/// Says what is wrong, without the place.
fn plain(error: &Error) -> String {
    let error = error.without_snippet();
    let bare = error.to_string();
    // Also inside of an alias, which is an error of its own around it.
    if bare.starts_with("budget breached") {
        return "the file has too many values, or too long ones; an alias counts each time".to_owned();
    }
    if matches!(error, Error::MultipleDocuments { .. }) {
        return "a file has one document, and `---` begins another one".to_owned();
    }
    // The place is added by `report`, in one format for all mistakes.
    bare.split(" at line ").next().unwrap_or(&bare).to_owned()
}
