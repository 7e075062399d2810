//! Who may do what: one function for every door, so that a token which may only read writes through
//! none of them, and one that is bound to a space reaches no other.

use std::fmt;
use std::str::FromStr;

use axum::http::Method;
use icecore_domain::plain;
use jiff::Timestamp;

use crate::api::route::{READ, Route, Whose};
use crate::api::{self, live};
use crate::dashboard;
use crate::mcp::{self, tools};
use crate::spaces::MAX_USER_BYTES;

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Look at memory.
    Read,
    /// Change it; who may do that may look as well.
    Write,
    /// Speak to the model behind the server, and be remembered.
    Proxy,
    /// Everything, and look after tokens, spaces and quotas.
    Admin,
}

impl Right {
    /// Every right.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Proxy, Self::Admin];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Proxy => "proxy",
            Self::Admin => "admin",
        }
    }

    fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::Proxy => 4,
            Self::Admin => 8,
        }
    }
}

/// That a word is no right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no scope; choose read, write, proxy or admin")]
pub struct NotARight(String);

impl FromStr for Right {
    type Err = NotARight;

    fn from_str(word: &str) -> Result<Self, NotARight> {
        let word = word.trim().to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|right| right.word() == word)
            .ok_or_else(|| NotARight(word.chars().take(40).collect()))
    }
}

/// Some rights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// None at all.
    pub const NONE: Self = Self(0);

    /// These.
    pub fn of(rights: impl IntoIterator<Item = Right>) -> Self {
        Self(rights.into_iter().fold(0, |bits, right| bits | right.bit()))
    }

    /// Whether this right is among them, or comes with one that is.
    pub fn cover(self, right: Right) -> bool {
        let with = match right {
            Right::Read => Right::Read.bit() | Right::Write.bit() | Right::Admin.bit(),
            Right::Write => Right::Write.bit() | Right::Admin.bit(),
            Right::Proxy => Right::Proxy.bit() | Right::Admin.bit(),
            Right::Admin => Right::Admin.bit(),
        };
        self.0 & with != 0
    }

    /// Their words, as they were given.
    pub fn words(self) -> Vec<&'static str> {
        Right::ALL.into_iter().filter(|right| self.0 & right.bit() != 0).map(Right::word).collect()
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(","))
    }
}

/// What whoever shows a token is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// What the token is called by.
    pub id: String,
    /// What they may do.
    pub rights: Rights,
    /// The end user whose space it is bound to; none if it is good for all of them.
    pub space: Option<String>,
    /// Until when.
    pub expires: Option<Timestamp>,
}

impl Grant {
    /// What the server's own token allows: everything, everywhere.
    pub fn home() -> Self {
        Self { id: "home".into(), rights: Rights::of([Right::Admin]), space: None, expires: None }
    }

    /// What the server's own token for looking allows.
    pub fn reader() -> Self {
        Self { id: "reader".into(), rights: Rights::of([Right::Read]), space: None, expires: None }
    }

    /// What somebody is allowed who has shown nothing yet.
    pub fn nobody() -> Self {
        Self { id: String::new(), rights: Rights::NONE, space: None, expires: None }
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

/// What something is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// The space that the request asks for.
    Asked,
    /// The space of this end user, whom the path names.
    Named(String),
    /// The server as a whole.
    Everything,
    /// Whoever asks, and nobody's memory.
    Caller,
}

/// What of the model's server is nobody's: it keeps nothing there that another could ask for.
fn is_nobodys(method: &Method, rest: &str) -> bool {
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

/// A part of a path as the name it stands for; as it is, if it stands for none.
fn name_in(part: &str) -> String {
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
    String::from_utf8(bytes).map_or_else(|_| part.to_owned(), |name| known_as(&name))
}

/// The name of an end user as their space is known by.
fn known_as(name: &str) -> String {
    plain::one_line(name.trim())
}

/// Likewise, of somebody whom a request names, if it names anybody. What is made visible in a name
/// makes it longer, so its length is looked at afterwards.
pub fn named(name: &str) -> Result<Option<String>, Denied> {
    let name = Some(known_as(name)).filter(|name| !name.is_empty());
    if name.as_ref().is_some_and(|name| name.len() > MAX_USER_BYTES) {
        Err(Denied::NoName)
    } else {
        Ok(name)
    }
}

/// The routes that are not of the API's list, with what they need. `None` for a method is any.
const OTHERS: &[(&str, Option<&Method>, Option<Right>, Whose)] = &[
    (V1, None, Some(Right::Proxy), Whose::Theirs),
    ("/metrics", Some(&Method::GET), READ, Whose::Everybodys),
    (live::PATH, Some(&Method::GET), READ, Whose::Theirs),
    // There each tool has its own.
    (mcp::PATH, None, READ, Whose::Theirs),
];
/// What goes on to the model's server.
const V1: &str = "/v1/{*rest}";

/// Whether anybody may look at a path: what the API and the dashboard are like is no secret, and a
/// browser has no token to show.
pub fn is_open(path: &str) -> bool {
    dashboard::is_page(path) || matches!(path, "/livez" | "/readyz" | "/api" | "/api/openapi.json")
}

/// What varies in a path that a route answers, part by part: `false` is a part that is the route's
/// own. `None` if it does not answer it.
fn varying(route: &str, path: &str) -> Option<Vec<bool>> {
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

/// The path of the declared route that answers a path, as the router chooses it: a part that is a
/// route's own goes before one that varies.
pub fn route_of(path: &str) -> Option<&'static str> {
    let declared =
        api::routes().iter().map(|route| route.path).chain(OTHERS.iter().map(|(route, ..)| *route));
    declared.filter_map(|route| Some((varying(route, path)?, route))).min().map(|(_, route)| route)
}

/// What is declared for a method of a route: the right that it needs, and whose memory it is about.
fn declared(method: &Method, route: &str) -> Option<(Option<Right>, Whose)> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let listed = |one: &&Route| one.path == route && *one.method == *method;
    let other = |(path, of, ..): &&(&str, Option<&Method>, Option<Right>, Whose)| {
        *path == route && of.is_none_or(|of| of == method)
    };
    let listed = api::routes().iter().find(listed).map(|one| (one.needs, one.whose));
    listed.or_else(|| OTHERS.iter().find(other).map(|(_, _, needs, whose)| (*needs, *whose)))
}

impl Operation<'_> {
    /// The right that it needs; `None` if every known caller may, or if nothing is declared for it.
    pub fn needs(self) -> Option<Right> {
        self.wants().ok().and_then(|(needs, _)| needs)
    }

    /// What it is about; `None` if nothing is declared for it.
    pub fn about(self) -> Option<About> {
        self.wants().ok().map(|(_, about)| about)
    }

    /// The right that it needs, none if every known caller may, and what it is about. Nothing has a
    /// right that was not declared for it.
    fn wants(self) -> Result<(Option<Right>, About), Denied> {
        let (method, path) = match self {
            Self::Tool(name) => {
                let tool = tools::named(name).ok_or(Denied::Undeclared)?;
                return Ok((Some(tool.right), About::Asked));
            }
            Self::Request(method, path) => (method, path),
        };
        let Some(route) = route_of(path) else {
            return Err(if is_open(path) { Denied::MethodNotAllowed } else { Denied::Undeclared });
        };
        let (needs, whose) = declared(method, route).ok_or(Denied::MethodNotAllowed)?;
        let about = match whose {
            Whose::Theirs
                if route == V1
                    && !path.strip_prefix("/v1/").is_some_and(|rest| is_nobodys(method, rest)) =>
            {
                About::Everything
            }
            Whose::Theirs | Whose::TheirsOrNew => About::Asked,
            Whose::Named => {
                let part = route.split('/').zip(path.split('/')).find(|(own, _)| *own == "{name}");
                About::Named(part.map(|(_, name)| name_in(name)).ok_or(Denied::Undeclared)?)
            }
            Whose::Everybodys => About::Everything,
            Whose::Callers => About::Caller,
        };
        Ok((needs, about))
    }
}

/// Why something is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// No token was shown, or none that is good: wrong, expired, revoked.
    Unknown,
    /// The token is good, for less than that.
    TooLittle {
        /// What it is good for.
        held: Rights,
        /// What it would have to be good for.
        needed: Right,
    },
    /// The token is bound to a space, and this is about all of them.
    Bound,
    /// As far as this token goes, there is no such user: whether there is one is nobody's business.
    NoSuchUser(String),
    /// Nobody can be called that.
    NoName,
    /// No right is declared for it, so no token is enough.
    Undeclared,
    /// The path is known, and not asked with this method.
    MethodNotAllowed,
}

/// Whether somebody with these rights may have that done, in a space that is theirs.
pub fn allows(held: Rights, wanted: Operation<'_>) -> bool {
    wanted.wants().is_ok_and(|(needed, _)| needed.is_none_or(|needed| held.cover(needed)))
}

/// Whether whoever holds this grant may have that done now, and whose space it is about: the only
/// place where it is decided. `asked` is the end user whom the request names, if it names one.
pub fn authorise(
    grant: Option<&Grant>,
    now: Timestamp,
    wanted: Operation<'_>,
    asked: Option<&str>,
) -> Result<Option<String>, Denied> {
    let grant =
        grant.filter(|grant| grant.expires.is_none_or(|end| now < end)).ok_or(Denied::Unknown)?;
    let (needed, about) = wanted.wants()?;
    if let Some(needed) = needed.filter(|needed| !grant.rights.cover(*needed)) {
        return Err(Denied::TooLittle { held: grant.rights, needed });
    }
    let wanted = match about {
        About::Everything if grant.space.is_some() => return Err(Denied::Bound),
        About::Everything => return Ok(None),
        About::Caller => return Ok(grant.space.clone()),
        About::Named(name) => Some(name),
        About::Asked => asked.map(known_as),
    };
    let wanted = wanted.filter(|name| !name.is_empty());
    match (&grant.space, wanted) {
        (Some(own), Some(name)) if *own != name => Err(Denied::NoSuchUser(name)),
        (Some(own), _) => Ok(Some(own.clone())),
        (None, wanted) => wanted.map_or(Ok(None), |name| named(&name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(rights: &[Right], space: Option<&str>) -> Grant {
        Grant {
            id: "t".into(),
            rights: Rights::of(rights.iter().copied()),
            space: space.map(Into::into),
            expires: None,
        }
    }

    /// What comes of it, in a word: whose space it is about, or the status.
    fn told(grant: &Grant, method: &Method, path: &str, asked: Option<&str>) -> String {
        match authorise(Some(grant), Timestamp::UNIX_EPOCH, Operation::Request(method, path), asked)
        {
            Ok(user) => user.unwrap_or_else(|| "home".into()),
            Err(Denied::Unknown) => "401".into(),
            Err(Denied::TooLittle { .. } | Denied::Bound | Denied::Undeclared) => "403".into(),
            Err(Denied::MethodNotAllowed) => "405".into(),
            Err(Denied::NoSuchUser(_)) => "404".into(),
            Err(Denied::NoName) => "400".into(),
        }
    }

    #[test]
    fn a_name_is_as_long_as_a_name_may_be_once_it_is_made_visible() {
        let (whole, bound) = (grant(&[Right::Admin], None), grant(&[Right::Admin], Some("ann")));
        // Each of these is shown as eight bytes.
        let hidden = |many: usize| "\u{202E}".repeat(many);
        for (name, expected) in [
            ("x".repeat(MAX_USER_BYTES), "x".repeat(MAX_USER_BYTES)),
            ("x".repeat(MAX_USER_BYTES + 1), "400".into()),
            ("x".repeat(700), "400".into()),
            (hidden(32), "\\u{202e}".repeat(32)),
            (hidden(33), "400".into()),
            (" \n ".into(), "home".into()),
        ] {
            assert_eq!(told(&whole, &Method::GET, "/api/status", Some(&name)), expected, "{name}");
            let other = if expected == "home" { "ann" } else { "404" };
            assert_eq!(
                told(&bound, &Method::GET, "/api/status", Some(&name)),
                other,
                "{name}, bound"
            );
        }
        assert_eq!(
            told(&whole, &Method::DELETE, &format!("/api/spaces/{}", "x".repeat(257)), None),
            "400"
        );
    }

    #[test]
    fn every_right_opens_its_own_doors_and_no_other() {
        let get = Method::GET;
        let (post, delete) = (Method::POST, Method::DELETE);
        // In this order: read, write, proxy, admin; of a token for all spaces that names ann, and
        // of one that is bound to ann.
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
            // What the model's server keeps is everybody's who has its key.
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
            // Nothing is declared for these, so nothing is enough.
            (&get, "/unknown", ["403"; 4], ["403"; 4]),
            (&get, "/api/unknown", ["403"; 4], ["403"; 4]),
            (&post, "/api/tokens/x/y/z", ["403"; 4], ["403"; 4]),
            (&get, "/api/users//export", ["403"; 4], ["403"; 4]),
            (&delete, "/api/status", ["405"; 4], ["405"; 4]),
            (&post, "/metrics", ["405"; 4], ["405"; 4]),
            (&post, "/livez", ["405"; 4], ["405"; 4]),
        ] {
            for (at, right) in
                [Right::Read, Right::Write, Right::Proxy, Right::Admin].into_iter().enumerate()
            {
                assert_eq!(
                    told(&grant(&[right], None), method, path, Some("ann")),
                    whole[at],
                    "{method} {path} {right:?}"
                );
                let own = grant(&[right], Some("ann"));
                assert_eq!(
                    told(&own, method, path, None),
                    bound[at],
                    "{method} {path} {right:?}, bound"
                );
                // Nobody else's space, and whether there is one is not told.
                let other = told(&own, method, path, Some("ben"));
                let expected = if Operation::Request(method, path).about() == Some(About::Asked)
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
            told(&grant(&[Right::Read], Some("ann b")), &get, "/api/events", Some(" ann  b ")),
            told(&grant(&[Right::Read], Some("ann b")), &get, "/api/users/ann%20%20b/export", None)
        );
    }

    #[test]
    fn every_route_is_found_by_its_own_example_and_needs_what_it_declares() {
        for route in api::routes() {
            let path = route.example.0.split('?').next().unwrap();
            assert_eq!(route_of(path), Some(route.path), "{path}");
            assert_eq!(
                declared(route.method, route.path),
                Some((route.needs, route.whose)),
                "{} {}",
                route.method,
                route.path
            );
            assert_eq!(
                route.whose == Whose::Named,
                route.path.starts_with("/api/users/{name}")
                    || route.path.starts_with("/api/spaces/{name}") && route.method != Method::POST,
                "{}",
                route.path
            );
            // Whoever may only look changes nothing.
            let changes = route.method != Method::GET && route.whose != Whose::Callers;
            assert!(
                !changes || matches!(route.needs, Some(Right::Write | Right::Admin)),
                "{} {}",
                route.method,
                route.path
            );
        }
        let (admin, all) = (Rights::of([Right::Admin]), Rights::of(Right::ALL));
        assert!(tools::TOOLS.iter().all(|tool| allows(admin, Operation::Tool(tool.name))));
        assert!(!allows(all, Operation::Tool("a tool of tomorrow")));
    }

    #[test]
    fn who_is_not_known_or_not_any_more_does_nothing() {
        let expired =
            Grant { expires: Some(Timestamp::UNIX_EPOCH), ..grant(&[Right::Admin], None) };
        assert_eq!(told(&expired, &Method::GET, "/api/status", None), "401");
        let good = Grant { expires: Some(Timestamp::from_second(1).unwrap()), ..expired };
        assert_eq!(told(&good, &Method::GET, "/api/status", None), "home");
        assert_eq!(
            authorise(None, Timestamp::UNIX_EPOCH, Operation::Tool("recall"), None),
            Err(Denied::Unknown)
        );
        let nobody = Grant::nobody();
        for path in ["/api/status", "/v1/models", "/mcp", "/api/tokens", "/metrics"] {
            assert_eq!(told(&nobody, &Method::GET, path, None), "403", "{path}");
        }
    }

    #[test]
    fn tools_are_routes_like_any_other() {
        let ask = |rights: &[Right], tool: &str| {
            authorise(
                Some(&grant(rights, Some("ann"))),
                Timestamp::UNIX_EPOCH,
                Operation::Tool(tool),
                None,
            )
            .map_err(|denied| matches!(denied, Denied::TooLittle { .. }))
        };
        for tool in tools::TOOLS {
            let writes = tool.right == Right::Write;
            assert_eq!(ask(&[Right::Read], tool.name).is_err(), writes, "{}", tool.name);
            assert_eq!(ask(&[Right::Write], tool.name), Ok(Some("ann".into())), "{}", tool.name);
            assert_eq!(ask(&[Right::Proxy], tool.name), Err(true), "{}", tool.name);
        }
    }

    #[test]
    fn rights_are_read_as_they_are_written() {
        assert_eq!("Proxy".parse(), Ok(Right::Proxy));
        assert!(
            "all".parse::<Right>().unwrap_err().to_string().contains("read, write, proxy or admin")
        );
        assert_eq!(Rights::of([Right::Admin, Right::Read]).to_string(), "read,admin");
    }
}
