//! `relive ps`: what runs.

use std::time::Duration;

use relive_api::{ListQuery, Process};
use relive_core::{Display, Timestamp};

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::processes::{self, Order};
use crate::render::table::Table;

/// How many processes are asked for at a time.
const PAGE: usize = 256;

/// List processes
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive ps                          what runs or is suspended
  relive ps -a --tree                those that ended too, each below its parent
  relive ps --failed --since 2h      what went wrong in the last two hours
  relive ps -a --name 'test-*' -n 5  the last five with such a name
  relive kill $(relive ps -q | tail -1)")]
pub(crate) struct Args {
    /// Those that have ended too
    #[arg(short, long)]
    all: bool,
    /// Each below its parent
    #[arg(long)]
    tree: bool,
    /// PIDs only, one a line, ascending
    #[arg(short, long)]
    quiet: bool,
    /// Those in this state; `dead` implies -a
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(Display::ALL.map(Display::word)))]
    state: Option<String>,
    /// Those that were started in this directory or below it
    #[arg(long)]
    here: bool,
    /// Those whose name matches: `*` is any text, `?` any one character
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,
    /// Those that ended with an exit code other than 0; implies -a
    #[arg(long)]
    failed: bool,
    /// Those that live, or ended within the last DURATION; implies -a
    #[arg(long, value_name = "DURATION", value_parser = relive_types::duration::parse)]
    since: Option<Duration>,
    /// The last N, by PID
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
}

impl Args {
    fn query(&self) -> Outcome<ListQuery> {
        let cwd = if self.here { Some(super::run::current_directory()?) } else { None };
        let ended = self.state.as_deref() == Some(Display::Dead.word()) || self.failed || self.since.is_some();
        Ok(ListQuery {
            all: self.all || ended,
            state: self.state.clone(),
            name: self.name.clone(),
            cwd,
            failed: self.failed,
            since: self.since.map(|since| moment_before(Timestamp::now(), since)).transpose()?,
            newest: self.last.is_some(),
            limit: Some(PAGE),
            cursor: None,
        })
    }
}

fn moment_before(now: Timestamp, duration: Duration) -> Outcome<Timestamp> {
    now.checked_sub(duration).map_err(|error| CommandError::invalid("--since is too long ago").because(error))
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let mut printer = Printer::new(context, args);
    let query = args.query()?;
    if let Some(client) = Client::open(context, Start::IfHistories).await? {
        let mut pages = Pages { client, query: Some(query), left: args.last.map(|last| last as usize) };
        if args.tree || args.last.is_some() {
            // What comes first is known when everything is.
            let mut whole = Vec::new();
            while let Some(page) = pages.next().await? {
                whole.extend(page);
            }
            printer.print(whole)?;
        } else {
            while let Some(page) = pages.next().await? {
                printer.print(page)?;
            }
        }
    }
    printer.finish()?;
    Ok(0)
}

/// The pages of a list, read when they are asked for.
struct Pages<'a> {
    client: Client<'a>,
    /// The query of the next page.
    query: Option<ListQuery>,
    /// How many more processes are wanted; all if absent.
    left: Option<usize>,
}

impl Pages<'_> {
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
    has_items: bool,
}

enum Form {
    Json,
    Pids,
    Table(Table, Order),
}

impl<'a> Printer<'a> {
    fn new(context: &'a Context, args: &Args) -> Self {
        let order = if args.tree { Order::Tree } else { Order::Pid };
        let form = match (context.json, args.quiet) {
            (true, _) => Form::Json,
            (false, true) => Form::Pids,
            (false, false) => Form::Table(processes::table(), order),
        };
        Self { context, form, has_items: false }
    }

    fn print(&mut self, mut page: Vec<Process>) -> Outcome<()> {
        page.sort_by_key(|process| process.pid);
        let text = match &mut self.form {
            Form::Pids => page.iter().map(|process| format!("{}\n", process.pid)).collect(),
            Form::Table(table, order) => {
                table.draw(&processes::rows(&page, *order, &self.context.out), &self.context.out)
            }
            Form::Json => {
                let mut text = String::new();
                for process in &page {
                    text.push_str(if self.has_items { "," } else { "{\"processes\":[" });
                    self.has_items = true;
                    text += &serde_json::to_string(process)
                        .map_err(|error| CommandError::internal("cannot write the answer").because(error))?;
                }
                text
            }
        };
        self.context.print(&text)
    }

    fn finish(&mut self) -> Outcome<()> {
        let text = match &mut self.form {
            Form::Pids => String::new(),
            // The header, if there was nothing else.
            Form::Table(table, _) => table.draw(&[], &self.context.out),
            Form::Json if self.has_items => "]}\n".to_owned(),
            Form::Json => "{\"processes\":[]}\n".to_owned(),
        };
        self.context.print(&text)
    }
}
