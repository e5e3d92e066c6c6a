//! `relive usage`: tokens and cost.

use relive_api::{UsageQuery, UsageReport, UsageRow};
use relive_core::{Timestamp, Usd};

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::Outcome;
use crate::render::processes::{about, spent};
use crate::render::table::{Align, Cell, Column, Table};
use crate::render::time::parse_since;
use crate::terminal::one_line;

/// Show tokens and cost by day, model, project or process
///
/// PROCESSES is the number of agents in each row. Days are in UTC. Removed processes count for one year. A cost
/// is `unknown` if the price of a model is not known.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive usage                           by day, model and project directory
  relive usage --by process --since 7d   by process, for the last week
  relive usage --by '' --json            the total")]
pub(crate) struct Args {
    /// Group by these, separated by commas: day, model, project, process
    #[arg(long, value_name = "KEYS", default_value = "day,model,project", value_parser = parse_keys)]
    by: String,
    /// Only the days from this time on, such as 7d (ago) or 2026-11-15; the first day counts from its beginning
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<Timestamp>,
}

const KEYS: [&str; 4] = ["day", "model", "project", "process"];

fn parse_keys(text: &str) -> Result<String, String> {
    match text.split(',').map(str::trim).find(|key| !key.is_empty() && !KEYS.contains(key)) {
        None => Ok(text.to_owned()),
        Some(key) => Err(match relive_types::suggest::closest(key, KEYS) {
            Some(meant) => format!("there is no key `{key}` (did you mean `{meant}`?)"),
            None => format!("there is no key `{key}`: use some of {}", KEYS.join(", ")),
        }),
    }
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let since = args.since.map(|at| at.strftime("%Y-%m-%d").to_string());
    let query = UsageQuery { by: Some(args.by.clone()), since };
    let report = match Client::open(context, Start::IfRemembered).await? {
        Some(client) => client.usage(&query).await?,
        None => UsageReport { rows: Vec::new() },
    };
    if context.json {
        context.print_json(&report)?;
    } else if report.rows.is_empty() {
        context.say("no model was called");
    } else {
        context.print(&table(context, &args.by, &report.rows))?;
    }
    Ok(0)
}

/// A column, and what it shows of a row.
type Shown = (&'static str, fn(&UsageRow) -> String);

fn table(context: &Context, by: &str, rows: &[UsageRow]) -> String {
    let is_by = |word: &str| by.split(',').any(|part| part.trim() == word);
    let dimensions: [(&str, &[Shown]); 4] = [
        ("day", &[("DAY", |row| shown(row.day.as_deref()))]),
        ("model", &[("MODEL", |row| shown(row.model.as_deref()))]),
        ("project", &[("PROJECT", |row| shown(row.cwd.as_deref()))]),
        (
            "process",
            &[
                ("PID", |row| row.pid.map_or("-".to_owned(), |pid| pid.to_string())),
                ("ID", |row| shown(row.short.as_deref())),
                ("NAME", |row| shown(row.name.as_deref())),
            ],
        ),
    ];
    let amounts: [Shown; 4] = [
        ("PROCESSES", |row| row.processes.to_string()),
        ("TOKENS IN", |row| about(row.tokens_in, row.estimated)),
        ("TOKENS OUT", |row| about(row.tokens_out, row.estimated)),
        ("COST", |row| spent(row.cost_usd, row.tokens_in.saturating_add(row.tokens_out), row.estimated)),
    ];
    let mut columns = Vec::new();
    let mut shown_by = Vec::new();
    for (_, part) in dimensions.iter().filter(|(word, _)| is_by(word)) {
        for (header, show) in *part {
            let align = match *header {
                "PID" => Align::Right,
                "PROJECT" => Align::Path,
                _ => Align::Left,
            };
            columns.push(Column { header, align });
            shown_by.push(*show);
        }
    }
    let labels = columns.len();
    // Each row is one process if the rows are by process.
    let first = usize::from(is_by("process"));
    for (header, show) in amounts.into_iter().skip(first) {
        columns.push(Column { header, align: Align::Right });
        shown_by.push(show);
    }
    let mut cells: Vec<Vec<Cell>> =
        rows.iter().map(|row| shown_by.iter().map(|show| Cell::plain(show(row))).collect()).collect();
    if rows.len() > 1 {
        let sum = total(rows);
        let mut last: Vec<Cell> = (0..labels).map(|place| Cell::plain(if place == 0 { "total" } else { "" })).collect();
        if first == 0 {
            // A process may be in several rows.
            last.push(Cell::plain(""));
        }
        last.extend(amounts[1..].iter().map(|(_, show)| Cell::plain(show(&sum))));
        cells.push(last);
    }
    let cuts: Vec<usize> = columns
        .iter()
        .enumerate()
        .filter(|(_, column)| matches!(column.header, "MODEL" | "PROJECT" | "NAME"))
        .map(|(place, _)| place)
        .collect();
    Table::cutting(&columns, &cuts).draw(&cells, &context.out)
}

fn shown(text: Option<&str>) -> String {
    text.map_or("-".to_owned(), one_line)
}

/// The sum of all rows. Its cost is unknown where one is.
fn total(rows: &[UsageRow]) -> UsageRow {
    let cost = |sum: Option<Usd>, row: &UsageRow| Some(sum?.saturating_add(row.cost_usd?));
    UsageRow {
        day: None,
        model: None,
        cwd: None,
        tokens_in: rows.iter().map(|row| row.tokens_in).sum(),
        tokens_out: rows.iter().map(|row| row.tokens_out).sum(),
        estimated: rows.iter().any(|row| row.estimated),
        cost_usd: rows.iter().fold(Some(Usd::default()), cost),
        processes: 0,
        uuid: None,
        short: None,
        pid: None,
        name: None,
    }
}
