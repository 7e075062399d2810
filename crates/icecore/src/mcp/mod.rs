//! Memory for assistants that speak the Model Context Protocol, over standard input and output and
//! at `/mcp`.
//!
//! The protocol itself, in both of its eras, is the `rmcp` crate's: with `_meta` and without a
//! handshake since 2026-07-28, with `initialize` before. `server` answers it, `tools` are what a
//! model can call, `resources` what it can read, `prompts` what a person can choose, `told` how
//! answers are bounded and whose words are shown as a quotation; `stdio` and `http` are the two
//! ways in.

pub mod http;
mod lines;
mod prompts;
mod resources;
mod server;
pub mod stdio;
mod told;
pub mod tools;

pub use server::{Memories, Server};

/// The route of the server.
pub const PATH: &str = "/mcp";
