//! Access rules: one function decides for HTTP, MCP and the dashboard. A read-only token writes
//! through none of them, and a token bound to a space reaches no other space.

use std::fmt;
use std::str::FromStr;

use axum::http::Method;
use icecore_domain::sanitize;
use jiff::Timestamp;

use crate::api::route::{READ, RouteSpec, SpaceTarget};
use crate::api::{self, live};
use crate::dashboard;
use crate::mcp::{self, tools};
use crate::spaces::MAX_USER_BYTES;

/// A permission of a token (its scope).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Read memory.
    Read,
    /// Change memory; includes `Read`.
    Write,
    /// Call the upstream model through the proxy, with memory.
    Proxy,
    /// Everything, including tokens, spaces and quotas.
    Admin,
}

impl Permission {
    /// Every permission.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Proxy, Self::Admin];

    /// Its name in tokens and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Proxy => "proxy",
            Self::Admin => "admin",
        }
    }

    fn mask(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::Proxy => 4,
            Self::Admin => 8,
        }
    }
}

/// A word that is not a permission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a scope; choose read, write, proxy or admin")]
pub struct UnknownPermission(String);

impl FromStr for Permission {
    type Err = UnknownPermission;

    fn from_str(word: &str) -> Result<Self, UnknownPermission> {
        let word = word.trim().to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|right| right.as_str() == word)
            .ok_or_else(|| UnknownPermission(word.chars().take(40).collect()))
    }
}

/// A set of permissions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Permissions(u8);

impl Permissions {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The set of these permissions.
    pub fn of(rights: impl IntoIterator<Item = Permission>) -> Self {
        Self(rights.into_iter().fold(0, |bits, right| bits | right.mask()))
    }

    /// Whether the set contains a permission or one that implies it.
    pub fn includes(self, right: Permission) -> bool {
        let with = match right {
            Permission::Read => {
                Permission::Read.mask() | Permission::Write.mask() | Permission::Admin.mask()
            }
            Permission::Write => Permission::Write.mask() | Permission::Admin.mask(),
            Permission::Proxy => Permission::Proxy.mask() | Permission::Admin.mask(),
            Permission::Admin => Permission::Admin.mask(),
        };
        self.0 & with != 0
    }

    /// The names of the permissions in the set, as they were granted.
    pub fn names(self) -> Vec<&'static str> {
        Permission::ALL
            .into_iter()
            .filter(|right| self.0 & right.mask() != 0)
            .map(Permission::as_str)
            .collect()
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(","))
    }
}

/// What a token allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The token's id.
    pub id: String,
    pub rights: Permissions,
    /// The end user whose space the token is bound to; `None` if it reaches all spaces.
    pub space: Option<String>,
    pub expires: Option<Timestamp>,
}

impl Grant {
    /// The grant of the server's own token: everything, in every space.
    pub fn owner() -> Self {
        Self {
            id: "home".into(),
            rights: Permissions::of([Permission::Admin]),
            space: None,
            expires: None,
        }
    }

    /// The grant of the server's own read-only token.
    pub fn read_only() -> Self {
        Self {
            id: "reader".into(),
            rights: Permissions::of([Permission::Read]),
            space: None,
            expires: None,
        }
    }

    /// The grant of a caller who is not authenticated.
    pub fn anonymous() -> Self {
        Self { id: String::new(), rights: Permissions::NONE, space: None, expires: None }
    }
}

/// An operation that a caller requests, over MCP or HTTP.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// An MCP tool, by its name.
    Tool(&'a str),
    /// A request to a route.
    Request(&'a Method, &'a str),
}

/// What an operation applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationTarget {
    /// The space named in the request.
    Asked,
    /// The space of the end user named in the path.
    Named(String),
    /// The server as a whole.
    Everything,
    /// The caller, and no memory at all.
    Caller,
}

/// Whether an upstream call is stateless: the upstream stores nothing that another caller could
/// read back.
fn is_stateless_upstream_call(method: &Method, rest: &str) -> bool {
    match rest {
        "chat/completions"
        | "completions"
        | "embeddings"
        | "messages"
        | "messages/count_tokens" => method == Method::POST,
        _ => {
            (method == Method::GET || method == Method::HEAD)
                && (rest == "models" || rest.starts_with("models/"))
        }
    }
}

/// Decodes a path segment into a user name; unchanged if it cannot be decoded.
fn decode_user_name(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        bytes.push(match byte {
            b'%' => match (digit(), digit()) {
                (Some(high), Some(low)) => u8::try_from(high * 16 + low).unwrap_or_default(),
                _ => return part.to_owned(),
            },
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_or_else(|_| part.to_owned(), |name| canonical_user_name(&name))
}

/// The canonical form of a user name, by which the space is found.
fn canonical_user_name(name: &str) -> String {
    sanitize::one_line(name.trim())
}

/// Checks and canonicalizes a user name from a request. Escaping invisible characters makes a name
/// longer, so the length is checked afterwards.
pub fn parse_user_name(name: &str) -> Result<Option<String>, AccessDenied> {
    let name = Some(canonical_user_name(name)).filter(|name| !name.is_empty());
    if name.as_ref().is_some_and(|name| name.len() > MAX_USER_BYTES) {
        Err(AccessDenied::NoName)
    } else {
        Ok(name)
    }
}

/// The routes outside of the API's table, with the permission they need. `None` as method means
/// any.
const UNLISTED_ROUTES: &[(&str, Option<&Method>, Option<Permission>, SpaceTarget)] = &[
    (UPSTREAM_ROUTE, None, Some(Permission::Proxy), SpaceTarget::Theirs),
    ("/metrics", Some(&Method::GET), READ, SpaceTarget::Everybodys),
    (live::PATH, Some(&Method::GET), READ, SpaceTarget::Theirs),
    // Each MCP tool has its own permission.
    (mcp::PATH, None, READ, SpaceTarget::Theirs),
];
/// Everything that is passed on to the upstream model.
const UPSTREAM_ROUTE: &str = "/v1/{*rest}";

/// Whether a path needs no token. The API document and the dashboard's files are not secret, and a
/// browser has no token to send when it loads them.
pub fn is_public(path: &str) -> bool {
    dashboard::is_dashboard_path(path)
        || matches!(path, "/livez" | "/readyz" | "/api" | "/api/openapi.json")
}

/// Which segments of a path are variable in a route: `false` for a literal segment. `None` if the
/// route does not match.
fn match_segments(route: &str, path: &str) -> Option<Vec<bool>> {
    if let Some(beginning) = route.strip_suffix("{*rest}") {
        return path.strip_prefix(beginning).filter(|rest| !rest.is_empty()).map(|_| vec![true]);
    }
    let (own, asked): (Vec<&str>, Vec<&str>) =
        (route.split('/').collect(), path.split('/').collect());
    if own.len() != asked.len() {
        return None;
    }
    let part = |(own, asked): (&&str, &&str)| match own.starts_with('{') {
        true => (!asked.is_empty()).then_some(true),
        false => (own == asked).then_some(false),
    };
    own.iter().zip(&asked).map(part).collect()
}

/// The declared route that answers a path, chosen as the router does: literal segments win.
pub fn route_of(path: &str) -> Option<&'static str> {
    let declared = api::routes()
        .iter()
        .map(|route| route.path)
        .chain(UNLISTED_ROUTES.iter().map(|(route, ..)| *route));
    declared
        .filter_map(|route| Some((match_segments(route, path)?, route)))
        .min()
        .map(|(_, route)| route)
}

/// The declared permission of a route's method, and whose memory it is about.
fn route_requirements(method: &Method, route: &str) -> Option<(Option<Permission>, SpaceTarget)> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let listed = |one: &&RouteSpec| one.path == route && *one.method == *method;
    let other = |(path, of, ..): &&(&str, Option<&Method>, Option<Permission>, SpaceTarget)| {
        *path == route && of.is_none_or(|of| of == method)
    };
    let listed = api::routes().iter().find(listed).map(|one| (one.needs, one.target));
    listed
        .or_else(|| UNLISTED_ROUTES.iter().find(other).map(|(_, _, needs, whose)| (*needs, *whose)))
}

impl Operation<'_> {
    /// The permission it needs; `None` if every authenticated caller may, or if none is declared.
    pub fn required_permission(self) -> Option<Permission> {
        self.requirements().ok().and_then(|(needs, _)| needs)
    }

    /// What it applies to; `None` if nothing is declared for it.
    pub fn target(self) -> Option<OperationTarget> {
        self.requirements().ok().map(|(_, about)| about)
    }

    /// The required permission (`None` if every authenticated caller may) and the target. Nothing
    /// has a permission that was not declared.
    fn requirements(self) -> Result<(Option<Permission>, OperationTarget), AccessDenied> {
        let (method, path) = match self {
            Self::Tool(name) => {
                let tool = tools::find_tool(name).ok_or(AccessDenied::Undeclared)?;
                return Ok((Some(tool.permission), OperationTarget::Asked));
            }
            Self::Request(method, path) => (method, path),
        };
        let Some(route) = route_of(path) else {
            return Err(if is_public(path) {
                AccessDenied::MethodNotAllowed
            } else {
                AccessDenied::Undeclared
            });
        };
        let (needs, whose) =
            route_requirements(method, route).ok_or(AccessDenied::MethodNotAllowed)?;
        let about = match whose {
            SpaceTarget::Theirs
                if route == UPSTREAM_ROUTE
                    && !path
                        .strip_prefix("/v1/")
                        .is_some_and(|rest| is_stateless_upstream_call(method, rest)) =>
            {
                OperationTarget::Everything
            }
            SpaceTarget::Theirs | SpaceTarget::TheirsOrNew => OperationTarget::Asked,
            SpaceTarget::Named => {
                let part = route.split('/').zip(path.split('/')).find(|(own, _)| *own == "{name}");
                OperationTarget::Named(
                    part.map(|(_, name)| decode_user_name(name)).ok_or(AccessDenied::Undeclared)?,
                )
            }
            SpaceTarget::Everybodys => OperationTarget::Everything,
            SpaceTarget::Callers => OperationTarget::Caller,
        };
        Ok((needs, about))
    }
}

/// Why an operation is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessDenied {
    /// No valid token: missing, wrong, expired or revoked.
    Unknown,
    /// The token lacks a permission.
    TooLittle { held: Permissions, needed: Permission },
    /// The token is bound to a space, and the operation is about all of them.
    Bound,
    /// The token does not reach this user's space. The caller does not learn whether it exists.
    NoSuchUser(String),
    /// The user name is not valid.
    NoName,
    /// No permission is declared for the operation, so no token is enough.
    Undeclared,
    /// The path exists, but not with this method.
    MethodNotAllowed,
}

/// Whether these permissions allow an operation in a space the caller may reach.
pub fn allows(held: Permissions, wanted: Operation<'_>) -> bool {
    wanted.requirements().is_ok_and(|(needed, _)| needed.is_none_or(|needed| held.includes(needed)))
}

/// Decides whether a grant allows an operation now, and in whose space. Every interface decides
/// here and nowhere else. `asked` is the end user named in the request, if any.
pub fn authorise(
    grant: Option<&Grant>,
    now: Timestamp,
    wanted: Operation<'_>,
    asked: Option<&str>,
) -> Result<Option<String>, AccessDenied> {
    let grant = grant
        .filter(|grant| grant.expires.is_none_or(|end| now < end))
        .ok_or(AccessDenied::Unknown)?;
    let (needed, about) = wanted.requirements()?;
    if let Some(needed) = needed.filter(|needed| !grant.rights.includes(*needed)) {
        return Err(AccessDenied::TooLittle { held: grant.rights, needed });
    }
    let wanted = match about {
        OperationTarget::Everything if grant.space.is_some() => return Err(AccessDenied::Bound),
        OperationTarget::Everything => return Ok(None),
        OperationTarget::Caller => return Ok(grant.space.clone()),
        OperationTarget::Named(name) => Some(name),
        OperationTarget::Asked => asked.map(canonical_user_name),
    };
    let wanted = wanted.filter(|name| !name.is_empty());
    match (&grant.space, wanted) {
        (Some(own), Some(name)) if *own != name => Err(AccessDenied::NoSuchUser(name)),
        (Some(own), _) => Ok(Some(own.clone())),
        (None, wanted) => wanted.map_or(Ok(None), |name| parse_user_name(&name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(rights: &[Permission], space: Option<&str>) -> Grant {
        Grant {
            id: "t".into(),
            rights: Permissions::of(rights.iter().copied()),
            space: space.map(Into::into),
            expires: None,
        }
    }

    /// The outcome in one word: the user whose space is used, or the status.
    fn outcome_of(grant: &Grant, method: &Method, path: &str, asked: Option<&str>) -> String {
        match authorise(Some(grant), Timestamp::UNIX_EPOCH, Operation::Request(method, path), asked)
        {
            Ok(user) => user.unwrap_or_else(|| "home".into()),
            Err(AccessDenied::Unknown) => "401".into(),
            Err(
                AccessDenied::TooLittle { .. } | AccessDenied::Bound | AccessDenied::Undeclared,
            ) => "403".into(),
            Err(AccessDenied::MethodNotAllowed) => "405".into(),
            Err(AccessDenied::NoSuchUser(_)) => "404".into(),
            Err(AccessDenied::NoName) => "400".into(),
        }
    }

    #[test]
    fn a_name_is_as_long_as_a_name_may_be_once_it_is_made_visible() {
        let (whole, bound) =
            (grant(&[Permission::Admin], None), grant(&[Permission::Admin], Some("ann")));
        // Each of these is escaped to eight bytes.
        let hidden = |many: usize| "\u{202E}".repeat(many);
        for (name, expected) in [
            ("x".repeat(MAX_USER_BYTES), "x".repeat(MAX_USER_BYTES)),
            ("x".repeat(MAX_USER_BYTES + 1), "400".into()),
            ("x".repeat(700), "400".into()),
            (hidden(32), "\\u{202e}".repeat(32)),
            (hidden(33), "400".into()),
            (" \n ".into(), "home".into()),
        ] {
            assert_eq!(
                outcome_of(&whole, &Method::GET, "/api/status", Some(&name)),
                expected,
                "{name}"
            );
            let other = if expected == "home" { "ann" } else { "404" };
            assert_eq!(
                outcome_of(&bound, &Method::GET, "/api/status", Some(&name)),
                other,
                "{name}, bound"
            );
        }
        assert_eq!(
            outcome_of(&whole, &Method::DELETE, &format!("/api/spaces/{}", "x".repeat(257)), None),
            "400"
        );
    }

    #[test]
    fn every_right_opens_its_own_doors_and_no_other() {
        let get = Method::GET;
        let (post, delete) = (Method::POST, Method::DELETE);
        // In the order read, write, proxy, admin: first for a token of all spaces that names ann,
        // then for one that is bound to ann.
        for (method, path, whole, bound) in [
            (&get, "/api/events", ["ann", "ann", "403", "ann"], ["ann", "ann", "403", "ann"]),
            (&get, "/api/search", ["ann", "ann", "403", "ann"], ["ann", "ann", "403", "ann"]),
            (&get, "/api/live", ["ann", "ann", "403", "ann"], ["ann", "ann", "403", "ann"]),
            (&post, "/api/events", ["403", "ann", "403", "ann"], ["403", "ann", "403", "ann"]),
            (
                &post,
                "/state/append-log",
                ["403", "ann", "403", "ann"],
                ["403", "ann", "403", "ann"],
            ),
            (
                &delete,
                "/api/conversations/x",
                ["403", "ann", "403", "ann"],
                ["403", "ann", "403", "ann"],
            ),
            (&post, "/mcp", ["ann", "ann", "403", "ann"], ["ann", "ann", "403", "ann"]),
            (
                &post,
                "/v1/chat/completions",
                ["403", "403", "ann", "ann"],
                ["403", "403", "ann", "ann"],
            ),
            (&post, "/v1/messages", ["403", "403", "ann", "ann"], ["403", "403", "ann", "ann"]),
            (&get, "/v1/models", ["403", "403", "ann", "ann"], ["403", "403", "ann", "ann"]),
            // What the upstream stores is visible to every holder of its key.
            (&get, "/v1/files", ["403", "403", "home", "home"], ["403", "403", "403", "403"]),
            (
                &get,
                "/v1/chat/completions",
                ["403", "403", "home", "home"],
                ["403", "403", "403", "403"],
            ),
            (&post, "/v1/responses", ["403", "403", "home", "home"], ["403", "403", "403", "403"]),
            (&get, "/metrics", ["home", "home", "403", "home"], ["403", "403", "403", "403"]),
            (&get, "/api/users", ["home", "home", "403", "home"], ["403", "403", "403", "403"]),
            (
                &get,
                "/api/users/ann/export",
                ["ann", "ann", "403", "ann"],
                ["ann", "ann", "403", "ann"],
            ),
            (
                &get,
                "/api/users/ben/export",
                ["ben", "ben", "403", "ben"],
                ["404", "404", "403", "404"],
            ),
            (&delete, "/api/users/ann", ["403", "403", "403", "ann"], ["403", "403", "403", "ann"]),
            (
                &delete,
                "/api/users/b%65n",
                ["403", "403", "403", "ben"],
                ["403", "403", "403", "404"],
            ),
            (
                &post,
                "/api/model/check",
                ["403", "home", "403", "home"],
                ["403", "403", "403", "403"],
            ),
            (&get, "/api/session", ["home", "home", "home", "home"], ["ann", "ann", "ann", "ann"]),
            (
                &post,
                "/api/login/code",
                ["403", "home", "403", "home"],
                ["403", "ann", "403", "ann"],
            ),
            (&get, "/api/tokens", ["403", "403", "403", "home"], ["403", "403", "403", "403"]),
            (&post, "/api/tokens", ["403", "403", "403", "home"], ["403", "403", "403", "403"]),
            (&delete, "/api/tokens/x", ["403", "403", "403", "home"], ["403", "403", "403", "403"]),
            (&get, "/api/audit", ["403", "403", "403", "home"], ["403", "403", "403", "403"]),
            (&get, "/api/spaces", ["403", "403", "403", "home"], ["403", "403", "403", "403"]),
            (&get, "/api/spaces/ann", ["403", "403", "403", "ann"], ["403", "403", "403", "ann"]),
            (&get, "/api/spaces/ben", ["403", "403", "403", "ben"], ["403", "403", "403", "404"]),
            (
                &delete,
                "/api/spaces/ben",
                ["403", "403", "403", "ben"],
                ["403", "403", "403", "404"],
            ),
            (
                &get,
                "/api/spaces/ann/quota",
                ["403", "403", "403", "ann"],
                ["403", "403", "403", "ann"],
            ),
            (
                &post,
                "/api/spaces/ann/quota",
                ["403", "403", "403", "home"],
                ["403", "403", "403", "403"],
            ),
            // No permission is declared for these, so none is enough.
            (&get, "/unknown", ["403"; 4], ["403"; 4]),
            (&get, "/api/unknown", ["403"; 4], ["403"; 4]),
            (&post, "/api/tokens/x/y/z", ["403"; 4], ["403"; 4]),
            (&get, "/api/users//export", ["403"; 4], ["403"; 4]),
            (&delete, "/api/status", ["405"; 4], ["405"; 4]),
            (&post, "/metrics", ["405"; 4], ["405"; 4]),
            (&post, "/livez", ["405"; 4], ["405"; 4]),
        ] {
            for (at, right) in
                [Permission::Read, Permission::Write, Permission::Proxy, Permission::Admin]
                    .into_iter()
                    .enumerate()
            {
                assert_eq!(
                    outcome_of(&grant(&[right], None), method, path, Some("ann")),
                    whole[at],
                    "{method} {path} {right:?}"
                );
                let own = grant(&[right], Some("ann"));
                assert_eq!(
                    outcome_of(&own, method, path, None),
                    bound[at],
                    "{method} {path} {right:?}, bound"
                );
                // No other user's space, and no hint whether it exists.
                let other = outcome_of(&own, method, path, Some("ben"));
                let expected = if Operation::Request(method, path).target()
                    == Some(OperationTarget::Asked)
                    && bound[at] == "ann"
                {
                    "404"
                } else {
                    bound[at]
                };
                assert_eq!(other, expected, "{method} {path} {right:?}, bound, asking for another");
            }
        }
        assert_eq!(
            outcome_of(
                &grant(&[Permission::Read], Some("ann b")),
                &get,
                "/api/events",
                Some(" ann  b ")
            ),
            outcome_of(
                &grant(&[Permission::Read], Some("ann b")),
                &get,
                "/api/users/ann%20%20b/export",
                None
            )
        );
    }

    #[test]
    fn every_route_is_found_by_its_own_example_and_needs_what_it_declares() {
        for route in api::routes() {
            let path = route.example.0.split('?').next().unwrap();
            assert_eq!(route_of(path), Some(route.path), "{path}");
            assert_eq!(
                route_requirements(route.method, route.path),
                Some((route.needs, route.target)),
                "{} {}",
                route.method,
                route.path
            );
            assert_eq!(
                route.target == SpaceTarget::Named,
                route.path.starts_with("/api/users/{name}")
                    || route.path.starts_with("/api/spaces/{name}") && route.method != Method::POST,
                "{}",
                route.path
            );
            // A read permission changes nothing.
            let changes = route.method != Method::GET && route.target != SpaceTarget::Callers;
            assert!(
                !changes || matches!(route.needs, Some(Permission::Write | Permission::Admin)),
                "{} {}",
                route.method,
                route.path
            );
        }
        let (admin, all) = (Permissions::of([Permission::Admin]), Permissions::of(Permission::ALL));
        assert!(tools::TOOLS.iter().all(|tool| allows(admin, Operation::Tool(tool.name))));
        assert!(!allows(all, Operation::Tool("a tool of tomorrow")));
    }

    #[test]
    fn who_is_not_known_or_not_any_more_does_nothing() {
        let expired =
            Grant { expires: Some(Timestamp::UNIX_EPOCH), ..grant(&[Permission::Admin], None) };
        assert_eq!(outcome_of(&expired, &Method::GET, "/api/status", None), "401");
        let good = Grant { expires: Some(Timestamp::from_second(1).unwrap()), ..expired };
        assert_eq!(outcome_of(&good, &Method::GET, "/api/status", None), "home");
        assert_eq!(
            authorise(None, Timestamp::UNIX_EPOCH, Operation::Tool("recall"), None),
            Err(AccessDenied::Unknown)
        );
        let nobody = Grant::anonymous();
        for path in ["/api/status", "/v1/models", "/mcp", "/api/tokens", "/metrics"] {
            assert_eq!(outcome_of(&nobody, &Method::GET, path, None), "403", "{path}");
        }
    }

    #[test]
    fn tools_are_routes_like_any_other() {
        let ask = |rights: &[Permission], tool: &str| {
            authorise(
                Some(&grant(rights, Some("ann"))),
                Timestamp::UNIX_EPOCH,
                Operation::Tool(tool),
                None,
            )
            .map_err(|denied| matches!(denied, AccessDenied::TooLittle { .. }))
        };
        for tool in tools::TOOLS {
            let writes = tool.permission == Permission::Write;
            assert_eq!(ask(&[Permission::Read], tool.name).is_err(), writes, "{}", tool.name);
            assert_eq!(
                ask(&[Permission::Write], tool.name),
                Ok(Some("ann".into())),
                "{}",
                tool.name
            );
            assert_eq!(ask(&[Permission::Proxy], tool.name), Err(true), "{}", tool.name);
        }
    }

    #[test]
    fn rights_are_read_as_they_are_written() {
        assert_eq!("Proxy".parse(), Ok(Permission::Proxy));
        assert!(
            "all"
                .parse::<Permission>()
                .unwrap_err()
                .to_string()
                .contains("read, write, proxy or admin")
        );
        assert_eq!(
            Permissions::of([Permission::Admin, Permission::Read]).to_string(),
            "read,admin"
        );
    }
}
