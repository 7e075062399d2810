//! Memory for assistants that speak the Model Context Protocol, over stdio and at `/mcp`.
//!
//! The `rmcp` crate implements the protocol in both versions: with `_meta` and without a handshake
//! since 2026-07-28, with `initialize` before. `server` answers requests; `tools`, `resources` and
//! `prompts` define what clients can call, read and choose; `tool_output` bounds the output and
//! quotes untrusted text; `stdio` and `http` are the two transports.

pub mod http;
mod lines;
mod prompts;
mod resources;
mod server;
pub mod stdio;
mod tool_output;
pub mod tools;

pub use server::{McpServer, ServedMemories};

/// The route of the MCP server.
pub const PATH: &str = "/mcp";
