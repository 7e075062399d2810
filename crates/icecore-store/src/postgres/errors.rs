//! Maps the errors of the driver and the server to kinds, never by their text.

use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;

use crate::{Error, ErrorKind};

/// The options of the address that decide how to classify an error. An error without a code and
/// without a cause of a known type is classified by them, never by its text.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddressOptions {
    pub has_password: bool,
    pub tls: bool,
    pub primary: bool,
}

impl AddressOptions {
    /// Reads the options. Sets an empty password where there is none: the server then reports a
    /// missing password with a code.
    pub fn from_config(config: &mut Config) -> Self {
        let demands = Self {
            has_password: config.get_password().is_some(),
            tls: config.get_ssl_mode() == SslMode::Require,
            primary: config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite,
        };
        if !demands.has_password {
            config.password("");
        }
        demands
    }
}

/// The cause of a connection failure without an answer of the server.
pub(super) enum ConnectCause<'a> {
    /// The operating system: no route, refused, unknown host, timeout.
    Io(&'a std::io::Error),
    /// The TLS handshake or the certificate.
    Tls,
    /// The driver, with a reason of its own.
    Driver,
    Unknown,
}

pub(super) fn connect_cause(error: &tokio_postgres::Error) -> ConnectCause<'_> {
    let first = std::error::Error::source(error);
    let mut next = first;
    while let Some(cause) = next {
        if cause.is::<rustls::Error>() {
            return ConnectCause::Tls;
        }
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            // The error inside an I/O error is not its source, but the cause of the source.
            let is_tls = io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
            return if is_tls { ConnectCause::Tls } else { ConnectCause::Io(io) };
        }
        next = cause.source();
    }
    if first.is_some() { ConnectCause::Driver } else { ConnectCause::Unknown }
}

/// Whether a retry may help: the server is starting, stopping, overloaded or unreachable.
pub(super) fn is_transient(error: &tokio_postgres::Error, demands: AddressOptions) -> bool {
    match error.code() {
        Some(code) => code.code().starts_with("57P") || *code == SqlState::TOO_MANY_CONNECTIONS,
        None => matches!(
            map_connect_error("", error, demands),
            Error { kind: ErrorKind::Unreachable | ErrorKind::ReadOnly | ErrorKind::Standby, .. }
        ),
    }
}

/// Converts an error of a connection attempt.
pub(super) fn map_connect_error(
    place: &str,
    error: &tokio_postgres::Error,
    demands: AddressOptions,
) -> Error {
    let (place, why) = (place.to_owned(), error_text(error));
    if let Some(code) = error.code() {
        return match *code {
            SqlState::INVALID_CATALOG_NAME => Error::no_database(place, why),
            SqlState::INVALID_PASSWORD if !demands.has_password => Error::access_denied(place, "it asks for a password, and the address has none. Add it: postgres://user:password@host/name".into()),
            SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION | SqlState::INSUFFICIENT_PRIVILEGE => {
                Error::access_denied(place, format!("{why}. Check user and password in the address, and the server's pg_hba.conf"))
            }
            _ => Error::unreachable(place, why),
        };
    }
    match connect_cause(error) {
        ConnectCause::Tls => Error::insecure(place, why),
        // The driver reports a server without the requested role like this; an error of the system
        // has a number.
        ConnectCause::Io(io)
            if demands.primary
                && io.kind() == std::io::ErrorKind::PermissionDenied
                && io.raw_os_error().is_none() =>
        {
            Error::read_only(place, true, "no server in the address is a primary".into())
        }
        ConnectCause::Driver if demands.tls => Error::insecure(
            place,
            format!(
                "the address asks for TLS (`sslmode=require`), which the server does not offer: {why}"
            ),
        ),
        ConnectCause::Io(_) | ConnectCause::Driver | ConnectCause::Unknown => {
            Error::unreachable(place, why)
        }
    }
}

/// The error text of the database, in one line.
pub(super) fn error_text(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => match error.detail() {
            Some(detail) if error.code().code().starts_with("42") => {
                format!("{} ({detail})", error.message())
            }
            _ => error.message().to_owned(),
        },
        None => {
            let mut words = error.to_string();
            let mut cause = std::error::Error::source(error);
            while let Some(reason) = cause {
                words = format!("{words}: {reason}");
                cause = reason.source();
            }
            words
        }
    }
}

/// Converts the error of a failed statement.
pub(super) fn map_query_error(error: tokio_postgres::Error) -> Error {
    let Some(code) = error.code().map(|code| code.code().to_owned()) else {
        return Error::unreachable("the database".into(), error_text(&error));
    };
    match code.as_str() {
        // A foreign key: the space of the row no longer exists.
        "23503" => Error::space_erased(),
        "55006" => Error::restore_in_progress(),
        // Raised by `require_known` in the tables.
        "IC001" => Error::newer_schema(error_text(&error)),
        // Another transaction was faster.
        "40001" | "40P01" => Error::conflict("the memory".into()),
        "55P03" => Error::overload("another transaction holds a lock for too long".into()),
        "57014" => Error::overload("the database took too long".into()),
        "53100" | "53200" | "53300" | "53400" => Error::overload(error_text(&error)),
        "25006" => {
            Error::read_only("the database".into(), false, "it is a standby or read-only".into())
        }
        "42501" => Error::access_denied(
            "the database".into(),
            format!("{}. Its owner can grant it", error_text(&error)),
        ),
        _ if code.starts_with("57P") || code.starts_with("08") => {
            Error::unreachable("the database".into(), error_text(&error))
        }
        _ => Error::database(error_text(&error)),
    }
}
