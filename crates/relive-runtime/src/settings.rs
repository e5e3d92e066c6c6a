//! What the runtime goes by.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use relive_agent::Cadence;
use relive_config::{Config, Providers, Recovery, StallPolicy};
use relive_core::Usd;
use relive_journal::data::{GcRules, SpaceRules};
use relive_journal::policy::Policy;
use relive_journal::recovery::OnInDoubt;
use relive_llm::{Prices, Windows};

use crate::trees::TreeLimits;

/// What the runtime goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) table: relive_core::Settings,
    pub(crate) gc: GcRules,
    /// How often the collector looks; absent where it never does.
    pub(crate) gc_every: Option<Duration>,
    pub(crate) cadence: Cadence,
    pub(crate) recovery: Recovery,
    pub(crate) stalled_after: Duration,
    pub(crate) stalled_policy: StallPolicy,
    pub(crate) processes_max: usize,
    /// How much room the data directory keeps free.
    pub space: SpaceRules,
    pub(crate) default_model: Option<String>,
    pub(crate) on_in_doubt: OnInDoubt,
    pub(crate) providers: Providers,
    pub(crate) tool_env: Vec<String>,
    pub(crate) policy: Policy,
    pub(crate) trees: TreeLimits,
    pub(crate) prices: Arc<Prices>,
    pub(crate) windows: Arc<Windows>,
    pub(crate) git_notes: bool,
    /// The command that hears of new items of the inbox.
    pub(crate) notify: Option<String>,
    /// The program that becomes the keeper of environments; without one they end with the runtime.
    pub keeper: Option<PathBuf>,
    pub(crate) workspace: relive_config::Workspace,
    pub(crate) isolation: relive_config::IsolationSettings,
    pub(crate) pool: PoolSettings,
}

/// How CLI agents are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolSettings {
    /// How many may run; zero for any number.
    pub(crate) max_running: usize,
    /// How much memory they may use together, in bytes; zero for any amount.
    pub(crate) max_memory: u64,
    /// How long one may be idle; zero for ever.
    pub(crate) idle_timeout: Duration,
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Self {
        let Config { default_model, on_in_doubt, recovery, gc, checkpoint, heartbeat, limits, .. } = config;
        let Config {
            providers, tool_env, tools, prices, context_window, git_notes, workspace, isolation, pool, ..
        } = config;
        let gc_rules = GcRules {
            retention_days: (gc.retention_days > 0).then_some(gc.retention_days),
            max_entries: (gc.max_entries > 0).then_some(gc.max_entries as usize),
            older_than_ms: None,
        };
        let collects = gc_rules.retention_days.is_some() || gc_rules.max_entries.is_some();
        Self {
            table: relive_core::Settings::default(),
            gc: gc_rules,
            gc_every: collects.then_some(Duration::from_secs(gc.interval_seconds)),
            cadence: Cadence { steps: checkpoint.every_steps, time: Duration::from_secs(checkpoint.every_seconds) },
            recovery: *recovery,
            stalled_after: Duration::from_secs(heartbeat.stalled_after_seconds),
            stalled_policy: heartbeat.policy,
            processes_max: limits.max_processes as usize,
            space: SpaceRules { floor_bytes: limits.floor_mb << 20, ..SpaceRules::default() },
            default_model: default_model.clone(),
            on_in_doubt: match on_in_doubt {
                relive_config::OnInDoubt::TellModel => OnInDoubt::TellModel,
                relive_config::OnInDoubt::Park => OnInDoubt::Park,
                relive_config::OnInDoubt::Retry => OnInDoubt::Retry,
            },
            providers: providers.clone(),
            tool_env: tool_env.clone(),
            policy: crate::policy::configured(tools),
            trees: TreeLimits {
                depth_max: limits.max_depth,
                children_max: limits.max_children as usize,
                tree_max: limits.max_tree as usize,
            },
            prices: Arc::new(known_prices(prices)),
            windows: Arc::new(known_windows(context_window)),
            git_notes: git_notes.0,
            notify: config.notify.clone(),
            keeper: None,
            workspace: workspace.clone(),
            isolation: isolation.clone(),
            pool: PoolSettings {
                max_running: pool.max_running as usize,
                max_memory: pool.max_memory_mb << 20,
                idle_timeout: pool.idle_timeout(),
            },
        }
    }
}

/// What is built in, and what the file says instead.
fn known_windows(named: &BTreeMap<String, u64>) -> Windows {
    let mut windows = Windows::builtin();
    for (model, tokens) in named {
        windows.set(model, *tokens);
    }
    windows
}

/// What is built in, and what the file says instead.
fn known_prices(named: &BTreeMap<String, relive_config::Price>) -> Prices {
    let mut prices = Prices::builtin();
    for (model, price) in named {
        let relive_config::Price { input, output, cache_read, cache_write } = *price;
        prices.set(
            model,
            relive_llm::Price {
                input: Usd::from_nanos(input.nanos()),
                output: Usd::from_nanos(output.nanos()),
                cache_read: Usd::from_nanos(cache_read.unwrap_or(input).nanos()),
                cache_write: Usd::from_nanos(cache_write.unwrap_or(input).nanos()),
            },
        );
    }
    prices
}
