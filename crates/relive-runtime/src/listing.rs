//! Lists of processes, in pages: living ones from the table, ended ones from the catalog, by PID.

use std::collections::BTreeSet;
use std::sync::Arc;

use relive_api::{ListQuery, Process, ProcessList, Resumable, ResumableList};
use relive_core::{Display, ErrorCode, Pid, Uuid, View};
use relive_index::{Cursor, Filter, Freshness, Order, Outcome, PATTERN_MAX, Row, State};
use relive_journal::{DataDirectory, JournalState, ProcInfo};

use crate::authority::Scope;
use crate::error::{Error, Result};
use crate::lookup::{OnDisk, SAYS_NOTHING};
use crate::runtime::Runtime;
use crate::view::{of_disk, unknown};

/// The longest page.
const PAGE_MAX: usize = 1_000;
/// How many processes are listed of which only the UUID is known.
const DAMAGED_MAX: usize = 1_000;
/// The page size for a list that is requested as a whole.
const PAGE: usize = 256;

/// A position in a list. It is unique, because every process has its own PID.
type Key = (Pid, Uuid);

/// A parsed query.
struct Listing {
    query: ListQuery,
    state: Option<Display>,
    after: Option<Key>,
    limit: usize,
    scope: Scope,
}

impl Listing {
    fn parse(query: ListQuery, scope: Scope) -> Result<Self> {
        let invalid = |message: String| Error::new(ErrorCode::Invalid, message);
        let state = match &query.state {
            None => None,
            Some(word) => Some(Display::parse(word).ok_or_else(|| {
                let words: Vec<&str> = Display::ALL.map(Display::word).to_vec();
                invalid(format!("unknown state `{word}`: use one of {}", words.join(", ")))
            })?),
        };
        if query.name.as_ref().is_some_and(|name| name.len() > PATTERN_MAX) {
            return Err(invalid(format!("the pattern for the name is longer than {PATTERN_MAX} bytes")));
        }
        if let Some(cwd) = query.cwd.as_deref().filter(|cwd| !cwd.starts_with('/')) {
            return Err(invalid(format!("cwd: `{cwd}` is not an absolute path")));
        }
        let after =
            match &query.cursor {
                None => None,
                Some(cursor) => {
                    let parsed = parse_cursor(cursor);
                    Some(parsed.ok_or_else(|| {
                        invalid(format!("`{cursor}` is not a cursor: use `next` of the previous page"))
                    })?)
                }
            };
        if query.limit == Some(0) {
            return Err(invalid("limit: a page has at least one process".to_owned()));
        }
        let limit = query.limit.unwrap_or(PAGE).min(PAGE_MAX);
        Ok(Self { query, state, after, limit, scope })
    }

    /// Returns whether a process comes after the start of the page.
    fn is_beyond(&self, key: Key) -> bool {
        self.after.is_none_or(|after| if self.query.newest { key < after } else { key > after })
    }

    fn matches(&self, process: &Process) -> bool {
        let ListQuery { all: _, state, name, cwd, failed, since, .. } = &self.query;
        let named = |pattern: &String| process.name.as_ref().is_some_and(|name| relive_index::matches(pattern, name));
        state.as_ref().is_none_or(|state| process.display == *state)
            && name.as_ref().is_none_or(named)
            && cwd.as_ref().is_none_or(|cwd| std::path::Path::new(&process.cwd).starts_with(cwd))
            && (!failed || process.exit.as_ref().is_some_and(|exit| exit.code != 0))
            && since.is_none_or(|since| process.dead_at.is_none_or(|dead_at| dead_at >= since))
    }

    /// Returns whether a process is on this page or a later one.
    fn includes(&self, process: &Process) -> bool {
        self.is_beyond(key(process)) && self.matches(process)
    }

    /// Returns whether ended processes are requested.
    fn wants_dead(&self) -> bool {
        self.query.all && self.state.is_none_or(|state| matches!(state, Display::Dead | Display::Damaged))
    }

    fn filter(&self) -> Filter {
        Filter {
            state: Some(State::Dead),
            name: self.query.name.clone(),
            cwd: self.query.cwd.clone(),
            outcome: self.query.failed.then_some(Outcome::Failed),
            since: self.query.since,
        }
    }

    fn sort(&self, processes: &mut [Process]) {
        processes.sort_by_key(key);
        if self.query.newest {
            processes.reverse();
        }
    }
}

impl Runtime {
    /// Returns one page of a list. It may be shorter than others, and is the last if it has no `next`.
    pub async fn page(self: &Arc<Self>, query: ListQuery) -> Result<ProcessList> {
        self.page_of(query, Scope::All).await
    }

    pub(crate) async fn page_of(self: &Arc<Self>, query: ListQuery, scope: Scope) -> Result<ProcessList> {
        let listing = Listing::parse(query, scope)?;
        if let Scope::Only(pids) = &listing.scope {
            return Ok(self.page_among(&listing, pids));
        }
        // First: a process that is recovered in the meantime is in the table by then.
        let mut unrecovered = self.unrecovered.shown();
        let mut page = self.remembered(&listing);
        unrecovered.retain(|process| listing.includes(process) && self.living(process.uuid).is_none());
        page.extend(unrecovered);
        let remembered: Vec<Uuid> =
            page.iter().filter(|process| process.dead_at.is_some()).map(|process| process.uuid).collect();
        if listing.wants_dead() {
            listing.sort(&mut page);
            let last = page.get(listing.limit).map(key);
            page.extend(self.ended(&listing, last).await?);
            page.extend(self.damaged(&listing).await?);
        }
        listing.sort(&mut page);
        let is_last = page.len() <= listing.limit;
        page.truncate(listing.limit);
        let next = page.last().filter(|_| !is_last).map(|last| format_cursor(key(last)));
        if listing.query.all && !remembered.is_empty() {
            // A collected process is remembered for a while but no longer listed.
            let is_gone = |data: &DataDirectory, uuid: &Uuid| !data.is_here(*uuid);
            let gone = self.on_disk(move |data| remembered.into_iter().filter(|it| is_gone(data, it)).collect());
            let gone: Vec<Uuid> = gone.await?;
            page.retain(|process| !gone.contains(&process.uuid));
        }
        let processes = page.into_iter().map(|process| self.with_budget_hint(process)).collect();
        Ok(ProcessList { processes, next })
    }

    /// Returns one page of a list, and what each process does now. Turns and reads that take long are not waited for.
    pub async fn page_with_doing(self: &Arc<Self>, query: ListQuery) -> Result<ProcessList> {
        self.page_with_doing_of(query, Scope::All).await
    }

    pub(crate) async fn page_with_doing_of(self: &Arc<Self>, query: ListQuery, scope: Scope) -> Result<ProcessList> {
        let page = self.page_of(query, scope).await?;
        let patience = crate::doing::patience();
        let mut processes = Vec::with_capacity(page.processes.len());
        for process in page.processes {
            processes.push(self.with_doing(process, patience).await);
        }
        Ok(ProcessList { processes, ..page })
    }

    /// Returns every living process, and with `all` every one that is remembered or on the disk.
    pub async fn processes(self: &Arc<Self>, all: bool) -> Result<ProcessList> {
        let (mut processes, mut cursor) = (Vec::new(), None);
        loop {
            let limit = Some(PAGE_MAX);
            let page = self.page(ListQuery { all, cursor, limit, ..ListQuery::default() }).await?;
            processes.extend(page.processes);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(ProcessList { processes, next: None });
            }
        }
    }

    /// Returns one page of resumable processes. It may be shorter than others, and is the last if it has no `next`.
    pub async fn resumable(self: &Arc<Self>, query: ListQuery) -> Result<ResumableList> {
        self.resumable_of(query, Scope::All).await
    }

    pub(crate) async fn resumable_of(self: &Arc<Self>, query: ListQuery, scope: Scope) -> Result<ResumableList> {
        let page = self.page_of(ListQuery { all: true, ..query }, scope).await?;
        let processes = page.processes.into_iter().filter(|process| process.resumable).map(|process| Resumable {
            uuid: process.uuid,
            pid: process.pid,
            name: process.name,
            intent: process.intent,
            intent_cut: process.intent_cut,
            display: process.display,
            step: process.step,
            last_active: process.dead_at.or(process.paused_at).unwrap_or(process.created_at),
            status: process.status,
            exit_code: process.exit_code,
            reason: process
                .suspend_reason
                .map(|reason| relive_api::reason_word(reason).to_owned())
                .or(process.exit.map(|exit| exit.reason)),
        });
        Ok(ResumableList { processes: processes.collect(), next: page.next })
    }

    /// Returns one page of these processes of the table.
    fn page_among(&self, listing: &Listing, pids: &BTreeSet<Pid>) -> ProcessList {
        let mut page: Vec<Process> = {
            let state = self.lock();
            let views = pids.iter().filter_map(|pid| state.table.view(*pid, self.moment()));
            let listed = views.filter(|view| listing.query.all || view.state != relive_core::State::Dead);
            listed.map(|view| self.shown(&state, &view)).filter(|process| listing.includes(process)).collect()
        };
        listing.sort(&mut page);
        let is_last = page.len() <= listing.limit;
        page.truncate(listing.limit);
        let next = page.last().filter(|_| !is_last).map(|last| format_cursor(key(last)));
        ProcessList { processes: page, next }
    }

    /// Returns processes of the table, one more than fit on the page if there are more.
    fn remembered(&self, listing: &Listing) -> Vec<Process> {
        let state = self.lock();
        let (table, now, most) = (&state.table, self.moment(), listing.limit + 1);
        let shown = |view: View<'_>| Some(self.shown(&state, &view)).filter(|process| listing.matches(process));
        // A process has one row, that of its last incarnation, as in the catalog.
        let ended = table.ended().filter(|view| listing.query.all && view.successor_pid.is_none());
        let ended = ended.filter(|view| listing.is_beyond((view.pid, view.uuid)));
        if listing.query.newest {
            let mut keys: Vec<Key> = ended.chain(table.processes(now)).map(|view| (view.pid, view.uuid)).collect();
            keys.retain(|key| listing.is_beyond(*key));
            keys.sort_unstable_by(|a, b| b.cmp(a));
            return keys.into_iter().filter_map(|(pid, _)| shown(table.view(pid, now)?)).take(most).collect();
        }
        let from = listing.after.map_or(Pid::RUNTIME, |(pid, _)| pid);
        let living = table.processes_after(from, now).filter_map(shown).take(most);
        living.chain(ended.filter_map(shown).take(most)).collect()
    }

    /// Returns ended processes that are not in the table, one more than fit on the page if there are more. Those after
    /// `last` are not needed.
    async fn ended(&self, listing: &Listing, last: Option<Key>) -> Result<Vec<Process>> {
        let order = if listing.query.newest { Order::PidDescending } else { Order::Pid };
        let mut after = listing.after.map(|(pid, uuid)| Cursor { key: pid.0.into(), uuid });
        let mut found = Vec::new();
        while found.len() <= listing.limit {
            // Processes in the table are left out: however short the page, a few queries skip them.
            let page = self.catalog.page(listing.filter(), order, after, PAGE.max(listing.limit + 1)).await?;
            let rows = {
                let state = self.lock();
                let is_listed = |info: &ProcInfo| {
                    state.table.current_pid(info.uuid).is_some() || self.unrecovered.contains(info.uuid)
                };
                page.rows.into_iter().filter(|info| !is_listed(info)).collect()
            };
            let checked = self.on_disk(move |data| check(data, rows)).await?;
            checked.read.into_iter().for_each(|row| self.catalog.tell_row(row));
            if checked.is_any_gone {
                self.catalog.doubt();
            }
            let current = checked.current.into_iter().filter_map(OnDisk::last).map(of_disk);
            found.extend(current.filter(|process| listing.state != Some(Display::Damaged) || listing.matches(process)));
            found.extend(checked.damaged.into_iter().filter_map(|(info, problem)| {
                let process = damaged(of_disk(OnDisk::last(info)?), problem);
                listing.matches(&process).then_some(process)
            }));
            after = page.next;
            let is_needed = |cursor: &Cursor| {
                last.is_none_or(|(last, _)| {
                    if listing.query.newest { cursor.key >= last.0.into() } else { cursor.key <= last.0.into() }
                })
            };
            if !after.as_ref().is_some_and(is_needed) {
                break;
            }
        }
        Ok(found)
    }

    /// Returns processes of which only the UUID is known, because their journals cannot be read.
    async fn damaged(&self, listing: &Listing) -> Result<Vec<Process>> {
        let mut uuids = self.catalog.unreadable(DAMAGED_MAX).await?;
        // Before any is read: they are on the first page, or on the last.
        uuids.retain(|uuid| listing.is_beyond((Pid::RUNTIME, *uuid)));
        if listing.query.newest {
            uuids.reverse();
        }
        uuids.truncate(listing.limit + 1);
        uuids.retain(|uuid| !self.unrecovered.contains(*uuid) && self.lock().table.current_pid(*uuid).is_none());
        let found = self.on_disk(move |data| {
            let shown = uuids.into_iter().filter_map(|uuid| Some(damaged(unknown(uuid), problem(data, uuid)?)));
            shown.collect::<Vec<Process>>()
        });
        let mut found = found.await?;
        found.retain(|process| listing.includes(process));
        Ok(found)
    }
}

/// Returns what is wrong with the journal of a process; `None` if it can be read, or is gone.
fn problem(data: &DataDirectory, uuid: Uuid) -> Option<String> {
    let path = data.directory(uuid).steps();
    let problem = match Row::read(data, uuid) {
        Ok(Some(_)) => return None,
        Ok(None) => SAYS_NOTHING.to_owned(),
        Err(_) if !data.is_here(uuid) => return None,
        Err(error) => error.to_string(),
    };
    Some(format!("{}: {problem}", path.display()))
}

fn damaged(process: Process, problem: String) -> Process {
    Process { display: Display::Damaged.word().to_owned(), resumable: false, note: Some(problem), ..process }
}

/// Rows that were compared with their journals.
#[derive(Default)]
struct Checked {
    current: Vec<ProcInfo>,
    /// Rows that had to be read again.
    read: Vec<Row>,
    /// Rows whose journals cannot be read any more, and why.
    damaged: Vec<(ProcInfo, String)>,
    is_any_gone: bool,
}

/// Checks each row by one `stat`, and reads outdated ones again.
fn check(data: &DataDirectory, rows: Vec<ProcInfo>) -> Checked {
    let mut checked = Checked::default();
    for info in rows {
        match Freshness::of(&info, &data.directory(info.uuid)) {
            // One that cannot be checked is shown as it was: `info` reports what is wrong.
            Ok(Freshness::Current) | Err(_) => checked.current.push(info),
            Ok(Freshness::Gone) => checked.is_any_gone = true,
            Ok(Freshness::Stale) => {
                let row = match Row::read(data, info.uuid) {
                    Ok(Some(row)) => row,
                    Ok(None) | Err(_) => {
                        let problem = problem(data, info.uuid);
                        checked.damaged.extend(problem.map(|problem| (info, problem)));
                        continue;
                    }
                };
                // A process that has not ended and is not in the table is being resumed.
                if row.info.state == JournalState::Dead {
                    checked.current.push(row.info.clone());
                }
                checked.read.push(row);
            }
        }
    }
    checked
}

fn key(process: &Process) -> Key {
    (process.pid, process.uuid)
}

fn format_cursor((pid, uuid): Key) -> String {
    format!("{pid}.{uuid}")
}

fn parse_cursor(cursor: &str) -> Option<Key> {
    let (pid, uuid) = cursor.split_once('.')?;
    Some((Pid(pid.parse().ok()?), Uuid::try_parse(uuid).ok()?))
}
