//! Insights across time: recurring topics, what happened at this time in earlier months and years,
//! and similar summaries (Y11).

mod lexicon;
pub mod lookback;
pub mod similar;
pub mod trend;

use jiff::civil::Date;

use crate::calendar::Moment;
use crate::event::{Event, SAID_AT_FIELD};

/// The local day of an event: when its words were said, if known, else when it was recorded.
pub fn event_day(event: &Event) -> Date {
    event
        .extra_field::<String>(SAID_AT_FIELD)
        .and_then(|text| Moment::parse(&text))
        .map_or(event.ts, |read| read.moment)
        .day()
}
