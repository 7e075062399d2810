//! Maps errors to what the caller sees: one message, one exit code, one HTTP status.

use std::process::ExitCode;

use axum::http::StatusCode;
use icecore_domain::ledger::revise::RevisionError;
use icecore_engine::Error as EngineError;
use icecore_engine::config::PolicyError;
use icecore_store::{Error as StoreError, ErrorKind as StoreErrorKind};
use serde_json::json;

use crate::cli::output::{Output, OutputClosed};

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
    fn as_str(self) -> &'static str {
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
pub struct AppError {
    pub message: String,
    pub exit: Exit,
    /// The message was already printed.
    pub silent: bool,
}

impl AppError {
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
    if let Some(stop) = error.downcast_ref::<AppError>() {
        return stop.exit;
    }
    match error.downcast_ref::<EngineError>() {
        Some(EngineError::Store(error)) => exit_of_store_error(error),
        Some(EngineError::Refused(RevisionError::Unknown(_) | RevisionError::Archived(_)))
        | Some(EngineError::NotFound(_)) => Exit::NotFound,
        Some(EngineError::Refused(RevisionError::Untrusted { .. })) => Exit::NotAllowed,
        Some(EngineError::Refused(_) | EngineError::AlreadyExists(_)) => Exit::Conflict,
        Some(EngineError::Busy(_)) => Exit::TryLater,
        Some(EngineError::Prompt(_) | EngineError::Damaged(_)) => Exit::Damaged,
        Some(
            EngineError::InvalidEvent(_)
            | EngineError::LimitExceeded(_)
            | EngineError::InvalidRequest(_),
        ) => Exit::Usage,
        Some(EngineError::Config(PolicyError::Newer { .. })) => Exit::NotAllowed,
        Some(EngineError::Config(_)) => Exit::Damaged,
        Some(EngineError::Embed(_) | EngineError::NoRandom(_)) => Exit::Failure,
        None => error.downcast_ref::<StoreError>().map_or(Exit::Failure, exit_of_store_error),
    }
}

/// Whether the same call may succeed later.
pub fn is_transient(error: &anyhow::Error) -> bool {
    exit_of(error) == Exit::TryLater
}

fn exit_of_store_error(error: &StoreError) -> Exit {
    use StoreErrorKind as Kind;
    match error.kind {
        Kind::Conflict
        | Kind::Busy
        | Kind::DiskFull
        | Kind::Unreachable
        | Kind::RestoreInProgress
        | Kind::ReadOnly
        | Kind::Standby
        | Kind::Overloaded => Exit::TryLater,
        Kind::NoStore | Kind::NoDatabase | Kind::SpaceErased | Kind::NoSnapshots => Exit::NotFound,
        Kind::AlreadyExists | Kind::NoIdLeft | Kind::UnresolvedMerge => Exit::Conflict,
        Kind::InvalidInput => Exit::Usage,
        Kind::InvalidPath
        | Kind::Link
        | Kind::NotAFile
        | Kind::InvalidMarkerKey
        | Kind::PermissionDenied
        | Kind::AccessDenied
        | Kind::NewerSchema
        | Kind::UntrustedRepository => Exit::NotAllowed,
        Kind::Schema
        | Kind::Database
        | Kind::Insecure
        | Kind::Io
        | Kind::Failed
        | Kind::Stopped => Exit::Failure,
    }
}

/// Maps an error to an HTTP status, a machine-readable kind and a message.
pub fn http_status_of(error: &anyhow::Error) -> (StatusCode, &'static str, String) {
    let stored =
        error.downcast_ref::<StoreError>().or_else(|| match error.downcast_ref::<EngineError>() {
            Some(EngineError::Store(error)) => Some(error),
            _ => None,
        });
    let exit = match stored {
        // A misconfigured database of the server is not the caller's fault.
        Some(StoreError {
            kind:
                StoreErrorKind::NoDatabase
                | StoreErrorKind::AccessDenied
                | StoreErrorKind::Insecure
                | StoreErrorKind::NewerSchema
                | StoreErrorKind::Schema,
            ..
        }) => Exit::TryLater,
        _ => exit_of(error),
    };
    let is_moved = matches!(stored, Some(StoreError { kind: StoreErrorKind::Conflict, .. }));
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
    (status, exit.as_str(), error_message(error))
}

/// The error and its causes as one message, without repetitions.
pub fn error_message(error: &anyhow::Error) -> String {
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
pub fn report_outcome(outcome: anyhow::Result<()>, mut out: Output) -> ExitCode {
    let outcome = outcome.and_then(|()| out.flush());
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    if error.is::<OutputClosed>() {
        // The reader of our output closed the pipe.
        return ExitCode::SUCCESS;
    }
    let _ = out.flush();
    let exit = exit_of(&error);
    if !error.downcast_ref::<AppError>().is_some_and(|stop| stop.silent) {
        let message = error_message(&error);
        if out.is_json() {
            out.error_json(&json!({ "error": { "kind": exit.as_str(), "exit": exit as u8, "message": message } }));
        } else {
            out.error(&message);
        }
    }
    ExitCode::from(exit as u8)
}
