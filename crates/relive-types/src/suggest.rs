//! Did you mean?

/// The candidate that is most like the text, if any is like it at all.
#[must_use]
pub fn closest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let at_most = (text.chars().count() / 3).clamp(1, 3);
    candidates
        .map(|candidate| (distance(text, candidate), candidate))
        .filter(|(distance, _)| *distance <= at_most)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters to insert, delete, replace or swap with their neighbour.
fn distance(left: &str, right: &str) -> usize {
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
        previous = Some(letter);
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (left, right, expect) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("build", "biuld", 1),
            ("Build", "build", 0),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(left, right), expect, "{left} {right}");
            assert_eq!(distance(right, left), expect, "{right} {left}");
        }
    }

    #[test]
    fn a_suggestion_is_like_what_was_typed_or_none() {
        let names = ["reviewer", "coder", "tester"];
        for (text, expect) in
            [("reviwer", Some("reviewer")), ("codre", Some("coder")), ("coding", None), ("x", None), ("", None)]
        {
            assert_eq!(closest(text, names.into_iter()), expect, "{text}");
        }
    }
}
