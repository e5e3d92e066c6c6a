//! The tools of the native agent.
//!
//! File tools do not leave the working directory: `beneath` is the only way to a file, and the kernel itself resolves
//! each path below the directory. Small files that are in memory are read at once (`hot`); other blocking work runs on
//! the pool's threads and can be cancelled (`cancel`). Unknown arguments, and arguments of the wrong type, are refused
//! by name before anything is done.

mod agents;
#[cfg(feature = "faults")]
mod append_outside;
pub(crate) mod args;
mod ask;
mod beneath;
mod cancel;
mod done;
mod edit;
mod end;
mod hot;
mod list;
#[cfg(feature = "faults")]
mod panic;
mod read;
mod replace;
mod search;
mod shell;
mod sleep;
mod write;

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::Pool;
use relive_journal::recovery::Recovery;

use self::beneath::{Directory, Refused};
use self::cancel::{Leash, QUICK_WITHIN, READ_WITHIN};
use crate::plain_file::Links;
use crate::tool::{Context, Tool, ToolResult};

/// Returns every tool, in the order in which models see them.
#[must_use]
pub fn all() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(read::Read),
        Arc::new(list::List),
        Arc::new(search::Search),
        Arc::new(write::Write),
        Arc::new(edit::Edit),
        Arc::new(shell::Shell),
        Arc::new(sleep::Sleep),
        Arc::new(agents::SpawnAgent),
        Arc::new(agents::WaitAgent),
        Arc::new(ask::Ask),
        Arc::new(done::Done),
        Arc::new(end::Terminate),
        Arc::new(end::Abandon),
        #[cfg(feature = "faults")]
        Arc::new(append_outside::AppendOutside),
        #[cfg(feature = "faults")]
        Arc::new(panic::Panic),
    ]
}

/// Finds a tool by its name.
#[must_use]
pub fn find(name: &str) -> Option<Arc<dyn Tool>> {
    all().into_iter().find(|tool| tool.name() == name)
}

/// Reads in the working directory, on the pools' threads. Dropping the future ends the work; so does [`READ_WITHIN`],
/// which begins when the work gets a thread.
///
/// However many agents search at once, a short read waits for none of them: work that does not finish soon starts again
/// among the slow jobs.
async fn reading<T: Send + 'static>(
    context: &Context,
    work: impl Fn(&Directory, &Leash) -> Result<T, Refused> + Clone + Send + 'static,
) -> Result<T, ToolResult> {
    let (_holder, leash) = cancel::leash();
    let job = |within| {
        let (work, leash) = (work.clone(), leash.clone());
        move |directory: &Directory| {
            // It may have waited for a thread until it was no longer needed.
            leash.check()?;
            let leash = leash.within(within);
            let done = work(directory, &leash);
            Ok((done, leash.is_too_slow()))
        }
    };
    let (done, too_slow) = in_directory(&context.pool, context, job(QUICK_WITHIN)).await?;
    let done = match done {
        Err(_) if too_slow => in_directory(&context.slow_pool, context, job(READ_WITHIN)).await?.0,
        done => done,
    };
    done.map_err(|refused| ToolResult::failed(refused.to_string()))
}

/// Writes in the working directory, on the pool's threads. Once started, the work is finished whatever happens.
async fn writing<T: Send + 'static>(
    context: &Context,
    work: impl FnOnce(&Directory, &Leash) -> Result<T, Refused> + Send + 'static,
) -> Result<T, ToolResult> {
    let (holder, leash) = cancel::leash();
    in_directory(&context.pool, context, move |directory| {
        let done = work(directory, &leash);
        drop(holder);
        done
    })
    .await
}

async fn in_directory<T: Send + 'static>(
    pool: &Pool,
    context: &Context,
    work: impl FnOnce(&Directory) -> Result<T, Refused> + Send + 'static,
) -> Result<T, ToolResult> {
    let (cwd, private, links) = (context.cwd.clone(), context.private.clone(), links_of(context));
    match pool.run(move || work(&Directory::open(&cwd, private.get(), links)?)).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(refused)) => Err(ToolResult::failed(refused.to_string())),
        Err(lost) => Err(ToolResult::failed(lost.to_string())),
    }
}

/// Returns whether links are followed to the working directory: not if programs that reach less than this one could make them.
fn links_of(context: &Context) -> Links {
    if context.isolation.isolation.is_none() { Links::Follow } else { Links::Refuse }
}

fn ready<T: Send + 'static>(value: T) -> BoxFuture<'static, T> {
    std::future::ready(value).boxed()
}

/// Prepares a call of a tool that only reads.
fn rerun<T>(args: Result<T, ToolResult>) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
    ready(args.map(|_| Recovery::Rerun))
}

/// Returns the result of a call whose record belongs to another tool.
fn foreign_recovery(name: &str) -> ToolResult {
    ToolResult::failed(format!("{name}: the journal's record of this call belongs to another tool"))
}
