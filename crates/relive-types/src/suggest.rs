//! "Did you mean ...?": the known name that is closest to what was typed.

/// Returns the candidate closest to `word`, if it is close enough: one letter may be wrong, or one in three of a longer
/// word, but never more than three. Case is ignored. Of equally close ones the first wins.
#[must_use]
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Every other letter is as close to a single one.
    if word.chars().count() < 2 {
        return None;
    }
    let distance_max = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter_map(|candidate| Some((distance_within(word, candidate, distance_max)?, candidate)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Counts the letters to insert, delete, replace or swap with their neighbour; `None` if there are more than `max`.
fn distance_within(left: &str, right: &str, max: usize) -> Option<usize> {
    // A letter takes at most four bytes, and its other case may be as long as three letters.
    if left.len().abs_diff(right.len()) > 12 * (max + 1) {
        return None;
    }
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    let mut previous = None;
    for (row, letter) in left.to_lowercase().chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, other) in right.iter().enumerate() {
            let replaced = last[column] + usize::from(letter != *other);
            let mut best = replaced.min(last[column + 1] + 1).min(current[column] + 1);
            if column > 0 && previous == Some(*other) && right[column - 1] == letter {
                best = best.min(before_last[column - 1] + 1);
            }
            current.push(best);
        }
        // A swap reaches back by two rows.
        if current.iter().chain(&last).all(|distance| *distance > max) {
            return None;
        }
        previous = Some(letter);
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().filter(|distance| *distance <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_inserts_deletes_replacements_and_swaps() {
        for (left, right, expect) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("build", "biuld", 1),
            ("Build", "build", 0),
            ("kitten", "sitting", 3),
        ] {
            for (left, right) in [(left, right), (right, left)] {
                assert_eq!(distance_within(left, right, 9), Some(expect), "{left} {right}");
                assert_eq!(distance_within(left, right, expect), Some(expect), "{left} {right}");
                let less = expect.checked_sub(1).and_then(|max| distance_within(left, right, max));
                assert_eq!(less, None, "{left} {right}");
            }
        }
    }

    #[test]
    fn a_close_name_is_suggested_and_a_far_one_is_not() {
        let check = |names: &[&'static str], word: &str, expect: Option<&str>| {
            assert_eq!(closest(word, names.iter().copied()), expect, "{word}");
        };
        let processes = ["reviewer", "coder", "tester"];
        check(&processes, "reviwer", Some("reviewer"));
        check(&processes, "codre", Some("coder"));
        check(&processes, "CODER", Some("coder"));
        check(&processes, "coding", None);
        check(&processes, "x", None);
        check(&processes, "", None);
        let keys = ["gc", "checkpoint", "recovery", "heartbeat"];
        check(&keys, "recvoery", Some("recovery"));
        check(&keys, "chekpoints", Some("checkpoint"));
        check(&keys, "gx", Some("gc"));
        check(&["h"], "f", None);
        check(&keys, "limits", None);
        check(&["beta", "bets"], "betx", Some("beta"));
        check(&["bets", "beta"], "betx", Some("bets"));
    }
}
