//! End-to-end tests of the program: its commands, its behaviour under faults, and the rules of the
//! project.
#![allow(clippy::disallowed_methods, reason = "tests set up and damage files on purpose")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

mod api;
mod browser;
mod chaos;
mod cli;
mod client_walkthroughs;
mod clients;
mod concurrent_writers;
mod dashboard;
mod database_transfer;
mod documents;
mod faults;
mod foreign;
mod forget;
mod gate;
mod hooks;
mod import;
mod install;
mod mcp;
mod model;
mod postgres;
mod postgres_deploy;
mod postgres_refused;
mod program;
mod requirements;
mod sweep;
mod tenants;
mod test_user;
mod tidy;
mod two_machines;
