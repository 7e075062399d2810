//! The stores under test: the shared conformance tests, and tests of the vault alone.
#![allow(clippy::disallowed_methods, reason = "these tests damage files on purpose")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

mod access;
mod foreign;
mod git;
mod postgres;
mod postgres_errors;
mod postgres_faults;
mod postgres_history;
mod postgres_isolation;
mod postgres_job_lease;
mod postgres_records;
mod postgres_schema_versions;
mod postgres_search;
mod postgres_turn_lease;
mod vault;
