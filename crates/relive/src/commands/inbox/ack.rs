//! `relive inbox ack`: a person has seen how processes ended.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use relive_api::{AckRequest, Acked, Inbox};
use relive_core::ErrorCode;
use serde_json::json;

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::report;

/// Say that you have seen how processes ended
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive inbox ack 5 fixer
  relive inbox ack --all")]
pub(super) struct Args {
    /// Processes, or items as `relive inbox --json` names them
    #[arg(value_name = "ID", required_unless_present = "all")]
    ids: Vec<String>,
    /// Everything that has ended
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

pub(super) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::open(context, Start::IfHistories).await?;
    let Some(client) = client else {
        return Err(CommandError::new(ErrorCode::NotFound, "there is no process here").with_hint("relive inbox"));
    };
    let ack = async |id: &str| client.ack(id, &AckRequest::default()).await.map_err(CommandError::from);
    let Told { seen, mut failed } = if args.all {
        let list = async || client.inbox().await.map_err(CommandError::from);
        let (told, left) = ack_all(&list, &ack).await?;
        super::say_incomplete(context, &left);
        told
    } else {
        ack_each(&ack, &args.ids).await
    };
    if args.ids.len() == 1
        && let Some((_, error)) = failed.pop()
    {
        return Err(error);
    }
    if context.json {
        let failures: Vec<_> = failed.iter().map(|(id, error)| json!({ "id": id, "error": error.detail() })).collect();
        let mut told = json!({ "acked": seen });
        if !failures.is_empty() {
            told["failed"] = failures.into();
        }
        context.print_json(&told)?;
    } else {
        let changed = seen.iter().filter(|acked| acked.changed).count();
        context.say(&acknowledged(changed, seen.len() - changed));
        for (_, error) in &failed {
            context.say_on(&report::as_text(error, &context.err));
        }
    }
    Ok(crate::commands::targets::common(&failed.iter().map(|(_, error)| error.exit_code()).collect::<Vec<_>>()))
}

/// How many acknowledgements are sent at once: each waits for the disk.
const ACKS_AT_ONCE: usize = 8;

/// The answers to acknowledgements.
#[derive(Debug, Default)]
struct Told {
    seen: Vec<Acked>,
    failed: Vec<(String, CommandError)>,
}

/// Acknowledges every end, each once, and returns the inbox without them.
async fn ack_all(
    list: &impl AsyncFn() -> Outcome<Inbox>,
    ack: &impl AsyncFn(&str) -> Outcome<Acked>,
) -> Outcome<(Told, Inbox)> {
    let (mut told, mut tried) = (Told::default(), BTreeSet::new());
    loop {
        // A list has the newest of them: those before follow when these are acknowledged.
        let inbox = list().await?;
        let ended = inbox.items.iter().filter(|item| item.has_ended()).map(|item| item.id.clone());
        let ids: Vec<String> = ended.filter(|id| tried.insert(id.clone())).collect();
        if ids.is_empty() {
            return Ok((told, inbox));
        }
        let Told { seen, failed } = ack_each(ack, &ids).await;
        told.seen.extend(seen);
        told.failed.extend(failed);
    }
}

/// Acknowledges items; a failure does not keep it from the others.
async fn ack_each(ack: &impl AsyncFn(&str) -> Outcome<Acked>, ids: &[String]) -> Told {
    let next = RefCell::new(ids.iter().enumerate());
    let answers = RefCell::new(Vec::with_capacity(ids.len()));
    let work = async || {
        loop {
            let Some((place, id)) = next.borrow_mut().next() else { return };
            let answer = ack(id).await;
            answers.borrow_mut().push((place, id.clone(), answer));
        }
    };
    let mut workers: Vec<Pin<Box<_>>> = (0..ACKS_AT_ONCE.min(ids.len())).map(|_| Box::pin(work())).collect();
    poll_fn(|cx| {
        workers.retain_mut(|worker| worker.as_mut().poll(cx).is_pending());
        if workers.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    drop(workers);
    let mut answers = answers.take();
    answers.sort_by_key(|(place, ..)| *place);
    let mut told = Told::default();
    for (_, id, answer) in answers {
        match answer {
            Ok(acked) => told.seen.push(acked),
            Err(error) => told.failed.push((id, error)),
        }
    }
    told
}

/// Says how many processes were acknowledged now, and how many had been before.
fn acknowledged(now: usize, before: usize) -> String {
    let processes = if now == 1 { "process" } else { "processes" };
    match before {
        0 => format!("acknowledged {now} {processes}"),
        1 => format!("acknowledged {now} {processes}; 1 was acknowledged before"),
        before => format!("acknowledged {now} {processes}; {before} were acknowledged before"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use relive_api::{INBOX_ENDED_MAX, Item, Process, item_of};

    use super::*;
    use crate::render::processes::tests::process;

    fn ended(pid: u32) -> Item {
        let exit = Some(relive_api::Exit { code: 0, reason: String::new(), err: None });
        let process = process(pid, 0);
        let short = format!("{pid:08x}");
        item_of(&Process { short, dead_at: Some(process.created_at), unseen: true, exit, ..process }).unwrap()
    }

    #[tokio::test]
    async fn all_ends_are_acknowledged_once_and_several_at_a_time() {
        let count = 2 * INBOX_ENDED_MAX + 30;
        let waiting = RefCell::new((1..).take(count).map(ended).collect::<Vec<_>>());
        let refused = waiting.borrow()[7].id.clone();
        let list = async || {
            let waiting = waiting.borrow();
            let items = waiting.iter().take(INBOX_ENDED_MAX).cloned().collect();
            Ok(Inbox { items, incomplete: waiting.len() > INBOX_ENDED_MAX })
        };
        let (asked, most, tries) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let ack = async |id: &str| {
            tries.set(tries.get() + 1);
            asked.set(asked.get() + 1);
            most.set(most.get().max(asked.get()));
            tokio::task::yield_now().await;
            asked.set(asked.get() - 1);
            if id == refused {
                return Err(CommandError::invalid("no"));
            }
            let mut waiting = waiting.borrow_mut();
            let place = waiting.iter().position(|item| item.id == id).unwrap();
            Ok(Acked { uuid: waiting.remove(place).uuid, changed: true })
        };
        let (told, left) = ack_all(&list, &ack).await.unwrap();
        assert_eq!((told.seen.len(), told.failed.len(), tries.get()), (count - 1, 1, count));
        assert_eq!((left.items.len(), left.incomplete), (1, false), "the one that was refused");
        assert_eq!(most.get(), ACKS_AT_ONCE);
    }

    #[tokio::test]
    async fn answers_are_told_in_the_order_of_the_ids() {
        let ids: Vec<String> = (1..=20).map(|pid| pid.to_string()).collect();
        let ack = async |id: &str| {
            let pid: u32 = id.parse().unwrap();
            for _ in 0..20 - pid {
                tokio::task::yield_now().await;
            }
            if pid.is_multiple_of(5) {
                Err(CommandError::invalid("no"))
            } else {
                Ok(Acked { uuid: process(pid, 0).uuid, changed: true })
            }
        };
        let told = ack_each(&ack, &ids).await;
        let expect: Vec<_> =
            (1..=20).filter(|pid: &u32| !pid.is_multiple_of(5)).map(|pid| process(pid, 0).uuid).collect();
        assert_eq!(told.seen.iter().map(|acked| acked.uuid).collect::<Vec<_>>(), expect);
        assert_eq!(told.failed.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["5", "10", "15", "20"]);
    }
}
