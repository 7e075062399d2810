//! Conversations (C1–C14): what is new in a client's request, the facts established so far, and the
//! turn-by-turn log.

pub mod artifact;
pub mod branch;
pub mod conversation_facts;
pub mod depth;
pub mod document;
pub mod fact_matching;
pub mod grounding;
pub mod statement;
pub mod turn_detection;
pub mod turn_log;
