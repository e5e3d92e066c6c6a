//! `relive daemon restart`: also the remedy when daemon and command have different versions.

use relive_api::StopQuery;

use super::{start, status, stop};
use crate::context::Context;
use crate::error::Outcome;

pub(crate) async fn run(context: &Context) -> Outcome<u8> {
    // A configuration that cannot be used leaves the daemon that runs alone.
    crate::commands::config::load(&context.paths)?;
    stop::stopped(context, StopQuery::default()).await?;
    let (status, _) = start::running(context).await?;
    if context.json {
        status::print_json(context, &status)?;
    } else {
        context.say(&format!("the daemon is running (OS pid {})", status.os_pid));
    }
    Ok(0)
}
