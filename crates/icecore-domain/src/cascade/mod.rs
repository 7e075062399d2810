//! The cascade of summaries from sessions to years: planning, extractive summaries, judging drafts,
//! retention of files, and the coverage check.

pub mod compose;
pub mod coverage;
pub mod importance;
pub mod judge;
pub mod timeline;
pub mod plan;
pub mod extractive;
pub mod retain;
