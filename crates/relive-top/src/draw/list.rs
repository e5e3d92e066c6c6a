//! The list: the inbox and the processes.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use relive_api::{Item, ItemKind, Process};
use relive_core::Body;
use relive_types::text::exact;

use crate::rows::{Row, RowKind};
use crate::state::{Focus, Known, State, asks};
use crate::text::{clean, count, fit, span};

pub(super) fn draw(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let (height, width) = (usize::from(area.height), usize::from(area.width).saturating_sub(1));
    let items = state.rows.iter().take_while(|row| matches!(row.kind, RowKind::Item(_))).count();
    // Each section has a title, which moves with the rows.
    let line_of = |row: usize| row + 1 + usize::from(row >= items) + usize::from(items == 0 && row >= items);
    let total = state.rows.len() + 2 + usize::from(items == 0);
    let cursor = if state.rows.is_empty() { 0 } else { line_of(state.cursor) };
    let from = cursor.saturating_sub(height.saturating_sub(2)).min(total.saturating_sub(height));
    let mut lines = Vec::with_capacity(height);
    for place in from..(from + height).min(total) {
        lines.push(line(state, place, items, width));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Returns one line of the list: a title, a remark or a row.
fn line(state: &State, place: usize, items: usize, width: usize) -> Line<'static> {
    let title = |text: String| Line::styled(text, Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED));
    let nothing = usize::from(items == 0);
    if place == 0 {
        let note = if state.incomplete { "  (some ends may be missing)" } else { "" };
        // Those that the filter hides still wait.
        let all = if state.filter.is_empty() { items } else { state.waiting() };
        let of = if all == items { String::new() } else { format!(" of {all}") };
        return title(format!("INBOX {items}{of}{note}"));
    }
    if nothing == 1 && place == 1 {
        let is_hidden = !state.filter.is_empty() && state.waiting() > 0;
        let text = if is_hidden { "  none of them matches the filter" } else { "  nothing waits for you" };
        return Line::styled(text, state.dim());
    }
    let processes = state.rows.len() - items;
    if place == items + 1 + nothing {
        let filter = if state.filter.is_empty() { String::new() } else { format!("  /{}", clean(&state.filter)) };
        return title(format!("PROCESSES {processes}{filter}"));
    }
    let row = if place <= items { place - 1 } else { place - 2 - nothing };
    match state.rows.get(row) {
        Some(shown) => of_row(state, row, shown, width),
        None => Line::default(),
    }
}

fn of_row(state: &State, place: usize, row: &Row, width: usize) -> Line<'static> {
    let is_selected = place == state.cursor;
    let mark = match (is_selected, state.tagged.contains(&row.uuid)) {
        (true, true) => ">*",
        (true, false) => "> ",
        (false, true) => " *",
        (false, false) => "  ",
    };
    let room = width.saturating_sub(2);
    let (text, style) = match (&row.kind, state.known.get(&row.uuid)) {
        (RowKind::Item(item), _) => (item_text(state, item, room), state.paint(item_color(item.kind))),
        (RowKind::Process { depth, folded }, Some(known)) => {
            (process_text(state, known, *depth, *folded, room), state.paint(state_color(&known.process)))
        }
        (RowKind::Process { .. }, None) => (String::new(), Style::new()),
    };
    let style = match (is_selected, state.focus) {
        (true, Focus::List) => style.add_modifier(Modifier::REVERSED),
        (true, Focus::Detail) => style.add_modifier(Modifier::BOLD),
        (false, _) => style,
    };
    Line::from(vec![Span::raw(mark), Span::styled(fit(&text, room, state.look.ascii), style)])
}

fn item_text(state: &State, item: &Item, width: usize) -> String {
    let who = item.name.as_deref().map_or_else(|| item.pid.to_string(), exact);
    let waits = state.known.get(&item.uuid).and_then(|known| known.waits_ms(state.clock_ms()));
    let left = waits.map(|waits| format!(" in {}", span(waits))).unwrap_or_default();
    let then = if item.pause_kept { ", then paused" } else { "" };
    fit(&format!("{} {who}{left}{then}: {}", item.kind.word(), exact(&item.text)), width, state.look.ascii)
}

fn item_color(kind: ItemKind) -> Color {
    match kind {
        ItemKind::Approval | ItemKind::Question | ItemKind::InDoubt | ItemKind::Failed | ItemKind::Damaged => {
            Color::Red
        }
        ItemKind::Budget | ItemKind::Quota | ItemKind::Credentials | ItemKind::Stalled => Color::Yellow,
        ItemKind::Finished => Color::Green,
    }
}

fn state_color(process: &Process) -> Color {
    match process.display.as_str() {
        "running" => Color::Green,
        "approval" | "question" | "in_doubt" | "damaged" => Color::Red,
        "dead" | "zombie" => Color::DarkGray,
        _ => Color::Yellow,
    }
}

/// Returns the mark of a process that does not run.
pub(super) fn sign(process: &Process) -> &'static str {
    match (process.paused, process.dead_at.is_some()) {
        // Nobody has paused it.
        (_, false) if asks(process) => "[?]",
        (true, _) => "[P]",
        (false, true) => "[x]",
        (false, false) => "   ",
    }
}

/// Returns the columns of a process: the name gives way to the numbers.
fn process_text(state: &State, known: &Known, depth: usize, folded: usize, width: usize) -> String {
    let process = &known.process;
    let sign = sign(process);
    let name = clean(process.name.as_deref().unwrap_or(&process.intent));
    let more = if folded > 0 { format!(" +{folded}") } else { String::new() };
    let left = format!("{}{} {name}{more}", "  ".repeat(depth.min(8)), process.pid);
    let elapsed = span(known.elapsed_ms(state.clock_ms()));
    let (step, tokens) = match process.body {
        // A program takes no steps and spends no tokens.
        Body::Exec => ("-".to_owned(), "-".to_owned()),
        Body::Agent | Body::Cli | Body::Compose | Body::Supervisor => {
            (process.step.to_string(), count(process.tokens_in.saturating_add(process.tokens_out)))
        }
    };
    let doing = process.doing.as_deref().map(clean).unwrap_or_default();
    let right = if width >= 70 {
        let has_tokens = process.tokens_in > 0 || process.tokens_out > 0;
        let cost = match process.cost_usd {
            Some(cost) if has_tokens || cost.nanos() > 0 => format!("${:.3}", super::dollars(cost.nanos())),
            None if has_tokens => "unknown".to_owned(),
            // Before the first answer of a model.
            Some(_) | None => "-".to_owned(),
        };
        format!(
            "{} {:<9} {step:>4} {tokens:>7} {cost:>8} {elapsed:>6} {}",
            sign,
            process.display,
            fit(&doing, 24, state.look.ascii)
        )
    } else {
        format!("{sign} {} {elapsed:>6}", fit(&process.display, 9, true))
    };
    let room = width.saturating_sub(right.chars().count() + 1);
    let left = fit(&left, room, state.look.ascii);
    let pad = room.saturating_sub(unicode_width::UnicodeWidthStr::width(left.as_str()));
    format!("{left}{} {right}", " ".repeat(pad))
}
