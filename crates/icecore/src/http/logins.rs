//! Browser sessions: cookies, and one-time login codes.
//!
//! A browser sends the token once and gets a random cookie, which no script can read and no other
//! site's page can send. Cookies and codes exist only in this process, as hashes, until they expire
//! or the server ends; none is written to disk or log.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::header::COOKIE;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName};
use icecore_engine::clock::Clock;
use sha2::{Digest as _, Sha256};

use super::guard::{Held, Keys};

/// The header without which a cookie cannot write: a page of another site cannot send it.
pub const CSRF: &str = "x-icecore-csrf";
/// A session ends after this idle time.
const IDLE_SECONDS: u64 = 12 * 3_600;
/// A session ends at this age.
const WHOLE_SECONDS: u64 = 7 * 24 * 3_600;
/// How long a login code is valid.
const CODE_SECONDS: u64 = 10 * 60;
/// The most sessions of a space, or of a token for all spaces; the least recently used one is
/// dropped.
const MOST_LOGINS: usize = 64;
/// The most login codes of one owner; the oldest one is dropped.
const MOST_CODES: usize = 16;
/// The most sessions, and codes, of all owners; the owner with the most loses its oldest.
const MOST_IN_ALL: usize = 10_000;

type Known = [u8; 32];

/// Browser sessions and login codes.
pub struct Logins {
    keys: Arc<Keys>,
    clock: Arc<dyn Clock>,
    open: Mutex<HashMap<Known, Login>>,
    codes: Mutex<HashMap<Known, Code>>,
}

struct Login {
    held: Held,
    begun: u64,
    used: u64,
}

struct Code {
    held: Held,
    given: u64,
}

/// The owner of an entry: a space, or a token for all spaces. Owners do not displace each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whose<'a> {
    Space(&'a str),
    Token(&'a str),
}

/// An entry with an owner and the time of its last use.
trait Kept {
    fn held(&self) -> &Held;
    fn used(&self) -> u64;

    fn whose(&self) -> Whose<'_> {
        let grant = &self.held().grant;
        grant.space.as_deref().map_or(Whose::Token(&grant.id), Whose::Space)
    }
}

impl Kept for Login {
    fn held(&self) -> &Held {
        &self.held
    }

    fn used(&self) -> u64 {
        self.used
    }
}

impl Kept for Code {
    fn held(&self) -> &Held {
        &self.held
    }

    fn used(&self) -> u64 {
        self.given
    }
}

/// Adds an entry. An owner with too many loses its oldest; if there are too many in all, the owner
/// with the most does.
fn keep<T: Kept>(all: &mut HashMap<Known, T>, known: Known, new: T, most: usize) {
    let oldest = |whose: Whose<'_>| {
        let own = all.iter().filter(|(_, one)| one.whose() == whose);
        own.min_by_key(|(_, one)| one.used()).map(|(known, _)| *known)
    };
    let gives_way = if all.values().filter(|one| one.whose() == new.whose()).count() >= most {
        oldest(new.whose())
    } else if all.len() >= MOST_IN_ALL {
        let mut many: HashMap<Whose<'_>, usize> = HashMap::new();
        all.values().for_each(|one| *many.entry(one.whose()).or_default() += 1);
        many.into_iter().max_by_key(|(_, many)| *many).and_then(|(whose, _)| oldest(whose))
    } else {
        None
    };
    if let Some(known) = gives_way {
        all.remove(&known);
    }
    all.insert(known, new);
}

/// A new secret and its lifetime.
pub struct Given {
    pub secret: String,
    pub seconds: u64,
}

fn hash(secret: &str) -> Known {
    Sha256::digest(secret).into()
}

fn random() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The cookie name of a server at a host: browsers share the cookies of all ports.
fn name(host: &Authority) -> String {
    host.port_u16().map_or_else(|| "icecore".to_owned(), |port| format!("icecore_{port}"))
}

impl Logins {
    /// Starts without sessions.
    pub fn new(keys: Arc<Keys>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { keys, clock, open: Mutex::default(), codes: Mutex::default() })
    }

    fn seconds(&self) -> u64 {
        self.clock.millis() / 1_000
    }

    /// Checks a token for a login.
    pub async fn by_token(&self, shown: &str) -> anyhow::Result<Option<Held>> {
        let held = self.keys.held(shown.trim().as_bytes()).await?;
        Ok(held.filter(|held| held.grant.expires.is_none_or(|end| self.clock.now() < end)))
    }

    /// Creates a code that logs in whoever sends it first, with the permissions of the caller.
    pub fn code(&self, held: Held) -> anyhow::Result<Given> {
        let (secret, now) = (random()?, self.seconds());
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|_, code| now < code.given + CODE_SECONDS);
        keep(&mut codes, hash(&secret), Code { held, given: now }, MOST_CODES);
        Ok(Given { secret, seconds: CODE_SECONDS })
    }

    /// Redeems a login code. It works once.
    pub fn by_code(&self, shown: &str) -> Option<Held> {
        let now = self.seconds();
        let Code { held, given } = self
            .codes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&hash(shown.trim()))?;
        (now < given + CODE_SECONDS).then_some(held)
    }

    /// Starts a session; returns the secret of its cookie.
    pub fn begin(&self, held: Held) -> anyhow::Result<Given> {
        let (secret, now) = (random()?, self.seconds());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, login| login.holds(now));
        keep(&mut open, hash(&secret), Login { held, begun: now, used: now }, MOST_LOGINS);
        Ok(Given { secret, seconds: WHOLE_SECONDS })
    }

    /// The credential of the session behind a request's cookie.
    pub fn by_cookie(&self, host: &Authority, headers: &HeaderMap) -> Option<Held> {
        let (known, now) = (hash(&shown(host, headers)?), self.seconds());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let login = open.get_mut(&known)?;
        if !login.holds(now) {
            open.remove(&known);
            return None;
        }
        login.used = now;
        Some(login.held.clone())
    }

    /// Ends the session behind a request's cookie.
    pub fn end(&self, host: &Authority, headers: &HeaderMap) {
        if let Some(secret) = shown(host, headers) {
            self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&hash(&secret));
        }
    }
}

impl Login {
    fn holds(&self, now: u64) -> bool {
        now < self.used + IDLE_SECONDS && now < self.begun + WHOLE_SECONDS
    }
}

/// The secret in a request's cookie.
fn shown(host: &Authority, headers: &HeaderMap) -> Option<String> {
    let name = name(host);
    let sent = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'));
    let own = sent.filter_map(|pair| pair.trim().split_once('=')).find(|(named, _)| *named == name);
    own.map(|(_, secret)| secret.trim().to_owned()).filter(|secret| !secret.is_empty())
}

/// The `Set-Cookie` value; without a secret it deletes the cookie. Over TLS the cookie is `Secure`.
pub fn cookie(host: &Authority, headers: &HeaderMap, given: Option<&Given>) -> String {
    let is_tls = headers
        .get("origin")
        .is_some_and(|origin| origin.as_bytes().to_ascii_lowercase().starts_with(b"https://"));
    let secure = if is_tls { "; Secure" } else { "" };
    let (secret, seconds) = given.map_or(("", 0), |given| (given.secret.as_str(), given.seconds));
    format!("{}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}", name(host))
}

/// Whether the request carries the CSRF header, which forms and images of other sites cannot send.
pub fn is_own_deed(headers: &HeaderMap) -> bool {
    headers.get(HeaderName::from_static(CSRF)).is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::{Source, Token};
    use super::*;
    use crate::rights::Grant;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A clock that is set by hand.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> jiff::Timestamp {
            jiff::Timestamp::UNIX_EPOCH
        }

        fn millis(&self) -> u64 {
            self.0.load(Ordering::Relaxed) * 1_000
        }
    }

    fn logins() -> (Arc<Logins>, Arc<Hand>) {
        let clock = Arc::new(Hand::default());
        let token = |text: &str| Token::of(text, Source::Set("ICECORE_TOKEN")).unwrap();
        let keys = Keys::new(
            token("a-token-of-some-length"),
            Some(token("a-token-for-reading-only")),
            None,
        );
        (Logins::new(keys, clock.clone()), clock)
    }

    fn reader() -> Held {
        Held { grant: Arc::new(Grant::reader()), looked_up: None }
    }

    fn headers(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, cookie.parse().unwrap())])
    }

    #[test]
    fn a_token_lets_in_as_far_as_it_goes() {
        let (logins, _) = logins();
        let by_token = |shown: &str| pollster::block_on(logins.by_token(shown)).unwrap();
        assert_eq!(by_token("a-token-of-some-length"), Some(Held::home()));
        assert_eq!(by_token(" a-token-for-reading-only\n"), Some(reader()));
        for wrong in ["", "a-token-of-some-lengt", "a-token-of-some-lengthh"] {
            assert_eq!(by_token(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_code_is_good_once_and_for_some_minutes() {
        let (logins, clock) = logins();
        let code = logins.code(Held::home()).unwrap();
        assert!(code.secret.len() == 64 && code.seconds == 600);
        assert_eq!(logins.by_code(&code.secret[1..]), None);
        assert_eq!(logins.by_code(&code.secret), Some(Held::home()));
        assert_eq!(logins.by_code(&code.secret), None);
        let late = logins.code(Held::home()).unwrap();
        clock.0.store(600, Ordering::Relaxed);
        assert_eq!(logins.by_code(&late.secret), None);
        // Only the newest codes are valid.
        let all: Vec<String> = (0..20)
            .map(|at| {
                clock.0.store(600 + at, Ordering::Relaxed);
                logins.code(Held::home()).unwrap().secret
            })
            .collect();
        assert_eq!(logins.by_code(&all[0]), None);
        assert_eq!(logins.by_code(&all[19]), Some(Held::home()));
    }

    #[test]
    fn a_cookie_is_good_while_it_is_used_and_not_for_ever() {
        let (logins, clock) = logins();
        let host: Authority = "127.0.0.1:7431".parse().unwrap();
        let given = logins.begin(reader()).unwrap();
        let kept = cookie(&host, &HeaderMap::new(), Some(&given));
        assert_eq!(
            kept,
            format!(
                "icecore_7431={}; Path=/; HttpOnly; SameSite=Strict; Max-Age=604800",
                given.secret
            )
        );
        let sent = headers(&format!("other=1; icecore_7431={}", given.secret));
        assert_eq!(logins.by_cookie(&host, &sent), Some(reader()));
        // Another server on this machine has another cookie name.
        assert_eq!(logins.by_cookie(&"127.0.0.1:1".parse().unwrap(), &sent), None);
        for wrong in ["icecore_7431=", "icecore_7431=x", "icecore=x", "x"] {
            assert_eq!(logins.by_cookie(&host, &headers(wrong)), None, "{wrong}");
        }
        for day in 1..15 {
            clock.0.store(day * 11 * 3_600, Ordering::Relaxed);
            assert_eq!(logins.by_cookie(&host, &sent), Some(reader()), "{day}");
        }
        clock.0.store(7 * 24 * 3_600, Ordering::Relaxed);
        assert_eq!(logins.by_cookie(&host, &sent), None);
        let idle = logins.begin(reader()).unwrap();
        clock.0.store(7 * 24 * 3_600 + 12 * 3_600, Ordering::Relaxed);
        assert_eq!(
            logins.by_cookie(&host, &headers(&format!("icecore_7431={}", idle.secret))),
            None
        );
        let again = logins.begin(Held::home()).unwrap();
        let sent = headers(&format!("icecore_7431={}", again.secret));
        assert_eq!(logins.by_cookie(&host, &sent), Some(Held::home()));
        logins.end(&host, &sent);
        assert_eq!(logins.by_cookie(&host, &sent), None);
        // The number of sessions is bounded.
        let all: Vec<String> =
            (0..70).map(|_| logins.begin(Held::home()).unwrap().secret).collect();
        let good = all
            .iter()
            .filter(|secret| {
                logins.by_cookie(&host, &headers(&format!("icecore_7431={secret}"))).is_some()
            })
            .count();
        assert_eq!(good, MOST_LOGINS);
    }

    #[test]
    fn nobody_throws_another_out_however_often_they_log_in() {
        let (logins, clock) = logins();
        let host: Authority = "127.0.0.1:7431".parse().unwrap();
        let of = |id: &str, space: Option<&str>| Held {
            grant: Arc::new(Grant {
                id: id.into(),
                space: space.map(Into::into),
                ..Grant::reader()
            }),
            looked_up: None,
        };
        let is_in = |secret: &str| {
            logins.by_cookie(&host, &headers(&format!("icecore_7431={secret}"))).is_some()
        };
        let (ben, cid, home) = (
            logins.begin(of("b", Some("ben"))).unwrap(),
            logins.begin(of("c", None)).unwrap(),
            Held::home(),
        );
        let (home, code) = (logins.begin(home.clone()).unwrap(), logins.code(home).unwrap());
        clock.0.store(60, Ordering::Relaxed);
        // However many tokens are used.
        let anns: Vec<String> = (0..500)
            .map(|n| logins.begin(of(&format!("a{n}"), Some("ann"))).unwrap().secret)
            .collect();
        (0..500).for_each(|n| drop(logins.code(of(&format!("a{n}"), Some("ann"))).unwrap()));
        assert!(is_in(&ben.secret) && is_in(&cid.secret) && is_in(&home.secret));
        assert_eq!(anns.iter().filter(|secret| is_in(secret)).count(), MOST_LOGINS);
        assert_eq!(logins.by_code(&code.secret), Some(Held::home()));
        assert_eq!(logins.codes.lock().unwrap().len(), MOST_CODES);
        // In total they are bounded, and the owner with the most loses one.
        let mut open = logins.open.lock().unwrap();
        for n in 0..MOST_IN_ALL - open.len() {
            open.insert(
                hash(&n.to_string()),
                Login { held: of("x", Some(&n.to_string())), begun: 60, used: 60 },
            );
        }
        keep(
            &mut open,
            hash("dan"),
            Login { held: of("d", Some("dan")), begun: 60, used: 60 },
            MOST_LOGINS,
        );
        assert_eq!(open.len(), MOST_IN_ALL);
        drop(open);
        assert!(is_in(&ben.secret) && is_in("dan"));
        assert_eq!(anns.iter().filter(|secret| is_in(secret)).count(), MOST_LOGINS - 1);
    }

    #[test]
    fn over_tls_a_cookie_goes_over_tls_alone() {
        let host: Authority = "memory.example".parse().unwrap();
        let tls = HeaderMap::from_iter([(
            axum::http::header::ORIGIN,
            "https://memory.example".parse().unwrap(),
        )]);
        assert_eq!(
            cookie(&host, &tls, None),
            "icecore=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0; Secure"
        );
    }
}
