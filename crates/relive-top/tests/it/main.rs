//! The dashboard without a terminal: screens as files that a person can read, and what each key asks for.

mod keys;
mod screens;
mod world;
