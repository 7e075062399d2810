//! Across time: what comes up again and again, what was at this time before, and what is like what
//! (Y11).

mod lexicon;
pub mod lookback;
pub mod similar;
pub mod trend;

use jiff::civil::Date;

use crate::calendar::Moment;
use crate::event::{Event, SAID};

/// The local day an event tells of: when its words were said, where that is known, else when it was
/// recorded.
pub fn told_on(event: &Event) -> Date {
    event
        .field::<String>(SAID)
        .and_then(|text| Moment::read(&text))
        .map_or(event.ts, |read| read.moment)
        .day()
}
