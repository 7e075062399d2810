//! What every home must pass, and the tool to stop a verb anywhere.

pub mod cluster;
pub mod conformance;
mod stop;

pub use stop::StopAfter;
