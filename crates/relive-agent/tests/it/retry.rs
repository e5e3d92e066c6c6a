//! The loop with a model that fails: what it waits for, what it obeys meanwhile, and what it records.
//!
//! The clock stands still but for the loop's own waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use relive_agent::{Agent, Budget, Cadence, Exit, Orders};
use relive_core::{Limits, Pid, Signal, Timestamp, Urgency, Usd, Uuid};
use relive_journal::data::{SpaceRules, SpawnRequest};
use relive_journal::record::{Input, OnBudget, OpenedBy, Spawned};
use relive_journal::recovery::OnInDoubt;
use relive_journal::{DataFolder, History, Io, LocalJournal, Opening, Pool, ProcessMeta};
use relive_llm::{Answer, Delta, Message, Model, ModelError, Question};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::support::World;

/// What it does when it is asked.
enum Act {
    Fail(ModelError),
    /// Says something first.
    Break(ModelError),
    /// Fails, and the owner orders something in the same moment.
    FailAndOrder(ModelError, Orders),
    /// Fails, and somebody says something.
    FailAndHear(ModelError),
    Answer,
}

struct Flaky {
    acts: Mutex<VecDeque<Act>>,
    asked: Mutex<Vec<(Duration, Vec<Message>)>>,
    began: Instant,
    orders: watch::Sender<Orders>,
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
        self.asked.lock().unwrap().push((self.began.elapsed(), question.messages));
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
struct Run {
    exit: Exit,
    /// When each question came, and with which messages.
    asked: Vec<(Duration, Vec<Message>)>,
    took: Duration,
    history: History,
}

async fn run(acts: impl IntoIterator<Item = Act>, deadline: Option<Duration>) -> Run {
    let world = World::new();
    let data = DataFolder::open(&world.outside.join("data"), Io::default(), SpaceRules::default()).unwrap();
    let tools = serde_json::value::to_raw_value::<[u8; 0]>(&[]).unwrap();
    let meta = ProcessMeta::new("test/flaky".to_owned(), "Be brief.".to_owned(), tools);
    let uuid = Uuid::from_u128(0x0198_f3c1_0000_7000_8000_0000_0000_0001);
    let spawned = Spawned {
        uuid,
        name: None,
        parent_uuid: None,
        origin: None,
        body: "agent".to_owned(),
        program: None,
        intent: "do it".into(),
        cwd: world.cwd.display().to_string(),
        limits: Limits::default(),
        on_in_doubt: OnInDoubt::TellModel,
        on_budget: OnBudget::End,
        env_names: Vec::new(),
        policy: relive_journal::policy::Policy::default(),
        root_uuid: None,
        depth: 0,
        request: None,
    };
    let at = Timestamp::UNIX_EPOCH;
    let opening = Opening { pid: Pid(1), by: OpenedBy::Spawn, boot_id: "boot".to_owned(), at, req: None };
    let input = Some(Input { id: "intent".to_owned(), from: None, text: "do it".into() });
    let writer =
        data.spawn(SpawnRequest { opening, spawned, meta: Some(meta.clone()), input, records: Vec::new() }).unwrap();
    let began = Instant::now();
    let deadline = deadline.map(|deadline| began + deadline);
    let (orders, orders_of) = watch::channel(Orders { deadline, ..Orders::default() });
    let acts = Mutex::new(acts.into_iter().collect());
    let journal = Arc::new(LocalJournal::new(writer, Pool::default(), || Timestamp::UNIX_EPOCH));
    let model = Arc::new(Flaky { acts, asked: Mutex::default(), began, orders, journal: Arc::clone(&journal) });
    let agent = Agent {
        journal: Arc::clone(&journal) as Arc<dyn relive_journal::Journal>,
        meta,
        model: Arc::clone(&model) as Arc<dyn Model>,
        tools: Vec::new(),
        context: world.context.clone(),
        orders: orders_of,
        budget: Arc::new(Unlimited),
        intent: "do it".to_owned(),
        cadence: Cadence { steps: 100, time: Duration::from_secs(3600) },
        suspend_on_budget: false,
        git_notes: false,
    };
    let exit = agent.run().await;
    let history = journal.history().await.unwrap();
    let asked = std::mem::take(&mut *model.asked.lock().unwrap());
    Run { exit, asked, took: began.elapsed(), history }
}

fn limited(seconds: u64) -> ModelError {
    ModelError::RateLimited { text: "slow down".to_owned(), retry_after: Some(Duration::from_secs(seconds)) }
}

fn cut() -> ModelError {
    ModelError::Cut("the line broke".to_owned())
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_again_when_it_wants_to_be_and_what_it_said_is_paid_for() {
    let run = run([Act::Fail(limited(30)), Act::Break(cut()), Act::Fail(cut())], None).await;
    assert!(matches!(run.exit, Exit::Completed), "{:?}", run.exit);
    let waits: Vec<u64> = run.asked.windows(2).map(|pair| (pair[1].0 - pair[0].0).as_secs()).collect();
    // Half of 1, 2 and 4 seconds at least, all of them at most.
    assert!((30..=31).contains(&waits[0]) && (1..=2).contains(&waits[1]) && (2..=4).contains(&waits[2]), "{waits:?}");
    assert_eq!(run.history.completed_step, 1, "all of it is one step");
    // The refused call cost nothing; the broken one and the answer are estimated.
    let spent = run.history.spent;
    assert!(spent.estimated && spent.tokens_out > 0, "{spent:?}");
    assert_eq!(spent.cost_usd, Some(Usd::from_nanos(spent.tokens_in + spent.tokens_out)));
}

#[tokio::test(start_paused = true)]
async fn it_gives_up_after_so_many_attempts() {
    let run = run((0..20).map(|_| Act::Fail(cut())), None).await;
    let Exit::Faulted(fault) = run.exit else { panic!("{:?}", run.exit) };
    assert_eq!((fault.as_str(), run.asked.len()), ("the line broke (asked 6 times)", 6));
}

#[tokio::test(start_paused = true)]
async fn orders_are_obeyed_while_it_waits() {
    let stop = Orders { stop: Some(Urgency::Boundary), ..Orders::default() };
    let stopped = run([Act::FailAndOrder(limited(100), stop)], None).await;
    assert!(matches!(stopped.exit, Exit::Stopped), "{:?}", stopped.exit);
    let end = Orders { end: Some(Signal::Term), ..Orders::default() };
    let ended = run([Act::FailAndOrder(limited(100), end)], None).await;
    assert!(matches!(ended.exit, Exit::Cancelled), "{:?}", ended.exit);
    assert_eq!((stopped.took, ended.took), (Duration::ZERO, Duration::ZERO));
    let late = run([Act::Fail(limited(100))], Some(Duration::from_secs(10))).await;
    assert!(matches!(late.exit, Exit::TimedOut), "{:?}", late.exit);
    assert_eq!((late.took.as_secs(), late.asked.len()), (10, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_said_while_it_waits_is_heard_by_the_next_attempt() {
    let run = run([Act::FailAndHear(limited(5))], None).await;
    let said = |text: &str| Message::User { text: text.to_owned() };
    assert_eq!(run.asked[0].1, [said("do it")]);
    assert_eq!(run.asked[1].1, [said("do it"), said("one more thing")]);
}

#[tokio::test(start_paused = true)]
async fn a_far_reset_and_a_refused_key_end_the_loop_at_once() {
    let far = run([Act::Fail(limited(7200))], None).await;
    let Exit::Quota { resume_at } = far.exit else { panic!("{:?}", far.exit) };
    assert_eq!(resume_at, Timestamp::UNIX_EPOCH + Duration::from_secs(7200));
    let refused = run([Act::Fail(ModelError::Unauthorized("wrong key".to_owned()))], None).await;
    assert!(matches!(refused.exit, Exit::NeedsCredentials), "{:?}", refused.exit);
    assert_eq!((far.took, refused.took), (Duration::ZERO, Duration::ZERO));
}
