//! `mcp`: the MCP server on standard input and output.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use super::GlobalArgs;
use super::output::Output;
use crate::bootstrap::{self, LazyEmbedder};
use crate::http::LogFn;
use crate::mcp::{McpServer, ServedMemories, stdio};
use crate::permissions::{Permission, Permissions};

#[derive(Debug, Args)]
pub struct McpArgs {
    /// Offer only tools that read
    #[arg(long)]
    read_only: bool,
}

/// Runs `icecore mcp`.
pub async fn serve_mcp(global: &GlobalArgs, mcp: &McpArgs, out: &mut Output) -> Result<()> {
    let open = bootstrap::open_own_memory(global).await?;
    for mended in open.memory.store().opening_repairs().await {
        out.warn(mended);
    }
    // Standard output belongs to the protocol.
    let log: LogFn = Arc::new(|line: &str| {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "{line}");
    });
    let rights =
        Permissions::of([if mcp.read_only { Permission::Read } else { Permission::Write }]);
    stdio::serve_stdio(McpServer::new(
        ServedMemories::One(Arc::new(open.memory)),
        LazyEmbedder::new(log.clone()),
        rights,
        log,
    ))
    .await
}
