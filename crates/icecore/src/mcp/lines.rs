//! JSON-RPC messages, one per line, over a pair of streams. Every request gets an answer: a line
//! that cannot be parsed is answered with an error under its id, so that no client waits forever.

use std::io;

use icecore_domain::json;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader, Empty};
use tokio::task::JoinSet;

/// The longest line; a longer one is rejected.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// How much of the end of an overlong line is searched for its id.
const TAIL_BYTES: usize = 4 << 10;

/// Reads and writes messages over a pair of streams.
pub struct LineTransport<R, W: AsyncWrite> {
    read: BufReader<R>,
    /// The line being read. It outlives `receive`, which may be cancelled and called again.
    line: Vec<u8>,
    /// The last bytes of an overlong line, once `line` is full.
    tail: Option<Vec<u8>>,
    /// Used for writing only.
    write: AsyncRwTransport<RoleServer, Empty, W>,
    /// Error responses being written.
    refusals: JoinSet<io::Result<()>>,
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static> LineTransport<R, W> {
    /// A transport over these streams.
    pub fn new(read: R, write: W) -> Self {
        let write = AsyncRwTransport::new_server(tokio::io::empty(), write);
        Self {
            read: BufReader::new(read),
            line: Vec::new(),
            tail: None,
            write,
            refusals: JoinSet::new(),
        }
    }

    /// Reads to the end of a line; false at the end of the input. Copied bytes are consumed at
    /// once, so that cancellation loses nothing.
    async fn read_line(&mut self) -> bool {
        loop {
            let available = match self.read.fill_buf().await {
                Ok(available) if !available.is_empty() => available,
                // The last line may have no line break.
                _ => return !self.line.is_empty(),
            };
            let newline = memchr::memchr(b'\n', available);
            let taken = newline.map_or(available.len(), |at| at + 1);
            let bytes = &available[..taken];
            match &mut self.tail {
                None if self.line.len() + taken <= MAX_LINE_BYTES => {
                    self.line.extend_from_slice(bytes)
                }
                None => self.tail = Some(bytes.to_vec()),
                Some(tail) => tail.extend_from_slice(bytes),
            }
            if let Some(tail) = &mut self.tail {
                tail.drain(..tail.len().saturating_sub(TAIL_BYTES));
            }
            self.read.consume(taken);
            if newline.is_some() {
                return true;
            }
        }
    }

    /// Answers an invalid line in the background, because `receive` may be cancelled.
    fn send_error(&mut self, error: ErrorData, id: Option<RequestId>) {
        self.refusals.spawn(self.write.send(TxJsonRpcMessage::<RoleServer>::error(error, id)));
    }
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static> Transport<RoleServer>
    for LineTransport<R, W>
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.write.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if !self.read_line().await {
                while self.refusals.join_next().await.is_some() {}
                return None;
            }
            let line = std::mem::take(&mut self.line);
            if let Some(tail) = self.tail.take() {
                let message =
                    format!("the message has more than {MAX_LINE_BYTES} bytes; send a smaller one");
                self.send_error(ErrorData::invalid_request(message, None), find_id(&line, &tail));
                continue;
            }
            while self.refusals.try_join_next().is_some() {}
            match read_message(&line) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err((error, id)) => self.send_error(error, id),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.write.close().await
    }
}

/// The error for an invalid message, and its id if it has one.
pub type MessageError = (ErrorData, Option<RequestId>);

/// Parses a message; `None` if the text needs no answer.
pub fn read_message(bytes: &[u8]) -> Result<Option<RxJsonRpcMessage<RoleServer>>, MessageError> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Ok(None);
    }
    let error = match json::parse(text) {
        Ok(message) => return Ok(Some(message)),
        Err(error) => error,
    };
    let fields = match json::parse::<Value>(text) {
        Ok(fields) => fields,
        Err(error) => {
            let reason = format!("the message is not JSON: {error}");
            return Err((
                ErrorData::parse_error(reason, None),
                find_id(text.as_bytes(), text.as_bytes()),
            ));
        }
    };
    // A notification is never answered, even if it is invalid.
    if fields.get("id").is_none() && fields["method"].is_string() && fields["jsonrpc"] == "2.0" {
        return Ok(None);
    }
    let id = fields.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
    Err((ErrorData::invalid_request(format!("not a JSON-RPC 2.0 message: {error}"), None), id))
}

/// The id of a message that cannot be parsed as a whole: a field of its object, searched from the
/// start as far as it can be parsed, and at the end, where many clients write it.
fn find_id(head: &[u8], tail: &[u8]) -> Option<RequestId> {
    id_in_head(head).or_else(|| id_in_tail(tail))
}

fn id_in_head(head: &[u8]) -> Option<RequestId> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(&byte) = head.get(at) {
        match byte {
            b'"' => {
                let end = string_end(head, at)?;
                let value =
                    after_colon(&head[end..]).filter(|_| depth == 1 && &head[at..end] == b"\"id\"");
                if let Some(value) = value {
                    return read_id(value);
                }
                at = end;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += 1;
    }
    None
}

fn id_in_tail(tail: &[u8]) -> Option<RequestId> {
    // The final brace closes the message, so the field before it belongs to the message itself.
    let inner = tail.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let at = memchr::memmem::rfind(inner, b"\"id\"")?;
    let value = after_colon(&inner[at + 4..])?;
    serde_json::from_slice(value).ok()
}

/// The value after a colon, if that is what follows.
fn after_colon(bytes: &[u8]) -> Option<&[u8]> {
    bytes.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start)
}

/// The position after the string that begins at `at`.
fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        let found = memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        at += found + 1;
        if bytes[at - 1] == b'"' {
            return Some(at);
        }
        at += 1;
    }
}

/// Parses an id that something follows.
fn read_id(value: &[u8]) -> Option<RequestId> {
    serde_json::Deserializer::from_slice(value).into_iter().next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(line: &[u8]) -> Value {
        match read_message(line) {
            Ok(Some(_)) => json!("read"),
            Ok(None) => json!("nothing"),
            Err((error, id)) => json!([error.code.0, id]),
        }
    }

    // Every line that could be a request is read or refused, under its id if it can be found.
    #[test]
    fn what_is_no_message_is_refused_under_its_id() {
        let deep =
            format!(r#"{{"jsonrpc":"2.0","id":4,"method":"x","params":{}"#, "[".repeat(100_000));
        for (line, said) in [
            (&br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#[..], json!("read")),
            (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"recall","arguments":{"query":"\ud83d"}}}"#, json!("read")),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", json!("read")),
            (b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r", json!("read")),
            (br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, json!("read")),
            (b"  \r", json!("nothing")),
            (b"hello", json!([-32700, null])),
            (b"{", json!([-32700, null])),
            (br#"{"jsonrpc":"2.0","id":"a","method":"x","params":{"id":7"#, json!([-32700, "a"])),
            (br#"{"method":"x","params":{"id":7},oops,"id": 5 }"#, json!([-32700, 5])),
            (br#"{"method":"x","params":{oops"id":7}}"#, json!([-32700, null])),
            (br#"{"method":"x","params":{"a":"\"id\":9"},oops}"#, json!([-32700, null])),
            (deep.as_bytes(), json!([-32700, 4])),
            (b"[]", json!([-32600, null])),
            (b"42", json!([-32600, null])),
            (br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, json!([-32600, 1])),
            (br#"{"id":5}"#, json!([-32600, 5])),
            (br#"{"jsonrpc":"2.0","id":{"a":1},"method":"tools/list"}"#, json!([-32600, null])),
        ] {
            assert_eq!(answer(line), said, "{}", String::from_utf8_lossy(&line[..line.len().min(100)]));
        }
    }

    // The input ends without a line break after the last message.
    #[test]
    fn the_last_line_may_have_no_end() {
        let input = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}";
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut lines = LineTransport::new(&input[..], Vec::new());
            let count = async {
                let mut count = 0;
                while lines.receive().await.is_some() {
                    count += 1;
                }
                count
            };
            assert_eq!(count.await, 2);
        });
    }
}
