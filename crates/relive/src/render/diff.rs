//! The difference of two texts, for a person: lines that are the same are left out, except for those around changes.

use relive_workspace::changed_lines;

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
    let mut lines = Vec::new();
    let (mut at, mut shown_after_change) = (0, 0);
    for hunk in changed_lines(before.as_bytes(), after.as_bytes()) {
        let (removed, added) = (range(hunk.before), range(hunk.after));
        push_same(&mut lines, &old[at..removed.start], shown_after_change, AROUND);
        at = removed.end;
        lines.extend(old[removed].iter().map(|line| (Mark::Removed, ended(line))));
        lines.extend(new[added].iter().map(|line| (Mark::Added, ended(line))));
        shown_after_change = AROUND;
    }
    // Of equal texts the end is shown.
    push_same(&mut lines, &old[at..], shown_after_change, AROUND - shown_after_change);
    lines
}

fn range(range: std::ops::Range<u32>) -> std::ops::Range<usize> {
    range.start as usize..range.end as usize
}

/// Adds lines that are the same: so many at their beginning and at their end, and the number of those between.
fn push_same(lines: &mut Vec<(Mark, String)>, part: &[&str], first: usize, last: usize) {
    let same = |line: &&str| (Mark::Same, shown(line));
    let skipped = part.len().saturating_sub(first + last);
    if skipped == 0 {
        lines.extend(part.iter().map(same));
        return;
    }
    lines.extend(part[..first].iter().map(same));
    let are = if skipped == 1 { " 1 line is the same".to_owned() } else { format!(" {skipped} lines are the same") };
    lines.push((Mark::Skipped, are));
    lines.extend(part[part.len() - last..].iter().map(same));
}

/// Returns an unchanged line, indented as in an editor.
fn shown(line: &str) -> String {
    without_end(line).replace('\t', "    ")
}

fn without_end(line: &str) -> &str {
    line.strip_suffix('\n').unwrap_or(line)
}

/// Returns a line of a change, whose tabs do not look like spaces; one without a line end says so.
fn ended(line: &str) -> String {
    let shown = without_end(line).replace('\t', "<TAB>");
    if line.ends_with('\n') { shown } else { format!("{shown} (no newline)") }
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
        check("\ta\n\tb\n", "\ta\n    b\n", "     a\n-<TAB>b\n+    b");
        check(
            "1\n2\n3\n4\n5\nx\n6\n7\n8\n9\n",
            "1\n2\n3\n4\n5\ny\n6\n7\n8\n9\n",
            "@ 2 lines are the same\n 3\n 4\n 5\n-x\n+y\n 6\n 7\n 8\n@ 1 line is the same",
        );
        check("1\n2\n3\n4\n", "1\n2\n3\n4\n", "@ 1 line is the same\n 2\n 3\n 4");
    }

    #[test]
    fn lines_between_two_changes_are_no_change() {
        check("a\n1\n2\nb\n", "x\n1\n2\ny\n", "-a\n+x\n 1\n 2\n-b\n+y");
        let same: String = (1..=8).map(|line| format!("{line}\n")).collect();
        let expect = "+use x;\n 1\n 2\n 3\n@ 2 lines are the same\n 6\n 7\n 8\n-end";
        check(&format!("{same}end\n"), &format!("use x;\n{same}"), expect);
        check(
            "fn a() {\n}\n\nfn b() {\n}\n",
            "fn a() {\n}\n\nfn c() {\n}\n\nfn b() {\n}\n",
            " fn a() {\n }\n \n+fn c() {\n+}\n+\n fn b() {\n }",
        );
    }
}
