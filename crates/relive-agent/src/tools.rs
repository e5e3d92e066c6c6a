//! The tools of the native agent.
//!
//! File tools do not leave the working folder: `beneath` is the only way to a file, and the kernel itself resolves each
//! path below the folder. What blocks runs on the pool's threads. Arguments that a tool does not know, or that are of
//! the wrong type, are refused by name before anything is done.

mod agents;
#[cfg(feature = "faults")]
mod append_outside;
mod args;
mod beneath;
mod done;
mod edit;
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
use relive_journal::recovery::Recovery;

use self::beneath::{Folder, Refused};
use crate::tool::{Context, Tool, ToolResult};

/// Every tool, in the order models are told of them.
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
        Arc::new(done::Done),
        #[cfg(feature = "faults")]
        Arc::new(append_outside::AppendOutside),
        #[cfg(feature = "faults")]
        Arc::new(panic::Panic),
    ]
}

/// The tool of that name.
#[must_use]
pub fn find(name: &str) -> Option<Arc<dyn Tool>> {
    all().into_iter().find(|tool| tool.name() == name)
}

/// Does blocking work in the working folder, on the pool's threads.
async fn in_folder<T: Send + 'static>(
    context: &Context,
    work: impl FnOnce(&Folder) -> Result<T, Refused> + Send + 'static,
) -> Result<T, ToolResult> {
    let cwd = context.cwd.clone();
    match context.pool.run(move || work(&Folder::open(&cwd)?)).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(refused)) => Err(ToolResult::failed(refused.to_string())),
        Err(lost) => Err(ToolResult::failed(lost.to_string())),
    }
}

fn ready<T: Send + 'static>(value: T) -> BoxFuture<'static, T> {
    std::future::ready(value).boxed()
}

/// What a tool that only reads says before it runs.
fn rerun<T>(args: Result<T, ToolResult>) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
    ready(args.map(|_| Recovery::Rerun))
}

/// The result of a call whose journal entry belongs to another tool.
fn foreign_recovery(name: &str) -> ToolResult {
    ToolResult::failed(format!("{name}: the journal's entry for this call is not one of this tool"))
}
