//! The capture filter for icecore's own text, so that memory never captures what it injected.
//!
//! Every injected text is a block between two comments. Clients store injected text in their
//! transcripts, and transcripts are captured; the blocks are removed on capture. Foreign text
//! inside a block cannot end it early, because its markers are escaped first.

use std::borrow::Cow;

use jiff::civil::Date;
use memchr::memmem;

/// The word in every marker; a text without it has no marker.
const MARKER_NAME: &[u8] = b"icecore";
/// The maximum number of characters of a block's kind.
const MAX_KIND_CHARS: usize = 64;

/// The injected block: `<!-- icecore:begin KIND DAY -->`, the text, `<!-- icecore:end -->`, each on
/// lines of their own, without a line break at the end. Markers in the text are escaped. Of `kind`
/// the ASCII words are used, joined by `-`.
pub fn wrap_block(kind: &str, day: Date, text: &str) -> String {
    // A marker is recognized only while it is short, and two dashes would end the comment.
    let words = kind
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty());
    let kind: String = words.collect::<Vec<_>>().join("-").chars().take(MAX_KIND_CHARS).collect();
    let kind = if kind.is_empty() { "memory" } else { &kind };
    format!("<!-- icecore:begin {kind} {day} -->\n{}\n<!-- icecore:end -->", escape_markers(text))
}

/// A text without icecore's blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrippedText<'a> {
    /// The remaining text; borrowed if there was no block.
    pub text: Cow<'a, str>,
    /// The number of removed blocks.
    pub blocks: usize,
    /// Their size, including markers.
    pub bytes: usize,
}

/// Removes icecore's blocks; the text around them is unchanged.
///
/// A block extends from its marker to the next matching end marker, or to the end of the text.
/// Blocks inside JSON are recognized as well, including `<` escaped as `\u003c`, and so are
/// `<icecore-memory …>…</icecore-memory>` blocks.
pub fn strip_blocks(text: &str) -> StrippedText<'_> {
    let mut kept = String::new();
    let (mut from, mut blocks, mut bytes) = (0, 0, 0);
    let mut markers = find_markers(text);
    while let Some(begin) = markers.find(|marker| marker.start >= from && marker.is_begin()) {
        let end = match begin.kind {
            MarkerKind::Whole => begin.end,
            kind => markers
                .find(|marker| marker.is_end_of(kind))
                .map_or(text.len(), |marker| marker.end),
        };
        kept.push_str(&text[from..begin.start]);
        blocks += 1;
        bytes += end - begin.start;
        from = end;
    }
    if blocks == 0 {
        return StrippedText { text: Cow::Borrowed(text), blocks, bytes };
    }
    kept.push_str(&text[from..]);
    StrippedText { text: Cow::Owned(kept), blocks, bytes }
}

/// Makes foreign text safe inside a block: a blank breaks everything that looks like a marker, so
/// that it stays readable but neither begins nor ends a block.
pub fn escape_markers(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let mut from = 0;
    for name in memmem::find_iter(bytes, MARKER_NAME) {
        // Broader than what `strip_blocks` recognizes: here a false positive costs a blank, there
        // it would cost text.
        let Some(opener) = parse_opener(bytes, name) else { continue };
        let cut = match opener.style {
            MarkerStyle::Comment => opener.dashes + 1,
            MarkerStyle::Tag => name,
        };
        out.push_str(&text[from..cut]);
        out.push(' ');
        from = cut;
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[from..]);
    Cow::Owned(out)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum MarkerStyle {
    /// `<!-- icecore:… -->`
    Comment,
    /// `<icecore-memory>`
    Tag,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum MarkerKind {
    Begin(MarkerStyle),
    End(MarkerStyle),
    /// A self-closing tag.
    Whole,
}

/// A marker and its position.
struct Marker {
    kind: MarkerKind,
    start: usize,
    end: usize,
}

impl Marker {
    fn is_begin(&self) -> bool {
        !matches!(self.kind, MarkerKind::End(_))
    }

    fn is_end_of(&self, begin: MarkerKind) -> bool {
        matches!((begin, self.kind), (MarkerKind::Begin(begun), MarkerKind::End(ended)) if begun == ended)
    }
}

/// The characters before the name that make it a marker.
struct MarkerOpener {
    style: MarkerStyle,
    start: usize,
    /// Where the dashes of a comment begin.
    dashes: usize,
    /// It opens an end tag.
    slash: bool,
}

fn parse_opener(bytes: &[u8], name: usize) -> Option<MarkerOpener> {
    let (before, after) = (&bytes[..name], &bytes[name + MARKER_NAME.len()..]);
    let angle = |before: &[u8]| match before {
        [rest @ .., b'<'] | [rest @ .., b'\\', b'u', b'0', b'0', b'3', b'c' | b'C'] => {
            Some(rest.len())
        }
        _ => None,
    };
    if after.starts_with(b":") {
        let blanks = before.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let rest = before[..name - blanks].strip_suffix(b"!--")?;
        return Some(MarkerOpener {
            style: MarkerStyle::Comment,
            start: angle(rest)?,
            dashes: rest.len() + 1,
            slash: false,
        });
    }
    let end_tag = before.strip_suffix(b"\\/").or_else(|| before.strip_suffix(b"/"));
    let start = angle(end_tag.unwrap_or(before))?;
    after.starts_with(b"-memory").then_some(MarkerOpener {
        style: MarkerStyle::Tag,
        start,
        dashes: name,
        slash: end_tag.is_some(),
    })
}

/// The markers of a text, in order.
fn find_markers(text: &str) -> impl Iterator<Item = Marker> {
    let bytes = text.as_bytes();
    memmem::find_iter(bytes, MARKER_NAME).filter_map(move |name| {
        let opener = parse_opener(bytes, name)?;
        let after = name + MARKER_NAME.len();
        let (kind, end) = match opener.style {
            MarkerStyle::Comment => parse_comment(bytes, after)?,
            MarkerStyle::Tag => parse_tag(bytes, after + b"-memory".len(), opener.slash)?,
        };
        Some(Marker { kind, start: opener.start, end })
    })
}

/// `:begin KIND DAY -->` or `:end -->`. A comment without a day is a text about markers.
fn parse_comment(bytes: &[u8], after: usize) -> Option<(MarkerKind, usize)> {
    const MAX_COMMENT_BYTES: usize = 256;
    let rest = &bytes[after..bytes.len().min(after + MAX_COMMENT_BYTES)];
    let line = &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())];
    let close = memmem::find(line, b"--").filter(|at| closing_angle(&line[at + 2..]).is_some())?;
    let end = after + close + 2 + closing_angle(&line[close + 2..])?;
    let mut words = line[1..close].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(b"end"), None, ..) => Some((MarkerKind::End(MarkerStyle::Comment), end)),
        (Some(b"begin"), Some(_), Some(day), None) if is_day(day) => {
            Some((MarkerKind::Begin(MarkerStyle::Comment), end))
        }
        _ => None,
    }
}

fn is_day(word: &[u8]) -> bool {
    word.len() >= 10 && word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-')
}

/// The length of `>` as it may be written in JSON.
fn closing_angle(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'>', ..] => Some(1),
        [b'\\', b'u', b'0', b'0', b'3', b'e' | b'E', ..] => Some(6),
        _ => None,
    }
}

/// What follows `<icecore-memory`: attributes and `>`.
fn parse_tag(bytes: &[u8], after: usize, slash: bool) -> Option<(MarkerKind, usize)> {
    const MAX_TAG_BYTES: usize = 1024;
    let rest = &bytes[after..bytes.len().min(after + MAX_TAG_BYTES)];
    let close = (0..rest.len()).find(|at| closing_angle(&rest[*at..]).is_some())?;
    let end = after + close + closing_angle(&rest[close..])?;
    let attributes = &rest[..close];
    if attributes
        .first()
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    {
        return None;
    }
    let kind = match (slash, attributes.ends_with(b"/")) {
        (true, _) => MarkerKind::End(MarkerStyle::Tag),
        (false, true) => MarkerKind::Whole,
        (false, false) => MarkerKind::Begin(MarkerStyle::Tag),
    };
    Some((kind, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use proptest::prelude::*;

    const BEGIN: &str = "<!-- icecore:begin recall 2026-02-13 -->";
    const END: &str = "<!-- icecore:end -->";

    fn check(text: &str, kept: &str, blocks: usize) {
        let stripped = strip_blocks(text);
        assert_eq!(
            stripped,
            StrippedText { text: kept.into(), blocks, bytes: text.len() - kept.len() },
            "{text:?}"
        );
        assert_eq!(matches!(stripped.text, Cow::Borrowed(_)), blocks == 0, "{text:?}");
    }

    #[test]
    fn a_block_has_its_markers_on_lines_of_their_own() {
        assert_eq!(
            wrap_block("recall", date(2026, 2, 13), "one\ntwo"),
            format!("{BEGIN}\none\ntwo\n{END}")
        );
        let odd = wrap_block("--> up load--", date(2026, 2, 13), "");
        assert_eq!(odd, "<!-- icecore:begin up-load 2026-02-13 -->\n\n<!-- icecore:end -->");
        let nameless = wrap_block("é", date(2026, 2, 13), "");
        assert_eq!(nameless, "<!-- icecore:begin memory 2026-02-13 -->\n\n<!-- icecore:end -->");
    }

    #[test]
    fn our_own_blocks_go_and_the_rest_is_kept_exactly() {
        check("", "", 0);
        check("nothing of ours", "nothing of ours", 0);
        check(&format!("a\n{BEGIN}\nx\n{END}\nb"), "a\n\nb", 1);
        check(&format!("a {BEGIN} x {END} b {BEGIN} y {END} c"), "a  b  c", 2);
        check(&format!("a\n{BEGIN}\nx"), "a\n", 1);
        check(
            &format!("{{\"text\":\"a\\n{BEGIN}\\nx \\\"y\\\"\\n{END}\\nb\"}}"),
            "{\"text\":\"a\\n\\nb\"}",
            1,
        );
        check(
            "a \\u003c!-- icecore:begin recall 2026-02-13 --\\u003e x \\u003C!-- icecore:end --\\u003E b",
            "a  b",
            1,
        );
        check("a<icecore-memory day=\"2026-02-13\">x</icecore-memory>b", "ab", 1);
        check("a<icecore-memory>x<icecore-memory>y", "a", 1);
        check("a<icecore-memory />b", "ab", 1);
        check("a \\u003cicecore-memory\\u003ex\\u003c/icecore-memory\\u003e b", "a  b", 1);
        // A block ends only with a marker of its own style.
        check(&format!("{BEGIN} x </icecore-memory> y {END} b"), " b", 1);
        check(&format!("a <icecore-memory> {END} x</icecore-memory>b"), "a b", 1);
    }

    #[test]
    fn text_about_markers_is_kept() {
        for text in [
            "icecore keeps memory; see icecore:begin and icecore:end",
            "a block starts with `<!-- icecore:begin KIND DAY -->`",
            "a stray <!-- icecore:end --> stays",
            "<!-- icecore:endless --> <icecore-memoryless> <icecore> </icecore-memory>",
        ] {
            check(text, text, 0);
        }
    }

    #[test]
    fn a_disarmed_marker_can_be_read_but_does_nothing() {
        assert_eq!(escape_markers(END), "<!- - icecore:end -->");
        assert_eq!(
            escape_markers("<!--icecore:end--> </icecore-memory>"),
            "<!- -icecore:end--> </ icecore-memory>"
        );
        assert_eq!(escape_markers("\\u003c!-- icecore:end"), "\\u003c!- - icecore:end");
        assert!(matches!(escape_markers("icecore <icecore> <!-- other -->"), Cow::Borrowed(_)));
    }

    /// Pieces of markers in any order.
    fn marked_text() -> impl Strategy<Value = String> {
        const PIECES: [&str; 24] = [
            BEGIN,
            END,
            "<icecore-memory>",
            "</icecore-memory>",
            "<icecore-memory",
            "icecore",
            ":begin",
            ":end",
            "<!--",
            "-->",
            "--",
            "!",
            "<",
            ">",
            "\\u003c",
            "\\u003e",
            "/",
            "\\",
            " ",
            "\n",
            "-memory",
            " 2026-02-13",
            "é",
            "<!-- ",
        ];
        let piece = prop_oneof![4 => prop::sample::select(PIECES.to_vec()).prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)];
        prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn nothing_of_a_block_is_left(text in marked_text(), kind in "\\PC*|[a-z-]{0,400}", before in "[^i]*", after in "[^i]*") {
            let block = wrap_block(&kind, date(2026, 2, 13), &text);
            let whole = strip_blocks(&block);
            prop_assert_eq!((whole.text.as_ref(), whole.blocks, whole.bytes), ("", 1, block.len()));
            let within = format!("{before}{block}{after}");
            prop_assert_eq!(strip_blocks(&within).text, format!("{before}{after}"));
            let json = serde_json::to_string(&within).unwrap();
            prop_assert_eq!(strip_blocks(&json).text, serde_json::to_string(&format!("{before}{after}")).unwrap());
        }

        #[test]
        fn disarmed_text_has_no_markers(text in marked_text()) {
            let disarmed = escape_markers(&text);
            prop_assert_eq!(strip_blocks(&disarmed).blocks, 0);
            prop_assert_eq!(find_markers(&disarmed).count(), 0);
            prop_assert_eq!(escape_markers(&disarmed), disarmed.as_ref());
            prop_assert_eq!(disarmed.replace(' ', ""), text.replace(' ', ""));
        }

        #[test]
        fn text_without_markers_is_borrowed(text in any::<String>()) {
            prop_assert!(matches!(strip_blocks(&text).text, Cow::Borrowed(kept) if kept == text));
            prop_assert!(matches!(escape_markers(&text), Cow::Borrowed(kept) if kept == text));
        }
    }
}
