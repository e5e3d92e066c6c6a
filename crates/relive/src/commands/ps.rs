//! `relive ps`: lists processes.

mod watch;

pub(crate) use watch::{height, screen};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use relive_api::{ListQuery, Process};
use relive_core::{Display, Timestamp};

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::processes::{self, Column, Order, SortKey};
use crate::render::table::Table;
use crate::render::time::parse_since;
use crate::terminal::Look;

/// How many processes are requested at a time.
const PAGE: usize = 256;

/// List processes
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive ps                          list running and suspended processes
  relive ps -a --tree                include ended ones, each below its parent
  relive ps --failed --since 2h      list what failed in the last two hours
  relive ps -a --name 'test-*' -n 5  list the last five with such a name
  relive ps -a --sort cost           list the most expensive first
  relive ps --columns pid,doing      show only these columns
  relive ps --watch                  refresh every second until you press q
  relive kill $(relive ps -q | tail -1)")]
pub(crate) struct Args {
    /// Include processes that have ended
    #[arg(short, long)]
    all: bool,
    /// Show each process below its parent
    #[arg(long)]
    tree: bool,
    /// Print only the PIDs in ascending order, one per line
    #[arg(short, long)]
    quiet: bool,
    /// Only processes in this state; `dead` implies -a
    #[arg(long, value_parser = states())]
    state: Option<String>,
    /// Only processes that were started in or below this directory
    #[arg(long)]
    here: bool,
    /// Only processes whose name matches: `*` matches any text, `?` any character
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,
    /// Only processes that ended with an exit code other than 0; implies -a
    #[arg(long)]
    failed: bool,
    /// Only processes that have not ended, or ended after this time, such as 2h (ago) or 22:00; implies -a
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<Timestamp>,
    /// Only the N newest processes
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
    /// Sort by this key; amounts are sorted in descending order
    #[arg(long, value_name = "KEY", value_enum, ignore_case = true, conflicts_with = "tree")]
    sort: Option<SortKey>,
    /// Show only these columns, separated by commas
    #[arg(
        long,
        value_name = "COLUMNS",
        value_enum,
        ignore_case = true,
        value_delimiter = ',',
        conflicts_with = "quiet"
    )]
    columns: Vec<Column>,
    /// Refresh every second until q or Ctrl-C
    #[arg(long, conflicts_with_all = ["quiet"])]
    watch: bool,
}

/// The states, and `paused` for `suspended`: the verb is `pause`.
fn states() -> impl TypedValueParser<Value = String> {
    let state = |display: Display| match display.word() {
        suspended @ "suspended" => PossibleValue::new(suspended).alias("paused"),
        word => PossibleValue::new(word),
    };
    let states = PossibleValuesParser::new(Display::ALL.map(state));
    states.map(|typed| if typed == "paused" { "suspended".to_owned() } else { typed })
}

impl Args {
    fn columns(&self, look: &Look) -> Vec<Column> {
        if self.columns.is_empty() { Column::fitting(look) } else { self.columns.clone() }
    }

    fn query(&self) -> Outcome<ListQuery> {
        let cwd = if self.here { Some(super::run::current_directory()?) } else { None };
        let ended = self.state.as_deref() == Some(Display::Dead.word()) || self.failed || self.since.is_some();
        Ok(ListQuery {
            all: self.all || ended,
            state: self.state.clone(),
            name: self.name.clone(),
            cwd,
            failed: self.failed,
            since: self.since,
            newest: self.last.is_some(),
            limit: Some(PAGE),
            cursor: None,
        })
    }
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    if args.watch {
        return watch::run(context, args).await;
    }
    let mut printer = Printer::new(context, args);
    let query = args.query()?;
    if let Some(client) = Client::open(context, Start::IfHistories).await? {
        let mut pages = Pages { client, query: Some(query), left: args.last.map(|last| last as usize) };
        if args.tree || args.last.is_some() || args.sort.is_some() {
            // The first row is known only when all rows are.
            printer.print(pages.whole().await?)?;
        } else {
            while let Some(page) = pages.next().await? {
                printer.print(page)?;
            }
        }
    }
    printer.finish()?;
    Ok(0)
}

/// The pages of a list, read on demand.
struct Pages<'a> {
    client: Client<'a>,
    /// The query of the next page.
    query: Option<ListQuery>,
    /// How many more processes are wanted; all if absent.
    left: Option<usize>,
}

impl Pages<'_> {
    async fn whole(&mut self) -> Outcome<Vec<Process>> {
        let mut whole = Vec::new();
        while let Some(page) = self.next().await? {
            whole.extend(page);
        }
        Ok(whole)
    }

    async fn next(&mut self) -> Outcome<Option<Vec<Process>>> {
        let Some(query) = self.query.take() else { return Ok(None) };
        let query = ListQuery { limit: query.limit.map(|limit| limit.min(self.left.unwrap_or(limit))), ..query };
        let page = self.client.list(&query).await?;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(page.processes.len());
        }
        let more = self.left != Some(0);
        self.query = page.next.filter(|_| more).map(|cursor| ListQuery { cursor: Some(cursor), ..query });
        Ok(Some(page.processes))
    }
}

/// Prints pages as one document, list or table.
struct Printer<'a> {
    context: &'a Context,
    form: Form,
    sort: SortKey,
    has_items: bool,
}

enum Form {
    Json,
    Pids,
    Table(Table, Order, Vec<Column>),
}

impl<'a> Printer<'a> {
    fn new(context: &'a Context, args: &Args) -> Self {
        let order = if args.tree { Order::Tree } else { Order::Listed };
        let columns = args.columns(&context.out);
        let form = match (context.json, args.quiet) {
            (true, _) => Form::Json,
            (false, true) => Form::Pids,
            (false, false) => Form::Table(processes::table(&columns), order, columns),
        };
        Self { context, form, sort: args.sort.unwrap_or(SortKey::Pid), has_items: false }
    }

    fn print(&mut self, mut page: Vec<Process>) -> Outcome<()> {
        self.sort.sort(&mut page);
        let text = match &mut self.form {
            Form::Pids => page.iter().map(|process| format!("{}\n", process.pid)).collect(),
            Form::Table(table, order, columns) => {
                let rows = processes::rows(&page, *order, columns, Timestamp::now(), &self.context.out);
                table.draw(&rows, &self.context.out)
            }
            Form::Json => {
                let mut text = String::new();
                for process in &page {
                    text.push_str(if self.has_items { "," } else { "{\"processes\":[" });
                    self.has_items = true;
                    text += &serde_json::to_string(process)
                        .map_err(|error| CommandError::internal("cannot write to stdout").because(error))?;
                }
                text
            }
        };
        self.context.print(&text)
    }

    fn finish(&mut self) -> Outcome<()> {
        let text = match &mut self.form {
            Form::Pids => String::new(),
            // Only the header, if there was nothing else.
            Form::Table(table, _, _) => table.draw(&[], &self.context.out),
            Form::Json if self.has_items => "]}\n".to_owned(),
            Form::Json => "{\"processes\":[]}\n".to_owned(),
        };
        self.context.print(&text)
    }
}
