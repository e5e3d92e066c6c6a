//! The detail pane: who it is about, the tabs, and the lines of one of them.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};
use relive_core::Body;

use super::asked;
use super::list::sign;
use crate::content::Tab;
use crate::state::{DrawnItem, Focus, State};
use crate::text::{clean, count, fit, span, wrap};

/// Draws the pane, and returns what of the selected item it has shown.
pub(super) fn draw(state: &State, frame: &mut Frame<'_>, area: Rect) -> Option<DrawnItem> {
    let block = Block::new().borders(Borders::LEFT).border_set(border(state));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [head, tabs, lines] =
        Layout::vertical([Constraint::Length(2), Constraint::Length(1), Constraint::Min(0)]).areas(inside);
    frame.render_widget(Paragraph::new(about(state, usize::from(head.width))), head);
    frame.render_widget(Paragraph::new(titles(state)), tabs);
    draw_lines(state, frame, lines)
}

fn border(state: &State) -> ratatui::symbols::border::Set<'static> {
    let plain = ratatui::symbols::border::PLAIN;
    if state.look.ascii { ratatui::symbols::border::Set { vertical_left: "|", ..plain } } else { plain }
}

/// Says which process is shown, and what it does.
fn about(state: &State, width: usize) -> Vec<Line<'static>> {
    let Some(known) = state.selected_uuid().and_then(|uuid| state.known.get(&uuid)) else {
        return vec![Line::raw("no process")];
    };
    let process = &known.process;
    let name = clean(process.name.as_deref().unwrap_or(&process.intent));
    let first = format!("PID {} {} {name}", process.pid, process.short);
    let spent = match process.body {
        Body::Exec => String::new(),
        Body::Agent | Body::Cli | Body::Compose | Body::Supervisor => {
            let tokens = count(process.tokens_in.saturating_add(process.tokens_out));
            format!("  step {}  {tokens} tokens", process.step)
        }
    };
    let numbers = format!(
        "{}{}{}{spent}  {}",
        if process.paused { format!("{} ", sign(process)) } else { String::new() },
        process.display,
        if process.pause_kept { ", then paused" } else { "" },
        span(known.elapsed_ms(state.clock_ms())),
    );
    let doing = process.doing.as_deref().map(|doing| format!("  {}", clean(doing))).unwrap_or_default();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    vec![
        Line::styled(fit(&first, width, state.look.ascii), bold),
        Line::raw(fit(&format!("{numbers}{doing}"), width, state.look.ascii)),
    ]
}

fn titles(state: &State) -> Line<'static> {
    let mut spans = Vec::new();
    for tab in Tab::ALL {
        let is_shown = tab == state.tab;
        let style = if is_shown { Style::new().add_modifier(Modifier::REVERSED) } else { state.dim() };
        let title = if is_shown { format!("[{}]", tab.title()) } else { format!(" {} ", tab.title()) };
        spans.push(Span::styled(title, style));
    }
    Line::from(spans)
}

fn draw_lines(state: &State, frame: &mut Frame<'_>, area: Rect) -> Option<DrawnItem> {
    let (height, width) = (usize::from(area.height), usize::from(area.width));
    if let Some(item) = state.item().filter(|_| state.focus == Focus::List) {
        // What is asked comes before the lines of any tab: a key may answer it.
        let mut lines: Vec<Line<'_>> = asked::lines(state, item, width).into_iter().map(Line::raw).collect();
        let to_the_end = lines.len() <= height;
        if !to_the_end {
            let more = lines.len() + 1 - height.max(1);
            lines.truncate(height.saturating_sub(1));
            let sign = Line::raw(fit(&format!("{more} more lines: Enter"), width, state.look.ascii));
            lines.push(sign.style(Style::new().add_modifier(Modifier::REVERSED)));
        }
        lines.push(Line::default());
        let room = height.saturating_sub(lines.len());
        lines.extend(if state.tab.follows() { tail(state, room, width) } else { shown_from(state, 0, room, width) });
        frame.render_widget(Paragraph::new(lines), area);
        // A pane without a place for a line has shown nothing.
        return Some(DrawnItem { id: item.id.clone(), to_the_end: to_the_end && width > 0 });
    }
    draw_tab(state, frame, area);
    None
}

/// Draws the lines of a tab.
fn draw_tab(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let (height, width) = (usize::from(area.height), usize::from(area.width));
    let cursor = state.line.filter(|_| state.focus == Focus::Detail);
    let Some(cursor) = cursor else {
        let lines = if state.tab.follows() { tail(state, height, width) } else { shown_from(state, 0, height, width) };
        frame.render_widget(Paragraph::new(lines), area);
        return;
    };
    let from = cursor.saturating_sub(height / 2).min(state.lines.len().saturating_sub(height));
    let mut lines = shown_from(state, from, height, width.saturating_sub(2));
    for (place, line) in lines.iter_mut().enumerate() {
        let is_selected = place == cursor - from;
        line.spans.insert(0, Span::raw(if is_selected { "> " } else { "  " }));
        if is_selected {
            *line = std::mem::take(line).style(Style::new().add_modifier(Modifier::REVERSED));
        }
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn shown_from(state: &State, from: usize, height: usize, width: usize) -> Vec<Line<'static>> {
    let lines = state.lines.iter().skip(from).take(height);
    lines.map(|line| Line::raw(fit(&clean(&line.text), width, state.look.ascii))).collect()
}

/// Returns the last lines, broken where they are too long.
fn tail(state: &State, height: usize, width: usize) -> Vec<Line<'static>> {
    let mut shown: Vec<String> = Vec::new();
    for line in state.lines.iter().rev() {
        let mut parts = wrap(&clean(&line.text), width);
        parts.reverse();
        shown.extend(parts);
        if shown.len() >= height {
            break;
        }
    }
    shown.truncate(height);
    shown.into_iter().rev().map(Line::raw).collect()
}
