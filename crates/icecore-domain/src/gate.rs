//! What our own text looks like when it comes back, so that memory does not feed on itself.
//!
//! Whatever is handed to a model stands between two marks. A transcript or a request that carries such a block gets it taken
//! out before anything is kept. Strangers' words inside a block cannot end it: marks among them are broken first.

use std::borrow::Cow;

use jiff::civil::Date;
use memchr::memmem;

const BEGIN: &str = "<!-- icecore:begin";
const END: &str = "<!-- icecore:end -->";
const OPEN_TAG: &str = "<icecore-memory";
const CLOSE_TAG: &str = "</icecore-memory>";

/// Text without blocks of our own, and how much that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripped<'a> {
    /// What is left.
    pub text: Cow<'a, str>,
    /// How many blocks there were.
    pub blocks: usize,
    /// How many bytes they had.
    pub bytes: usize,
}

/// Text for a model, between our marks.
pub fn wrap(kind: &str, day: Date, text: &str) -> String {
    let kind: String = kind.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("{BEGIN} {kind} {day} -->\n{}\n{END}\n", disarm(text))
}

/// Takes out blocks of our own. One that is not closed goes on to the end.
pub fn strip(text: &str) -> Stripped<'_> {
    let mut kept: Option<String> = None;
    let (mut rest, mut blocks) = (text, 0);
    while let Some((at, close)) = first_block(rest) {
        let out = kept.get_or_insert_with(String::new);
        out.push_str(&rest[..at]);
        blocks += 1;
        let inside = &rest[at..];
        rest = inside.find(close).map_or("", |end| &inside[end + close.len()..]);
    }
    match kept {
        None => Stripped { text: Cow::Borrowed(text), blocks: 0, bytes: 0 },
        Some(mut out) => {
            out.push_str(rest);
            Stripped { bytes: text.len() - out.len(), text: Cow::Owned(out), blocks }
        }
    }
}

fn first_block(text: &str) -> Option<(usize, &'static str)> {
    let comment = memmem::find(text.as_bytes(), BEGIN.as_bytes()).map(|at| (at, END));
    let tag = memmem::find(text.as_bytes(), OPEN_TAG.as_bytes()).map(|at| (at, CLOSE_TAG));
    [comment, tag].into_iter().flatten().min()
}

/// Breaks our marks in strangers' text, so that it can neither begin nor end a block.
pub fn disarm(text: &str) -> Cow<'_, str> {
    let marked = [BEGIN, END, OPEN_TAG, CLOSE_TAG].iter().any(|mark| memmem::find(text.as_bytes(), mark.as_bytes()).is_some());
    if !marked {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace("<!-- icecore:", "<!- icecore:").replace(OPEN_TAG, "< icecore-memory").replace(CLOSE_TAG, "< /icecore-memory>"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use proptest::prelude::*;

    fn check(text: &str, left: &str, blocks: usize) {
        let stripped = strip(text);
        assert_eq!((stripped.text.as_ref(), stripped.blocks), (left, blocks), "{text}");
        assert_eq!(stripped.bytes, text.len() - left.len());
    }

    #[test]
    fn our_own_text_is_taken_out_and_nothing_else() {
        check("hello", "hello", 0);
        check(&format!("a {}b", wrap("upload", date(2026, 2, 13), "x")), "a \nb", 1);
        check("a <icecore-memory id=1>x</icecore-memory> b", "a  b", 1);
        check("a <!-- icecore:begin recall 2026-02-13 -->never closed", "a ", 1);
        check("<!-- a comment --> stays", "<!-- a comment --> stays", 0);
    }

    proptest! {
        #[test]
        fn no_text_breaks_out_of_its_block(before in "[a-z ]{0,9}", inside in "(?s).{0,60}|.{0,9}<!-- icecore:end -->.{0,9}|.{0,9}</icecore-memory>.{0,9}", after in "[a-z ]{0,9}") {
            let text = format!("{before}{}{after}", wrap("upload", date(2026, 2, 13), &inside));
            let stripped = strip(&text);
            prop_assert_eq!(stripped.text.as_ref(), format!("{before}\n{after}"));
        }
    }
}
