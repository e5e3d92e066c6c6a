//! The pool of CLI agents, for people.

use std::sync::Arc;

use relive_api::{PoolLimits, PoolReport, PooledAgent, Process};
use relive_core::{Body, Display};

use crate::error::Result;
use crate::runtime::Runtime;

impl Runtime {
    /// Returns the CLI agents that run or wait, and the limits.
    pub async fn agent_pool(self: &Arc<Self>) -> Result<PoolReport> {
        self.reload_settings().await;
        let settings = self.live.now().pool;
        let memory = self.bodies.cli.pool.memory().await;
        let living: Vec<Process> = {
            let state = self.lock();
            let views = state.table.processes(self.moment());
            let living = views.filter(|view| view.body == Body::Cli && view.dead_at.is_none());
            living.map(|view| self.shown(&state, &view)).collect()
        };
        let patience = crate::doing::patience();
        let mut agents = Vec::with_capacity(living.len());
        for process in living {
            let memory = memory.get(&process.uuid).map(|bytes| bytes >> 20);
            agents.push(pooled(self.with_doing(process, patience).await, memory));
        }
        agents.sort_by_key(|agent| (agent.place, agent.pid));
        let queued = agents.iter().filter(|agent| agent.place.is_some()).count();
        let some = |number: u64| (number > 0).then_some(number);
        Ok(PoolReport {
            limits: PoolLimits {
                max_running: some(settings.max_running as u64),
                max_memory_mb: some(settings.max_memory >> 20),
                idle_timeout_ms: some(u64::try_from(settings.idle_timeout.as_millis()).unwrap_or(u64::MAX)),
            },
            running: u32::try_from(agents.len() - queued).unwrap_or(u32::MAX),
            queued: u32::try_from(queued).unwrap_or(u32::MAX),
            memory_mb: memory.values().sum::<u64>() >> 20,
            agents,
        })
    }
}

fn pooled(process: Process, memory_mb: Option<u64>) -> PooledAgent {
    let Process { pid, uuid, short, name, display, agent, doing, intent, .. } = process;
    let agent = agent.unwrap_or_default();
    let queued = &agent["queued"];
    let time = |value: &serde_json::Value| value.as_str().and_then(|text| text.parse().ok());
    let state = match agent["lifecycle"].as_str() {
        Some(_) if queued.is_object() => "queued".to_owned(),
        Some(lifecycle) if display == Display::Running.word() => lifecycle.to_owned(),
        Some(_) | None => display,
    };
    PooledAgent {
        pid,
        uuid,
        short,
        name,
        state,
        place: queued["place"].as_u64(),
        queued_since: time(&queued["since"]),
        idle_kill_at: time(&agent["idle_kill_at"]),
        memory_mb,
        doing,
        intent,
    }
}
