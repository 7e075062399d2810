//! Finding: what can be looked up, what a question asks for, and which answer stands first.

pub mod corpus;
pub mod language;
pub mod mark;
pub mod passage;
pub mod posting;
pub mod question;
pub mod score;
pub mod skim;
pub mod terms;
pub mod update;
pub mod vector;
