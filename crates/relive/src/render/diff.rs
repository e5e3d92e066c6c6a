//! The difference of two texts, for a person: the common beginning and end are left out.

/// How many unchanged lines are shown around changed ones.
const AROUND: usize = 3;

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Same,
    Removed,
    Added,
    /// Unchanged lines that are not shown.
    Skipped,
}

impl Mark {
    /// Returns the sign in front of the line.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Same => " ",
            Self::Removed => "-",
            Self::Added => "+",
            Self::Skipped => "@",
        }
    }
}

/// Returns the changed lines and those around them.
pub(crate) fn lines(before: &str, after: &str) -> Vec<(Mark, String)> {
    let (old, new): (Vec<&str>, Vec<&str>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let shorter = old.len().min(new.len());
    let head = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let tail = old.iter().rev().zip(new.iter().rev()).take(shorter - head).take_while(|(old, new)| old == new).count();
    let mut lines = Vec::new();
    let skipped = |count: usize| {
        let same = if count == 1 { " 1 line is the same".to_owned() } else { format!(" {count} lines are the same") };
        (Mark::Skipped, same)
    };
    if head > AROUND {
        lines.push(skipped(head - AROUND));
    }
    let same = |lines: &mut Vec<_>, part: &[&str]| lines.extend(part.iter().map(|line| (Mark::Same, shown(line))));
    same(&mut lines, &old[head.saturating_sub(AROUND)..head]);
    lines.extend(old[head..old.len() - tail].iter().map(|line| (Mark::Removed, ended(line))));
    lines.extend(new[head..new.len() - tail].iter().map(|line| (Mark::Added, ended(line))));
    same(&mut lines, &old[old.len() - tail..old.len() - tail.saturating_sub(AROUND)]);
    if tail > AROUND {
        lines.push(skipped(tail - AROUND));
    }
    lines
}

fn shown(line: &str) -> String {
    line.strip_suffix('\n').unwrap_or(line).replace('\t', "    ")
}

/// Returns a line of a change; one without a line end says so.
fn ended(line: &str) -> String {
    if line.ends_with('\n') { shown(line) } else { format!("{} (no newline)", shown(line)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: &str, after: &str, expect: &str) {
        let text: Vec<String> =
            lines(before, after).into_iter().map(|(mark, line)| format!("{}{line}", mark.sign())).collect();
        assert_eq!(text.join("\n"), expect);
    }

    #[test]
    fn changed_lines_are_shown_with_their_context() {
        check("", "a\n", "+a");
        check("a\n", "a\n", " a");
        check("a\nb\nc\n", "a\nc\n", " a\n-b\n c");
        check("a\na\n", "a\na\na\n", " a\n a\n+a");
        check("a\n", "a", "-a\n+a (no newline)");
        check(
            "1\n2\n3\n4\n5\nx\n6\n7\n8\n9\n",
            "1\n2\n3\n4\n5\ny\n6\n7\n8\n9\n",
            "@ 2 lines are the same\n 3\n 4\n 5\n-x\n+y\n 6\n 7\n 8\n@ 1 line is the same",
        );
    }
}
