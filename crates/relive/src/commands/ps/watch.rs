//! `ps --watch`: the list again each second.

use std::time::Duration;

use relive_core::Timestamp;

use super::{Args, Pages};
use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::processes::{self, Order, SortKey};
use crate::terminal::keys::Keys;
use crate::terminal::{ColorChoice, Look};

const EVERY: Duration = Duration::from_secs(1);

pub(super) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    if context.json || !context.out.is_terminal {
        return Err(CommandError::invalid("--watch needs a terminal to draw on").with_hint("relive ps"));
    }
    let cannot = |error| CommandError::internal("the terminal cannot be used").because(error);
    let mut keys = Keys::open().map_err(cannot)?;
    let code = tokio::select! {
        drawn = draw_for_ever(context, args) => drawn?,
        left = keys.quit() => left.map_err(cannot)?,
    };
    // The terminal is as it was before the prompt of the shell.
    drop(keys);
    context.print("\n")?;
    Ok(code)
}

async fn draw_for_ever(context: &Context, args: &Args) -> Outcome<u8> {
    loop {
        let screen = draw(context, args).await?;
        context.print(&screen)?;
        tokio::time::sleep(EVERY).await;
    }
}

/// Draws the list over the screen as it is, so that nothing flickers. What does not fit is counted.
async fn draw(context: &Context, args: &Args) -> Outcome<String> {
    // The terminal may have another size by now.
    let color = if context.out.color { ColorChoice::Always } else { ColorChoice::Never };
    let look = Look { ascii: context.out.ascii, ..Look::of_stdout(color) };
    let mut processes = match Client::open(context, Start::IfHistories).await? {
        Some(client) => {
            let left = args.last.map(|last| last as usize);
            Pages { client, query: Some(args.query()?), left }.whole().await?
        }
        None => Vec::new(),
    };
    args.sort.unwrap_or(SortKey::Pid).sort(&mut processes);
    let order = if args.tree { Order::Tree } else { Order::Listed };
    let columns = args.columns(&look);
    let now = Timestamp::now();
    let rows = processes::rows(&processes, order, &columns, now, &look);
    let drawn = processes::table(&columns).draw(&rows, &look);
    Ok(screen(&drawn, height()))
}

pub(crate) fn height() -> usize {
    const DEFAULT_HEIGHT: usize = 24;
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.ok().map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 2).unwrap_or(DEFAULT_HEIGHT)
}

/// From the top left: each line clears what was behind it, and the last one what was below.
pub(crate) fn screen(drawn: &str, height: usize) -> String {
    let lines: Vec<&str> = drawn.lines().collect();
    // The header, and a line that says how to leave.
    let room = height.saturating_sub(1);
    let (shown, rest) = lines.split_at(lines.len().min(room));
    let more = if rest.is_empty() { String::new() } else { format!("{} more; ", rest.len()) };
    let mut screen = String::from("\x1b[H");
    for line in shown {
        screen.push_str(line);
        screen.push_str("\x1b[K\r\n");
    }
    screen + &format!("{more}q quits\x1b[K\x1b[J\r")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_has_what_fits_and_says_how_much_does_not() {
        let screen = screen("PID\n  1\n  2\n  3\n", 4);
        assert_eq!(screen, "\x1b[HPID\x1b[K\r\n  1\x1b[K\r\n  2\x1b[K\r\n1 more; q quits\x1b[K\x1b[J\r");
    }
}
