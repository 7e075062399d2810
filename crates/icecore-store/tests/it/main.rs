//! The homes under test: the exam, and what only a folder of files has to prove.
#![allow(clippy::disallowed_methods, reason = "these tests damage files on purpose")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

mod git;
mod vault;
