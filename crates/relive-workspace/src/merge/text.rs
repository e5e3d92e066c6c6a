//! Merges texts three ways, line by line, with the rules of `git merge-file`: changes that overlap or touch each other
//! conflict, unless both sides made the same change.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, Hunk, InternedInput, sources::byte_lines};

use crate::diff::whole_change;

/// How many pairs of lines are compared at most: 32,768 lines that were changed into as many. The time to align texts that have
/// little in common grows with it.
const PAIRS_MAX: usize = 1 << 30;

/// The result of a merge.
pub(super) enum Text {
    Merged(Vec<u8>),
    /// Both versions of lines that both sides changed, and the original, between conflict markers.
    Conflicting(Vec<u8>),
}

/// Merges the changes from `base` to `ours` and from `base` to `theirs`.
pub(super) fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Text {
    let sides = [base, ours, theirs].map(|text| byte_lines(text).collect::<Vec<_>>());
    let regions = regions(&hunks(base, ours), &hunks(base, theirs));
    let mut merged = Merged { sides: &sides, text: Vec::with_capacity(ours.len().max(theirs.len())), conflicts: 0 };
    let mut at = 0;
    for region in &regions {
        merged.push(0, at..region.lines[0].start);
        merged.add(region);
        at = region.lines[0].end;
    }
    merged.push(0, at..sides[0].len());
    if merged.conflicts == 0 { Text::Merged(merged.text) } else { Text::Conflicting(merged.text) }
}

fn hunks(before: &[u8], after: &[u8]) -> Vec<Hunk> {
    let input = InternedInput::new(byte_lines(before), byte_lines(after));
    let whole = whole_change(&input.before, &input.after);
    if whole.before.len().saturating_mul(whole.after.len()) > PAIRS_MAX {
        return vec![whole];
    }
    // Changes of repeated lines are aligned as Git aligns them, so that both sides place equal changes at the same lines.
    let mut diff = Diff::compute(Algorithm::Myers, &input);
    diff.postprocess_no_heuristic(&input);
    diff.hunks().collect()
}

/// Lines of the base that were changed, and what they are on each side.
#[derive(Debug)]
struct Region {
    /// Of the base, of ours, of theirs.
    lines: [Range<usize>; 3],
    /// Whether each side changed them.
    changed: [bool; 2],
}

/// Joins changes that overlap or touch. Both lists are sorted, and so is the result.
fn regions(ours: &[Hunk], theirs: &[Hunk]) -> Vec<Region> {
    let mut all: Vec<(usize, &Hunk)> =
        ours.iter().map(|hunk| (0, hunk)).chain(theirs.iter().map(|hunk| (1, hunk))).collect();
    all.sort_by_key(|(side, hunk)| (hunk.before.start, hunk.before.end, *side));
    let mut groups: Vec<Group> = Vec::new();
    for (side, hunk) in all {
        let (start, end) = (hunk.before.start as usize, hunk.before.end as usize);
        match groups.last_mut().filter(|group| start <= group.base.end) {
            Some(group) => {
                group.base.end = group.base.end.max(end);
                group.hunks[side].push(hunk);
            }
            None => {
                let mut hunks = [Vec::new(), Vec::new()];
                hunks[side].push(hunk);
                groups.push(Group { base: start..end, hunks });
            }
        }
    }
    // How many lines each side has more than the base, up to here.
    let mut shifts = [0_isize; 2];
    groups.into_iter().map(|group| group.settle(&mut shifts)).collect()
}

struct Group<'a> {
    base: Range<usize>,
    hunks: [Vec<&'a Hunk>; 2],
}

impl Group<'_> {
    fn settle(self, shifts: &mut [isize; 2]) -> Region {
        let Self { base, hunks } = self;
        let mut of_side = |side: usize| {
            let start = base.start.saturating_add_signed(shifts[side]);
            for hunk in &hunks[side] {
                shifts[side] += hunk.after.len() as isize - hunk.before.len() as isize;
            }
            start..base.end.saturating_add_signed(shifts[side])
        };
        let (ours, theirs) = (of_side(0), of_side(1));
        Region { lines: [base, ours, theirs], changed: hunks.map(|hunks| !hunks.is_empty()) }
    }
}

struct Merged<'a> {
    sides: &'a [Vec<&'a [u8]>; 3],
    text: Vec<u8>,
    conflicts: usize,
}

impl Merged<'_> {
    fn push(&mut self, side: usize, lines: Range<usize>) {
        self.text.extend(self.sides[side][lines].iter().copied().flatten());
    }

    fn add(&mut self, region: &Region) {
        let [base, ours, theirs] = region.lines.clone();
        match region.changed {
            [_, false] => self.push(1, ours),
            [false, true] => self.push(2, theirs),
            [true, true] if self.sides[1][ours.clone()] == self.sides[2][theirs.clone()] => self.push(1, ours),
            [true, true] => {
                self.conflicts += 1;
                self.marker("<<<<<<< ours");
                self.push(1, ours);
                self.marker("||||||| original");
                self.push(0, base);
                self.marker("=======");
                self.push(2, theirs);
                self.marker(">>>>>>> theirs");
            }
        }
    }

    /// Writes a marker on a line of its own, also after a last line that does not end.
    fn marker(&mut self, marker: &str) {
        if self.text.last().is_some_and(|last| *last != b'\n') {
            self.text.push(b'\n');
        }
        self.text.extend_from_slice(marker.as_bytes());
        self.text.push(b'\n');
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files as a person would")]
mod tests {
    use std::process::Command;

    use super::*;

    fn merged(base: &str, ours: &str, theirs: &str) -> Option<String> {
        match merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes()) {
            Text::Merged(text) => Some(String::from_utf8(text).unwrap()),
            Text::Conflicting(_) => None,
        }
    }

    /// Pseudo-random numbers that are the same in every run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 >> 16).unwrap() % end
        }

        /// Few different lines, so that many are repeated.
        fn line(&mut self, kinds: usize) -> String {
            let lines = ["", "}", "x", "a", "b", "c", "d", "e", "f", "g", "h", "i"];
            format!("{}\n", lines[self.below(kinds)])
        }

        fn edited(&mut self, base: &[String], kinds: usize) -> Vec<String> {
            let mut lines = base.to_vec();
            for _ in 0..=self.below(3) {
                let at = self.below(lines.len() + 1);
                let end = lines.len().min(at + self.below(3));
                let new: Vec<String> = (0..self.below(4)).map(|_| self.line(kinds)).collect();
                lines.splice(at..end, new);
            }
            lines
        }
    }

    #[test]
    fn large_texts_that_have_little_in_common_are_one_change() {
        let lines = |numbers: &mut dyn Iterator<Item = usize>| -> String {
            numbers.map(|number| format!("{number}\n")).collect()
        };
        let many = 40_000;
        let base = format!("first\n{}last\n", lines(&mut (0..many)));
        let shuffled = format!("first\n{}last\n", lines(&mut (0..many).map(|number| number * 7919 % many)));
        let merged =
            match merge(base.as_bytes(), shuffled.as_bytes(), base.replace("\n100\n", "\nhundred\n").as_bytes()) {
                Text::Merged(_) => panic!("both changed the same lines"),
                Text::Conflicting(merged) => String::from_utf8(merged).unwrap(),
            };
        assert!(merged.ends_with("last\n"));
        let apart = base.replace("last\n", "last\nafter\n");
        match merge(base.as_bytes(), shuffled.as_bytes(), apart.as_bytes()) {
            Text::Merged(merged) => assert_eq!(String::from_utf8(merged).unwrap(), format!("{shuffled}after\n")),
            Text::Conflicting(_) => panic!("the changes are apart"),
        }
    }

    #[test]
    fn changes_in_repeated_lines_conflict_only_where_they_meet() {
        let check = |base: &str, ours: &str, theirs: &str, expected: Option<&str>| {
            assert_eq!(merged(base, ours, theirs).as_deref(), expected, "{base:?} {ours:?} {theirs:?}");
        };
        // Both sides removed the same of several equal blocks, and one appended a line.
        let base = "}\n}\n\n}\n}\n\n\n}\n\n\n}\n}\n}\n\n}\n\n}\n";
        let ours = "}\n}\n\n}\n}\n\n\n}\n\n\n}\n}\n}\n}\n\n}\n";
        check(base, ours, &format!("{ours}}}\n"), Some(&format!("{ours}}}\n")));
        check("}\n\n\n\n\n}\n", "}\n\n\n\n\n\n\n}\n}\n", "}\n}\n\n\n\n}\n", Some("}\n}\n\n\n\n\n\n}\n}\n"));
        check("a\na\na\n", "a\na\n", "a\na\n", Some("a\na\n"));
        check("a\nb\n", "x\nb\n", "a\ny\n", None);
        check("a\nb\nc\n", "x\nb\nc\n", "a\nb\ny\n", Some("x\nb\ny\n"));
    }

    #[test]
    fn merges_are_those_of_git() {
        let directory = tempfile::tempdir().unwrap();
        let git = |texts: [&str; 3]| {
            for (name, text) in ["base", "ours", "theirs"].into_iter().zip(texts) {
                std::fs::write(directory.path().join(name), text).unwrap();
            }
            let mut git = Command::new("git");
            git.current_dir(&directory).env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1");
            let output = git.args(["merge-file", "-p", "-q", "ours", "base", "theirs"]).output().unwrap();
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        };
        let (mut merges, mut conflicts, mut others) = (0, 0, Vec::new());
        for seed in 1..=500_u64 {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let kinds = 2 + random.below(10);
            let base: Vec<String> = (0..random.below(25)).map(|_| random.line(kinds)).collect();
            let ours = random.edited(&base, kinds);
            let from = if random.below(6) == 0 { &ours } else { &base };
            let theirs = random.edited(from, kinds);
            let [base, ours, theirs] = [base, ours, theirs].map(|lines| lines.concat());
            let (ours_first, theirs_first) = (merged(&base, &ours, &theirs), merged(&base, &theirs, &ours));
            assert_eq!(ours_first, theirs_first, "seed {seed}: the sides are equal");
            assert_eq!(merged(&base, &base, &theirs).as_ref(), Some(&theirs), "seed {seed}");
            assert_eq!(merged(&base, &ours, &ours).as_ref(), Some(&ours), "seed {seed}");
            let expected = git([&base, &ours, &theirs]);
            let count = if expected.is_some() { &mut merges } else { &mut conflicts };
            *count += 1;
            if ours_first != expected {
                others.push(seed);
            }
        }
        // Git looks for the shortest difference with other shortcuts, so a few may align differently.
        assert!(others.len() <= 5, "{} merges of {merges}, {conflicts} conflicts: {others:?}", others.len());
        assert!(merges > 100 && conflicts > 50, "{merges} {conflicts}");
    }
}
