//! Did you mean?

/// The candidate closest to `word`, if any is close enough to have been meant.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    let near = |candidate: &'a str| Some((distance(word, candidate), candidate)).filter(|(far, _)| *far <= allowed);
    candidates.into_iter().filter_map(near).min_by_key(|(far, _)| *far).map(|(_, candidate)| candidate)
}

/// Insertions, deletions, substitutions and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (rows[i][j] + usize::from(x != y)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_close_is_meant_and_what_is_far_is_not() {
        let check = |word: &str, meant: Option<&str>| {
            assert_eq!(closest(word, ["gc", "checkpoint", "recovery", "heartbeat"]), meant, "{word}");
        };
        check("recvoery", Some("recovery"));
        check("chekpoints", Some("checkpoint"));
        check("gx", Some("gc"));
        check("limits", None);
        check("", None);
    }
}
