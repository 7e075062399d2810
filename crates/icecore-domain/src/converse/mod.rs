//! Conversations (C1–C14): what is new in what a client sends, what was established, what was said
//! turn by turn.

pub mod artifact;
pub mod branch;
pub mod depth;
pub mod document;
pub mod hear;
pub mod key;
pub mod reading;
pub mod support;
pub mod truth;
pub mod turn;
