//! The lines that differ between two texts.

use imara_diff::{Algorithm, Diff, Hunk, InternedInput, Token, sources::byte_lines};

/// How many pairs of equal lines two texts may have to be aligned. Where few different lines are repeated often, the time grows
/// with them, to about a second here.
const PAIRS_MAX: u64 = 1 << 30;

/// Returns the groups of lines that differ between two texts, with the numbers of their lines from 0. Texts of which each line
/// is repeated very often differ in everything between their first and their last change.
#[must_use]
pub fn changed_lines(before: &[u8], after: &[u8]) -> Vec<Hunk> {
    hunks(&InternedInput::new(byte_lines(before), byte_lines(after)))
}

pub(super) fn hunks(input: &InternedInput<&[u8]>) -> Vec<Hunk> {
    let whole = whole_change(&input.before, &input.after);
    if equal_pairs(input, &whole) > PAIRS_MAX {
        return vec![whole];
    }
    let mut diff = Diff::compute(Algorithm::Histogram, input);
    diff.postprocess_lines(input);
    diff.hunks().collect()
}

/// Returns everything between the first and the last changed line as one change.
pub(crate) fn whole_change(before: &[Token], after: &[Token]) -> Hunk {
    let same =
        |pairs: &mut dyn Iterator<Item = (&Token, &Token)>| pairs.take_while(|(one, other)| one == other).count();
    let start = same(&mut before.iter().zip(after));
    let end = same(&mut before[start..].iter().rev().zip(after[start..].iter().rev()));
    let lines = |text: &[Token]| start as u32..(text.len() - end) as u32;
    Hunk { before: lines(before), after: lines(after) }
}

/// Returns how many pairs of equal lines, one of each text, are within a change.
fn equal_pairs(input: &InternedInput<&[u8]>, change: &Hunk) -> u64 {
    let mut occurrences = vec![0_u64; input.interner.num_tokens() as usize];
    for line in &input.before[change.before.start as usize..change.before.end as usize] {
        occurrences[line.0 as usize] += 1;
    }
    let after = &input.after[change.after.start as usize..change.after.end as usize];
    after.iter().map(|line| occurrences[line.0 as usize]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a text of so many lines, of which there are only two kinds.
    fn repeated(lines: usize, every: usize) -> String {
        (0..lines).map(|number| if number % every == 0 { "a\n" } else { "b\n" }).collect()
    }

    #[test]
    fn texts_whose_lines_are_repeated_very_often_differ_as_a_whole() {
        let (before, after) =
            (format!("head\n{}tail\n", repeated(100_000, 3)), format!("head\n{}tail\n", repeated(90_000, 5)));
        let changed = changed_lines(before.as_bytes(), after.as_bytes());
        // The first lines of both and their last one are the same.
        assert_eq!(changed.len(), 1, "{changed:?}");
        let [change] = &changed[..] else { return };
        assert!(change.before.start >= 1 && change.before.end <= 100_001, "{change:?}");
        assert_eq!(change.before.start, change.after.start);
        assert_eq!(100_002 - change.before.end, 90_002 - change.after.end);
    }

    #[test]
    fn a_change_in_a_long_text_is_that_change_alone() {
        let before = repeated(200_000, 3);
        let after = format!("{}new\n{}", &before[..200_000], &before[200_000..]);
        let changed = changed_lines(before.as_bytes(), after.as_bytes());
        assert_eq!((changed.len(), changed[0].before.len(), changed[0].after.len()), (1, 0, 1));
    }
}
