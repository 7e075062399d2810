//! Retries: when to send a request again, and how long to wait before.
//!
//! Only a request that certainly got no answer is sent again: no connection, or a status such as
//! 429. The delays are derived from the request, so two runs of one request wait equally long, and
//! two requests do not retry in step.

use std::time::Duration;

use icecore_domain::hash::Hash;
use jiff::fmt::rfc2822;

use super::{ModelError, ModelRequest};

/// The most requests for one answer.
pub const MAX_REQUESTS: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// The seed of a request's jitter.
pub fn jitter_seed(ask: &ModelRequest) -> u64 {
    let hash = Hash::of(ask.system.as_bytes())
        .chain(ask.user.as_bytes())
        .chain(&ask.attempt.to_be_bytes());
    hash.as_bytes().iter().take(8).fold(0, |seed, byte| (seed << 8) | u64::from(*byte))
}

/// The delay before the next request after `tries` attempts that ended in `trouble`; `None` to give
/// up.
pub fn retry_delay(trouble: &ModelError, tries: u32, seed: u64, cap: Duration) -> Option<Duration> {
    if tries >= MAX_REQUESTS {
        return None;
    }
    match trouble {
        ModelError::RateLimited { retry_after: Some(wished), .. } => {
            (*wished <= cap).then_some(*wished)
        }
        ModelError::RateLimited { retry_after: None, .. } | ModelError::Unreachable { .. } => {
            Some(backoff(tries, seed).min(cap))
        }
        ModelError::Refused { status, .. } if is_retryable_status(*status) => {
            Some(backoff(tries, seed).min(cap))
        }
        _ => None,
    }
}

/// Whether a status means that the request may succeed later.
pub fn is_retryable_status(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504 | 529)
}

/// Doubles with every attempt; the upper half of each delay is jitter.
fn backoff(tries: u32, seed: u64) -> Duration {
    let full = FIRST_DELAY * (1 << tries.saturating_sub(1).min(8));
    let mixed = Hash::of(&[seed.to_be_bytes(), u64::from(tries).to_be_bytes()].concat());
    let share = u32::from(mixed.as_bytes()[0]);
    full / 2 + full / 2 * share / 255
}

/// The delay of a `Retry-After` header. A date is compared with the reply's own `Date`, so a wrong
/// clock on either side does no harm.
pub fn parse_retry_after(value: &str, date: Option<&str>) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    if let Ok(secs) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(secs).ok();
    }
    let until = rfc2822::parse(value).ok()?.timestamp();
    let from = rfc2822::parse(date?.trim()).ok()?.timestamp();
    Some(Duration::try_from(until.duration_since(from)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_secs(30);

    fn status_error(status: u16) -> ModelError {
        ModelError::Refused { place: String::new(), status, said: String::new() }
    }

    fn rate_limit_error(secs: Option<u64>) -> ModelError {
        let retry_after = secs.map(Duration::from_secs);
        ModelError::RateLimited {
            place: String::new(),
            status: 429,
            retry_after,
            said: String::new(),
        }
    }

    #[test]
    fn only_what_may_pass_is_asked_again() {
        for status in [408, 429, 500, 502, 503, 504, 529] {
            assert!(retry_delay(&status_error(status), 1, 7, CAP).is_some(), "{status}");
        }
        for status in [301, 400, 401, 403, 404, 422, 501] {
            assert_eq!(retry_delay(&status_error(status), 1, 7, CAP), None, "{status}");
        }
        let broken = ModelError::InvalidAnswer { place: String::new(), said: String::new() };
        assert_eq!(retry_delay(&broken, 1, 7, CAP), None);
        assert_eq!(retry_delay(&status_error(500), MAX_REQUESTS, 7, CAP), None);
    }

    #[test]
    fn a_wished_wait_is_kept_or_handed_back() {
        assert_eq!(retry_delay(&rate_limit_error(Some(0)), 1, 7, CAP), Some(Duration::ZERO));
        assert_eq!(retry_delay(&rate_limit_error(Some(30)), 1, 7, CAP), Some(CAP));
        assert_eq!(retry_delay(&rate_limit_error(Some(31)), 1, 7, CAP), None);
        assert!(retry_delay(&rate_limit_error(None), 1, 7, CAP).is_some());
    }

    #[test]
    fn waits_grow_stay_in_bounds_and_differ_between_asks() {
        for seed in 0..200 {
            let (first, second) = (backoff(1, seed), backoff(2, seed));
            assert!((FIRST_DELAY / 2..=FIRST_DELAY).contains(&first), "{first:?}");
            assert!((FIRST_DELAY..=FIRST_DELAY * 2).contains(&second), "{second:?}");
            assert_eq!(first, backoff(1, seed));
        }
        let ask = |user: &str, attempt| ModelRequest {
            system: "s".into(),
            user: user.into(),
            schema: None,
            max_tokens: 1,
            attempt,
        };
        let seeds = [
            jitter_seed(&ask("one", 0)),
            jitter_seed(&ask("another", 0)),
            jitter_seed(&ask("one", 1)),
        ];
        assert!(seeds[0] != seeds[1] && seeds[0] != seeds[2]);
        let waits: std::collections::BTreeSet<_> = (0..200).map(|seed| backoff(1, seed)).collect();
        assert!(waits.len() > 50, "{}", waits.len());
        assert!(backoff(u32::MAX, 1) < Duration::from_secs(3600));
    }

    #[test]
    fn a_retry_after_is_read_in_both_its_forms() {
        let date = Some("Fri, 13 Feb 2026 08:00:00 GMT");
        for (value, date, secs) in [
            ("0", None, Some(0)),
            (" 7 ", None, Some(7)),
            ("99999999999999999999999", None, Some(u64::MAX)),
            ("1.0", None, Some(1)),
            ("Fri, 13 Feb 2026 08:00:09 GMT", date, Some(9)),
            ("Fri, 13 Feb 2026 07:00:00 GMT", date, Some(0)),
            ("Fri, 13 Feb 2026 08:00:09 GMT", None, None),
            ("-3", None, None),
            ("NaN", None, None),
            ("soon", date, None),
            ("", date, None),
        ] {
            assert_eq!(parse_retry_after(value, date), secs.map(Duration::from_secs), "{value}");
        }
    }
}
