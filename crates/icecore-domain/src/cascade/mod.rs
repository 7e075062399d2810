//! How days become weeks, months and years: what is due, what a summary is made of without a model,
//! what may stand, how long its file stays, and the proof that all of it is covered.

pub mod compose;
pub mod coverage;
pub mod importance;
pub mod judge;
pub mod layers;
pub mod plan;
pub mod press;
pub mod retain;
