//! What is shown over the list: help, menus, texts and prompts.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Clear, Paragraph};

use super::asked;
use crate::actions::{self, SIGNALS};
use crate::state::{Drawn, DrawnItem, Overlay, Prompt, State};
use crate::text::{clean, fit, wrap};

/// Draws what is over the list, and returns what a person sees; `asked` is what is seen without it.
pub(super) fn draw(state: &State, frame: &mut Frame<'_>, area: Rect, asked: Option<DrawnItem>) -> Drawn {
    let Some(overlay) = &state.overlay else { return Drawn { asked, ..Drawn::default() } };
    let mut window = Window { state, frame, area };
    let drawn = match overlay {
        Overlay::Help { from } => window.draw("keys", &state.help(), *from),
        Overlay::Signals { targets } => {
            let lines = SIGNALS.map(|(key, name, does)| format!("{key}  {name:<7} {does}"));
            window.draw(&format!("relive kill -s SIGNAL {}", targets.join(" ")), &lines, 0)
        }
        Overlay::Asked { id, from } => {
            let item = state.item().filter(|item| item.id == *id);
            let width = usize::from(area.width.saturating_sub(2));
            let lines = item.map(|item| asked::lines(state, item, width)).unwrap_or_default();
            let drawn = window.draw("what is asked", &lines, *from);
            let to_the_end = width > 0 && from + drawn.page >= lines.len();
            return Drawn { asked: item.map(|item| DrawnItem { id: item.id.clone(), to_the_end }), ..drawn };
        }
        Overlay::Text { title, lines, from } => window.draw(title, &wrapped(lines, area), *from),
        Overlay::Confirm { lines, from, then, .. } => {
            let title = format!("{}?  [y] yes  [n] no", actions::shown(std::slice::from_ref(then)));
            window.draw(&title, &wrapped(lines, area), *from)
        }
        Overlay::Typing { prompt, typed } => {
            let title = match prompt {
                Prompt::Filter => "filter, then Enter",
                Prompt::Command => "relive, then Enter (Esc: none)",
                Prompt::Send(_) => "message, then Enter (Esc: none)",
                Prompt::Answer { .. } => "your answer, then Enter (Esc: none)",
                Prompt::Withdrawn { why, .. } => &format!("not sent: {why} (Esc)"),
            };
            // All of it is shown, and of a long one the end.
            let lines: Vec<String> = format!("{typed}_").split('\n').map(clean).collect();
            let lines = wrapped(&lines, area);
            window.draw(title, &lines, lines.len())
        }
    };
    // A window may be over what is asked: only what was seen before counts.
    Drawn { asked: asked.map(|asked| DrawnItem { to_the_end: false, ..asked }), ..drawn }
}

/// Returns lines that fit into a window: none of them is cut.
fn wrapped(lines: &[String], area: Rect) -> Vec<String> {
    let width = usize::from(area.width.saturating_sub(2));
    lines.iter().flat_map(|line| wrap(line, width)).collect()
}

struct Window<'a, 'b, 'c> {
    state: &'a State,
    frame: &'b mut Frame<'c>,
    area: Rect,
}

impl Window<'_, '_, '_> {
    /// Draws a window as large as its lines, at most as large as the area, at its bottom.
    fn draw(&mut self, title: &str, lines: &[String], from: usize) -> Drawn {
        let (area, ascii) = (self.area, self.state.look.ascii);
        let wanted = u16::try_from(lines.len().saturating_add(2)).unwrap_or(u16::MAX);
        let height = wanted.min(area.height);
        let place = Rect { y: area.y + area.height - height, height, ..area };
        let set = if ascii { ASCII } else { ratatui::symbols::border::PLAIN };
        let (page, width) = (usize::from(height.saturating_sub(2)), usize::from(area.width.saturating_sub(2)));
        // The last page is full.
        let from = from.min(lines.len().saturating_sub(page));
        let title = fit(&clean(title), width.saturating_sub(2), ascii);
        let mut block = Block::new().borders(Borders::ALL).border_set(set).title(format!(" {title} "));
        if page == 0 {
            block = block.title_bottom(" the screen is too small ");
        } else if lines.len() > page {
            let last = (from + page).min(lines.len());
            block = block.title_bottom(format!(" {}-{last} of {} ", from + 1, lines.len()));
        }
        let shown: Vec<Line<'_>> =
            lines.iter().skip(from).take(page).map(|line| Line::raw(fit(line, width, ascii))).collect();
        self.frame.render_widget(Clear, place);
        self.frame.render_widget(Paragraph::new(shown).block(block), place);
        Drawn { asked: None, page, lines: lines.len(), width: 0 }
    }
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
