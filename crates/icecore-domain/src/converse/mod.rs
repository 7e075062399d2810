//! Conversations (C1–C14): what is new in what a client sends, what was established, what was said turn by turn.

pub mod hear;
