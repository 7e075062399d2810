//! `mcp`: the MCP server on standard input and output.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use super::Global;
use super::out::Out;
use crate::http::Log;
use crate::mcp::{Memories, Server, stdio};
use crate::rights::{Right, Rights};
use crate::wire::{self, Meanings};

#[derive(Debug, Args)]
pub struct Mcp {
    /// Offer only tools that read
    #[arg(long)]
    read_only: bool,
}

pub async fn mcp(global: &Global, mcp: &Mcp, out: &mut Out) -> Result<()> {
    let open = wire::open_own(global).await?;
    for mended in open.memory.store().mended().await {
        out.warn(mended);
    }
    // Standard output belongs to the protocol.
    let log: Log = Arc::new(|line: &str| {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "{line}");
    });
    let rights = Rights::of([if mcp.read_only { Right::Read } else { Right::Write }]);
    stdio::serve(Server::new(
        Memories::One(Arc::new(open.memory)),
        Meanings::new(log.clone()),
        rights,
        log,
    ))
    .await
}
