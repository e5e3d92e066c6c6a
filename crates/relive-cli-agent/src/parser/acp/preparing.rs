//! Calls whose input the model is still writing.

use std::collections::BTreeMap;

use crate::ids::shorten;

/// An agent announces a few calls at a time. The input of more of them is not waited for.
const MAX_CALLS: usize = 64;
const MAX_NAME_BYTES: usize = 256;

/// The names of announced calls without their input, by their ids.
#[derive(Debug, Default)]
pub(super) struct PreparingCalls(BTreeMap<String, String>);

impl PreparingCalls {
    /// Keeps a call until its input comes. Returns whether there is room for it.
    pub(super) fn add(&mut self, id: &str, name: &str) -> bool {
        let has_room = self.0.len() < MAX_CALLS;
        if has_room {
            let name = &name[..name.floor_char_boundary(MAX_NAME_BYTES)];
            self.0.insert(shorten(id).into_owned(), name.to_owned());
        }
        has_room
    }

    /// Returns the name of a call whose input has come.
    pub(super) fn take(&mut self, id: &str) -> Option<String> {
        self.0.remove(shorten(id).as_ref())
    }
}
