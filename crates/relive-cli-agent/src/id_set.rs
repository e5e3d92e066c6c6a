//! A set of ids that a CLI chose, in bounded memory.

use std::collections::BTreeSet;

/// Real agents have a handful of calls open at a time.
const MAX_IDS: usize = 1024;
const MAX_ID_BYTES: usize = 256;

/// Ids beyond the limit are only counted, so that a call that was not remembered still counts as open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IdSet {
    ids: BTreeSet<String>,
    unnamed: usize,
}

impl IdSet {
    /// Returns false if the id was there already.
    pub(crate) fn insert(&mut self, id: &str) -> bool {
        let id = shorten(id);
        if self.ids.contains(id) {
            return false;
        }
        if self.ids.len() < MAX_IDS {
            self.ids.insert(id.to_owned());
        } else {
            self.unnamed = self.unnamed.saturating_add(1);
        }
        true
    }

    /// Returns false if the id was not there.
    pub(crate) fn remove(&mut self, id: &str) -> bool {
        if self.ids.remove(shorten(id)) {
            return true;
        }
        let was_unnamed = self.unnamed > 0;
        self.unnamed = self.unnamed.saturating_sub(1);
        was_unnamed
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.ids.contains(shorten(id))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.unnamed == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len().saturating_add(self.unnamed)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.ids.iter().map(String::as_str)
    }
}

/// The first bytes of an id, which is all of it unless somebody tries to fill the memory.
pub(crate) fn shorten(id: &str) -> &str {
    &id[..id.floor_char_boundary(MAX_ID_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_beyond_the_limit_are_counted() {
        let mut set = IdSet::default();
        for number in 0..MAX_IDS + 2 {
            assert!(set.insert(&number.to_string()));
        }
        assert!(!set.insert("0"));
        assert_eq!((set.ids.len(), set.len()), (MAX_IDS, MAX_IDS + 2));
        for number in 0..MAX_IDS + 2 {
            assert!(!set.is_empty());
            assert!(set.remove(&number.to_string()));
        }
        assert!(set.is_empty() && !set.remove("0"));
    }

    #[test]
    fn a_long_id_is_cut() {
        let mut set = IdSet::default();
        assert!(set.insert(&"é".repeat(1000)));
        assert_eq!(set.iter().map(str::len).collect::<Vec<_>>(), [MAX_ID_BYTES]);
        assert!(set.remove(&"é".repeat(1000)));
    }
}
