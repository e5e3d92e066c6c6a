//! The rules that apply to a directory and are not in it. A copy keeps those of the directory that it was made of: it is
//! in no repository.

use super::RULES_MAX;
use super::repository::Repository;
use crate::object;
use crate::settings::Settings;

/// The bytes of all rules of a copy. A copy of a directory with more keeps the weakest.
const KEPT_MAX: usize = 16 << 20;

/// Ignore files from outside of a workspace, the weakest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OuterRules(Vec<OuterFile>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct OuterFile {
    /// The path of the workspace relative to the directory of the file.
    prefix: Vec<u8>,
    text: Vec<u8>,
}

impl OuterRules {
    /// Reads the rules around a directory in this repository, or in none.
    pub(super) fn of(repository: Option<&Repository>, settings: &Settings) -> Self {
        let excludes_file = Repository::excludes_file(repository, settings);
        let weakest = excludes_file.and_then(|path| crate::stat::read_small(&path, RULES_MAX));
        let prefix = repository.map(|repository| repository.prefix.clone()).unwrap_or_default();
        let exclude = repository.and_then(Repository::info_exclude);
        let mut all = Self::default();
        for text in [weakest, exclude].into_iter().flatten() {
            all.0.push(OuterFile { prefix: prefix.clone(), text });
        }
        let above = repository.into_iter().flat_map(Repository::ignore_files_above);
        all.0.extend(above.map(|(text, prefix)| OuterFile { prefix, text }));
        all
    }

    /// Reads the rules around a directory.
    pub(crate) fn around(root: &std::path::Path, settings: &Settings) -> Self {
        Self::of(Repository::find(root).as_ref(), settings)
    }

    /// Returns these rules, and stronger ones.
    pub(crate) fn and(mut self, stronger: Self) -> Self {
        self.0.extend(stronger.0.into_iter().filter(|file| !self.0.contains(file)).collect::<Vec<_>>());
        self
    }

    /// Returns each file, with the path of the workspace relative to it.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|file| (&*file.text, &*file.prefix))
    }

    /// Returns the rules without lines that match nothing, which are most of them in a new repository.
    pub(crate) fn condensed(&self) -> Self {
        let matches = |line: &&[u8]| !matches!(line.first(), None | Some(b'#')) && !line.contains(&0);
        let condense = |file: &OuterFile| {
            let lines: Vec<&[u8]> = file.text.split(|&byte| byte == b'\n').filter(matches).collect();
            let has_path = !file.prefix.contains(&0);
            (has_path && !lines.is_empty()).then(|| OuterFile { prefix: file.prefix.clone(), text: lines.join(&b'\n') })
        };
        Self(self.0.iter().filter_map(condense).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a file that is stronger than the others, and has no lines yet.
    pub(crate) fn add_file(&mut self, prefix: &[u8]) {
        self.0.push(OuterFile { prefix: prefix.to_vec(), text: Vec::new() });
    }

    /// Adds a line to the last file; `None` if there is no file.
    pub(crate) fn add_line(&mut self, line: &[u8]) -> Option<()> {
        let text = &mut self.0.last_mut()?.text;
        if !text.is_empty() {
            text.push(b'\n');
        }
        text.extend_from_slice(line);
        Some(())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in self.0.iter().flat_map(|file| [&file.prefix, &file.text]) {
            if bytes.len() + field.len() > KEPT_MAX {
                break;
            }
            bytes.extend_from_slice(&(field.len() as u64).to_le_bytes());
            bytes.extend_from_slice(field);
        }
        bytes.extend_from_slice(&object::checksum(&bytes));
        bytes
    }

    /// Returns `None` for bytes that are damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut rest, checksum) = bytes.split_last_chunk::<32>()?;
        if object::checksum(rest) != *checksum {
            return None;
        }
        let mut fields = Vec::new();
        while let Some((len, after)) = rest.split_first_chunk::<8>() {
            let (field, after) = after.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
            fields.push(field.to_vec());
            rest = after;
        }
        let file = |pair: &[Vec<u8>]| Some(OuterFile { prefix: pair.first()?.clone(), text: pair.get(1)?.clone() });
        Some(Self(fields.chunks(2).filter_map(file).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_were_written() {
        let file = |prefix: &str, text: &str| OuterFile { prefix: prefix.into(), text: text.into() };
        for rules in [vec![], vec![file("", "*.o\n")], vec![file("s/", "a"), file("", ""), file("s/t/", "\0\n")]] {
            let rules = OuterRules(rules);
            let mut bytes = rules.encode();
            assert_eq!(OuterRules::decode(&bytes), Some(rules));
            bytes[0] ^= 1;
            assert_eq!(OuterRules::decode(&bytes), None);
        }
    }
}
