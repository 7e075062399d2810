//! Insights across time: recurring topics, what happened at this time in earlier months and years,
//! and similar summaries (Y11).

mod lexicon;
pub mod lookback;
pub mod similar;
pub mod trend;

use jiff::civil::Date;

use crate::calendar::Moment;
use crate::event::{Event, SAID};

/// The local day of an event: when its words were said, if known, else when it was recorded.
pub fn told_on(event: &Event) -> Date {
    event
        .field::<String>(SAID)
        .and_then(|text| Moment::read(&text))
        .map_or(event.ts, |read| read.moment)
        .day()
}
