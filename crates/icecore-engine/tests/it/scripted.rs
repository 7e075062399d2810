//! A server on loopback that plays a script, one part per connection, and records the requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Longer than any test waits, so that a server outlives its client, and short enough to end by
/// itself.
const MOST: Duration = Duration::from_secs(8);
const MOST_CONNECTIONS: usize = 40;

/// What the server does next on a connection.
#[derive(Clone)]
pub(crate) enum Act {
    Send(Vec<u8>),
    Pause(u64),
    /// Sends nothing until the client hangs up.
    Hang,
    /// Repeats until the client hangs up.
    Flood(Vec<u8>),
    /// Sends back the head of the request, keys included.
    Echo,
}

pub(crate) fn send(text: &str) -> Act {
    Act::Send(text.as_bytes().to_vec())
}

/// A reply of this status and body, with other headers if there are any.
pub(crate) fn reply(status: u16, headers: &str, body: &str) -> Vec<Act> {
    vec![send(&format!("HTTP/1.1 {status} X\r\nConnection: close\r\n{headers}\r\n{body}"))]
}

/// The head of a stream that lasts until the connection closes.
pub(crate) fn head() -> Act {
    send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
}

pub(crate) struct Scripted {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    pub(crate) fn play(script: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, ended) = (Arc::clone(&requests), Arc::clone(&over));
        let thread = thread::spawn(move || {
            let mut parts = script.into_iter();
            for stream in listener.incoming().take(MOST_CONNECTIONS).flatten() {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                // After the script a connection is still counted, and closed.
                let part = parts.next().unwrap_or_default();
                let _ = serve(stream, part, &seen);
            }
        });
        Self { address, requests, over, thread: Some(thread) }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Every request so far: head and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect_timeout(&self.address, MOST);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(mut stream: TcpStream, part: Vec<Act>, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(MOST))?;
    stream.set_write_timeout(Some(MOST))?;
    let request = request(&mut stream)?;
    seen.lock().unwrap().push(request.clone());
    for act in part {
        match act {
            Act::Send(bytes) => stream.write_all(&bytes)?,
            Act::Pause(millis) => thread::sleep(Duration::from_millis(millis)),
            Act::Hang => while stream.read(&mut [0; 256])? > 0 {},
            Act::Flood(bytes) => (0..2_000_000).try_for_each(|_| stream.write_all(&bytes))?,
            Act::Echo => {
                stream.write_all(request.split("\r\n\r\n").next().unwrap_or_default().as_bytes())?
            }
        }
        stream.flush()?;
    }
    Ok(())
}

fn request(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()
            });
            if body.len() >= length.unwrap_or(0_usize) {
                return Ok(text);
            }
        }
        match stream.read(&mut piece)? {
            0 => return Ok(text),
            length => bytes.extend_from_slice(&piece[..length]),
        }
    }
}
