//! Ids that a CLI chose, in bounded memory.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Real agents have a handful of calls open at a time.
const MAX_IDS: usize = 1024;
/// Real ids have up to 40 bytes.
const MAX_ID_BYTES: usize = 256;
/// `#` and a digest of the whole id.
const DIGEST_BYTES: usize = 17;

/// Ids beyond the limit are only counted. They count as open until the set is dropped, because an end that names none of
/// the remembered ids may as well be somebody else's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IdSet {
    ids: BTreeSet<String>,
    forgotten: usize,
}

impl IdSet {
    /// Returns false if the id was there already.
    pub(crate) fn insert(&mut self, id: &str) -> bool {
        let id = shorten(id);
        if self.ids.contains(id.as_ref()) {
            return false;
        }
        if self.ids.len() < MAX_IDS {
            self.ids.insert(id.into_owned());
        } else {
            self.forgotten = self.forgotten.saturating_add(1);
        }
        true
    }

    /// Returns false if the id was not remembered.
    pub(crate) fn remove(&mut self, id: &str) -> bool {
        self.ids.remove(shorten(id).as_ref())
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.ids.contains(shorten(id).as_ref())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len().saturating_add(self.forgotten)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.ids.iter().map(String::as_str)
    }
}

/// An id as it is remembered: itself, or its start and a digest if somebody tries to fill the memory.
pub(crate) fn shorten(id: &str) -> Cow<'_, str> {
    if id.len() <= MAX_ID_BYTES {
        return Cow::Borrowed(id);
    }
    let head = &id[..id.floor_char_boundary(MAX_ID_BYTES - DIGEST_BYTES)];
    Cow::Owned(format!("{head}#{:016x}", digest(id)))
}

/// Tells texts apart within one process: it is not the same in every version.
pub(crate) fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_beyond_the_limit_are_counted_and_stay() {
        let mut set = IdSet::default();
        for number in 0..MAX_IDS + 2 {
            assert!(set.insert(&number.to_string()));
        }
        assert!(!set.insert("0"));
        assert_eq!((set.ids.len(), set.len()), (MAX_IDS, MAX_IDS + 2));
        for number in 0..MAX_IDS + 2 {
            assert_eq!(set.remove(&number.to_string()), number < MAX_IDS);
        }
        assert_eq!((set.ids.len(), set.len(), set.is_empty()), (0, 2, false));
    }

    #[test]
    fn a_long_id_is_cut_and_still_itself() {
        let [first, second] = ["a", "b"].map(|end| format!("{}{end}", "é".repeat(1000)));
        let mut set = IdSet::default();
        assert!(set.insert(&first) && set.insert(&second) && !set.insert(&first));
        for id in set.iter() {
            assert!(id.len() <= MAX_ID_BYTES, "{id}");
            assert_eq!(shorten(id), id, "what is short already stays");
        }
        assert!(set.contains(&second) && set.remove(&first) && !set.contains(&first) && set.contains(&second));
    }
}
