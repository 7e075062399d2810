//! The clock. Invariant: no other module reads the time.
#![expect(clippy::disallowed_methods, reason = "this is the clock")]

use jiff::Timestamp;

/// A source of the current time.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;

    /// Milliseconds since an arbitrary start, for measuring durations. A fixed clock returns 0.
    fn elapsed_millis(&self) -> u64 {
        0
    }

    /// Whether the user chose the moment, so that what is newer is not known yet.
    fn is_set_by_hand(&self) -> bool {
        false
    }
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed_millis(&self) -> u64 {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        let beginning = START.get_or_init(std::time::Instant::now);
        u64::try_from(beginning.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that always shows the same moment.
#[derive(Debug, Clone, Copy)]
pub struct FixedClock(pub Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn is_set_by_hand(&self) -> bool {
        true
    }
}

/// The name of the system's time zone, if it has one.
pub fn system_zone_name() -> Option<String> {
    jiff::tz::TimeZone::try_system().ok()?.iana_name().map(str::to_owned)
}
