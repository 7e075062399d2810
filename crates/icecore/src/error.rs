//! From what went wrong to what the caller sees: one message, one exit code.

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
    /// It did not work.
    Failure = 1,
    /// It was called wrongly.
    Usage = 2,
    /// What was named does not exist.
    NotFound = 3,
    /// It contradicts what is there.
    Conflict = 4,
    /// It is not allowed.
    NotAllowed = 5,
    /// The vault is damaged.
    Damaged = 6,
    /// Who asks over HTTP is not known; no command ends so.
    NotLoggedIn = 7,
    /// It may work later.
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

/// An error of the doors themselves, with the code to end with.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Stop {
    /// What the caller sees.
    pub message: String,
    /// How the program ends.
    pub exit: Exit,
    /// Everything was said already.
    pub silent: bool,
}

impl Stop {
    /// An error with that code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { message: message.into(), exit, silent: false }
    }

    /// The result was printed; only the code remains to be told.
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

/// Whether the same may work later.
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

/// What went wrong as a status of HTTP, with the word for programs and the message.
pub fn as_status(error: &anyhow::Error) -> (StatusCode, &'static str, String) {
    let stored =
        error.downcast_ref::<StoreError>().or_else(|| match error.downcast_ref::<EngineError>() {
            Some(EngineError::Store(error)) => Some(error),
            _ => None,
        });
    let exit = match stored {
        // That the server's own database is shut to it is not the fault of whoever asks.
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

/// The error and its causes, each thing said once.
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

/// Ends the program: what was printed goes out, an error is told once, and the code says which.
pub fn finish(outcome: anyhow::Result<()>, mut out: Out) -> ExitCode {
    let outcome = outcome.and_then(|()| out.flush());
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    if error.is::<Closed>() {
        // The reader of our output has seen enough.
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
