//! The cascade of summaries from sessions to years: planning, extractive summaries, judging drafts,
//! retention of files, and the coverage check.

pub mod compose;
pub mod coverage;
pub mod extractive;
pub mod importance;
pub mod judge;
pub mod plan;
pub mod retain;
pub mod timeline;
