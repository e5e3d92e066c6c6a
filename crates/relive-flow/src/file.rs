//! Compose and supervisor files.

mod parse;
mod results;
mod supervisor;
mod task;

use relive_types::{Isolation, Limits, Network, WorkspaceKind};
use serde::{Deserialize, Serialize};

use crate::graph::Graph;
use crate::restart::{Backoff, Intensity, Policy, Restart, Strategy};
use crate::template;
use crate::yaml::{Mistakes, Problem};

/// The longest result that a node hands on, in bytes. A program cannot be given a longer argument than 128 KiB.
pub const RESULT_MAX: usize = 32 * 1024;
/// The most results in the intent of one node.
pub const RESULTS_MAX: usize = 256;
/// The most results that one command is given: all its variables together have to fit in two MiB.
pub const COMMAND_RESULTS_MAX: usize = 32;
/// The most nodes of a file.
pub const NODES_MAX: usize = 4096;
/// The longest file, in bytes.
pub const FILE_MAX: usize = 1 << 20;

/// All mistakes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The name of the file, as it was given.
    pub name: String,
    /// In the order of their places.
    pub problems: Vec<Problem>,
    /// How many more there are.
    pub unlisted: usize,
}

impl FileError {
    fn new(name: &str, mistakes: Mistakes) -> Self {
        let Mistakes { problems, unlisted } = mistakes;
        Self { name: name.to_owned(), problems, unlisted }
    }
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&relive_yaml::report(&self.name, &self.problems))?;
        match self.unlisted {
            0 => Ok(()),
            1 => f.write_str("\nand 1 more mistake"),
            more => write!(f, "\nand {more} more mistakes"),
        }
    }
}

impl std::error::Error for FileError {}

/// A graph of processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComposeFile {
    pub nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub name: String,
    #[serde(flatten)]
    pub task: Task,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Dependency>,
    #[serde(default)]
    pub retries: Retries,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
}

impl Node {
    /// Tells whether it is kept running for the others: it has no end of its own.
    #[must_use]
    pub fn is_service(&self) -> bool {
        self.restart.is_some_and(|restart| restart.policy == Policy::Permanent)
    }
}

/// A node that another one waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// Its place in the file.
    pub node: usize,
    pub condition: Condition,
}

/// What a node waits for in another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    #[default]
    Succeeded,
    /// It has ended, in whatever way.
    Completed,
    /// It was started.
    Started,
}

impl Condition {
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("succeeded", Self::Succeeded), ("completed", Self::Completed), ("started", Self::Started)];

    /// The word in the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Completed => "completed",
            Self::Started => "started",
        }
    }
}

/// How often a node that fails is started again, as a new process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    pub max: u32,
    pub backoff: Backoff,
}

impl Default for Retries {
    fn default() -> Self {
        Self { max: 0, backoff: Backoff::from_first(1000) }
    }
}

/// What a slot runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "runs", rename_all = "snake_case")]
pub enum Run {
    Task(Task),
    Supervisor(SupervisorFile),
}

/// An agent or a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub work: Work,
    /// The directory it works in, below that of the file unless it is absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default)]
    pub limits: Limits,
    /// Whether it works on a copy of its directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceKind>,
    /// What its programs may reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// What they reach of the network; as its isolation says if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The nodes whose results a program is given, in variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<String>,
    /// These variables with their values; never in a file.
    #[serde(skip)]
    pub variables: Vec<(String, String)>,
    /// Whether a result is in the command line of a program that is to start. Files of earlier versions had such.
    #[serde(skip)]
    pub result_in_command: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Agent {
        intent: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The name of a file in `agents/`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
        /// What it may do without asking.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        allow: Vec<String>,
    },
    Exec {
        command: Vec<String>,
    },
    /// The program of another vendor that does the intent, such as `claude`.
    Cli {
        cli: String,
        intent: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
}

/// The children of a supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SupervisorFile {
    pub strategy: Strategy,
    #[serde(default)]
    pub intensity: Intensity,
    #[serde(default)]
    pub backoff: Backoff,
    pub children: Vec<SupervisedChild>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SupervisedChild {
    pub name: String,
    #[serde(flatten)]
    pub run: Run,
    pub restart: Policy,
    /// Starts a new process each time, instead of resuming the one that ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
}

impl ComposeFile {
    /// Parses the text of a file, or returns all its mistakes. `name` is for messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, FileError> {
        parse::compose(text).map_err(|mistakes| FileError::new(name, mistakes))
    }

    /// Returns the places of the nodes, each after those it depends on, otherwise in the order of the file.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        self.graph().order()
    }

    /// Returns the nodes that depend on a node, directly or not, in the order of the file.
    #[must_use]
    pub fn dependents(&self, place: usize) -> Vec<usize> {
        self.graph().dependents(place)
    }

    pub(crate) fn graph(&self) -> Graph {
        let on = |node: &Node| node.depends_on.iter().map(|dependency| dependency.node).collect();
        Graph::new(self.nodes.iter().map(on).collect())
    }
}

impl SupervisorFile {
    /// Parses the text of a file, or returns all its mistakes. `name` is for messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, FileError> {
        supervisor::supervisor(text).map_err(|mistakes| FileError::new(name, mistakes))
    }
}

impl Run {
    /// Tells whether it asks models, or something below it does.
    pub(crate) fn spends(&self) -> bool {
        match self {
            Self::Task(task) => task.spends(),
            Self::Supervisor(file) => file.children.iter().any(|child| child.run.spends()),
        }
    }
}

impl Task {
    pub(crate) fn spends(&self) -> bool {
        match self.work {
            Work::Agent { .. } | Work::Cli { .. } => true,
            Work::Exec { .. } => false,
        }
    }

    /// Returns a task that has nothing but its work.
    #[must_use]
    pub fn new(work: Work) -> Self {
        let (cwd, workspace, isolation, network) = (None, None, None, None);
        let (limits, results, variables) = (Limits::default(), Vec::new(), Vec::new());
        let result_in_command = false;
        Self { work, cwd, limits, workspace, isolation, network, results, variables, result_in_command }
    }

    /// Returns the nodes whose results the task asks for. A name may be there more than once.
    pub(crate) fn asks_for(&self) -> impl Iterator<Item = String> {
        self.texts().flat_map(template::nodes).chain(self.results.iter().cloned())
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let (intent, command) = match &self.work {
            Work::Agent { intent, .. } | Work::Cli { intent, .. } => (Some(intent.as_str()), [].as_slice()),
            Work::Exec { command } => (None, command.as_slice()),
        };
        intent.into_iter().chain(command.iter().map(String::as_str))
    }

    /// Returns the task with its results: in the text of an intent, and in variables for a program. They are never part of a
    /// command line, because some program may take any part of that for something to run.
    #[must_use]
    pub fn filled(&self, result: impl Fn(&str) -> String) -> Self {
        let mut filled = self.clone();
        match &mut filled.work {
            Work::Agent { intent, .. } | Work::Cli { intent, .. } => *intent = template::fill(intent, result),
            Work::Exec { command } => {
                filled.result_in_command = command.iter().any(|argument| !template::nodes(argument).is_empty());
                // There are no results in it, but `{{{{` may be.
                for argument in command.iter_mut() {
                    *argument = template::fill(argument, |_| String::new());
                }
                filled.variables = self.results.iter().map(|name| (variable(name), result(name))).collect();
            }
        }
        filled
    }
}

/// Names the variable with the result of a node. A hyphen cannot stand in it. The beginning is Relive's own: no program
/// takes such a variable for a setting, as it does `BASH_ENV` or `LD_PRELOAD`.
pub(crate) fn variable(node: &str) -> String {
    format!("RELIVE_RESULT_{}", node.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_in_a_variable_and_never_part_of_a_command_line() {
        let hostile = |_: &str| "$(touch /tmp/x)".to_owned();
        let words = ["sh", "-c", "echo \"$RELIVE_RESULT_a_b\" {{{{ nodes.x.result }}"].map(str::to_owned);
        let task = Task { results: vec!["a-b".to_owned()], ..Task::new(Work::Exec { command: words.to_vec() }) };
        let filled = task.filled(hostile);
        let expect = ["sh", "-c", "echo \"$RELIVE_RESULT_a_b\" {{ nodes.x.result }}"].map(str::to_owned);
        assert_eq!(filled.work, Work::Exec { command: expect.to_vec() });
        assert!(!filled.result_in_command);
        assert_eq!(filled.variables, [("RELIVE_RESULT_a_b".to_owned(), "$(touch /tmp/x)".to_owned())]);
        // One that an earlier version has recorded.
        let command = vec!["echo".to_owned(), "{{ nodes.a.result }}".to_owned()];
        let earlier = Task::new(Work::Exec { command });
        assert!(earlier.filled(hostile).result_in_command);
    }
}
