//! The measurements, one file for each group of rows.

mod adopt;
mod agents;
mod call;
mod compose;
mod conversation;
mod counts;
mod crowd;
mod dashboard;
mod disk;
mod fork;
mod gateway;
mod histories;
mod isolated;
mod launchers;
mod length;
mod lookup;
mod path;
mod pressure;
mod provider;
mod recover;
mod resume;
mod sessions;
mod snapshots;
mod start;
mod step;
mod workspaces;
mod writers;

pub(crate) use counts::counts;

use crate::Result;
use crate::options::Options;
use crate::place::Place;
use crate::table::Row;

type Measure = fn(&Options, &Place) -> Result<Vec<Row>>;

/// By the name `--only` knows them by.
pub(crate) const ALL: [(&str, Measure); 27] = [
    ("step", step::measure),
    ("writers", writers::measure),
    ("path", path::measure),
    ("length", length::measure),
    ("conversation", conversation::measure),
    ("provider", provider::measure),
    ("recover", recover::measure),
    ("pressure", pressure::measure),
    ("resume", resume::measure),
    ("fork", fork::measure),
    ("start", start::measure),
    ("lookup", lookup::measure),
    ("histories", histories::measure),
    ("disk", disk::measure),
    ("agents", agents::measure),
    ("crowd", crowd::measure),
    ("dashboard", dashboard::measure),
    ("call", call::measure),
    ("sessions", sessions::measure),
    ("launchers", launchers::measure),
    ("isolated", isolated::measure),
    ("adopt", adopt::measure),
    ("compose", compose::measure),
    ("gateway", gateway::measure),
    ("snapshots", snapshots::measure),
    ("workspaces", workspaces::measure),
    (HUGE, workspaces::measure_huge),
];

/// Takes minutes.
pub(crate) const HUGE: &str = "huge-workspace";

/// The counts have a table of their own.
pub(crate) const COUNTS: &str = "counts";
