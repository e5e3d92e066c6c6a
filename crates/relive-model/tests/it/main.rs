//! Every provider against a server that speaks its language.

mod answers;
mod conversations;
mod failures;
mod support;
