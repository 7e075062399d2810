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

use super::auth::{Credential, TokenVerifier};

/// The header without which a cookie cannot write: a page of another site cannot send it.
pub const CSRF_HEADER: &str = "x-icecore-csrf";
/// A session ends after this idle time.
const SESSION_IDLE_SECS: u64 = 12 * 3_600;
/// A session ends at this age.
const SESSION_MAX_SECS: u64 = 7 * 24 * 3_600;
/// How long a login code is valid.
const LOGIN_CODE_SECS: u64 = 10 * 60;
/// The most sessions of a space, or of a token for all spaces; the least recently used one is
/// dropped.
const MAX_SESSIONS_PER_OWNER: usize = 64;
/// The most login codes of one owner; the oldest one is dropped.
const MAX_CODES_PER_OWNER: usize = 16;
/// The most sessions, and codes, of all owners; the owner with the most loses its oldest.
const MAX_ENTRIES: usize = 10_000;

type SecretHash = [u8; 32];

/// Browser sessions and login codes.
pub struct LoginStore {
    keys: Arc<TokenVerifier>,
    clock: Arc<dyn Clock>,
    open: Mutex<HashMap<SecretHash, LoginSession>>,
    codes: Mutex<HashMap<SecretHash, LoginCode>>,
}

struct LoginSession {
    held: Credential,
    begun: u64,
    used: u64,
}

struct LoginCode {
    held: Credential,
    given: u64,
}

/// The owner of an entry: a space, or a token for all spaces. Owners do not displace each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum EntryOwner<'a> {
    Space(&'a str),
    Token(&'a str),
}

/// An entry with an owner and the time of its last use.
trait OwnedEntry {
    fn credential(&self) -> &Credential;
    fn last_used(&self) -> u64;

    fn owner(&self) -> EntryOwner<'_> {
        let grant = &self.credential().grant;
        grant.space.as_deref().map_or(EntryOwner::Token(&grant.id), EntryOwner::Space)
    }
}

impl OwnedEntry for LoginSession {
    fn credential(&self) -> &Credential {
        &self.held
    }

    fn last_used(&self) -> u64 {
        self.used
    }
}

impl OwnedEntry for LoginCode {
    fn credential(&self) -> &Credential {
        &self.held
    }

    fn last_used(&self) -> u64 {
        self.given
    }
}

/// Adds an entry. An owner with too many loses its oldest; if there are too many in all, the owner
/// with the most does.
fn insert_bounded<T: OwnedEntry>(
    all: &mut HashMap<SecretHash, T>,
    known: SecretHash,
    new: T,
    most: usize,
) {
    let oldest = |whose: EntryOwner<'_>| {
        let own = all.iter().filter(|(_, one)| one.owner() == whose);
        own.min_by_key(|(_, one)| one.last_used()).map(|(known, _)| *known)
    };
    let gives_way = if all.values().filter(|one| one.owner() == new.owner()).count() >= most {
        oldest(new.owner())
    } else if all.len() >= MAX_ENTRIES {
        let mut many: HashMap<EntryOwner<'_>, usize> = HashMap::new();
        all.values().for_each(|one| *many.entry(one.owner()).or_default() += 1);
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
pub struct LoginSecret {
    pub secret: String,
    pub seconds: u64,
}

fn hash_secret(secret: &str) -> SecretHash {
    Sha256::digest(secret).into()
}

fn random_secret() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The cookie name of a server at a host: browsers share the cookies of all ports.
fn cookie_name(host: &Authority) -> String {
    host.port_u16().map_or_else(|| "icecore".to_owned(), |port| format!("icecore_{port}"))
}

impl LoginStore {
    /// Starts without sessions.
    pub fn new(keys: Arc<TokenVerifier>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { keys, clock, open: Mutex::default(), codes: Mutex::default() })
    }

    fn now_secs(&self) -> u64 {
        self.clock.elapsed_millis() / 1_000
    }

    /// Checks a token for a login.
    pub async fn verify_token(&self, shown: &str) -> anyhow::Result<Option<Credential>> {
        let held = self.keys.verify(shown.trim().as_bytes()).await?;
        Ok(held.filter(|held| held.grant.expires.is_none_or(|end| self.clock.now() < end)))
    }

    /// Creates a code that logs in the first client that sends it, with the permissions of the caller.
    pub fn create_code(&self, held: Credential) -> anyhow::Result<LoginSecret> {
        let (secret, now) = (random_secret()?, self.now_secs());
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|_, code| now < code.given + LOGIN_CODE_SECS);
        insert_bounded(
            &mut codes,
            hash_secret(&secret),
            LoginCode { held, given: now },
            MAX_CODES_PER_OWNER,
        );
        Ok(LoginSecret { secret, seconds: LOGIN_CODE_SECS })
    }

    /// Redeems a login code. It works once.
    pub fn redeem_code(&self, shown: &str) -> Option<Credential> {
        let now = self.now_secs();
        let LoginCode { held, given } = self
            .codes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&hash_secret(shown.trim()))?;
        (now < given + LOGIN_CODE_SECS).then_some(held)
    }

    /// Starts a session; returns the secret of its cookie.
    pub fn start_session(&self, held: Credential) -> anyhow::Result<LoginSecret> {
        let (secret, now) = (random_secret()?, self.now_secs());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, login| login.is_valid(now));
        insert_bounded(
            &mut open,
            hash_secret(&secret),
            LoginSession { held, begun: now, used: now },
            MAX_SESSIONS_PER_OWNER,
        );
        Ok(LoginSecret { secret, seconds: SESSION_MAX_SECS })
    }

    /// The credential of the session behind a request's cookie.
    pub fn session_of(&self, host: &Authority, headers: &HeaderMap) -> Option<Credential> {
        let (known, now) = (hash_secret(&cookie_secret(host, headers)?), self.now_secs());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let login = open.get_mut(&known)?;
        if !login.is_valid(now) {
            open.remove(&known);
            return None;
        }
        login.used = now;
        Some(login.held.clone())
    }

    /// Ends the session behind a request's cookie.
    pub fn end_session(&self, host: &Authority, headers: &HeaderMap) {
        if let Some(secret) = cookie_secret(host, headers) {
            self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&hash_secret(&secret));
        }
    }
}

impl LoginSession {
    fn is_valid(&self, now: u64) -> bool {
        now < self.used + SESSION_IDLE_SECS && now < self.begun + SESSION_MAX_SECS
    }
}

/// The secret in a request's cookie.
fn cookie_secret(host: &Authority, headers: &HeaderMap) -> Option<String> {
    let name = cookie_name(host);
    let sent = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'));
    let own = sent.filter_map(|pair| pair.trim().split_once('=')).find(|(named, _)| *named == name);
    own.map(|(_, secret)| secret.trim().to_owned()).filter(|secret| !secret.is_empty())
}

/// The `Set-Cookie` value; without a secret it deletes the cookie. Over TLS the cookie is `Secure`.
pub fn set_cookie_value(
    host: &Authority,
    headers: &HeaderMap,
    given: Option<&LoginSecret>,
) -> String {
    let is_tls = headers
        .get("origin")
        .is_some_and(|origin| origin.as_bytes().to_ascii_lowercase().starts_with(b"https://"));
    let secure = if is_tls { "; Secure" } else { "" };
    let (secret, seconds) = given.map_or(("", 0), |given| (given.secret.as_str(), given.seconds));
    format!(
        "{}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}",
        cookie_name(host)
    )
}

/// Whether the request carries the CSRF header, which forms and images of other sites cannot send.
pub fn has_csrf_header(headers: &HeaderMap) -> bool {
    headers.get(HeaderName::from_static(CSRF_HEADER)).is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::{ServerToken, TokenSource};
    use super::*;
    use crate::permissions::Grant;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A clock that is set by hand.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> jiff::Timestamp {
            jiff::Timestamp::UNIX_EPOCH
        }

        fn elapsed_millis(&self) -> u64 {
            self.0.load(Ordering::Relaxed) * 1_000
        }
    }

    fn logins() -> (Arc<LoginStore>, Arc<Hand>) {
        let clock = Arc::new(Hand::default());
        let token =
            |text: &str| ServerToken::parse(text, TokenSource::Set("ICECORE_TOKEN")).unwrap();
        let keys = TokenVerifier::new(
            token("a-token-of-some-length"),
            Some(token("a-token-for-reading-only")),
            None,
        );
        (LoginStore::new(keys, clock.clone()), clock)
    }

    fn reader() -> Credential {
        Credential { grant: Arc::new(Grant::read_only()), looked_up: None }
    }

    fn headers(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, cookie.parse().unwrap())])
    }

    #[test]
    fn a_token_lets_in_as_far_as_it_goes() {
        let (logins, _) = logins();
        let by_token = |shown: &str| pollster::block_on(logins.verify_token(shown)).unwrap();
        assert_eq!(by_token("a-token-of-some-length"), Some(Credential::owner()));
        assert_eq!(by_token(" a-token-for-reading-only\n"), Some(reader()));
        for wrong in ["", "a-token-of-some-lengt", "a-token-of-some-lengthh"] {
            assert_eq!(by_token(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_code_is_good_once_and_for_some_minutes() {
        let (logins, clock) = logins();
        let code = logins.create_code(Credential::owner()).unwrap();
        assert!(code.secret.len() == 64 && code.seconds == 600);
        assert_eq!(logins.redeem_code(&code.secret[1..]), None);
        assert_eq!(logins.redeem_code(&code.secret), Some(Credential::owner()));
        assert_eq!(logins.redeem_code(&code.secret), None);
        let late = logins.create_code(Credential::owner()).unwrap();
        clock.0.store(600, Ordering::Relaxed);
        assert_eq!(logins.redeem_code(&late.secret), None);
        // Only the newest codes are valid.
        let all: Vec<String> = (0..20)
            .map(|at| {
                clock.0.store(600 + at, Ordering::Relaxed);
                logins.create_code(Credential::owner()).unwrap().secret
            })
            .collect();
        assert_eq!(logins.redeem_code(&all[0]), None);
        assert_eq!(logins.redeem_code(&all[19]), Some(Credential::owner()));
    }

    #[test]
    fn a_cookie_is_good_while_it_is_used_and_not_for_ever() {
        let (logins, clock) = logins();
        let host: Authority = "127.0.0.1:7431".parse().unwrap();
        let given = logins.start_session(reader()).unwrap();
        let kept = set_cookie_value(&host, &HeaderMap::new(), Some(&given));
        assert_eq!(
            kept,
            format!(
                "icecore_7431={}; Path=/; HttpOnly; SameSite=Strict; Max-Age=604800",
                given.secret
            )
        );
        let sent = headers(&format!("other=1; icecore_7431={}", given.secret));
        assert_eq!(logins.session_of(&host, &sent), Some(reader()));
        // Another server on this machine has another cookie name.
        assert_eq!(logins.session_of(&"127.0.0.1:1".parse().unwrap(), &sent), None);
        for wrong in ["icecore_7431=", "icecore_7431=x", "icecore=x", "x"] {
            assert_eq!(logins.session_of(&host, &headers(wrong)), None, "{wrong}");
        }
        for day in 1..15 {
            clock.0.store(day * 11 * 3_600, Ordering::Relaxed);
            assert_eq!(logins.session_of(&host, &sent), Some(reader()), "{day}");
        }
        clock.0.store(7 * 24 * 3_600, Ordering::Relaxed);
        assert_eq!(logins.session_of(&host, &sent), None);
        let idle = logins.start_session(reader()).unwrap();
        clock.0.store(7 * 24 * 3_600 + 12 * 3_600, Ordering::Relaxed);
        assert_eq!(
            logins.session_of(&host, &headers(&format!("icecore_7431={}", idle.secret))),
            None
        );
        let again = logins.start_session(Credential::owner()).unwrap();
        let sent = headers(&format!("icecore_7431={}", again.secret));
        assert_eq!(logins.session_of(&host, &sent), Some(Credential::owner()));
        logins.end_session(&host, &sent);
        assert_eq!(logins.session_of(&host, &sent), None);
        // The number of sessions is bounded.
        let all: Vec<String> =
            (0..70).map(|_| logins.start_session(Credential::owner()).unwrap().secret).collect();
        let good = all
            .iter()
            .filter(|secret| {
                logins.session_of(&host, &headers(&format!("icecore_7431={secret}"))).is_some()
            })
            .count();
        assert_eq!(good, MAX_SESSIONS_PER_OWNER);
    }

    #[test]
    fn nobody_throws_another_out_however_often_they_log_in() {
        let (logins, clock) = logins();
        let host: Authority = "127.0.0.1:7431".parse().unwrap();
        let of = |id: &str, space: Option<&str>| Credential {
            grant: Arc::new(Grant {
                id: id.into(),
                space: space.map(Into::into),
                ..Grant::read_only()
            }),
            looked_up: None,
        };
        let is_in = |secret: &str| {
            logins.session_of(&host, &headers(&format!("icecore_7431={secret}"))).is_some()
        };
        let (ben, cid, home) = (
            logins.start_session(of("b", Some("ben"))).unwrap(),
            logins.start_session(of("c", None)).unwrap(),
            Credential::owner(),
        );
        let (home, code) =
            (logins.start_session(home.clone()).unwrap(), logins.create_code(home).unwrap());
        clock.0.store(60, Ordering::Relaxed);
        // However many tokens are used.
        let anns: Vec<String> = (0..500)
            .map(|n| logins.start_session(of(&format!("a{n}"), Some("ann"))).unwrap().secret)
            .collect();
        (0..500).for_each(|n| drop(logins.create_code(of(&format!("a{n}"), Some("ann"))).unwrap()));
        assert!(is_in(&ben.secret) && is_in(&cid.secret) && is_in(&home.secret));
        assert_eq!(anns.iter().filter(|secret| is_in(secret)).count(), MAX_SESSIONS_PER_OWNER);
        assert_eq!(logins.redeem_code(&code.secret), Some(Credential::owner()));
        assert_eq!(logins.codes.lock().unwrap().len(), MAX_CODES_PER_OWNER);
        // In total they are bounded, and the owner with the most loses one.
        let mut open = logins.open.lock().unwrap();
        for n in 0..MAX_ENTRIES - open.len() {
            open.insert(
                hash_secret(&n.to_string()),
                LoginSession { held: of("x", Some(&n.to_string())), begun: 60, used: 60 },
            );
        }
        insert_bounded(
            &mut open,
            hash_secret("dan"),
            LoginSession { held: of("d", Some("dan")), begun: 60, used: 60 },
            MAX_SESSIONS_PER_OWNER,
        );
        assert_eq!(open.len(), MAX_ENTRIES);
        drop(open);
        assert!(is_in(&ben.secret) && is_in("dan"));
        assert_eq!(anns.iter().filter(|secret| is_in(secret)).count(), MAX_SESSIONS_PER_OWNER - 1);
    }

    #[test]
    fn over_tls_a_cookie_goes_over_tls_alone() {
        let host: Authority = "memory.example".parse().unwrap();
        let tls = HeaderMap::from_iter([(
            axum::http::header::ORIGIN,
            "https://memory.example".parse().unwrap(),
        )]);
        assert_eq!(
            set_cookie_value(&host, &tls, None),
            "icecore=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0; Secure"
        );
    }
}
