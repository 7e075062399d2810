//! Ranking: what can be indexed, what a question asks for, and the order of the search results.
//!
//! Everything here is pure and deterministic: the store supplies postings and vectors.

pub mod corpus;
pub mod highlight;
pub mod passage;
pub mod posting;
pub mod question;
pub mod relevance;
pub mod score;
pub mod updates;
pub mod vector;

pub use icecore_text::{language, terms};
