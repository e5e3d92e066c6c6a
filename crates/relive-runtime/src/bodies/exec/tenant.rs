//! What differs between the kinds of programs that run in a session.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_core::{End, Uuid};
use relive_journal::Journal;
use relive_session::spec::Spec;
use tokio::sync::watch;

use super::{Attended, ExecBody};
use crate::bodies::Context;
use crate::drive::BodyOwner;

/// What follows when a session has ended.
#[derive(Debug)]
pub(in crate::bodies) enum AfterSession {
    /// The process ends like this.
    Over(End),
    /// Another program is launched in its place. That is recorded.
    Again,
}

/// A kind of program.
pub(in crate::bodies) trait Tenant: Send + Sync {
    /// Waits until the program may be launched; `false` if the process has to end before that.
    fn admit<'a>(&'a self, cx: &'a mut Context) -> BoxFuture<'a, bool>;

    /// Completes how the program is launched.
    fn prepare(&self, spec: Spec) -> BoxFuture<'_, std::io::Result<Spec>>;

    /// Runs while the session answers. It may be dropped at any moment.
    fn accompany<'a>(&'a self, session: &'a Attended<'_>) -> BoxFuture<'a, ()>;

    /// Finishes its work with a session that has ended, and returns what follows.
    fn ended<'a>(&'a self, folder: &'a Path, end: End) -> BoxFuture<'a, AfterSession>;

    /// Tells whether a pause may freeze the program now. It waits for that, unless it is urgent.
    fn boundary(&self) -> watch::Receiver<bool>;

    /// Prepares what the program waits for, before it is thawed.
    fn thaws(&self) -> BoxFuture<'_, ()>;

    /// Gives up its work with a session whose shim does not answer any more.
    fn lost(&self) -> BoxFuture<'_, ()>;
}

/// Any program: messages are written to its standard input as they are.
pub(super) struct Program<'a> {
    body: &'a ExecBody,
    uuid: Uuid,
    owner: BodyOwner,
    journal: Arc<dyn Journal>,
}

impl<'a> Program<'a> {
    pub(super) fn of(body: &'a ExecBody, cx: &Context) -> Self {
        Self { body, uuid: cx.process.uuid, owner: cx.owner.clone(), journal: Arc::clone(&cx.journal) }
    }
}

impl Tenant for Program<'_> {
    fn admit<'a>(&'a self, _: &'a mut Context) -> BoxFuture<'a, bool> {
        std::future::ready(true).boxed()
    }

    fn prepare(&self, spec: Spec) -> BoxFuture<'_, std::io::Result<Spec>> {
        std::future::ready(Ok(spec)).boxed()
    }

    fn accompany<'a>(&'a self, session: &'a Attended<'_>) -> BoxFuture<'a, ()> {
        self.body.deliver(self.uuid, self.owner.clone(), Arc::clone(&self.journal), session).boxed()
    }

    fn ended<'a>(&'a self, _: &'a Path, end: End) -> BoxFuture<'a, AfterSession> {
        std::future::ready(AfterSession::Over(end)).boxed()
    }

    fn boundary(&self) -> watch::Receiver<bool> {
        watch::Sender::new(true).subscribe()
    }

    fn thaws(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}
