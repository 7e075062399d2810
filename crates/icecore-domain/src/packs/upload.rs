//! The upload package (P7): what a new session is given to begin with, in a size that does not grow with the years.
//!
//! The latest month, this week, and today's sessions. Never above its limit, whatever there is: bodies shrink to headlines
//! before anything is dropped, today's sessions are in it at least by headline, and what gave way is said.

use jiff::civil::Date;

use super::{Pack, Part, assemble, cited, whole};
use crate::budget::{self, LeftOut};
use crate::summary::{Period, Summary};

/// What the package is made from.
#[derive(Debug, Clone, Default)]
pub struct Upload {
    /// The latest month.
    pub month: Option<Summary>,
    /// The weeks after it, oldest first; without a month, the latest few. The last one is "this week".
    pub weeks: Vec<Summary>,
    /// Without any week, the latest days, oldest first.
    pub days: Vec<Summary>,
    /// Sessions that no week tells of yet, oldest first; without today's.
    pub open_sessions: Vec<Summary>,
    /// Today's sessions, oldest first.
    pub today: Vec<Summary>,
}

/// How much of a summary is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Whole,
    Headline,
    Short(usize),
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    LongTerm,
    Weekly,
    ThisWeek,
    Open,
    Daily,
    Today,
}

struct Item<'a> {
    place: Place,
    summary: &'a Summary,
    form: Form,
}

impl Item<'_> {
    fn text(&self) -> String {
        let headline = |most: usize| {
            let name = if self.place == Place::Today { String::new() } else { format!("{}: ", self.summary.period) };
            format!("- {name}{}\n", budget::shortened(&self.summary.headline, most))
        };
        match self.form {
            Form::Whole => whole(self.summary),
            Form::Headline => headline(usize::MAX),
            Form::Short(most) => headline(most),
            Form::Gone => String::new(),
        }
    }

    fn title(&self) -> String {
        match self.place {
            Place::LongTerm => "Long-Term Context".into(),
            Place::Weekly => "Weekly Context".into(),
            Place::ThisWeek | Place::Open => "This Week".into(),
            Place::Daily => "Daily Context".into(),
            Place::Today => match self.summary.period {
                Period::Session { number, .. } => format!("Today Session {number:02}"),
                other => format!("Today {other}"),
            },
        }
    }
}

/// The shortest a headline of today gets before the oldest of today are only counted.
const SHORTEST_BYTES: usize = 24;
/// How many of today's sessions are named one by one under headings of their own; more share one.
const OWN_HEADINGS: usize = 40;

/// Makes the package for a day, in at most `room` bytes.
pub fn upload(day: Date, from: &Upload, room: usize) -> Pack {
    const INTRO: &str = "# Knowledge Primer -- Upload Package";
    let mut items: Vec<Item<'_>> = Vec::new();
    items.extend(from.month.iter().map(|summary| Item { place: Place::LongTerm, summary, form: Form::Whole }));
    let last = from.weeks.len().saturating_sub(1);
    for (at, summary) in from.weeks.iter().enumerate() {
        let (place, form) = match (from.month.is_some(), at == last) {
            (true, true) => (Place::ThisWeek, Form::Whole),
            // Weeks between the month and this week.
            (true, false) => (Place::Weekly, Form::Headline),
            (false, _) => (Place::Weekly, Form::Whole),
        };
        items.push(Item { place, summary, form });
    }
    items.extend(from.days.iter().map(|summary| Item { place: Place::Daily, summary, form: Form::Whole }));
    items.extend(from.open_sessions.iter().map(|summary| Item { place: Place::Open, summary, form: Form::Headline }));
    items.extend(from.today.iter().map(|summary| Item { place: Place::Today, summary, form: Form::Whole }));
    if items.is_empty() {
        let hint = "# No primers available\n\nNothing has been captured yet. `icecore session add FILE` takes in a transcript, `icecore import FILE --format jsonl` a history.";
        return assemble("upload", day, hint, &[], Vec::new(), Vec::new());
    }
    items.sort_by_key(|item| item.place);
    let mut left_out = Vec::new();
    let fits = |items: &[Item<'_>]| build(day, INTRO, items, &[]).bytes + account(items) <= room;
    if !fits(&items) {
        shrink(&mut items, &fits);
    }
    report(&items, &mut left_out);
    build(day, INTRO, &items, &left_out)
}

/// Room for the lines that say what gave way.
fn account(items: &[Item<'_>]) -> usize {
    if items.iter().any(|item| matches!(item.form, Form::Gone | Form::Short(_))) { 220 } else { 0 }
}

/// Lets things give way, one after the other, until it fits.
fn shrink(items: &mut [Item<'_>], fits: &dyn Fn(&[Item<'_>]) -> bool) {
    use Place::{Daily, LongTerm, Open, ThisWeek, Today, Weekly};
    // Bodies first: of what is old before what is new, and this week and the month last.
    let bodies: Vec<usize> = [Weekly, Daily, Today, ThisWeek, LongTerm]
        .iter()
        .flat_map(|&place| {
            let of: Vec<usize> = (0..items.len()).filter(|&at| items[at].place == place && items[at].form == Form::Whole).collect();
            of
        })
        .collect();
    // The newest session of today keeps its body longest.
    let newest = items.iter().rposition(|item| item.place == Today);
    let (later, sooner): (Vec<usize>, Vec<usize>) = bodies.into_iter().partition(|&at| Some(at) == newest);
    if step(items, &[sooner, later].concat(), Form::Headline, fits) {
        return;
    }
    // Then headlines of what other tiers tell as well.
    let others: Vec<usize> = [Open, Weekly, Daily]
        .iter()
        .flat_map(|&place| (0..items.len()).filter(|&at| items[at].place == place).collect::<Vec<_>>())
        .collect();
    if step(items, &others, Form::Gone, fits) {
        return;
    }
    let old: Vec<usize> = (0..items.len()).filter(|&at| matches!(items[at].place, LongTerm | ThisWeek)).collect();
    if step(items, &old, Form::Short(160), fits) {
        return;
    }
    // Then today's headlines get shorter, all alike.
    let today: Vec<usize> = (0..items.len()).filter(|&at| items[at].place == Today).collect();
    for most in [320, 200, 120, 80, 48, SHORTEST_BYTES] {
        today.iter().for_each(|&at| items[at].form = Form::Short(most));
        if fits(items) {
            return;
        }
    }
    // Then the oldest are only counted. How many, is found by halving: counting more always makes it shorter.
    let (mut low, mut high) = (0, today.len().saturating_sub(1));
    while low < high {
        let middle = (low + high) / 2;
        let form = |order: usize| if order <= middle { Form::Gone } else { Form::Short(SHORTEST_BYTES) };
        today.iter().enumerate().for_each(|(order, &at)| items[at].form = form(order));
        if fits(items) { high = middle } else { low = middle + 1 }
    }
    today.iter().enumerate().for_each(|(order, &at)| items[at].form = if order <= low { Form::Gone } else { Form::Short(SHORTEST_BYTES) });
    // With hardly any room, not even that.
    if !fits(items) {
        items.iter_mut().for_each(|item| item.form = Form::Gone);
    }
}

/// Gives the first of these items that form, as many as are needed; true if it fits then.
fn step(items: &mut [Item<'_>], order: &[usize], form: Form, fits: &dyn Fn(&[Item<'_>]) -> bool) -> bool {
    if order.is_empty() {
        return false;
    }
    let before: Vec<Form> = order.iter().map(|&at| items[at].form).collect();
    let set = |items: &mut [Item<'_>], many: usize| {
        for (done, &at) in order.iter().enumerate() {
            items[at].form = if done < many { form } else { before[done] };
        }
    };
    set(items, order.len());
    if !fits(items) {
        return false;
    }
    let (mut low, mut high) = (1, order.len());
    while low < high {
        let middle = (low + high) / 2;
        set(items, middle);
        if fits(items) { high = middle } else { low = middle + 1 }
    }
    set(items, low);
    true
}

fn report(items: &[Item<'_>], left_out: &mut Vec<LeftOut>) {
    let why = "the package has a fixed size";
    let names = |form: &dyn Fn(&Item<'_>) -> bool| -> Vec<String> {
        items.iter().filter(|item| form(item)).map(|item| item.summary.period.to_string()).collect()
    };
    // Weeks between the month and this week are shown by headline from the start.
    let reduced = names(&|item| item.form == Form::Headline && !matches!(item.place, Place::Open | Place::Weekly));
    let shortened = names(&|item| matches!(item.form, Form::Short(_)));
    let gone = names(&|item| item.form == Form::Gone);
    for (what, names) in [("the bodies of", reduced), ("all but the beginnings of", shortened), ("", gone)] {
        if !names.is_empty() {
            left_out.push(LeftOut::new(format!("{what} {}", list(&names)).trim().to_owned(), why));
        }
    }
}

fn list(names: &[String]) -> String {
    match names {
        [first, .., last] if names.len() > 4 => format!("{} from {first} to {last}", names.len()),
        _ => names.join(", "),
    }
}

fn build(day: Date, intro: &str, items: &[Item<'_>], left_out: &[LeftOut]) -> Pack {
    let mut parts: Vec<Part> = Vec::new();
    let many = items.iter().filter(|item| item.place == Place::Today).count() > OWN_HEADINGS;
    for item in items.iter().filter(|item| item.form != Form::Gone) {
        let shared = many && item.place == Place::Today && item.form != Form::Whole;
        let title = if shared { "Today's Sessions".to_owned() } else { item.title() };
        match parts.last_mut() {
            Some(part) if part.title == title && (shared || item.form != Form::Whole || item.place == Place::Open) => {
                if !part.text.ends_with("\n\n") && !part.text.lines().last().unwrap_or_default().starts_with("- ") {
                    part.text.push('\n');
                }
                part.text.push_str(&item.text());
            }
            _ => parts.push(Part::new(title, item.text())),
        }
    }
    if !left_out.is_empty() {
        let lines: Vec<String> = left_out.iter().map(|left| format!("- {}", budget::shortened(&left.what, 100))).collect();
        parts.push(Part::new("Left Out", lines.join("\n")));
    }
    let sources = items.iter().filter(|item| item.form != Form::Gone).map(|item| cited(item.summary)).collect();
    assemble("upload", day, intro, &parts, left_out.to_vec(), sources)
}
