//! Who may do what: one table for every door, so that a token which may only read can write through none of them.

use axum::http::Method;

use crate::mcp::tools;

/// What a caller may do. Who may write may read as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Look at memory.
    Read,
    /// Change it.
    Write,
}

impl Right {
    /// The scope of a token that has it, as OAuth writes it.
    pub fn scope(self) -> &'static str {
        match self {
            Self::Read => "memory:read",
            Self::Write => "memory:write",
        }
    }
}

/// Something that a caller wants done, whichever door it comes through.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// A tool of the Model Context Protocol, by its name.
    Tool(&'a str),
    /// A request to a route.
    Request(&'a Method, &'a str),
}

impl Operation<'_> {
    /// What somebody must have the right to.
    pub fn needs(self) -> Right {
        match self {
            // A tool that does not exist does nothing.
            Self::Tool(name) => tools::named(name).map_or(Right::Read, |tool| tool.right),
            // A chat is remembered, whatever its method.
            Self::Request(_, path) if path.starts_with("/v1/") => Right::Write,
            Self::Request(&Method::GET | &Method::HEAD, _) => Right::Read,
            // Who may look may stop looking; who logs in has no right yet.
            Self::Request(_, "/api/login" | "/api/logout") => Right::Read,
            // There each tool has its own.
            Self::Request(_, crate::mcp::PATH) => Right::Read,
            Self::Request(..) => Right::Write,
        }
    }
}

/// Whether somebody with this right may have that done. The only place where it is decided.
pub fn allows(held: Right, wanted: Operation<'_>) -> bool {
    wanted.needs() <= held
}
