//! A whole agent with a model that does what a test says, and a journal on the disk.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use relive_agent::{Agent, Budget, Cadence, Exit, Orders, Pulse, tools};
use relive_core::{Limits, Moment, Pid, Timestamp, Usd, Uuid};
use relive_journal::data::{SpaceRules, SpawnRequest};
use relive_journal::record::{Input, OnBudget, OpenedBy, Spawned};
use relive_journal::recovery::OnInDoubt;
use relive_journal::{DataDirectory, Disk, History, Io, LocalJournal, Opening, Pool, ProcessMeta};
use relive_llm::{Answer, Delta, Message, Model, ModelError, Question};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::support::World;

const NOW: Moment = Moment { at: Timestamp::UNIX_EPOCH, up_ms: 0 };

/// What the model does when it is asked.
pub(crate) enum Act {
    Fail(ModelError),
    /// Says something first.
    Break(ModelError),
    /// Fails, and the owner orders something in the same moment.
    FailAndOrder(ModelError, Orders),
    /// Fails, and somebody says something.
    FailAndHear(ModelError),
    Answer,
    /// Streams this.
    Stream(Answer),
}

pub(crate) struct Flaky {
    acts: Mutex<VecDeque<Act>>,
    asked: Mutex<Vec<(Duration, Vec<Message>)>>,
    began: Instant,
    orders: Arc<watch::Sender<Orders>>,
    journal: Arc<LocalJournal>,
}

impl std::fmt::Debug for Flaky {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Flaky")
    }
}

impl Model for Flaky {
    fn reserved_tokens(&self) -> u64 {
        1000
    }

    fn cost(&self, tokens_in: u64, tokens_out: u64) -> Option<Usd> {
        Some(Usd::from_nanos(tokens_in + tokens_out))
    }

    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Answer, ModelError>> {
        self.asked.lock().unwrap().push((self.began.elapsed(), question.messages.to_vec()));
        let said = |text: &str| Ok(Delta::Text(text.to_owned()));
        let answer = match self.acts.lock().unwrap().pop_front().unwrap_or(Act::Answer) {
            Act::Fail(error) => Err(error),
            Act::Break(error) => Ok(stream::iter([said("half of "), Err(error)]).boxed()),
            Act::FailAndOrder(error, orders) => {
                self.orders.send_replace(orders);
                Err(error)
            }
            Act::FailAndHear(error) => {
                let journal = Arc::clone(&self.journal);
                return async move {
                    let input = Input { id: "later".to_owned(), from: None, text: "one more thing".into() };
                    journal.hear(input, "one more thing".to_owned()).await.unwrap();
                    Err(error)
                }
                .boxed();
            }
            Act::Stream(answer) => Ok(answer),
            Act::Answer => Ok(stream::iter([said("half of it"), said(" all")]).boxed()),
        };
        std::future::ready(answer).boxed()
    }
}

struct Unlimited;

impl Budget for Unlimited {
    fn reserve(&self, _: u64, _: Usd) -> BoxFuture<'static, bool> {
        std::future::ready(true).boxed()
    }
}

/// What came of a run.
pub(crate) struct Run {
    pub(crate) exit: Exit,
    /// When each question came, and with which messages.
    pub(crate) asked: Vec<(Duration, Vec<Message>)>,
    pub(crate) took: Duration,
    pub(crate) history: History,
}

/// An agent that is ready to run.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) orders: Arc<watch::Sender<Orders>>,
    pub(crate) pulse: Pulse,
    pub(crate) disk: Disk,
    pub(crate) journal_pool: Pool,
    data: DataDirectory,
    model: Arc<Flaky>,
    journal: Arc<LocalJournal>,
    pub(crate) agent: Agent,
}

pub(crate) async fn run(acts: impl IntoIterator<Item = Act>, deadline: Option<Duration>) -> Run {
    let stage = Stage::new(acts);
    let deadline = deadline.map(|deadline| stage.model.began + deadline);
    stage.orders.send_replace(Orders { deadline, ..Orders::default() });
    stage.run().await
}

impl Stage {
    pub(crate) fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        let (world, disk, journal_pool) = (World::new(), Disk::new(), Pool::default());
        let data =
            DataDirectory::open(&world.outside.join("data"), Io::new(disk.clone()), SpaceRules::default()).unwrap();
        let none = serde_json::value::to_raw_value::<[u8; 0]>(&[]).unwrap();
        let meta = ProcessMeta::new("test/flaky".to_owned(), "Be brief.".to_owned(), none);
        let writer = data.spawn(request(&world, meta.clone())).unwrap();
        let began = Instant::now();
        let (orders, orders_of) = watch::channel(Orders::default());
        let orders = Arc::new(orders);
        let acts = Mutex::new(acts.into_iter().collect());
        let journal = Arc::new(LocalJournal::new(writer, journal_pool.clone(), || NOW));
        let model =
            Flaky { acts, asked: Mutex::default(), began, orders: Arc::clone(&orders), journal: Arc::clone(&journal) };
        let model = Arc::new(model);
        let pulse = Pulse::default();
        let agent = Agent {
            journal: Arc::clone(&journal) as Arc<dyn relive_journal::Journal>,
            meta,
            model: Arc::clone(&model) as Arc<dyn Model>,
            tools: tools::all(),
            context: world.context.clone(),
            orders: orders_of,
            budget: Arc::new(Unlimited),
            intent: "do it".to_owned(),
            cadence: Cadence { steps: 100, time: Duration::from_secs(3600) },
            suspend_on_budget: false,
            git_notes: false,
            snapshots: None,
            pulse: pulse.clone(),
        };
        Self { world, orders, pulse, disk, journal_pool, data, model, journal, agent }
    }

    pub(crate) fn add_tool(&mut self, tool: Arc<dyn relive_agent::tool::Tool>) {
        self.agent.tools.push(tool);
    }

    pub(crate) async fn run(self) -> Run {
        let Self { world: _world, orders: _orders, pulse: _, data: _data, model, journal, agent, .. } = self;
        let exit = agent.run().await;
        let history = journal.history().await.unwrap();
        let asked = std::mem::take(&mut *model.asked.lock().unwrap());
        Run { exit, asked, took: model.began.elapsed(), history }
    }
}

fn request(world: &World, meta: ProcessMeta) -> SpawnRequest {
    let spawned = Spawned {
        uuid: Uuid::from_u128(0x0198_f3c1_0000_7000_8000_0000_0000_0001),
        name: None,
        parent_uuid: None,
        budget_uuid: None,
        origin: None,
        body: "agent".to_owned(),
        program: None,
        intent: "do it".into(),
        cwd: world.cwd.display().to_string(),
        isolated: None,
        limits: Limits::default(),
        on_in_doubt: OnInDoubt::TellModel,
        on_budget: OnBudget::End,
        env_names: Vec::new(),
        policy: relive_journal::policy::Policy::built_in(),
        root_uuid: None,
        depth: 0,
        workspace: None,
        shell: None,
        request: None,
    };
    let (by, boot_id) = (OpenedBy::Spawn, "boot".to_owned());
    let opening = Opening { pid: Pid(1), by, boot_id, now: NOW, req: None, seen: None, cause: None };
    let input = Some(Input { id: "intent".to_owned(), from: None, text: "do it".into() });
    SpawnRequest { opening, spawned, meta: Some(meta), input, records: Vec::new() }
}
