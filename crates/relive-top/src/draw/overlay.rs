//! What is shown over the list: help, menus, texts and prompts.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Clear, Paragraph};

use crate::actions::SIGNALS;
use crate::keys::KEYS;
use crate::state::{Overlay, Prompt, State};
use crate::text::{clean, fit};

pub(super) fn draw(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let Some(overlay) = &state.overlay else { return };
    match overlay {
        Overlay::Help => {
            let lines = KEYS.map(|(key, does)| format!("{key:<8} {does}"));
            window(state, frame, area, "keys", &lines, 0);
        }
        Overlay::Signals => {
            let who = state.process().map(|process| process.short.clone()).unwrap_or_default();
            let lines = SIGNALS.map(|(key, name, does)| format!("{key}  {name:<7} {does}"));
            window(state, frame, area, &format!("relive kill -s SIGNAL {who}"), &lines, 0);
        }
        Overlay::Text { title, lines, from } => window(state, frame, area, title, lines, *from),
        Overlay::Typing { prompt, typed } => {
            let title = match prompt {
                Prompt::Filter => "filter",
                Prompt::Command => "relive",
                Prompt::Send(_) => "send",
                Prompt::Answer(_) => "answer",
            };
            let line = [format!("{}_", clean(typed))];
            window(state, frame, area, title, &line, 0);
        }
    }
}

/// Draws a window as large as its lines, at most as large as the area, at its bottom.
fn window(state: &State, frame: &mut Frame<'_>, area: Rect, title: &str, lines: &[String], from: usize) {
    let wanted = u16::try_from(lines.len().saturating_add(2)).unwrap_or(u16::MAX);
    let height = wanted.min(area.height);
    let place = Rect { y: area.y + area.height - height, height, ..area };
    let set = if state.look.ascii { ASCII } else { ratatui::symbols::border::PLAIN };
    let block = Block::new().borders(Borders::ALL).border_set(set).title(format!(" {} ", clean(title)));
    let (room, width) = (usize::from(height.saturating_sub(2)), usize::from(area.width.saturating_sub(2)));
    // The last page is full.
    let from = from.min(lines.len().saturating_sub(room));
    let shown: Vec<Line<'_>> =
        lines.iter().skip(from).take(room).map(|line| Line::raw(fit(line, width, state.look.ascii))).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(shown).block(block), place);
}

const ASCII: ratatui::symbols::border::Set<'static> = ratatui::symbols::border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};
