//! The command line.

use std::time::Duration;

use crate::{Result, rows};

/// Returns the help, with the names of all rows.
pub(crate) fn usage() -> String {
    let names: Vec<&str> = rows::ALL.iter().map(|(name, _)| *name).chain([rows::COUNTS]).collect();
    let lines: Vec<String> = names.chunks(9).map(|names| names.join(" ")).collect();
    let names = lines.join("\n                  ");
    format!(
        "\
usage: relive-bench [--quick] [--only NAME] [--histories N]

  --quick         small sizes, for a smoke run
  --only NAME     one of these; {} is measured only if it is asked for:
                  {names}
  --histories N   how many histories a start or a look-up has to pass over (100000)

The program that is measured is `relive` beside this one, or $RELIVE_BIN.
Restate is measured where scripts/install-restate put it: target/restate, or $RELIVE_RESTATE_DIR.
The files are made under target/, or under $RELIVE_BENCH_DIR, and removed at the end.",
        rows::HUGE
    )
}

/// How much is measured.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) only: Option<String>,
    pub(crate) rounds: usize,
    /// Steps measured in each round.
    pub(crate) steps: usize,
    /// How long 64 writers write in each round.
    pub(crate) writers_ms: u64,
    /// The length of a long journal.
    pub(crate) history_bytes: u64,
    /// How many ended processes a start has to skip.
    pub(crate) histories: usize,
    /// How many agents run concurrently. The number of rounds is odd, so that the median is a measured value.
    pub(crate) agents: usize,
    pub(crate) agent_rounds: usize,
    /// Steps of an agent that runs alone, the number of concurrent agents otherwise, and the steps of each of those.
    /// There are many more than the start and end cost, which are included in the time.
    pub(crate) path_steps: usize,
    pub(crate) path_agents: usize,
    pub(crate) path_steps_each: usize,
    pub(crate) path_rounds: usize,
    /// Steps of a long agent.
    pub(crate) long_steps: usize,
    pub(crate) long_rounds: usize,
    /// Bytes of a long conversation.
    pub(crate) conversation_bytes: usize,
    /// The length of the conversation that is sent to a provider.
    pub(crate) question_bytes: usize,
    /// How many agents run when the daemon is killed.
    pub(crate) recovered: usize,
    /// How many processes are suspended.
    pub(crate) crowd: usize,
    pub(crate) crowd_rounds: usize,
    /// Launches of sessions measured in each round.
    pub(crate) launches: usize,
    /// How many sessions live at once.
    pub(crate) alive: usize,
    pub(crate) session_rounds: usize,
    /// Files of the directories that snapshots are taken of.
    pub(crate) workspace_files: Vec<usize>,
    /// Files of one that takes minutes.
    pub(crate) huge_workspace_files: Option<usize>,
    /// How long an idle daemon is observed.
    pub(crate) idle: Duration,
    /// How long after its last work a daemon counts as idle.
    pub(crate) settle: Duration,
}

impl Options {
    fn full() -> Self {
        Self {
            only: None,
            rounds: 9,
            steps: 200,
            writers_ms: 700,
            history_bytes: 50 << 20,
            histories: 100_000,
            agents: 1_000,
            agent_rounds: 3,
            path_steps: 2_000,
            path_agents: 64,
            path_steps_each: 1_500,
            path_rounds: 5,
            long_steps: 10_000,
            long_rounds: 3,
            conversation_bytes: 100 << 20,
            question_bytes: 4 << 20,
            recovered: 3_000,
            crowd: 10_000,
            crowd_rounds: 5,
            launches: 21,
            alive: 200,
            session_rounds: 5,
            workspace_files: vec![1_000, 30_000],
            huge_workspace_files: Some(200_000),
            idle: Duration::from_secs(5),
            // The disk threads end after ten seconds without work.
            settle: Duration::from_secs(12),
        }
    }

    fn quick() -> Self {
        Self {
            only: None,
            rounds: 3,
            steps: 50,
            writers_ms: 200,
            history_bytes: 5 << 20,
            histories: 2_000,
            agents: 100,
            agent_rounds: 3,
            path_steps: 200,
            path_agents: 16,
            path_steps_each: 40,
            path_rounds: 3,
            long_steps: 2_000,
            long_rounds: 3,
            conversation_bytes: 10 << 20,
            question_bytes: 2 << 20,
            recovered: 300,
            crowd: 1_000,
            crowd_rounds: 3,
            launches: 7,
            alive: 50,
            session_rounds: 3,
            workspace_files: vec![1_000],
            huge_workspace_files: None,
            idle: Duration::from_secs(2),
            settle: Duration::from_secs(1),
        }
    }

    /// Returns whether rows of this name are measured: the selected ones, or all that do not take minutes.
    pub(crate) fn measures(&self, name: &str) -> bool {
        self.only.as_deref().map_or(name != rows::HUGE, |only| only == name)
    }

    /// Parses the command line; `None` if only the usage is requested.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let arguments: Vec<String> = arguments.collect();
        let quick = arguments.iter().any(|argument| argument == "--quick");
        let mut options = if quick { Self::quick() } else { Self::full() };
        let mut rest = arguments.into_iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--quick" => {}
                "--help" | "-h" => return Ok(None),
                "--only" => {
                    let name = rest.next().ok_or("--only needs a name")?;
                    if name != rows::COUNTS && !rows::ALL.iter().any(|(known, _)| *known == name) {
                        return Err(format!("there is no row `{name}`").into());
                    }
                    options.only = Some(name);
                }
                "--histories" => {
                    let number = rest.next().ok_or("--histories needs a number")?;
                    options.histories = number.parse().map_err(|_| format!("`{number}` is not a number"))?;
                }
                other => return Err(format!("unknown argument `{other}`").into()),
            }
        }
        Ok(Some(options))
    }
}
