//! A chart of a memory by week: the newest week on top, as wide as its number of messages.

use std::collections::BTreeMap;

use icecore_domain::calendar::{Month, Week};
use icecore_domain::summary::{Importance, Period, SummaryHead};
use jiff::civil::Date;

/// The widest bar; with its labels a line has less than 80 columns.
const MAX_COLUMNS: usize = 56;

/// Limits the search for a scale.
const MAX_MESSAGES_PER_COLUMN: u64 = 1 << 32;

struct Layer {
    week: Week,
    days: Vec<(Date, u64, Importance)>,
}

impl Layer {
    fn messages(&self) -> u64 {
        self.days.iter().map(|(_, messages, _)| messages).sum()
    }

    /// A run of characters for each day, separated by a bar.
    fn render(&self, per_column: u64) -> String {
        let days = self.days.iter().filter(|(_, messages, _)| *messages > 0);
        let runs: Vec<String> = days
            .map(|(_, messages, importance)| {
                let sign = match importance {
                    Importance::Dull => ".",
                    Importance::Ordinary => "=",
                    Importance::Important => "#",
                };
                sign.repeat(usize::try_from(messages.div_ceil(per_column)).unwrap_or(1))
            })
            .collect();
        format!("({})", runs.join("|"))
    }
}

fn layers(heads: &[SummaryHead]) -> BTreeMap<Month, Vec<Layer>> {
    let mut weeks: BTreeMap<Week, Layer> = BTreeMap::new();
    for head in heads {
        if let Period::Day(day) = head.period {
            let week = Week::containing(day);
            weeks.entry(week).or_insert_with(|| Layer { week, days: Vec::new() }).days.push((
                day,
                head.messages,
                head.importance,
            ));
        }
    }
    let mut months: BTreeMap<Month, Vec<Layer>> = BTreeMap::new();
    for (week, mut layer) in weeks {
        layer.days.sort_unstable_by_key(|(day, ..)| *day);
        if layer.messages() > 0 {
            months.entry(week.month()).or_default().push(layer);
        }
    }
    months
}

/// The lines of the chart, and the messages per column.
pub fn draw(heads: &[SummaryHead]) -> (Vec<String>, u64) {
    let months = layers(heads);
    let widest = |per_column| {
        months.values().flatten().map(|layer| layer.render(per_column).len()).max().unwrap_or(0)
    };
    let mut per_column = 1;
    while widest(per_column) > MAX_COLUMNS && per_column < MAX_MESSAGES_PER_COLUMN {
        per_column += per_column.div_ceil(8);
    }
    let widest = widest(per_column);
    let mut lines = Vec::new();
    for (month, layers) in months.iter().rev() {
        for (at, layer) in layers.iter().rev().enumerate() {
            let name = if at == 0 { month.to_string() } else { String::new() };
            let stem = if at + 1 == layers.len() { '`' } else { '|' };
            let drawn = layer.render(per_column);
            let inset = " ".repeat((widest - drawn.len()) / 2);
            let row = format!(
                "  {name:<7} {stem}- {}  {:<widest$} {:>5}",
                short(layer.week),
                format!("{inset}{drawn}"),
                layer.messages()
            );
            lines.push(row);
        }
    }
    (lines, per_column)
}

/// The week without its year, which the month beside it shows.
fn short(week: Week) -> String {
    week.to_string().split_once('-').map_or_else(String::new, |(_, week)| week.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore_domain::calendar::Moment;
    use icecore_domain::hash::Hash;
    use jiff::civil::date;

    fn head(day: Date, messages: u64) -> SummaryHead {
        SummaryHead {
            period: Period::Day(day),
            version: 1,
            session: None,
            recorded: Moment::parse("2026-05-17T03:00:00+02:00").unwrap().moment,
            source: Hash::of(b"x"),
            log: None,
            content: Hash::of(b"x"),
            messages,
            states: 0,
            by_hand: false,
            provisional: true,
            importance: if messages > 6 { Importance::Important } else { Importance::Ordinary },
            headline_bytes: 1,
            body_bytes: 0,
        }
    }

    #[test]
    fn layers_are_as_thick_as_their_weeks_and_never_wider_than_a_terminal() {
        let (small, one) = draw(&[
            head(date(2026, 4, 29), 3),
            head(date(2026, 5, 1), 7),
            head(date(2026, 5, 6), 4),
        ]);
        assert_eq!(
            small,
            ["  2026-05 `- W19     (====)         4", "  2026-04 `- W18  (===|#######)    10"]
        );
        assert_eq!(one, 1);
        assert!(draw(&[]).0.is_empty());
        let days = date(2026, 1, 1).series(jiff::Span::new().days(1)).take(120);
        let full: Vec<SummaryHead> =
            days.enumerate().map(|(at, day)| head(day, 1 + at as u64 * 97)).collect();
        let (drawn, many) = draw(&full);
        assert!(
            many > 100 && drawn.len() > 16 && drawn.iter().all(|line| line.len() <= 80),
            "{drawn:#?}"
        );
    }
}
