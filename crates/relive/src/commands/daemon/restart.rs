//! `relive daemon restart`: also the way out when daemon and command are of different versions.

use super::{start, status, stop};
use crate::context::Context;
use crate::error::Outcome;

pub(crate) async fn run(context: &Context) -> Outcome<u8> {
    stop::stopped(context).await?;
    let (status, _) = start::running(context).await?;
    if context.json {
        status::print_json(context, &status)?;
    } else {
        context.print_line(&format!("the daemon is running (pid {})", status.os_pid))?;
    }
    Ok(0)
}
