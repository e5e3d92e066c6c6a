//! The columns of `ps`.

use relive_api::{Process, reached_limit, reason_word};
use relive_core::{Body, SuspendReason, Timestamp};

use super::{body, cost, name, of_agent, out_of, state, state_paint};
use crate::render::table::{Align, Cell, Column as Head, fit};
use crate::render::time::{age, elapsed, time_of_day};
use crate::terminal::{Look, one_line};

/// A column that `ps` can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Column {
    Pid,
    /// The last digits of the UUID
    Id,
    State,
    Name,
    /// What an agent is to do, or the command line of a program
    Intent,
    Body,
    Step,
    Tokens,
    Cost,
    /// Time spent running, without pauses
    Elapsed,
    /// Time since the process was created
    Age,
    Model,
    Directory,
    /// Exit code and reason
    Exit,
    /// Why the process is suspended, or who ended it
    Why,
    /// Current activity
    Doing,
    /// Current activity, reason for the suspension, or exit
    Detail,
    Parent,
    Uuid,
}

/// The widths from which more columns are shown. Below the first the detail also says the state.
const SMALL: usize = 60;
/// From here on the intent has a column of its own.
const USUAL_WIDTH: usize = 80;
const MEDIUM: usize = 110;
const WIDE: usize = 160;

/// How much of an intent stands in the place of a name. The detail needs the room.
const INTENT_AS_NAME_MAX: usize = 14;

/// The usual columns, each with the width of the terminal from which it is shown.
const USUAL: [(Column, usize); 14] = [
    (Column::Pid, 0),
    (Column::State, SMALL),
    (Column::Name, 0),
    (Column::Intent, USUAL_WIDTH),
    (Column::Body, MEDIUM),
    (Column::Step, USUAL_WIDTH),
    (Column::Tokens, MEDIUM),
    (Column::Cost, USUAL_WIDTH),
    (Column::Elapsed, MEDIUM),
    (Column::Age, SMALL),
    (Column::Id, WIDE),
    (Column::Model, WIDE),
    (Column::Directory, WIDE),
    (Column::Detail, 0),
];

impl Column {
    /// Returns the columns that fit. Nothing is left out where the output is not a terminal.
    pub(crate) fn fitting(look: &Look) -> Vec<Self> {
        let fits = |from: usize| look.width.is_none_or(|width| width >= from);
        USUAL.into_iter().filter(|(_, from)| fits(*from)).map(|(column, _)| column).collect()
    }

    pub(crate) fn head(self) -> Head {
        let (header, align) = match self {
            Self::Pid => ("PID", Align::Right),
            Self::Id => ("ID", Align::Left),
            Self::State => ("STATE", Align::Left),
            Self::Name => ("NAME", Align::Left),
            Self::Intent => ("INTENT", Align::Left),
            Self::Body => ("BODY", Align::Left),
            Self::Step => ("STEP", Align::Right),
            Self::Tokens => ("TOKENS", Align::Right),
            Self::Cost => ("COST", Align::Right),
            Self::Elapsed => ("ELAPSED", Align::Right),
            Self::Age => ("AGE", Align::Right),
            Self::Model => ("MODEL", Align::Left),
            Self::Directory => ("DIRECTORY", Align::Left),
            Self::Exit => ("EXIT", Align::Left),
            Self::Why => ("WHY", Align::Left),
            Self::Doing => ("DOING", Align::Left),
            Self::Detail => ("DETAIL", Align::Timed),
            Self::Parent => ("PARENT", Align::Right),
            Self::Uuid => ("UUID", Align::Left),
        };
        Head { header, align }
    }

    /// Tells whether the column may be cut.
    pub(crate) fn is_cut(self) -> bool {
        match self {
            Self::Name
            | Self::Intent
            | Self::Model
            | Self::Directory
            | Self::Exit
            | Self::Why
            | Self::Doing
            | Self::Detail => true,
            Self::Pid
            | Self::Id
            | Self::State
            | Self::Body
            | Self::Step
            | Self::Tokens
            | Self::Cost
            | Self::Elapsed
            | Self::Age
            | Self::Parent
            | Self::Uuid => false,
        }
    }

    pub(crate) fn cell(self, branch: &str, process: &Process, now: Timestamp, look: &Look) -> Cell {
        let dash = |text: Option<String>| Cell::plain(text.unwrap_or_else(|| "-".to_owned()));
        match self {
            Self::Pid => Cell::plain(process.pid.to_string()),
            Self::Id => Cell::plain(one_line(&process.short)),
            Self::State => Cell { text: state(process, look), paint: state_paint(&process.display) },
            Self::Name => {
                // A narrow terminal has no column for the intent.
                let is_intent = process.name.is_none() && is_narrower(look, USUAL_WIDTH);
                let name = if is_intent {
                    fit(&one_line(&process.intent), INTENT_AS_NAME_MAX, look)
                } else {
                    name(process.name.as_deref())
                };
                Cell::plain(format!("{branch}{name}"))
            }
            Self::Intent => {
                Cell::plain(one_line(&process.intent) + if process.intent_cut { look.ellipsis() } else { "" })
            }
            Self::Body => Cell::plain(body(process.body)),
            Self::Step => Cell::plain(of_agent(process, || out_of(process.step, process.max_steps))),
            Self::Tokens => Cell::plain(of_agent(process, || {
                let sum = process.tokens_in.saturating_add(process.tokens_out);
                super::about(sum, process.estimated || super::is_claimed(process))
            })),
            Self::Cost => Cell::plain(of_agent(process, || cost(process))),
            Self::Elapsed => Cell::plain(elapsed(process.elapsed_ms)),
            Self::Age => Cell::plain(age(process.created_at, now)),
            Self::Model => dash(process.model.as_deref().map(one_line)),
            Self::Directory => Cell::plain(one_line(&process.cwd)),
            Self::Exit => dash(exit(process)),
            Self::Why => dash(why_suspended(process).or_else(|| super::why(process))),
            Self::Doing => dash(process.doing.as_deref().map(one_line)),
            Self::Detail if is_narrower(look, SMALL) => {
                Cell { text: state_and_detail(process, look), paint: state_paint(&process.display) }
            }
            Self::Detail => dash(detail(process)),
            Self::Parent => Cell::plain(process.ppid.to_string()),
            Self::Uuid => Cell::plain(process.uuid.to_string()),
        }
    }
}

/// `0 completed`, `1 max steps exceeded`, `137 ended by SIGKILL`.
fn exit(process: &Process) -> Option<String> {
    super::exit(process).map(|(code, reason)| format!("{code} {reason}"))
}

/// Returns why a process is suspended, in words.
pub(crate) fn suspension(reason: SuspendReason) -> String {
    match reason {
        // A list does not say by whom; `info` does.
        SuspendReason::User => "paused".to_owned(),
        SuspendReason::Approval => "needs your approval".to_owned(),
        SuspendReason::Question => "asks you a question".to_owned(),
        SuspendReason::InDoubt => "has a call in doubt".to_owned(),
        SuspendReason::NeedsCredentials => "needs a key".to_owned(),
        other @ (SuspendReason::BudgetExceeded
        | SuspendReason::DiskFull
        | SuspendReason::IoError
        | SuspendReason::CrashLoop
        | SuspendReason::Quota
        | SuspendReason::DaemonStop
        | SuspendReason::Stalled) => reason_word(other).replace('_', " "),
    }
}

/// Returns what a suspended process waits for, if that is one word of a person.
pub(crate) fn wanted_from_you(reason: SuspendReason) -> Option<&'static str> {
    match reason {
        SuspendReason::Approval => Some("approval"),
        SuspendReason::Question => Some("answer"),
        SuspendReason::User
        | SuspendReason::BudgetExceeded
        | SuspendReason::DiskFull
        | SuspendReason::IoError
        | SuspendReason::CrashLoop
        | SuspendReason::InDoubt
        | SuspendReason::Quota
        | SuspendReason::NeedsCredentials
        | SuspendReason::DaemonStop
        | SuspendReason::Stalled => None,
    }
}

/// Returns why a process is suspended, without the time at which it continues.
pub(crate) fn suspension_of(process: &Process, reason: SuspendReason) -> String {
    match reached_limit(process).filter(|_| reason == SuspendReason::BudgetExceeded) {
        Some(limit) => format!("reached {limit}"),
        None if reason == SuspendReason::NeedsCredentials
            && matches!(process.body, Body::Compose | Body::Supervisor) =>
        {
            "needs an environment".to_owned()
        }
        None => suspension(reason),
    }
}

/// Returns why a process is suspended.
fn why_suspended(process: &Process) -> Option<String> {
    let reason = suspension_of(process, process.suspend_reason?);
    let until = process.resume_at.map(|moment| format!(" until {}", time_of_day(moment))).unwrap_or_default();
    let kept = if process.pause_kept { ", then paused" } else { "" };
    Some(format!("{reason}{until}{kept}"))
}

fn is_narrower(look: &Look, width: usize) -> bool {
    look.width.is_some_and(|columns| columns < width)
}

/// Returns the detail where there is no room for the state: `shell: make 41s`, `[P] budget exceeded`, `exit 0, completed`.
fn state_and_detail(process: &Process, look: &Look) -> String {
    let says_state = process.paused || matches!(process.display.as_str(), "running" | "dead" | "pausing");
    match detail(process).filter(|_| says_state) {
        Some(detail) if process.paused => format!("{} {detail}", look.pause_sign()),
        Some(detail) => detail,
        None => state(process, look),
    }
}

fn detail(process: &Process) -> Option<String> {
    let ending = process.ending.map(|signal| format!("ending by {signal}"));
    let ended = super::exit(process).map(|(code, reason)| crate::render::exit::brief(code, &reason));
    // The state says already that it is pausing.
    let pausing = (process.display == "pausing").then(|| "pausing after this step".to_owned());
    ended.or(ending).or(pausing).or_else(|| why_suspended(process)).or_else(|| process.doing.as_deref().map(one_line))
}

/// What `ps` sorts by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SortKey {
    Pid,
    Name,
    State,
    Age,
    Elapsed,
    Step,
    Tokens,
    Cost,
}

impl SortKey {
    /// Puts names and states in alphabetical order, processes without a name last, and of amounts the largest first.
    pub(crate) fn sort(self, processes: &mut [Process]) {
        use std::cmp::Reverse;
        match self {
            Self::Pid => processes.sort_by_key(|process| process.pid),
            Self::Name => processes.sort_by_key(|process| (process.name.is_none(), process.name.clone())),
            Self::State => processes.sort_by_key(|process| process.display.clone()),
            Self::Age => processes.sort_by_key(|process| process.created_at),
            Self::Elapsed => processes.sort_by_key(|process| Reverse(process.elapsed_ms)),
            Self::Step => processes.sort_by_key(|process| Reverse(process.step)),
            Self::Tokens => {
                processes.sort_by_key(|process| Reverse(process.tokens_in.saturating_add(process.tokens_out)));
            }
            Self::Cost => processes.sort_by_key(|process| Reverse(process.cost_usd.map(relive_core::Usd::nanos))),
        }
    }
}
