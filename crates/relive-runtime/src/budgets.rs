//! Budgets: the spending of a process counts against its own limits and against those of every ancestor, living or not.
//! A fork of a child has no parent; here its ancestors are those of the child.
//!
//! An account is opened from its journal before the first model call of its process in this daemon, together with those
//! of all its ancestors. So while an account is closed none of its descendants spends, and the catalog's numbers for
//! the descendants, each checked by one `stat`, are exact; from then on each settled call is added to all ancestors.
//! The amount reserved for running calls counts as spent until they are settled: a call waits while only reservations
//! leave it nothing, and is refused when nothing is left at all. A reservation larger than the rest is cut to the rest:
//! the last call is not refused because its model might write more than it will.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relive_api::{Process, TreeUsage};
use relive_core::{Limits, Usd, Uuid};
use relive_index::Dependent;
use relive_journal::history::{Phase, Spent};
use relive_journal::{DataDirectory, History};
use tokio::sync::Notify;

use crate::owner::Lane;
use crate::runtime::Runtime;

/// More ancestors than any real tree has: a longer lineage is damaged.
const ANCESTORS_MAX: usize = 1024;

/// How long an account waits for the index to be rebuilt.
const INDEX_PATIENCE: Duration = Duration::from_secs(30);

/// The accounts of the processes in this daemon, and of their ancestors.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    accounts: Mutex<HashMap<Uuid, Account>>,
    /// Notified when a call was settled, and when a limit has changed.
    changed: Notify,
    /// Held while an account is opened.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Account {
    parent: Option<Uuid>,
    limits: Limits,
    own: Sum,
    below: Sum,
    /// Reserved by its own running call.
    holds: Sum,
    /// Reserved by all running calls, its own and those of its descendants.
    reserved: Sum,
    /// The number of open accounts directly below it.
    children: u32,
    ended: bool,
}

/// An amount. Usage without a known price costs nothing here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sum {
    tokens: u64,
    cost: Usd,
}

impl Sum {
    fn of(spent: &Spent) -> Self {
        Self { tokens: spent.tokens_in.saturating_add(spent.tokens_out), cost: spent.cost_usd.unwrap_or_default() }
    }

    fn and(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(other.tokens), cost: self.cost.saturating_add(other.cost) }
    }

    /// Returns the smaller of each.
    fn at_most(self, other: Self) -> Self {
        Self { tokens: self.tokens.min(other.tokens), cost: self.cost.min(other.cost) }
    }

    fn since(self, earlier: Self) -> Self {
        let cost = self.cost.nanos().saturating_sub(earlier.cost.nanos());
        Self { tokens: self.tokens.saturating_sub(earlier.tokens), cost: Usd::from_nanos(cost) }
    }
}

/// The data from which an account is opened.
#[derive(Debug)]
struct AccountOpening {
    uuid: Uuid,
    /// Whether it has ever spawned a process: only then it has descendants.
    is_parent: bool,
    account: Account,
}

impl AccountOpening {
    fn of(uuid: Uuid, history: &History) -> Option<Self> {
        let account = Account {
            parent: history.identity.as_ref()?.spawned.payer(),
            limits: history.limits,
            own: Sum::of(&history.spent),
            below: Sum::default(),
            holds: Sum::default(),
            reserved: Sum::default(),
            children: 0,
            ended: history.ended().is_some(),
        };
        Some(Self { uuid, is_parent: !history.children.is_empty(), account })
    }
}

/// The result of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Reserved,
    /// Nothing, while running calls may use everything.
    Taken,
    Spent,
}

/// A process that has nothing left, and what it and its descendants have used of each limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted {
    pub(crate) payer: Uuid,
    pub(crate) tokens: Option<u64>,
    pub(crate) cost: Option<Usd>,
}

impl Account {
    fn exhausted(&self, payer: Uuid) -> Option<Exhausted> {
        let spent = self.own.and(self.below);
        let tokens = self.limits.max_tokens.filter(|max| spent.tokens >= *max).map(|max| max.max(spent.tokens));
        let cost = self.limits.max_cost_usd.filter(|max| spent.cost >= *max).map(|max| max.max(spent.cost));
        (tokens.is_some() || cost.is_some()).then_some(Exhausted { payer, tokens, cost })
    }
}

impl Budgets {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_reserve(&self, uuid: Uuid, wanted: Sum) -> Room {
        let mut accounts = self.lock();
        release(&mut accounts, uuid);
        let mut amount = wanted;
        for payer in payers(&accounts, uuid) {
            let Account { limits, own, below, reserved, .. } = &accounts[&payer];
            let spent = own.and(*below);
            let most = Sum {
                tokens: limits.max_tokens.unwrap_or(u64::MAX),
                cost: limits.max_cost_usd.unwrap_or(Usd::from_nanos(u64::MAX)),
            };
            if spent.tokens >= most.tokens || spent.cost >= most.cost {
                return Room::Spent;
            }
            amount = amount.at_most(most.since(spent).since(*reserved));
        }
        let nothing = Sum::default();
        if (amount.tokens == nothing.tokens && wanted.tokens > nothing.tokens)
            || (amount.cost == nothing.cost && wanted.cost > nothing.cost)
        {
            return Room::Taken;
        }
        for payer in payers(&accounts, uuid) {
            if let Some(account) = accounts.get_mut(&payer) {
                account.reserved = account.reserved.and(amount);
            }
        }
        if let Some(account) = accounts.get_mut(&uuid) {
            account.holds = amount;
        }
        Room::Reserved
    }

    /// Returns the first of a process and its ancestors, nearest first, that has nothing left, if its account is open.
    pub(crate) fn exhausted(&self, uuid: Uuid) -> Option<Exhausted> {
        let accounts = self.lock();
        payers(&accounts, uuid).into_iter().find_map(|payer| accounts.get(&payer)?.exhausted(payer))
    }

    /// Updates the account after progress. A finished call is settled.
    pub(crate) fn progressed(&self, uuid: Uuid, history: &History) {
        let asking = matches!(history.phase, Phase::Asking { .. });
        let mut accounts = self.lock();
        let Some(account) = accounts.get_mut(&uuid) else { return };
        let spent = Sum::of(&history.spent);
        let more = spent.since(account.own);
        account.own = spent;
        for payer in payers(&accounts, uuid).into_iter().skip(1) {
            if let Some(ancestor) = accounts.get_mut(&payer) {
                ancestor.below = ancestor.below.and(more);
            }
        }
        if !asking && release(&mut accounts, uuid) {
            self.changed.notify_waiters();
        }
    }

    /// Releases the reservation of a process, because it has no running call any more.
    pub(crate) fn release(&self, uuid: Uuid) {
        if release(&mut self.lock(), uuid) {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn set_limits(&self, uuid: Uuid, limits: Limits) {
        if let Some(account) = self.lock().get_mut(&uuid) {
            account.limits = limits;
            self.changed.notify_waiters();
        }
    }

    /// Closes the account of an ended process. It stays open as long as one of its descendants' is.
    pub(crate) fn close(&self, uuid: Uuid) {
        let mut accounts = self.lock();
        release(&mut accounts, uuid);
        self.changed.notify_waiters();
        let Some(account) = accounts.get_mut(&uuid) else { return };
        account.ended = true;
        let mut next = Some(uuid);
        while let Some(uuid) = next.take() {
            let done = accounts.get(&uuid).is_some_and(|account| account.ended && account.children == 0);
            let Some(account) = done.then(|| accounts.remove(&uuid)).flatten() else { return };
            if let Some(parent) = account.parent.and_then(|parent| accounts.get_mut(&parent)) {
                parent.children = parent.children.saturating_sub(1);
                next = account.parent;
            }
        }
    }

    /// Returns whether the spending of a process counts against the limits of an ancestor, too.
    pub(crate) fn is_shared(&self, uuid: Uuid) -> bool {
        self.lock().get(&uuid).is_some_and(|account| account.parent.is_some())
    }

    fn is_known(&self, uuid: Uuid) -> bool {
        self.lock().contains_key(&uuid)
    }

    /// Returns whether it is open.
    fn is_open(&self, uuid: Uuid) -> bool {
        self.lock().get_mut(&uuid).map(|account| account.ended = false).is_some()
    }

    fn open(&self, read: Vec<(Uuid, Account)>) {
        let mut accounts = self.lock();
        let parents: Vec<Uuid> = read.iter().filter_map(|(_, account)| account.parent).collect();
        accounts.extend(read);
        for parent in parents {
            if let Some(account) = accounts.get_mut(&parent) {
                account.children += 1;
            }
        }
    }
}

/// Returns a process and its ancestors.
fn payers(accounts: &HashMap<Uuid, Account>, uuid: Uuid) -> Vec<Uuid> {
    let parent = |uuid: &Uuid| accounts.get(uuid).and_then(|account| account.parent);
    let known = |uuid: &Uuid| accounts.contains_key(uuid);
    let first = Some(uuid).filter(known);
    std::iter::successors(first, |uuid| parent(uuid).filter(known)).take(ANCESTORS_MAX).collect()
}

/// Returns whether anything was released.
fn release(accounts: &mut HashMap<Uuid, Account>, uuid: Uuid) -> bool {
    let Some(account) = accounts.get_mut(&uuid) else { return false };
    let held = std::mem::take(&mut account.holds);
    for payer in payers(accounts, uuid) {
        if let Some(account) = accounts.get_mut(&payer) {
            account.reserved = account.reserved.since(held);
        }
    }
    held != Sum::default()
}

impl Runtime {
    /// Reserves the budget for a model call, and waits if calls of relatives have to be settled first. Returns `false`
    /// if nothing is left, of its own or of an ancestor's.
    pub(crate) async fn reserve(self: &Arc<Self>, uuid: Uuid, tokens: u64, cost: Usd) -> bool {
        let wanted = Sum { tokens, cost };
        if !self.budgets.is_open(uuid) {
            // An unreadable journal cannot be written either: the call is refused there, with the actual reason.
            let Ok(mut turn) = self.turn(uuid, Lane::Own).await else { return true };
            let Ok(Some(page)) = turn.look(move |history| AccountOpening::of(uuid, history)).await else { return true };
            drop(turn);
            self.open_account(page).await;
        }
        loop {
            let changed = self.budgets.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.budgets.try_reserve(uuid, wanted) {
                Room::Reserved => return true,
                Room::Spent => return false,
                Room::Taken => changed.await,
            }
        }
    }

    async fn open_account(&self, page: AccountOpening) {
        if self.budgets.is_open(page.uuid) {
            return;
        }
        let _one = self.budgets.opening.lock().await;
        // A descendant may have opened it in the meantime.
        if self.budgets.is_open(page.uuid) {
            return;
        }
        let read = self.read_accounts(page).await;
        self.budgets.open(read);
    }

    /// Returns the first of a process and its ancestors, nearest first, that has nothing left.
    pub(crate) async fn exhausted(&self, uuid: Uuid) -> Option<Exhausted> {
        if self.budgets.is_known(uuid) {
            return self.budgets.exhausted(uuid);
        }
        let (history, _) = self.on_disk(move |data| data.history(uuid)).await.ok()?.ok()?;
        let read = self.read_accounts(AccountOpening::of(uuid, &history)?).await;
        // The ancestors above the first open account are known from it.
        let above = read.last().and_then(|(_, account)| account.parent);
        let found = read.iter().find_map(|(payer, account)| account.exhausted(*payer));
        found.or_else(|| self.budgets.exhausted(above?))
    }

    /// Returns how many tokens and dollars a process may still spend, by its own limits and those of its ancestors.
    pub(crate) async fn left_to_spend(&self, uuid: Uuid) -> (Option<u64>, Option<Usd>) {
        let mut chain = Vec::new();
        let mut open = Some(uuid);
        if !self.budgets.is_known(uuid) {
            let history = self.on_disk(move |data| data.history(uuid)).await.ok().and_then(Result::ok);
            let Some(page) = history.and_then(|(history, _)| AccountOpening::of(uuid, &history)) else {
                return (None, None);
            };
            chain.extend(self.read_accounts(page).await.into_iter().map(|(_, account)| account));
            open = chain.last().and_then(|account| account.parent);
        }
        if let Some(uuid) = open {
            let accounts = self.budgets.lock();
            chain.extend(payers(&accounts, uuid).iter().filter_map(|payer| accounts.get(payer)).cloned());
        }
        let spent = |account: &Account| account.own.and(account.below);
        let tokens = chain.iter().filter_map(|it| Some(it.limits.max_tokens?.saturating_sub(spent(it).tokens)));
        let cost =
            chain.iter().filter_map(|it| Some(it.limits.max_cost_usd?.nanos().saturating_sub(spent(it).cost.nanos())));
        (tokens.min(), cost.min().map(Usd::from_nanos))
    }

    /// Reads the accounts of a process and its ancestors, up to the first open one.
    async fn read_accounts(&self, page: AccountOpening) -> Vec<(Uuid, Account)> {
        let mut read = Vec::new();
        let mut next = Some(page);
        while let Some(AccountOpening { uuid, is_parent, account }) = next.take() {
            let below = if is_parent { self.spent_below(uuid, account.limits).await } else { Vec::new() };
            let parent = account.parent.filter(|parent| read.len() < ANCESTORS_MAX && !self.budgets.is_known(*parent));
            let below = below.iter().map(Sum::of).fold(Sum::default(), Sum::and);
            read.push((uuid, Account { below, ..account }));
            if let Some(parent) = parent {
                // An ancestor without a journal has no limits any more.
                let history = self.on_disk(move |data| data.history(parent)).await;
                next = history.ok().and_then(Result::ok).and_then(|(history, _)| AccountOpening::of(parent, &history));
            }
        }
        read
    }

    /// Returns the spending of each descendant, including collected ones.
    async fn spent_below(&self, uuid: Uuid, limits: Limits) -> Vec<Spent> {
        let is_limited = limits.max_tokens.is_some() || limits.max_cost_usd.is_some();
        let patience = if is_limited { INDEX_PATIENCE } else { Duration::ZERO };
        if !self.catalog.complete_within(patience).await {
            if is_limited {
                let left_out = "forks and collected children are not counted in it until the next start";
                self.warn(format!("the budget of {uuid} was needed while the index was rebuilt: {left_out}"));
            }
            return self.on_disk(move |data| descendants(data, uuid)).await.unwrap_or_default();
        }
        match self.catalog.dependents(uuid).await {
            Ok(below) => self.spent_by(below).await,
            Err(_) => self.on_disk(move |data| descendants(data, uuid)).await.unwrap_or_default(),
        }
    }

    /// Returns the current spending of each of these. The table knows that of living ones.
    async fn spent_by(&self, below: Vec<Dependent>) -> Vec<Spent> {
        let (mut spent, mut unsure) = (Vec::new(), Vec::new());
        {
            let state = self.lock();
            for dependent in below {
                let pid = state.table.current_pid(dependent.uuid);
                match pid.and_then(|pid| state.table.view(pid, self.moment())) {
                    Some(view) => spent.push(Spent {
                        tokens_in: view.tokens_in,
                        tokens_out: view.tokens_out,
                        cost_usd: view.cost_usd,
                        estimated: view.estimated,
                    }),
                    None => unsure.push(dependent),
                }
            }
        }
        if !unsure.is_empty() {
            let checked = self.on_disk(move |data| unsure.iter().map(|below| by_journal(data, below)).collect());
            spent.extend(checked.await.unwrap_or_else(|_| Vec::new()));
        }
        spent
    }

    /// Adds the usage of all descendants.
    pub(crate) async fn with_tree(&self, process: Process) -> Process {
        let below = match self.catalog.dependents(process.uuid).await {
            Ok(below) if self.catalog.is_complete() => self.spent_by(below).await,
            Ok(_) | Err(_) => {
                let uuid = process.uuid;
                self.on_disk(move |data| descendants(data, uuid)).await.unwrap_or_default()
            }
        };
        if below.is_empty() {
            return process;
        }
        let own = TreeUsage {
            processes: 1,
            tokens_in: process.tokens_in,
            tokens_out: process.tokens_out,
            cost_usd: process.cost_usd,
            estimated: process.estimated,
        };
        let tree = below.into_iter().fold(own, |sum, spent| TreeUsage {
            processes: sum.processes + 1,
            tokens_in: sum.tokens_in.saturating_add(spent.tokens_in),
            tokens_out: sum.tokens_out.saturating_add(spent.tokens_out),
            cost_usd: sum.cost_usd.zip(spent.cost_usd).map(|(a, b)| a.saturating_add(b)),
            estimated: sum.estimated || spent.estimated,
        });
        Process { tree: Some(tree), ..process }
    }
}

/// Returns the spending of a process: from the index if its journal has not changed since, else from its journal.
fn by_journal(data: &DataDirectory, below: &Dependent) -> Spent {
    let length = std::fs::metadata(data.directory(below.uuid).steps()).ok().map(|metadata| metadata.len());
    // A collected one has neither.
    if length == below.journal_bytes {
        return below.spent;
    }
    data.history(below.uuid).map_or(below.spent, |(history, _)| history.spent)
}

/// Returns the spending of each descendant from the journals alone, while there is no index.
fn descendants(data: &DataDirectory, uuid: Uuid) -> Vec<Spent> {
    let mut spent = Vec::new();
    let mut seen: HashSet<Uuid> = HashSet::from([uuid]);
    let children = |uuid| data.history(uuid).map_or_else(|_| Vec::new(), |(history, _)| history.children);
    let mut next = children(uuid);
    while let Some(uuid) = next.pop() {
        if !seen.insert(uuid) {
            continue;
        }
        // A process that was never created, or is collected, has no journal.
        if let Ok((history, _)) = data.history(uuid) {
            spent.push(history.spent);
            next.extend(history.children);
        }
    }
    spent
}
