//! Reads the paths of a Git index, also of a split one.
//!
//! Whoever can write to the repository can write the index, so nothing in it decides how much memory is used.

/// The longest path that the system takes. An index with a longer one is not read.
const PATH_MAX: usize = 4_096;
/// The bytes of all paths together. An index with more is not read.
const PATH_BYTES_MAX: usize = 256 << 20;

/// An index file.
#[derive(Debug)]
pub(super) struct Index {
    /// In their order in the file.
    entries: Vec<Entry>,
    link: Option<Link>,
}

/// The paths of an index.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) files: Vec<Vec<u8>>,
    /// Repositories in the work tree, which have an index of their own.
    pub(super) submodules: Vec<Vec<u8>>,
}

/// The mode and the path.
type Entry = (u32, Vec<u8>);

/// The shared index that a split index completes.
#[derive(Debug)]
struct Link {
    /// The end of the file's name.
    id: String,
    /// The compressed bitmap of the shared entries that were removed.
    removed: Vec<u8>,
}

impl Index {
    /// Parses an index of version 2, 3 or 4; `None` for any other file.
    pub(super) fn parse(index: &[u8], id_bytes: usize) -> Option<Self> {
        if !index.starts_with(b"DIRC") {
            return None;
        }
        let (entries, end) = entries(index, id_bytes)?;
        let extensions = index.get(end..index.len().checked_sub(id_bytes)?)?;
        let link = match extension(extensions, b"link")? {
            Some(link) => parse_link(link, id_bytes)?,
            None => None,
        };
        Some(Self { entries, link })
    }

    /// Returns the end of the name of the shared index, if there is one.
    pub(super) fn shared(&self) -> Option<&str> {
        self.link.as_ref().map(|link| link.id.as_str())
    }

    /// Returns all paths, with those of the shared index; `None` if the list of removed ones is damaged.
    pub(super) fn listed(self, shared: Option<Self>) -> Option<Listed> {
        let shared = shared.map(|shared| shared.entries).unwrap_or_default();
        let removed = self.link.map(|link| link.removed).filter(|removed| !removed.is_empty());
        let mut is_removed = vec![false; shared.len()];
        if let Some(removed) = removed {
            set_bits(&removed, &mut is_removed)?;
        }
        let kept = shared.into_iter().zip(is_removed).filter(|(_, is_removed)| !is_removed).map(|(entry, _)| entry);
        let mut listed = Listed::default();
        // An entry without a path replaces a shared one.
        for (mode, path) in kept.chain(self.entries).filter(|(_, path)| !path.is_empty()) {
            match mode & 0o170_000 {
                0o100_000 | 0o120_000 => listed.files.push(path),
                0o160_000 => listed.submodules.push(path),
                // A directory of a sparse index: none of its files is in the work tree.
                _ => {}
            }
        }
        Some(listed)
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Returns the entries, and where they end.
fn entries(index: &[u8], id_bytes: usize) -> Option<(Vec<Entry>, usize)> {
    let version = number(index, 4)?;
    let (mut entries, mut at, mut previous, mut path_bytes) = (Vec::new(), 12, Vec::new(), 0);
    for _ in 0..number(index, 8)? {
        let start = at;
        let mode = number(index, start + 24)?;
        let flags_at = start + 40 + id_bytes;
        let flags = u16::from_be_bytes(index.get(flags_at..flags_at + 2)?.try_into().ok()?);
        let is_extended = version >= 3 && flags & 0x4000 != 0;
        at = flags_at + if is_extended { 4 } else { 2 };
        let mut path = Vec::new();
        if version == 4 {
            let mut rest = index.get(at..)?.iter().copied();
            let removed = crate::store::read_offset(&mut rest)?;
            at = index.len() - rest.len();
            path = previous;
            path.truncate(path.len().checked_sub(usize::try_from(removed).ok()?)?);
        } else if !(2..=3).contains(&version) {
            return None;
        }
        let len = index.get(at..)?.iter().position(|&byte| byte == 0)?;
        path_bytes += path.len() + len;
        if path.len() + len > PATH_MAX || path_bytes > PATH_BYTES_MAX {
            return None;
        }
        path.extend_from_slice(&index[at..at + len]);
        at += len + 1;
        if version != 4 {
            // Entries are padded to a multiple of eight.
            at = start + (at - start).div_ceil(8) * 8;
        }
        entries.push((mode, path.clone()));
        previous = path;
    }
    Some((entries, at))
}

/// Returns the content of an extension; the outer `None` if the extensions are damaged.
#[expect(clippy::option_option, reason = "most indexes do not have the extension")]
fn extension<'a>(mut extensions: &'a [u8], name: &[u8]) -> Option<Option<&'a [u8]>> {
    while !extensions.is_empty() {
        let end = 8_usize.checked_add(usize::try_from(number(extensions, 4)?).ok()?)?;
        let content = extensions.get(8..end)?;
        if extensions.starts_with(name) {
            return Some(Some(content));
        }
        extensions = &extensions[end..];
    }
    Some(None)
}

/// Returns the shared index that is named; the outer `None` if the extension is damaged.
#[expect(clippy::option_option, reason = "an id of zeros names no index")]
fn parse_link(link: &[u8], id_bytes: usize) -> Option<Option<Link>> {
    let id = link.get(..id_bytes)?;
    if id.iter().all(|&byte| byte == 0) {
        return Some(None);
    }
    let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(Some(Link { id, removed: link[id_bytes..].to_vec() }))
}

/// Decodes a compressed bitmap as Git writes it: runs of equal words, each followed by literal words. Bits for which
/// `set` has no place are ignored.
fn set_bits(bitmap: &[u8], set: &mut [bool]) -> Option<()> {
    let end = usize::try_from(number(bitmap, 4)?).ok()?.checked_mul(8)?.checked_add(8)?;
    let mut words = bitmap.get(8..end)?.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_be_bytes));
    let mut at = 0_usize;
    while let Some(marker) = words.next() {
        let run = usize::try_from((marker >> 1) & 0xffff_ffff).ok()?.checked_mul(64)?;
        let run_end = at.checked_add(run)?;
        if marker & 1 == 1 {
            let last = run_end.min(set.len());
            set[at.min(last)..last].fill(true);
        }
        at = run_end;
        for _ in 0..marker >> 33 {
            let word = words.next()?;
            for bit in (0..64).filter(|bit| word >> bit & 1 == 1) {
                if let Some(place) = at.checked_add(bit).and_then(|at| set.get_mut(at)) {
                    *place = true;
                }
            }
            at = at.checked_add(64)?;
        }
    }
    Some(())
}
