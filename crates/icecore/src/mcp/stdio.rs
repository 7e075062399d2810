//! The stdio transport: one message per line until the input ends.

use anyhow::{Result, bail};
use rmcp::service::{RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::io::stdio_pipes;
use rmcp::{RoleServer, ServiceExt};
use tokio::sync::watch;

use super::McpServer;
use super::lines::LineTransport;

/// Serves the process's client until it disconnects.
pub async fn serve_stdio(server: McpServer) -> Result<()> {
    let (end, ended) = watch::channel(false);
    let server = server.for_connection(ended);
    let warming = tokio::spawn({
        let server = server.clone();
        async move { server.preload_search().await }
    });
    let (read, write) = stdio_pipes();
    let transport =
        LenientTransport { inner: LineTransport::new(read, write), is_begun: false, end };
    let ended = match server.serve(transport).await {
        // When the input ends, running calls get a few seconds to finish.
        Ok(running) => running.waiting().await.map(|_| ()).map_err(|error| error.to_string()),
        // The client disconnected before the handshake.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    warming.abort();
    if let Err(error) = ended {
        bail!("the MCP session failed: {error}");
    }
    Ok(())
}

/// A transport that ignores notifications before the first request. `rmcp` would end the connection
/// there, so a stray notification could end the server.
struct LenientTransport<T> {
    inner: T,
    is_begun: bool,
    /// Signals the end of the input, which stops change notifications.
    end: watch::Sender<bool>,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for LenientTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let Some(message) = self.inner.receive().await else {
                let _ = self.end.send(true);
                return None;
            };
            self.is_begun |= matches!(message, RxJsonRpcMessage::<RoleServer>::Request(_));
            if self.is_begun {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
