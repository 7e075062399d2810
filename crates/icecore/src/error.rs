//! Maps errors to what the caller sees: one message, one exit code, one HTTP status.

use std::process::ExitCode;

use axum::http::StatusCode;
use icecore_domain::ledger::revise::Refusal;
use icecore_engine::Error as EngineError;
use icecore_engine::config::Mistake;
use icecore_store::Error as StoreError;
use serde_json::json;

use crate::cli::out::{Closed, Out};

/// How the program can end. The numbers are part of its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Failure = 1,
    Usage = 2,
    NotFound = 3,
    Conflict = 4,
    NotAllowed = 5,
    Damaged = 6,
    /// The HTTP caller is not authenticated. No command ends with this code.
    NotLoggedIn = 7,
    /// The same call may succeed later.
    TryLater = 75,
}

impl Exit {
    fn word(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Usage => "usage",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::NotAllowed => "not_allowed",
            Self::Damaged => "damaged",
            Self::NotLoggedIn => "not_logged_in",
            Self::TryLater => "try_later",
        }
    }
}

/// An error of this crate, with the exit code it leads to.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Stop {
    pub message: String,
    pub exit: Exit,
    /// The message was already printed.
    pub silent: bool,
}

impl Stop {
    /// Creates an error with an exit code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { message: message.into(), exit, silent: false }
    }

    /// Creates an error whose message was already printed.
    pub fn silent(exit: Exit) -> Self {
        Self { message: String::new(), exit, silent: true }
    }
}

fn exit_of(error: &anyhow::Error) -> Exit {
    if let Some(stop) = error.downcast_ref::<Stop>() {
        return stop.exit;
    }
    match error.downcast_ref::<EngineError>() {
        Some(EngineError::Store(error)) => of_store(error),
        Some(EngineError::Refused(Refusal::Unknown(_) | Refusal::Archived(_)))
        | Some(EngineError::Nothing(_)) => Exit::NotFound,
        Some(EngineError::Refused(Refusal::Stranger { .. })) => Exit::NotAllowed,
        Some(EngineError::Refused(_) | EngineError::Occupied(_)) => Exit::Conflict,
        Some(EngineError::Busy(_)) => Exit::TryLater,
        Some(EngineError::Prompt(_) | EngineError::Damaged(_)) => Exit::Damaged,
        Some(EngineError::Unfit(_) | EngineError::TooMuch(_) | EngineError::Unclear(_)) => {
            Exit::Usage
        }
        Some(EngineError::Config(Mistake::Newer { .. })) => Exit::NotAllowed,
        Some(EngineError::Config(_)) => Exit::Damaged,
        Some(EngineError::Embed(_) | EngineError::NoRandom(_)) => Exit::Failure,
        None => error.downcast_ref::<StoreError>().map_or(Exit::Failure, of_store),
    }
}

/// Whether the same call may succeed later.
pub fn is_passing(error: &anyhow::Error) -> bool {
    exit_of(error) == Exit::TryLater
}

fn of_store(error: &StoreError) -> Exit {
    match error {
        StoreError::Moved { .. }
        | StoreError::Busy { .. }
        | StoreError::GitAtWork { .. }
        | StoreError::Full { .. }
        | StoreError::Unreachable { .. }
        | StoreError::Filling
        | StoreError::ReadOnly { .. }
        | StoreError::Overrun(_) => Exit::TryLater,
        StoreError::NotAVault(_)
        | StoreError::NotASpace(_)
        | StoreError::NoDatabase { .. }
        | StoreError::Gone
        | StoreError::NoHistory(_) => Exit::NotFound,
        StoreError::AlreadyAVault(_)
        | StoreError::AlreadyASpace(_)
        | StoreError::NoIdLeft(_)
        | StoreError::Unsettled(_) => Exit::Conflict,
        StoreError::NotAName(_) | StoreError::Address(_) => Exit::Usage,
        StoreError::Path(_)
        | StoreError::Link(_)
        | StoreError::NotAFile(_)
        | StoreError::NotAKey(_)
        | StoreError::Denied { .. }
        | StoreError::Unwelcome { .. }
        | StoreError::Newer(_)
        | StoreError::NotOurs(_)
        | StoreError::HostileGit { .. } => Exit::NotAllowed,
        StoreError::Schema(_)
        | StoreError::Database(_)
        | StoreError::Insecure { .. }
        | StoreError::Io { .. }
        | StoreError::Git { .. }
        | StoreError::OldSqlite(_)
        | StoreError::Index(_)
        | StoreError::Unreadable(_)
        | StoreError::Stopped(_) => Exit::Failure,
    }
}

/// Maps an error to an HTTP status, a machine-readable kind and a message.
pub fn as_status(error: &anyhow::Error) -> (StatusCode, &'static str, String) {
    let stored =
        error.downcast_ref::<StoreError>().or_else(|| match error.downcast_ref::<EngineError>() {
            Some(EngineError::Store(error)) => Some(error),
            _ => None,
        });
    let exit = match stored {
        // A misconfigured database of the server is not the caller's fault.
        Some(
            StoreError::NoDatabase { .. }
            | StoreError::Unwelcome { .. }
            | StoreError::Insecure { .. }
            | StoreError::Newer(_)
            | StoreError::Schema(_),
        ) => Exit::TryLater,
        _ => exit_of(error),
    };
    let is_moved = matches!(stored, Some(StoreError::Moved { .. }));
    let status = match exit {
        Exit::TryLater if is_moved => StatusCode::CONFLICT,
        Exit::TryLater => StatusCode::SERVICE_UNAVAILABLE,
        Exit::Usage => StatusCode::BAD_REQUEST,
        Exit::NotFound => StatusCode::NOT_FOUND,
        Exit::Conflict => StatusCode::CONFLICT,
        Exit::NotAllowed => StatusCode::FORBIDDEN,
        Exit::NotLoggedIn => StatusCode::UNAUTHORIZED,
        Exit::Failure | Exit::Damaged => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, exit.word(), told(error))
}

/// The error and its causes as one message, without repetitions.
fn told(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message.push_str(&format!(": {cause}"));
        }
    }
    message
}

/// Flushes the output, prints the error once and returns the exit code.
pub fn finish(outcome: anyhow::Result<()>, mut out: Out) -> ExitCode {
    let outcome = outcome.and_then(|()| out.flush());
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    if error.is::<Closed>() {
        // The reader of our output closed the pipe.
        return ExitCode::SUCCESS;
    }
    let _ = out.flush();
    let exit = exit_of(&error);
    if !error.downcast_ref::<Stop>().is_some_and(|stop| stop.silent) {
        let message = told(&error);
        if out.is_json() {
            out.complain_json(&json!({ "error": { "kind": exit.word(), "exit": exit as u8, "message": message } }));
        } else {
            out.complain(&message);
        }
    }
    ExitCode::from(exit as u8)
}
