//! Conversations (C1–C14): what is new in a client's request, the facts established so far, and the
//! turn-by-turn log.

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
