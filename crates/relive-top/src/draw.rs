//! The screens.

mod asked;
mod detail;
mod list;
mod overlay;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::counts::Counts;
use crate::keys::Place;
use crate::state::{Drawn, State, asks};
use crate::text::{count, fit};

/// The narrowest list.
const LIST_MIN: u16 = 36;

/// Draws the dashboard, and returns what of it a person sees: [`State::note_drawn`] wants to know.
pub fn draw(state: &State, frame: &mut Frame<'_>) -> Drawn {
    let rows =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1), Constraint::Length(1)]);
    let [header, body, status, keys] = rows.areas(frame.area());
    draw_header(state, frame, header);
    let list_width = LIST_MIN.max(body.width * 2 / 5).min(body.width);
    let [left, right] = Layout::horizontal([Constraint::Length(list_width), Constraint::Min(0)]).areas(body);
    list::draw(state, frame, left);
    let asked = detail::draw(state, frame, right);
    let width = usize::from(status.width);
    let shown = crate::text::clean(&state.status);
    frame.render_widget(Paragraph::new(fit(&shown, width, state.look.ascii)), status);
    let hint = hint(state);
    frame.render_widget(Paragraph::new(fit(&hint, width, state.look.ascii)).style(state.dim()), keys);
    Drawn { width, ..overlay::draw(state, frame, body, asked) }
}

fn draw_header(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let counts = state.counts();
    let text = format!(
        "{} {} you  {} running  {} waiting  {} done  {} tokens  {}",
        counts.needs_you,
        if counts.needs_you == 1 { "needs" } else { "need" },
        counts.running,
        counts.waiting,
        counts.done,
        count(counts.tokens),
        cost(counts),
    );
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::styled("relive  ", bold)];
    if state.silence.is_some() {
        spans.push(Span::styled("not answering...", state.paint(Color::Yellow).add_modifier(Modifier::REVERSED)));
        spans.push(Span::raw("  "));
    } else if !state.connected {
        spans.push(Span::styled("reconnecting...", state.paint(Color::Yellow).add_modifier(Modifier::REVERSED)));
        spans.push(Span::raw("  "));
    } else if !state.ready {
        spans.push(Span::raw("loading...  "));
    }
    spans.push(Span::styled(text, bold));
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

/// Returns what everything cost; what is not known is not shown as nothing.
fn cost(counts: Counts) -> String {
    let known = format!("${:.2}", dollars(counts.cost.nanos()));
    match (counts.cost.nanos(), counts.unpriced) {
        (_, 0) => known,
        (0, 1..) => "cost unknown".to_owned(),
        (1.., 1..) => format!(">={known}"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
fn dollars(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Says what can be done here.
fn hint(state: &State) -> String {
    let pause = match state.would_resume() {
        Some(true) => "p resume  ",
        Some(false) => "p pause  ",
        None => "",
    };
    let place = state.place();
    // The answers come first where something waits for one.
    let asks = state.process().is_some_and(asks);
    let pause = if state.item().is_some() && (asks || state.would_resume() == Some(true)) { "" } else { pause };
    if let Some(item) = state.item().filter(|_| place != Place::Detail) {
        let answers: Vec<String> = item.keys().into_iter().map(|(keys, does)| format!("{keys} {does}")).collect();
        return format!("{}  {pause}Enter open  ? keys  q quit", answers.join("  "));
    }
    match place {
        Place::Item | Place::Process => {
            format!("{pause}Enter open  f fork  d diff  s send  K signal  / filter  ? keys  q quit")
        }
        Place::Nothing if state.filter.is_empty() => format!("{pause}: type a command  ? keys  q quit"),
        Place::Nothing => format!("Esc clear the filter  {pause}/ filter  : type a command  ? keys  q quit"),
        Place::Detail => "j k move  Tab tab  f fork here  r rewind  d diff  Enter attach  Esc back  ? keys".to_owned(),
    }
}

impl State {
    /// Returns the style of a colour, which is never the only sign of anything.
    pub(crate) fn paint(&self, color: Color) -> Style {
        if self.look.color { Style::new().fg(color) } else { Style::new() }
    }

    pub(crate) fn dim(&self) -> Style {
        if self.look.color { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }
}
