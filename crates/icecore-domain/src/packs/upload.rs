//! The upload pack (P7): the initial context of a new session, of bounded size.
//!
//! It holds the latest month, this week, and today's sessions, and never exceeds its limit: bodies
//! shrink to headlines before anything is omitted, each of today's sessions has at least a
//! headline, and omissions are reported.

use std::borrow::Cow;
use std::collections::BTreeSet;

use icecore_text::normalize::collapse_spaces;
use jiff::civil::Date;

use super::{Pack, PackPart, assemble_pack, summary_citation, summary_text};
use crate::budget::{self, Omission};
use crate::capture_filter;
use crate::summary::{Period, Summary};

/// The input of the upload pack. Periods covered by a coarser summary are not repeated by finer
/// ones.
#[derive(Debug, Clone, Default)]
pub struct UploadInput {
    pub month: Option<Summary>,
    /// The weeks after the month; without a month, the latest few. The last one is "this week".
    pub weeks: Vec<Summary>,
    /// The latest days, if there is no week.
    pub days: Vec<Summary>,
    /// Sessions that no week covers yet, except today's.
    pub open_sessions: Vec<Summary>,
    pub today: Vec<Summary>,
}

/// The form in which a summary is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemForm {
    Whole,
    Headline,
    /// The headline, in at most this many bytes.
    Short(usize),
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum UploadSlot {
    LongTerm,
    Weekly,
    ThisWeek,
    Open,
    Daily,
    Today,
}

struct UploadItem<'a> {
    place: UploadSlot,
    summary: &'a Summary,
    whole: String,
    /// The headline on one line, for a list.
    headline: String,
    form: ItemForm,
    had_body: bool,
}

impl<'a> UploadItem<'a> {
    /// Marks in foreign text are escaped before anything is measured, because that lengthens the
    /// text.
    fn new(place: UploadSlot, summary: &'a Summary, form: ItemForm) -> Self {
        let headline = collapse_spaces(&summary.headline);
        Self {
            place,
            summary,
            whole: capture_filter::escape_markers(summary_text(summary).trim_end()).into_owned(),
            headline: capture_filter::escape_markers(&headline).into_owned(),
            form,
            had_body: form == ItemForm::Whole && !summary.body.trim().is_empty(),
        }
    }

    fn is_shortened(&self) -> bool {
        matches!(self.form, ItemForm::Short(most) if self.headline.len() > most)
    }

    fn text(&self) -> Cow<'_, str> {
        let headline = match self.form {
            ItemForm::Whole => return Cow::Borrowed(&self.whole),
            ItemForm::Gone => return Cow::Borrowed(""),
            ItemForm::Headline => Cow::Borrowed(self.headline.as_str()),
            ItemForm::Short(most) => Cow::Owned(budget::truncate_at_word(&self.headline, most)),
        };
        let line = match (self.place, self.summary.period) {
            (UploadSlot::Today, Period::Session { number, .. }) => {
                format!("- {number:02}: {headline}")
            }
            (_, period) => format!("- {period}: {headline}"),
        };
        Cow::Owned(if headline.is_empty() { line.trim_end().to_owned() } else { line })
    }

    fn title(&self) -> Cow<'static, str> {
        match (self.place, self.form, self.summary.period) {
            (UploadSlot::LongTerm, ..) => "Long-Term Context".into(),
            (UploadSlot::Weekly, ..) => "Weekly Context".into(),
            (UploadSlot::ThisWeek | UploadSlot::Open, ..) => "This Week".into(),
            (UploadSlot::Daily, ..) => "Daily Context".into(),
            (UploadSlot::Today, ItemForm::Whole, Period::Session { number, .. }) => {
                format!("Today Session {number:02}").into()
            }
            // Several shortened sessions form one list.
            (UploadSlot::Today, ..) => "Today's Sessions".into(),
        }
    }
}

/// The bytes that remain of the headlines of the month and this week when today's sessions need
/// nearly all space.
const MIN_OLD_HEADLINE_BYTES: usize = 160;
/// The shortest headline of today, in bytes; below this the oldest sessions are only counted.
const MIN_HEADLINE_BYTES: usize = 24;
const UPLOAD_TITLE: &str = "# Knowledge Primer -- Upload Package";

/// Assembles the pack for a day, in at most `room` bytes; at least 512 are needed.
pub fn upload_pack(day: Date, from: &UploadInput, room: usize) -> Pack {
    let mut items = upload_items(from);
    if items.is_empty() {
        let hint = "# No primers available\n\nNothing has been captured yet. `icecore session add FILE` imports a transcript, `icecore import FILE --format jsonl` a history.";
        return assemble_pack("upload", day, hint, &[], Vec::new(), Vec::new());
    }
    let frame = assemble_pack("upload", day, UPLOAD_TITLE, &[], Vec::new(), Vec::new()).bytes;
    let fits = |items: &[UploadItem<'_>]| {
        let told: usize = group_items(items).iter().map(ItemGroup::bytes).sum();
        frame + told + omissions_part(&omissions(items)).map_or(0, |part| part.to_markdown().len())
            <= room
    };
    if !fits(&items) {
        shrink_to_fit(&mut items, &fits);
    }
    let left_out = omissions(&items);
    let parts: Vec<PackPart> = group_items(&items)
        .iter()
        .map(ItemGroup::to_part)
        .chain(omissions_part(&left_out))
        .collect();
    let sources = items
        .iter()
        .filter(|item| item.form != ItemForm::Gone)
        .map(|item| summary_citation(item.summary))
        .collect();
    assemble_pack("upload", day, UPLOAD_TITLE, &parts, left_out, sources)
}

/// The items in pack order, each period once.
fn upload_items(from: &UploadInput) -> Vec<UploadItem<'_>> {
    let told_until = from.month.as_ref().map(|month| month.period.days().last);
    let untold =
        |summary: &&Summary| told_until.is_none_or(|until| summary.period.days().first > until);
    let mut items: Vec<UploadItem<'_>> = Vec::new();
    // Today first, so that a session in both lists counts as today's.
    items.extend(
        from.today
            .iter()
            .map(|summary| UploadItem::new(UploadSlot::Today, summary, ItemForm::Whole)),
    );
    items.extend(
        from.month
            .iter()
            .map(|summary| UploadItem::new(UploadSlot::LongTerm, summary, ItemForm::Whole)),
    );
    let this_week = from.weeks.iter().map(|week| week.period).max();
    for summary in from.weeks.iter().filter(untold) {
        let (place, form) = match told_until {
            Some(_) if Some(summary.period) == this_week => (UploadSlot::ThisWeek, ItemForm::Whole),
            // Weeks between the month and this week.
            Some(_) => (UploadSlot::Weekly, ItemForm::Headline),
            None => (UploadSlot::Weekly, ItemForm::Whole),
        };
        items.push(UploadItem::new(place, summary, form));
    }
    if items.iter().all(|item| !matches!(item.place, UploadSlot::Weekly | UploadSlot::ThisWeek)) {
        items.extend(
            from.days
                .iter()
                .filter(untold)
                .map(|summary| UploadItem::new(UploadSlot::Daily, summary, ItemForm::Whole)),
        );
    }
    items.extend(
        from.open_sessions
            .iter()
            .filter(untold)
            .map(|summary| UploadItem::new(UploadSlot::Open, summary, ItemForm::Headline)),
    );
    let mut seen = BTreeSet::new();
    items.retain(|item| seen.insert(item.summary.period));
    items.sort_by_key(|item| (item.place, item.summary.period));
    items
}

/// Shrinks items step by step until they fit.
fn shrink_to_fit(items: &mut [UploadItem<'_>], fits: &dyn Fn(&[UploadItem<'_>]) -> bool) {
    use UploadSlot::{Daily, LongTerm, Open, ThisWeek, Today, Weekly};
    let at = |items: &[UploadItem<'_>], places: &[UploadSlot]| -> Vec<usize> {
        places
            .iter()
            .flat_map(|&place| (0..items.len()).filter(move |&at| items[at].place == place))
            .collect()
    };
    // Bodies first: older ones before newer ones, then those of this week and the month; that of
    // the newest session last.
    let mut bodies = at(items, &[Weekly, Daily, Today, ThisWeek, LongTerm]);
    bodies.retain(|&at| items[at].form == ItemForm::Whole);
    if let Some(newest) =
        bodies.iter().position(|&at| at + 1 == items.len() && items[at].place == Today)
    {
        let newest = bodies.remove(newest);
        bodies.push(newest);
    }
    if apply_step(items, &bodies, ItemForm::Headline, fits) {
        return;
    }
    // Then headlines of periods that other tiers cover as well.
    if apply_step(items, &at(items, &[Open, Weekly, Daily]), ItemForm::Gone, fits) {
        return;
    }
    let old = at(items, &[LongTerm, ThisWeek]);
    if apply_step(items, &old, ItemForm::Short(MIN_OLD_HEADLINE_BYTES), fits) {
        return;
    }
    // Then today's headlines get shorter, evenly; for their sake the headlines of the month and
    // this week go.
    let today = at(items, &[Today]);
    let longest =
        today.iter().map(|&at| items[at].headline.len()).max().unwrap_or(0).max(MIN_HEADLINE_BYTES);
    for form in [ItemForm::Short(MIN_OLD_HEADLINE_BYTES), ItemForm::Gone] {
        set_form(items, &old, form);
        set_form(items, &today, ItemForm::Short(MIN_HEADLINE_BYTES));
        if fits(items) {
            let mut shortened_by = |cut: usize| {
                set_form(items, &today, ItemForm::Short(longest - cut));
                fits(items)
            };
            let cut = find_least(0, longest - MIN_HEADLINE_BYTES, &mut shortened_by);
            shortened_by(cut);
            return;
        }
    }
    // Not even short headlines fit: the oldest sessions are only counted. The older periods stay if
    // that costs few sessions.
    let counted = |items: &mut [UploadItem<'_>], form: ItemForm, many: usize| {
        set_form(items, &old, form);
        set_form(items, &today[..many], ItemForm::Gone);
        set_form(items, &today[many..], ItemForm::Short(MIN_HEADLINE_BYTES));
        fits(items)
    };
    let [with, without] = [ItemForm::Short(MIN_OLD_HEADLINE_BYTES), ItemForm::Gone]
        .map(|form| find_least(0, today.len(), &mut |many| counted(items, form, many)));
    let dear = (today.len() - with) * 4 < (today.len() - without) * 3;
    if dear || !counted(items, ItemForm::Short(MIN_OLD_HEADLINE_BYTES), with) {
        counted(items, ItemForm::Gone, without);
    }
}

fn set_form(items: &mut [UploadItem<'_>], which: &[usize], form: ItemForm) {
    which.iter().for_each(|&at| items[at].form = form);
}

/// Gives the first items this form, as many as needed; returns whether the pack fits then.
fn apply_step(
    items: &mut [UploadItem<'_>],
    order: &[usize],
    form: ItemForm,
    fits: &dyn Fn(&[UploadItem<'_>]) -> bool,
) -> bool {
    let before: Vec<ItemForm> = order.iter().map(|&at| items[at].form).collect();
    set_form(items, order, form);
    if order.is_empty() || !fits(items) {
        return false;
    }
    let mut first = |many: usize| {
        for (done, &at) in order.iter().enumerate() {
            items[at].form = if done < many { form } else { before[done] };
        }
        fits(items)
    };
    let many = find_least(1, order.len(), &mut first);
    first(many);
    true
}

/// Binary search for the least number from `low` on that satisfies a monotonic condition; it holds
/// for `high`.
fn find_least(mut low: usize, mut high: usize, holds: &mut dyn FnMut(usize) -> bool) -> usize {
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// The omissions to report.
fn omissions(items: &[UploadItem<'_>]) -> Vec<Omission> {
    let of = |what: &str, gave_way: &dyn Fn(&UploadItem<'_>) -> bool| {
        let periods: Vec<Period> =
            items.iter().filter(|item| gave_way(item)).map(|item| item.summary.period).collect();
        let named = match periods.as_slice() {
            [] => return None,
            [first, .., last] if periods.len() > 3 => {
                format!("{} from {first} to {last}", periods.len())
            }
            few => few.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        Some(Omission::new(format!("{what}{named}"), "the package has a fixed size"))
    };
    let gone = |item: &UploadItem<'_>| item.form == ItemForm::Gone;
    let bodies = |item: &UploadItem<'_>| {
        item.had_body
            && !matches!(item.form, ItemForm::Whole | ItemForm::Gone)
            && !item.is_shortened()
    };
    [
        of("the bodies of ", &bodies),
        of("all but the beginnings of ", &|item| item.is_shortened()),
        of("", &|item| gone(item) && item.place != UploadSlot::Today),
        of("", &|item| gone(item) && item.place == UploadSlot::Today),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn omissions_part(left_out: &[Omission]) -> Option<PackPart> {
    let lines: Vec<String> = left_out.iter().map(|left| format!("- {}", left.what)).collect();
    (!lines.is_empty()).then(|| PackPart::new("Left Out", lines.join("\n")))
}

/// The items under one heading: at most one whole summary, then a list.
struct ItemGroup<'a> {
    title: Cow<'static, str>,
    pieces: Vec<Cow<'a, str>>,
    begins_whole: bool,
}

impl ItemGroup<'_> {
    fn text(&self) -> String {
        match self.pieces.split_first() {
            Some((first, rest)) if self.begins_whole && !rest.is_empty() => {
                format!("{first}\n\n{}", rest.join("\n"))
            }
            _ => self.pieces.join("\n"),
        }
    }

    fn to_part(&self) -> PackPart {
        PackPart::new(self.title.clone(), self.text())
    }

    /// The bytes of the part, without building it.
    fn bytes(&self) -> usize {
        const PART_FRAME_BYTES: usize = "## \n\n\n\n---\n\n".len();
        let breaks =
            self.pieces.len() - 1 + usize::from(self.begins_whole && self.pieces.len() > 1);
        PART_FRAME_BYTES
            + self.title.len()
            + breaks
            + self.pieces.iter().map(|piece| piece.len()).sum::<usize>()
    }
}

fn group_items<'a>(items: &'a [UploadItem<'_>]) -> Vec<ItemGroup<'a>> {
    let mut groups: Vec<ItemGroup<'a>> = Vec::new();
    for item in items.iter().filter(|item| item.form != ItemForm::Gone) {
        let title = item.title();
        let begins_whole = item.form == ItemForm::Whole;
        match groups.last_mut() {
            Some(group) if group.title == title && !begins_whole => group.pieces.push(item.text()),
            _ => groups.push(ItemGroup { title, pieces: vec![item.text()], begins_whole }),
        }
    }
    groups
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::hash::Hash;
    use crate::record::SessionKey;
    use crate::summary::{Importance, SummaryAuthor, Tier};
    use jiff::ToSpan;
    use jiff::civil::date;
    use proptest::prelude::*;

    pub fn summary(period: Period, headline: &str, body: &str) -> Summary {
        let ts = Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
        let session = (period.tier() == Tier::Session).then(|| SessionKey {
            day: period.days().first,
            conversation: "work".into(),
            session: None,
        });
        Summary {
            period,
            version: 1,
            session,
            start: ts,
            end: ts,
            headline: headline.into(),
            body: body.into(),
            messages: 1,
            states: 0,
            recorded: ts,
            source: Hash::of(b""),
            log: None,
            sources: Vec::new(),
            maker: SummaryAuthor::Extract,
            provisional: false,
            importance: Importance::Ordinary,
            left_out: Vec::new(),
            cost: Default::default(),
            similar: None,
        }
    }

    /// Anything that people and models write: any script, our own marks, markup, line breaks, very
    /// long words.
    pub fn words() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "[a-z ,.]{0,40}",
            2 => "(?s).{0,30}",
            1 => "[\u{4e00}-\u{4e40}]{0,30}",
            1 => "[\u{e0}-\u{ff} ]{0,30}",
            1 => Just("\u{1F469}\u{200D}\u{1F680} \u{1F680}".to_owned()),
            1 => Just("<icecore-memory><icecore-memory></icecore-memory>".to_owned()),
            1 => Just("<!-- icecore:end --> <!--\nicecore:begin".to_owned()),
            1 => Just("\n\n---\n\n## Left Out\n\n- ".to_owned()),
            1 => Just("\r\n\t \u{2028}...".to_owned()),
        ];
        (
            proptest::collection::vec(piece, 0..6),
            prop_oneof![6 => Just(1_usize), 2 => 1_usize..12, 1 => Just(60)],
        )
            .prop_map(|(pieces, times)| pieces.concat().repeat(times))
    }

    const TODAY: Date = date(2026, 2, 13);

    fn session(day: Date, number: usize) -> Period {
        Period::Session { day, number: u32::try_from(number).unwrap() }
    }

    fn ago(days: usize) -> Date {
        TODAY.checked_sub(i32::try_from(days).unwrap().days()).unwrap()
    }

    /// Each of these periods, with random words; each body names its period.
    fn summaries_of(
        periods: impl IntoIterator<Item = Period>,
        said: &[(String, String)],
        at: &mut usize,
    ) -> Vec<Summary> {
        let mut one = |period: Period| {
            let (headline, body) = &said[*at % said.len()];
            *at += 1;
            let body =
                if body.is_empty() { String::new() } else { format!("body-of-{period}\n{body}") };
            summary(period, headline, &body)
        };
        periods.into_iter().map(&mut one).collect()
    }

    fn uploads() -> impl Strategy<Value = UploadInput> {
        let said = proptest::collection::vec((words(), words()), 1..8);
        let today = prop_oneof![4 => 0_usize..6, 3 => 0_usize..60, 1 => 100_usize..1_500];
        (any::<bool>(), 0_usize..9, 0_usize..9, 0_usize..25, today, said).prop_map(
            |(month, weeks, days, open, today, said)| {
                let at = &mut 0;
                let week = |back: usize| Period::covering(Tier::Week, ago(7 * back)).unwrap();
                UploadInput {
                    month: summaries_of(month.then(|| "2026-01".parse().unwrap()), &said, at).pop(),
                    weeks: summaries_of((0..weeks).rev().map(week), &said, at),
                    days: summaries_of(
                        (1..=days).rev().map(|back| Period::Day(ago(back))),
                        &said,
                        at,
                    ),
                    open_sessions: summaries_of(
                        (0..open).rev().map(|n| session(ago(n / 2 + 1), n % 2 + 1)),
                        &said,
                        at,
                    ),
                    today: summaries_of((1..=today).map(|n| session(TODAY, n)), &said, at),
                }
            },
        )
    }

    /// The expected periods, by the requirement.
    fn expected_summaries(from: &UploadInput) -> Vec<&Summary> {
        let after = from.month.as_ref().map_or(Date::MIN, |month| month.period.days().last);
        let weeks: Vec<&Summary> =
            from.weeks.iter().filter(|week| week.period.days().first > after).collect();
        let days: &[Summary] = if weeks.is_empty() { &from.days } else { &[] };
        let finer = days
            .iter()
            .chain(&from.open_sessions)
            .filter(|summary| summary.period.days().first > after);
        from.month.iter().chain(weeks).chain(finer).chain(&from.today).collect()
    }

    /// The number of periods that an omission stands for.
    fn count(what: &str) -> usize {
        let named = what
            .trim_start_matches("the bodies of ")
            .trim_start_matches("all but the beginnings of ");
        match named.split_once(" from ") {
            Some((number, _)) => number.parse().unwrap(),
            None => named.split(", ").count(),
        }
    }

    fn one_line(summary: &Summary) -> String {
        capture_filter::escape_markers(&collapse_spaces(&summary.headline)).into_owned()
    }

    /// The invariants of every pack.
    fn check(from: &UploadInput, room: usize) -> Result<Pack, TestCaseError> {
        let pack = upload_pack(TODAY, from, room);
        prop_assert!(
            pack.text.len() <= room && pack.bytes == pack.text.len(),
            "{} bytes in {room}",
            pack.text.len()
        );
        let wanted = expected_summaries(from);
        if wanted.is_empty() {
            prop_assert!(pack.text.contains("icecore session add"), "no hint what to run");
            return Ok(pack);
        }
        let cited: BTreeSet<&str> = pack.sources.iter().map(String::as_str).collect();
        prop_assert_eq!(cited.len(), pack.sources.len(), "told twice: {:?}", pack.sources);
        let is_told = |summary: &Summary| cited.contains(format!("{}#1", summary.period).as_str());
        prop_assert!(
            wanted.iter().filter(|summary| is_told(summary)).count() == cited.len(),
            "{:?}",
            cited
        );
        // Omissions are reported, with their number.
        let [mut bodies, mut beginnings, mut gone] = [0; 3];
        for left in &pack.left_out {
            let kind = if left.what.starts_with("the bodies") {
                &mut bodies
            } else if left.what.starts_with("all but") {
                &mut beginnings
            } else {
                &mut gone
            };
            *kind += count(&left.what);
            let line = format!("- {}", left.what);
            prop_assert!(
                pack.text.lines().any(|own| own == line),
                "{} is not in the text",
                left.what
            );
        }
        prop_assert_eq!(gone, wanted.len() - cited.len());
        // A week between the month and this week, and an open session, has no body from the start.
        let this_week = from.weeks.iter().map(|week| week.period).max();
        let open: BTreeSet<Period> = from.open_sessions.iter().map(|open| open.period).collect();
        let had_body = |summary: &Summary| {
            let open = open.contains(&summary.period);
            let between = from.month.is_some()
                && summary.period.tier() == Tier::Week
                && Some(summary.period) != this_week;
            !summary.body.is_empty() && !open && !between
        };
        let shown_bodies: BTreeSet<&str> =
            pack.text.lines().filter_map(|line| line.strip_prefix("body-of-")).collect();
        let has_body =
            |summary: &Summary| shown_bodies.contains(summary.period.to_string().as_str());
        let reduced = wanted
            .iter()
            .filter(|summary| is_told(summary) && had_body(summary) && !has_body(summary))
            .count();
        prop_assert!(
            reduced <= bodies + beginnings && bodies <= reduced,
            "{reduced} bodies, {bodies} + {beginnings}"
        );
        prop_assert!(
            gone == 0 || wanted.iter().all(|summary| !has_body(summary)),
            "dropped before a body shrank"
        );
        // Today's sessions have at least a part of a headline, if that is possible.
        let number = |summary: &Summary| {
            if let Period::Session { number, .. } = summary.period { number } else { 0 }
        };
        let least: usize = from
            .today
            .iter()
            .map(|own| {
                7 + one_line(own).len().min(MIN_HEADLINE_BYTES) + number(own).to_string().len()
            })
            .sum();
        let today = from.today.iter().filter(|own| is_told(own));
        prop_assert!(
            least + 512 > room || today.clone().count() == from.today.len(),
            "{least} bytes are enough, and some are missing"
        );
        let lines: Vec<&str> = pack.text.split('\n').collect();
        let mut lists: std::collections::HashMap<&str, &str> = Default::default();
        for line in &lines {
            if let Some((name, rest)) =
                line.strip_prefix("- ").and_then(|line| line.split_once(':'))
            {
                lists.insert(name, rest.trim_start());
            }
        }
        let titles: BTreeSet<&str> =
            pack.sections.iter().map(|section| section.title.as_str()).collect();
        for own in today {
            let headline = one_line(own);
            let shown = lists.get(format!("{:02}", number(own)).as_str());
            let begun = shown.is_some_and(|shown| {
                let kept =
                    shown.strip_suffix("...").filter(|_| **shown != headline).unwrap_or(shown);
                headline.starts_with(kept) && (!kept.is_empty() || headline.is_empty())
            });
            let own_title = format!("Today Session {:02}", number(own));
            prop_assert!(
                begun || titles.contains(own_title.as_str()),
                "{} is not told",
                own.period
            );
        }
        // No line is cut except where that is reported.
        let mut whole_lines: BTreeSet<String> = [
            "",
            "---",
            UPLOAD_TITLE,
            "<!-- icecore:end -->",
            "<!-- icecore:begin upload 2026-02-13 -->",
        ]
        .map(String::from)
        .into();
        whole_lines.extend(pack.sections.iter().map(|section| format!("## {}", section.title)));
        whole_lines.extend(pack.left_out.iter().map(|left| format!("- {}", left.what)));
        let mut headlines: BTreeSet<String> = BTreeSet::new();
        for own in &wanted {
            whole_lines.extend(
                capture_filter::escape_markers(summary_text(own).trim_end())
                    .split('\n')
                    .map(str::to_owned),
            );
            headlines.insert(one_line(own));
        }
        for line in &lines {
            let shown = line
                .strip_prefix("- ")
                .and_then(|rest| rest.split_once(':'))
                .map(|(_, rest)| rest.trim_start());
            let listed = shown.is_some_and(|shown| {
                let kept = shown.strip_suffix("...").unwrap_or(shown);
                headlines.contains(shown)
                    || (kept.len() < shown.len()
                        && headlines.iter().any(|headline| headline.starts_with(kept)))
            });
            prop_assert!(listed || whole_lines.contains(*line), "{line:?} was cut");
        }
        Ok(pack)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        // P7
        #[test]
        fn whatever_there_is_the_package_keeps_its_promises(from in uploads(), room in prop_oneof![512_usize..2_000, 512_usize..35_841, Just(35_840)]) {
            let pack = check(&from, room)?;
            let mut turned = from.clone();
            for list in [&mut turned.weeks, &mut turned.days, &mut turned.open_sessions, &mut turned.today] {
                list.reverse();
            }
            prop_assert_eq!(&upload_pack(TODAY, &turned, room), &pack, "depends on the order");
            // The text is recognized as icecore's own, whatever it contains.
            let stripped = capture_filter::strip_blocks(&pack.text);
            prop_assert_eq!((stripped.text.trim(), stripped.blocks), ("", 1));
        }

        #[test]
        fn no_room_is_too_small_to_be_asked_for(from in uploads(), room in 0_usize..600) {
            upload_pack(TODAY, &from, room);
        }
    }

    /// A day with this many sessions in a vault with all tiers.
    fn busy(sessions: usize) -> UploadInput {
        let text = |words: usize| {
            "It was decided to go on with the work on the cascade. ".repeat(words / 11)
        };
        let body = |period: Period, words: usize| format!("body-of-{period}\n{}", text(words));
        let named = |name: &str, words: usize| {
            summary(name.parse().unwrap(), &text(44), &body(name.parse().unwrap(), words))
        };
        let own =
            |period: Period| summary(period, &format!("At last {}", text(44)), &body(period, 400));
        UploadInput {
            month: Some(named("2026-01", 900)),
            weeks: vec![named("2026-W06", 900), named("2026-W07", 900)],
            days: Vec::new(),
            open_sessions: vec![named("2026-02-12_session_01", 400)],
            today: (1..=sessions).map(|n| own(session(TODAY, n))).collect(),
        }
    }

    // P7
    #[test]
    fn ten_or_ten_thousand_sessions_give_packages_of_about_the_same_size() {
        let sizes: Vec<usize> = [10, 500, 10_000]
            .iter()
            .map(|&sessions| check(&busy(sessions), 35_840).unwrap().bytes)
            .collect();
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(*most < least * 3 / 2, "{sizes:?}");
    }

    // P7
    #[test]
    fn things_give_way_in_this_order() {
        let shown = |sessions: usize, room: usize| {
            let pack = upload_pack(TODAY, &busy(sessions), room);
            let titles: Vec<String> =
                pack.sections.iter().map(|section| section.title.clone()).collect();
            (
                titles.join(", "),
                pack.left_out.iter().map(|left| left.what.clone()).collect::<Vec<_>>().join("; "),
            )
        };
        for (sessions, room, titles, left_out) in [
            (
                2,
                35_840,
                "Long-Term Context, Weekly Context, This Week, Today Session 01, Today Session 02",
                "",
            ),
            (
                2,
                13_000,
                "Long-Term Context, Weekly Context, This Week, Today's Sessions, Today Session 02, Left Out",
                "the bodies of 2026-02-13_session_01",
            ),
            (
                2,
                4_000,
                "Long-Term Context, Weekly Context, This Week, Today's Sessions, Today Session 02, Left Out",
                "the bodies of 2026-01, 2026-W07, 2026-02-13_session_01",
            ),
            (
                2,
                1_250,
                "Long-Term Context, This Week, Today's Sessions, Left Out",
                "the bodies of 4 from 2026-01 to 2026-02-13_session_02; 2026-W06, 2026-02-12_session_01",
            ),
            (
                40,
                2_300,
                "Long-Term Context, This Week, Today's Sessions, Left Out",
                "all but the beginnings of 42 from 2026-01 to 2026-02-13_session_40; 2026-W06, 2026-02-12_session_01",
            ),
            (
                40,
                1_500,
                "Today's Sessions, Left Out",
                "all but the beginnings of 40 from 2026-02-13_session_01 to 2026-02-13_session_40; 4 from 2026-01 to 2026-02-12_session_01",
            ),
            (
                2_000,
                35_840,
                "Long-Term Context, This Week, Today's Sessions, Left Out",
                "all but the beginnings of 1367 from 2026-01 to 2026-02-13_session_2000; 2026-W06, 2026-02-12_session_01; 635 from 2026-02-13_session_01 to 2026-02-13_session_635",
            ),
        ] {
            assert_eq!(
                shown(sessions, room),
                (titles.to_owned(), left_out.to_owned()),
                "{sessions} sessions in {room}"
            );
        }
    }

    // P7
    #[test]
    fn without_a_month_weeks_stand_in_and_without_a_week_days() {
        let full = busy(1);
        let titles = |from: &UploadInput| {
            upload_pack(TODAY, from, 35_840)
                .sections
                .iter()
                .map(|section| section.title.clone())
                .collect::<Vec<_>>()
        };
        let day = summary(Period::Day(ago(1)), "A day.", "- a");
        let weeks = UploadInput {
            month: None,
            days: vec![day.clone()],
            open_sessions: Vec::new(),
            ..full.clone()
        };
        assert_eq!(titles(&weeks), ["Weekly Context", "Weekly Context", "Today Session 01"]);
        let days = UploadInput { weeks: Vec::new(), ..weeks.clone() };
        assert_eq!(titles(&days), ["Daily Context", "Today Session 01"]);
        // A day of the month is covered by the month.
        let old = summary(Period::Day(date(2026, 1, 30)), "An old day.", "- b");
        let month = UploadInput { month: full.month.clone(), days: vec![old, day], ..days };
        assert_eq!(titles(&month), ["Long-Term Context", "Daily Context", "Today Session 01"]);
        assert!(!upload_pack(TODAY, &month, 35_840).text.contains("An old day."));
        assert!(
            upload_pack(TODAY, &UploadInput::default(), 512).text.contains("No primers available")
        );
    }
}
