//! Which processes a command acts on: ids, patterns for names, or all.

use relive_api::{ListQuery, Process};
use relive_core::{ErrorCode, Pid};
use relive_types::program::quote;
use relive_types::short_id::shortened;
use serde::Serialize;
use serde_json::{Value, json};

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::report;
use crate::terminal::one_line;

/// How many processes are asked for at a time.
const PAGE: usize = 256;
/// How many processes an ambiguous name lists.
const CANDIDATES_MAX: usize = 5;

#[derive(Debug, clap::Args)]
pub(crate) struct Targets {
    /// PIDs, names, UUIDs, first or last digits of UUIDs, or name patterns such as 'test-*'
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub ids: Vec<String>,
    /// Select all processes that the command can act on; each command says which
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,
}

/// The processes that a pattern and `--all` select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Processes that have not ended.
    Living,
    /// Processes that run, or will once their suspension ends without a resume: with an answer, for example.
    Running,
    Suspended,
    Ended,
    /// The processes that names mean: of each name the one that has not ended, else the one that ended last. With `--all`,
    /// processes that have not ended.
    Named,
}

impl Scope {
    fn query(self) -> ListQuery {
        let all = match self {
            Self::Living | Self::Running | Self::Suspended => false,
            Self::Ended | Self::Named => true,
        };
        ListQuery { all, limit: Some(PAGE), ..ListQuery::default() }
    }

    fn contains(self, process: &Process) -> bool {
        let ended = process.dead_at.is_some();
        match self {
            Self::Living => !ended,
            Self::Running => process.can_be_paused(),
            Self::Suspended => !ended && process.paused,
            Self::Ended => ended,
            Self::Named => true,
        }
    }
}

/// A process to act on, or the error of its look-up.
#[derive(Debug)]
pub(crate) struct Target {
    /// The id for the request to the daemon.
    pub id: String,
    /// Present where a pattern or `--all` found it.
    pub found: Option<Box<Process>>,
    pub error: Option<CommandError>,
}

/// Returns the id that leads to a process: its PID, or its UUID if its journal does not tell the PID.
pub(super) fn id_of(process: &Process) -> String {
    if process.pid == Pid::RUNTIME { process.uuid.to_string() } else { process.pid.to_string() }
}

impl Targets {
    /// Whether one process was named, and not a pattern. Its answer is then the command's.
    pub(crate) fn is_one(&self) -> bool {
        !self.all && matches!(&self.ids[..], [id] if !is_pattern(id))
    }

    /// Whether each process was named, and not reached by a pattern or by `--all`.
    pub(crate) fn is_named(&self) -> bool {
        !self.all && !self.ids.iter().any(|id| is_pattern(id))
    }

    /// Opens a client, for commands that need processes. Without histories nothing is found: of one id that is an error.
    pub(crate) async fn client<'a>(&self, context: &'a Context) -> Outcome<Option<Client<'a>>> {
        if self.all || self.ids.len() != 1 {
            return Client::open(context, Start::IfRemembered).await;
        }
        Client::about(context, &self.ids[0]).await.map(Some)
    }

    /// Returns the ids as typed, for a hint.
    pub(crate) fn typed(&self) -> String {
        if self.all { "--all".to_owned() } else { self.ids.iter().map(|id| quote(id)).collect::<Vec<_>>().join(" ") }
    }

    /// Looks up what patterns and `--all` mean. Each process is reached once.
    pub(crate) async fn expand(&self, client: &Client<'_>, scope: Scope) -> Outcome<Vec<Target>> {
        let mut targets: Vec<Target> = Vec::new();
        let everything = [None];
        let wanted: Vec<Option<&String>> =
            if self.all { everything.to_vec() } else { self.ids.iter().map(Some).collect() };
        for id in wanted {
            let pattern = match id {
                Some(id) if !is_pattern(id) => {
                    if !targets.iter().any(|target| target.id == **id) {
                        targets.push(Target { id: id.clone(), found: None, error: None });
                    }
                    continue;
                }
                pattern => pattern.cloned(),
            };
            let found = match (scope, &pattern) {
                (Scope::Named, None) => matching(client, Scope::Living, None).await?,
                (Scope::Named, Some(_)) => last_of_each_name(matching(client, scope, pattern.clone()).await?),
                (Scope::Living | Scope::Running | Scope::Suspended | Scope::Ended, _) => {
                    matching(client, scope, pattern.clone()).await?
                }
            };
            if let Some(pattern) = pattern.filter(|_| found.is_empty()) {
                let error = Some(no_match(client, scope, &pattern).await?);
                targets.push(Target { id: pattern, found: None, error });
            }
            for process in found {
                let id = id_of(&process);
                // Between two pages a process may have got another PID.
                let is_same = |target: &Target| target.found.as_ref().is_some_and(|found| found.uuid == process.uuid);
                if !targets.iter().any(|target| target.id == id || is_same(target)) {
                    targets.push(Target { id, found: Some(Box::new(process)), error: None });
                }
            }
        }
        Ok(targets)
    }
}

/// Says that nothing matches, or nothing that the command can act on.
async fn no_match(client: &Client<'_>, scope: Scope, pattern: &str) -> Outcome<CommandError> {
    let mut others = Vec::new();
    for other in [Scope::Living, Scope::Ended].into_iter().filter(|other| *other != scope) {
        others.extend(matching(client, other, Some(pattern.to_owned())).await?);
    }
    let not_found = |message: String| CommandError::new(ErrorCode::NotFound, message);
    if others.is_empty() {
        return Ok(not_found(format!("no process matches `{}`", shortened(pattern))).with_hint("relive ps -a"));
    }
    let wanted = match scope {
        Scope::Living => "process that has not ended",
        Scope::Running => "running process",
        Scope::Suspended => "suspended process",
        Scope::Ended => "ended process",
        Scope::Named => "process",
    };
    let message = format!("no {wanted} matches `{pattern}`, but {} others do", others.len());
    let message = if others.len() == 1 { message.replace("1 others do", "another one does") } else { message };
    Ok(not_found(message).with_hint(format!("relive ps -a --name {}", quote(pattern))))
}

/// Keeps of each name the process that has not ended, else the one that ended last.
fn last_of_each_name(found: Vec<Process>) -> Vec<Process> {
    let mut last: Vec<Process> = Vec::new();
    let end = |process: &Process| (process.dead_at.is_none(), process.dead_at);
    for process in found {
        match last.iter_mut().find(|other| other.name == process.name) {
            Some(other) if end(other) < end(&process) => *other = process,
            Some(_) => {}
            None => last.push(process),
        }
    }
    last
}

fn is_pattern(id: &str) -> bool {
    id.contains(['*', '?'])
}

/// Lists the processes in a scope, and with a name that matches.
pub(super) async fn matching(client: &Client<'_>, scope: Scope, name: Option<String>) -> Outcome<Vec<Process>> {
    let mut query = ListQuery { name, ..scope.query() };
    let mut found = Vec::new();
    loop {
        let page = client.list(&query).await?;
        found.extend(page.processes.into_iter().filter(|process| scope.contains(process)));
        if page.next.is_none() {
            return Ok(found);
        }
        query.cursor = page.next;
    }
}

/// Finds the one process that an id means. A name that several ended processes have had means none of them.
pub(super) async fn only_process(client: &Client<'_>, id: &str) -> Outcome<Process> {
    let process = client.process(id).await?;
    if process.dead_at.is_none() || process.name.as_deref() != Some(id) {
        return Ok(process);
    }
    let same = matching(client, Scope::Ended, Some(id.to_owned())).await?;
    if same.iter().all(|same| same.uuid == process.uuid) {
        return Ok(process);
    }
    let line = |same: &Process| format!("\nPID {}  {}  {}", same.pid, same.short, one_line(&same.intent));
    let more = same.len().checked_sub(CANDIDATES_MAX).filter(|more| *more > 0);
    let more = more.map(|more| format!("\nand {more} more")).unwrap_or_default();
    let list: String = same.iter().take(CANDIDATES_MAX).map(line).collect();
    let message = format!("`{id}` is ambiguous, {} ended processes have this name:{list}{more}", same.len());
    Err(CommandError::invalid(message).with_hint(format!("relive ps -a --name {}", quote(id))))
}

/// Returns the PID under which a process lives again whose earlier incarnation was named.
pub(super) async fn resumed_as(client: &Client<'_>, ended: &Process) -> Option<Pid> {
    ended.successor_pid?;
    // Only for the words: what was named has ended whatever becomes of this.
    let now = std::ops::Deref::deref(client).process(&ended.uuid.to_string()).await.ok()?;
    (now.dead_at.is_none() && now.pid != ended.pid).then_some(now.pid)
}

/// An answer for a person or a script: a report on stderr, and data only on stdout.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) data: String,
    pub(crate) message: String,
}

impl Told {
    pub(crate) fn message(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// Adds the PID of a process that was started or continues, for a script. A person reads it in the message.
    pub(crate) fn with_pid(self, context: &Context, pid: Pid) -> Self {
        let data = if context.out.is_terminal { String::new() } else { format!("{pid}\n") };
        Self { data, ..self }
    }

    pub(crate) fn show(&self, context: &Context) -> Outcome<()> {
        context.say_on(&self.message);
        context.print(&self.data)
    }
}

/// The answers of a command about several processes. One failure does not stop the others.
pub(crate) struct Batch<'a> {
    context: &'a Context,
    is_one: bool,
    results: Vec<Value>,
    codes: Vec<u8>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(context: &'a Context, targets: &Targets) -> Self {
        Self { context, is_one: targets.is_one(), results: Vec::new(), codes: Vec::new() }
    }

    /// Takes in an answer, with the exit code that goes with it.
    pub(crate) fn answer(&mut self, id: &str, answer: &impl Serialize, told: &Told, code: u8) -> Outcome<()> {
        self.codes.push(code);
        if !self.context.json {
            return told.show(self.context);
        }
        if self.is_one {
            return self.context.print_json(answer);
        }
        let mut result = serde_json::to_value(answer)
            .map_err(|error| CommandError::internal("cannot write to stdout").because(error))?;
        if let Some(fields) = result.as_object_mut() {
            fields.insert("id".to_owned(), id.into());
        }
        self.results.push(result);
        Ok(())
    }

    /// Takes in a failure. Of one process it is the command's.
    pub(crate) fn failure(&mut self, id: &str, error: CommandError) -> Outcome<()> {
        if self.is_one {
            return Err(error);
        }
        self.codes.push(error.exit_code());
        if self.context.json {
            self.results.push(json!({ "id": id, "error": error.detail() }));
        } else {
            self.context.say_on(&report::as_text(&error, &self.context.err));
        }
        Ok(())
    }

    /// Ends the command: with the exit code that all failures have in common, else 1.
    pub(crate) fn finish(self, nothing: &str) -> Outcome<u8> {
        if self.context.json && !self.is_one {
            self.context.print_json(&json!({ "results": self.results }))?;
        } else if self.codes.is_empty() {
            self.context.say(nothing);
        }
        Ok(common(&self.codes))
    }
}

/// Returns the exit code that all failures have in common, else 1.
pub(super) fn common(codes: &[u8]) -> u8 {
    let mut failures = codes.iter().copied().filter(|code| *code != 0);
    match failures.next() {
        None => 0,
        Some(first) if failures.all(|code| code == first) => first,
        Some(_) => ErrorCode::Exhausted.exit_code(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_says_how_it_failed_if_all_failures_are_alike() {
        let check = |codes: &[u8], code| assert_eq!(common(codes), code, "{codes:?}");
        check(&[], 0);
        check(&[0, 0], 0);
        check(&[0, 4, 0, 4], 4);
        check(&[4, 3], 1);
    }

    #[test]
    fn a_pattern_is_not_one_process_and_is_quoted_in_a_hint() {
        let of = |ids: &[&str], all| Targets { ids: ids.iter().map(|id| (*id).to_owned()).collect(), all };
        assert!(of(&["5"], false).is_one());
        assert!(!of(&["test-*"], false).is_one() && !of(&["5", "6"], false).is_one() && !of(&[], true).is_one());
        assert_eq!(of(&["5", "test-*"], false).typed(), "5 'test-*'");
        assert_eq!(of(&["a b's"], false).typed(), r"'a b'\''s'");
        assert_eq!(of(&[], true).typed(), "--all");
    }
}
