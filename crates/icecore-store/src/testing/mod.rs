//! The conformance suite for backends, test clusters, and a store that fails on purpose.

pub mod cluster;
pub mod conformance;
mod failing_store;

pub use failing_store::FailingStore;
