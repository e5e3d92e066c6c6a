//! A call whose session cannot be frozen at once: it is asked again, and continues if the agent is resumed before.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use relive_agent::Orders;
use relive_agent::tool::{Context, Order, Patience, Tool, ToolResult};
use relive_core::Urgency;
use relive_journal::recovery::Recovery;
use relive_llm::{Delta, ToolCall};
use serde_json::json;
use tokio::sync::Notify;

use crate::stage::{Act, Stage};

/// Runs in a session of which some part waits in the kernel.
#[derive(Debug, Default)]
struct Stuck {
    orders: Mutex<Vec<Order>>,
    begun: Notify,
    ordered: Notify,
    over: Notify,
}

/// The tool, and the test that looks at it.
#[derive(Debug)]
struct Shared(Arc<Stuck>);

impl Tool for Shared {
    fn name(&self) -> &'static str {
        "stuck"
    }

    fn definition(&self) -> serde_json::Value {
        json!({"name": "stuck", "description": "", "input_schema": {}})
    }

    fn patience(&self) -> Patience {
        Patience::Session
    }

    fn prepare(&self, _: Context, _: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        std::future::ready(Ok(Recovery::Join)).boxed()
    }

    fn run(&self, _: Context, _: String, _: Recovery, _: String) -> BoxFuture<'static, ToolResult> {
        let stuck = Arc::clone(&self.0);
        async move {
            stuck.begun.notify_one();
            stuck.over.notified().await;
            ToolResult { done: true, ..ToolResult::ok("over") }
        }
        .boxed()
    }

    fn order(&self, _: Context, _: String, order: Order) -> BoxFuture<'static, bool> {
        self.0.orders.lock().unwrap().push(order);
        self.0.ordered.notify_one();
        std::future::ready(order != Order::StandStill).boxed()
    }
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.unwrap()
}

#[tokio::test]
async fn a_session_that_is_half_frozen_continues_when_the_agent_does() {
    let call = ToolCall { id: "c".to_owned(), name: "stuck".to_owned(), args: "{}".to_owned() };
    let mut stage = Stage::new([Act::Stream(stream::iter([Ok(Delta::Call(call))]).boxed())]);
    let stuck = Arc::new(Stuck::default());
    stage.add_tool(Arc::new(Shared(Arc::clone(&stuck))));
    let orders = Arc::clone(&stage.orders);
    let running = tokio::spawn(stage.run());
    within(stuck.begun.notified()).await;
    orders.send_replace(Orders { stop: Some(Urgency::Now), ..Orders::default() });
    within(stuck.ordered.notified()).await;
    within(stuck.ordered.notified()).await;
    orders.send_replace(Orders::default());
    while stuck.orders.lock().unwrap().last() != Some(&Order::Continue) {
        within(stuck.ordered.notified()).await;
    }
    stuck.over.notify_one();
    within(running).await.unwrap();
    let orders = stuck.orders.lock().unwrap();
    let (last, before) = orders.split_last().unwrap();
    assert_eq!((*last, before.iter().all(|order| *order == Order::StandStill)), (Order::Continue, true), "{orders:?}");
}
