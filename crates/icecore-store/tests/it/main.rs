//! The homes under test: the exam, and what only a folder of files has to prove.
#![allow(clippy::disallowed_methods, reason = "these tests damage files on purpose")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

mod access;
mod foreign;
mod git;
mod postgres;
mod postgres_claims;
mod postgres_errors;
mod postgres_faults;
mod postgres_history;
mod postgres_order;
mod postgres_records;
mod postgres_search;
mod postgres_skew;
mod postgres_walls;
mod vault;
