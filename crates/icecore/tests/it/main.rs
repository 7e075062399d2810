//! The whole program under test: what a person types, what breaks under it, and the rules of the
//! project.
#![allow(clippy::disallowed_methods, reason = "tests set up and damage files on purpose")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

mod api;
mod browser;
mod chaos;
mod cli;
mod clients;
mod crowd;
mod dashboard;
mod documents;
mod faults;
mod foreign;
mod forget;
mod gate;
mod hooks;
mod import;
mod install;
mod machines;
mod many;
mod mcp;
mod model;
mod person;
mod postgres;
mod postgres_deploy;
mod postgres_refused;
mod program;
mod requirements;
mod sweep;
mod tenants;
mod tidy;
mod walks;
