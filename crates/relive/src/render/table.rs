//! Tables: upper-case headers, no borders, two spaces between columns.
//!
//! On a terminal a table fits its width by cutting the columns that may be cut, the widest first; elsewhere nothing is
//! cut.

use unicode_width::UnicodeWidthStr as _;

use crate::terminal::{Look, Paint};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub header: &'static str,
    pub align: Align,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
    /// To the left, and cut at its beginning: the end of a path says which directory it is.
    Path,
    /// To the left, and cut before its last word if that is a time: `shell: make -j4 all... 41s`.
    Timed,
}

/// A cell; its colour does not count in its width.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub text: String,
    pub paint: Option<Paint>,
}

impl Cell {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), paint: None }
    }
}

const GAP: usize = 2;
/// A cut column keeps at least this width.
const CUT_MIN: usize = 8;

/// Draws it. `cut` is the column that is cut if the terminal is too narrow.
pub(crate) fn draw(columns: &[Column], cut: usize, rows: &[Vec<Cell>], look: &Look) -> String {
    Table::new(columns, cut).draw(rows, look)
}

/// A table that is drawn as its rows arrive. Its columns never become narrower.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    /// The columns that may be cut.
    cuts: Vec<usize>,
    widths: Vec<usize>,
    has_header: bool,
}

impl Table {
    pub(crate) fn new(columns: &[Column], cut: usize) -> Self {
        Self::cutting(columns, &[cut])
    }

    /// A table of which these columns give way when the terminal is too narrow.
    pub(crate) fn cutting(columns: &[Column], cuts: &[usize]) -> Self {
        let widths = columns.iter().map(|column| column.header.width()).collect();
        Self { columns: columns.to_vec(), cuts: cuts.to_vec(), widths, has_header: false }
    }

    /// Draws these rows, after the header if they are the first.
    pub(crate) fn draw(&mut self, rows: &[Vec<Cell>], look: &Look) -> String {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        let has_header = std::mem::replace(&mut self.has_header, true);
        lines(
            &self.columns,
            &self.cuts,
            self.widths.clone(),
            if has_header { Header::No } else { Header::Yes },
            rows,
            look,
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Header {
    Yes,
    No,
}

fn lines(
    columns: &[Column],
    cuts: &[usize],
    mut widths: Vec<usize>,
    header: Header,
    rows: &[Vec<Cell>],
    look: &Look,
) -> String {
    if let Some(limit) = look.width {
        cut_to(limit, &mut widths, cuts);
        drop_beyond(limit, &mut widths);
    }
    let mut out = String::new();
    let headers: Vec<Cell> =
        columns.iter().map(|column| Cell { text: column.header.into(), paint: Some(Paint::Bold) }).collect();
    let headers = Some(&headers).filter(|_| header == Header::Yes);
    for row in headers.into_iter().chain(rows) {
        let mut line = String::new();
        for (place, ((cell, column), width)) in row.iter().zip(columns).zip(&widths).enumerate() {
            let text = match column.align {
                Align::Left | Align::Right => fit(&cell.text, *width, look),
                Align::Path => fit_end(&cell.text, *width, look),
                Align::Timed => fit_timed(&cell.text, *width, look),
            };
            let space = " ".repeat(width.saturating_sub(text.width()));
            let painted = cell.paint.map_or(text.clone().into(), |paint| look.paint(paint, &text));
            if place > 0 {
                line.push_str("  ");
            }
            match column.align {
                Align::Left | Align::Path | Align::Timed => line.extend([painted.as_ref(), &space]),
                Align::Right => line.extend([space.as_ref(), painted.as_ref()]),
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Makes the columns that may be cut narrower until all fit, the widest first.
fn cut_to(limit: usize, widths: &mut [usize], cuts: &[usize]) {
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    while total(widths) > limit {
        let widest = cuts.iter().copied().filter(|cut| *cut < widths.len()).max_by_key(|cut| widths[*cut]);
        match widest {
            Some(cut) if widths[cut] > CUT_MIN => widths[cut] -= 1,
            Some(_) | None => return,
        }
    }
}

/// Leaves out what is right of a terminal that is still too narrow: a line that wraps cannot be read as a table.
fn drop_beyond(limit: usize, widths: &mut Vec<usize>) {
    /// Less of a column says nothing.
    const PART_MIN: usize = 3;
    let mut used = 0;
    for place in 0..widths.len() {
        let start = if place == 0 { 0 } else { used + GAP };
        if start + widths[place] > limit {
            let room = limit.saturating_sub(start);
            widths[place] = room;
            widths.truncate(if room < PART_MIN && place > 0 { place } else { place + 1 });
            return;
        }
        used = start + widths[place];
    }
}

/// Cuts the beginning of a text, to at most `width` columns.
fn fit_end(text: &str, width: usize, look: &Look) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(look.ellipsis().width());
    let start = text.char_indices().map(|(place, _)| place).find(|place| text[*place..].width() <= room);
    format!("{}{}", look.ellipsis(), &text[start.unwrap_or(text.len())..])
}

/// Cuts a text before its last word if that is a time, to at most `width` columns.
fn fit_timed(text: &str, width: usize, look: &Look) -> String {
    let is_time =
        |word: &str| word.starts_with(|first: char| first.is_ascii_digit()) && word.ends_with(['s', 'm', 'h', 'd']);
    match text.rsplit_once(' ').filter(|(_, last)| is_time(last) && text.width() > width) {
        Some((what, time)) if width > time.width() + CUT_MIN => {
            format!("{} {time}", fit(what, width - time.width() - 1, look))
        }
        Some(_) | None => fit(text, width, look),
    }
}

/// Cuts a text to at most `width` columns.
pub(crate) fn fit(text: &str, width: usize, look: &Look) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(look.ellipsis().width());
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if kept.width() > room {
            kept.pop();
            break;
        }
    }
    kept + look.ellipsis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_at_the_end_is_kept_when_the_text_before_it_is_cut() {
        let look = Look { ascii: true, ..Look::plain() };
        let check = |text: &str, width, expect: &str| assert_eq!(fit_timed(text, width, &look), expect);
        check("shell: make -j4 41s", 19, "shell: make -j4 41s");
        check("shell: trap '' INT TERM; for x 1m02s", 24, "shell: trap '' ... 1m02s");
        check("shell: trap '' INT TERM", 18, "shell: trap '' ...");
        // Without room for both, the beginning says more.
        check("asking the model 41s", 10, "asking ...");
    }
}
