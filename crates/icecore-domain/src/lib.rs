//! The domain layer: the data types of icecore and the rules over them.
//!
//! Everything here is a pure function of its arguments. This crate uses no clock, disk, network or
//! model; a rule that needs a day, a time zone or a budget receives it as an argument. Therefore
//! tests can run a year in a second, and two machines compute identical bytes.

pub mod budget;
pub mod calendar;
pub mod capture_filter;
pub mod cascade;
pub mod converse;
pub mod event;
pub mod extraction;
pub mod forget;
pub mod format;
pub mod hash;
pub mod id;
pub mod import;
pub mod insights;
pub mod layout;
pub mod ledger;
pub mod memory_file;
pub mod memory_tool;
pub mod merge;
pub mod migrate;
pub mod natural_date;
pub mod packs;
pub mod page;
pub mod pause;
pub mod priority_extracts;
pub mod private;
pub mod rank;
pub mod record;
pub mod report;
pub mod schedule;
pub mod secrets;
pub mod speaker;
pub mod summary;
pub mod transcript;
pub mod trigger;
pub mod undo;

pub use icecore_text::{escapes, json, sanitize, string_enum};
