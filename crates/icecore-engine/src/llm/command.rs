//! A command that reads a prompt and prints an answer, such as a coding agent's print mode.
//!
//! - The command comes from the user's settings and is started without a shell.
//! - It gets the prompt on its standard input. Its output is limited to the length of an answer.
//! - It is killed after its timeout.

use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::FusedFuture as _;
use icecore_domain::sanitize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{
    FinishReason, Llm, ModelAnswer, ModelCheck, ModelError, ModelRequest, RequestTimeouts,
    check_by_requests, estimate_tokens, max_answer_bytes, truncate, with_schema,
};
use crate::settings::{ModelSettings, SettingsError};

/// The end of the standard error that is kept.
const MAX_STDERR_BYTES: usize = 1024;
/// How long a finished or killed process may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// A model behind a command.
pub(super) struct CommandModel {
    program: String,
    arguments: Vec<String>,
    timeout: Duration,
}

impl CommandModel {
    /// A model that runs a program with these settings.
    pub fn open(settings: &ModelSettings) -> Result<Self, SettingsError> {
        let [program, arguments @ ..] = settings.command.as_slice() else {
            return Err(SettingsError::Value {
                key: format!("{}.command", settings.role),
                said: "is empty; name the program to run".into(),
            });
        };
        Ok(Self {
            program: program.clone(),
            arguments: arguments.to_vec(),
            timeout: settings.timeout,
        })
    }

    fn start(&self) -> Result<Child, ModelError> {
        Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| ModelError::CommandNotStarted {
                program: self.program.clone(),
                said: error.to_string(),
            })
    }

    fn command_error(&self, exit: &str, aside: &Mutex<Vec<u8>>) -> ModelError {
        let aside = aside.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let said = sanitize::one_line(String::from_utf8_lossy(&aside).trim());
        let said = if said.is_empty() { "it printed no error".into() } else { said };
        ModelError::CommandFailed { program: self.program.clone(), exit: exit.into(), said }
    }
}

#[async_trait]
impl Llm for CommandModel {
    fn name(&self) -> String {
        let name = std::path::Path::new(&self.program)
            .file_name()
            .map_or(self.program.as_str().into(), |name| name.to_string_lossy());
        format!("command:{name}")
    }

    async fn complete(
        &self,
        ask: &ModelRequest,
        heard: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<ModelAnswer, ModelError> {
        let whole = RequestTimeouts::new(self.timeout, ask.attempt).whole;
        let prompt = format!("{}\n\n{}", with_schema(&ask.system, ask.schema.as_ref()), ask.user);
        let prompt = prompt.trim_start();
        let mut child = self.start()?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let aside = Mutex::new(Vec::new());

        let feed = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read all of its input may still answer.
                let _ = stdin.write_all(prompt.as_bytes()).await;
                let _ = stdin.shutdown().await;
            }
        };
        let overhear = read_stderr_end(stderr, &aside);
        let listen = async {
            let (text, cut) = read_output(stdout, max_answer_bytes(ask), heard).await;
            let exit = if cut { None } else { child.wait().await.ok() };
            (text, exit)
        };
        // Fused, because it may end before the answer does and is polled again.
        let beside = async { tokio::join!(feed, overhear) }.fuse();
        tokio::pin!(beside);
        let outcome = timeout(whole, async {
            tokio::pin!(listen);
            tokio::select! {
                outcome = &mut listen => outcome,
                _ = &mut beside => listen.await,
            }
        })
        .await;
        let (mut text, exit) = match outcome {
            Ok(outcome) => outcome,
            Err(_) => {
                kill(&mut child).await;
                return Err(ModelError::TimedOut {
                    place: format!("`{}`", self.program),
                    what: "no whole answer",
                    after: whole,
                });
            }
        };
        let finish = match exit {
            None => {
                kill(&mut child).await;
                FinishReason::CutOff
            }
            Some(exit) if exit.success() => FinishReason::Done,
            Some(exit) => {
                // The end of the error output may still be in the pipe.
                if !beside.is_terminated() {
                    let _ = timeout(EXIT_TIMEOUT, beside).await;
                }
                return Err(self.command_error(&exit.to_string(), &aside));
            }
        };
        truncate(&mut text, max_answer_bytes(ask));
        if text.trim().is_empty() {
            return Err(ModelError::Empty {
                place: format!("`{}`", self.program),
                said: "it ended normally".into(),
            });
        }
        Ok(ModelAnswer {
            tokens_in: estimate_tokens(prompt.len()),
            tokens_out: estimate_tokens(text.len()),
            text,
            measured: false,
            finish,
            retries: 0,
            streamed: false,
        })
    }

    async fn check_abilities(&self) -> Vec<ModelCheck> {
        check_by_requests(self)
            .await
            .into_iter()
            .filter(|probe| !matches!(probe.what, super::STREAMS_CHECK | super::USAGE_CHECK))
            .collect()
    }
}

/// Kills the process and waits until it has exited.
async fn kill(child: &mut Child) {
    let _ = child.start_kill();
    let _ = timeout(EXIT_TIMEOUT, child.wait()).await;
}

/// Reads the output, and returns whether it was cut at the limit.
async fn read_output(
    stdout: Option<impl AsyncRead + Unpin>,
    most_bytes: usize,
    heard: &(dyn Fn(usize) + Send + Sync),
) -> (String, bool) {
    let mut bytes = Vec::new();
    let mut piece = [0; 8192];
    if let Some(mut stdout) = stdout {
        while let Ok(length @ 1..) = stdout.read(&mut piece).await {
            bytes.extend_from_slice(&piece[..length]);
            heard(bytes.len());
            if bytes.len() > most_bytes {
                return (String::from_utf8_lossy(&bytes).into_owned(), true);
            }
        }
    }
    (String::from_utf8_lossy(&bytes).into_owned(), false)
}

/// Reads to the end and keeps the last bytes.
async fn read_stderr_end(stderr: Option<impl AsyncRead + Unpin>, kept: &Mutex<Vec<u8>>) {
    let mut piece = [0; 1024];
    let Some(mut stderr) = stderr else { return };
    while let Ok(length @ 1..) = stderr.read(&mut piece).await {
        let mut kept = kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.extend_from_slice(&piece[..length]);
        let spare = kept.len().saturating_sub(MAX_STDERR_BYTES);
        kept.drain(..spare);
    }
}
