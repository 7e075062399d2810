//! Encodes terms and signs as PostgreSQL values.

use std::error::Error;

use icecore_domain::rank::terms::Terms;
use icecore_domain::rank::vector::{DIMENSIONS, SignVector};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

/// Positions in a `tsvector` are below this.
const MAX_POSITION: u32 = 1 << 14;
/// The most positions of a term.
const MAX_POSITIONS: usize = 255;
/// The most bytes of a term. Longer ones are never words.
const MAX_TERM_BYTES: usize = 2_000;
/// The most bytes of terms in a row; a `tsvector` is limited to a mebibyte.
const MAX_ROW_TERM_BYTES: usize = 900_000;
/// The characters of a tag.
const TAG_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// The length of a tag.
pub(in super::super) const TAG_CHARS: i32 = 4;

type SqlResult<T> = Result<T, Box<dyn Error + Sync + Send>>;

/// The prefix of a space's terms. Two spaces may share it: the row of a passage names its space.
pub(in super::super) fn space_tag(space: Uuid) -> String {
    let [a, b, c, ..] = space.into_bytes().map(u32::from);
    let bits = a << 16 | b << 8 | c;
    (0..TAG_CHARS).map(|at| char::from(TAG_ALPHABET[(bits >> (6 * at) & 63) as usize])).collect()
}

/// A term as stored.
pub(in super::super) fn tag_term(tag: &str, term: &str) -> String {
    let end = term
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|&end| end <= MAX_TERM_BYTES)
        .last()
        .unwrap_or(0);
    format!("{tag}{}", &term[..end])
}

/// A `tsquery` for any of these terms.
pub(in super::super) fn any_of_query(terms: &[String]) -> String {
    let quoted: Vec<String> = terms
        .iter()
        .map(|term| format!("'{}'", term.replace('\\', "\\\\").replace('\'', "''")))
        .collect();
    quoted.join(" | ")
}

/// Encodes a count as positions: a sum of distinct ascending numbers.
fn positions(count: u32) -> Vec<u16> {
    let mut left = count;
    let mut found: Vec<u16> = Vec::with_capacity(1);
    for most in (1..MAX_POSITION).rev().take(MAX_POSITIONS) {
        if left == 0 {
            break;
        }
        let position = left.min(most);
        found.push(u16::try_from(position).unwrap_or(u16::MAX));
        left -= position;
    }
    found.reverse();
    found
}

/// Terms with their counts in a passage, as many as fit a row: a `tsvector`.
#[derive(Debug, Default)]
pub(in super::super) struct TermRow {
    terms: i32,
    bytes: Vec<u8>,
}

impl TermRow {
    /// The rows of a passage: at least one, nearly always exactly one.
    pub fn rows_of(tag: &str, terms: &Terms) -> Vec<Self> {
        let mut rows = vec![Self::default()];
        for (term, count) in &terms.counts {
            let (term, positions) = (tag_term(tag, term), positions(*count));
            let full = rows.last().is_none_or(|row| {
                row.bytes.len() + term.len() + 2 * positions.len() > MAX_ROW_TERM_BYTES
            });
            if full {
                rows.push(Self::default());
            }
            let Some(row) = rows.last_mut() else { continue };
            row.terms += 1;
            row.bytes.extend_from_slice(term.as_bytes());
            row.bytes.push(0);
            row.bytes.extend_from_slice(
                &u16::try_from(positions.len()).unwrap_or(u16::MAX).to_be_bytes(),
            );
            positions
                .iter()
                .for_each(|position| row.bytes.extend_from_slice(&position.to_be_bytes()));
        }
        rows
    }
}

impl ToSql for TermRow {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> SqlResult<IsNull> {
        out.extend_from_slice(&self.terms.to_be_bytes());
        out.extend_from_slice(&self.bytes);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TS_VECTOR
    }

    to_sql_checked!();
}

/// Signs as a `bit(384)`.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct SignBits(pub SignVector);

impl ToSql for SignBits {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> SqlResult<IsNull> {
        out.extend_from_slice(&i32::try_from(DIMENSIONS)?.to_be_bytes());
        out.extend_from_slice(&self.0.to_bytes());
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::BIT
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for SignBits {
    fn from_sql(_: &Type, raw: &'a [u8]) -> SqlResult<Self> {
        let signs =
            raw.get(4..).and_then(SignVector::from_bytes).ok_or("not the signs of a vector")?;
        Ok(Self(signs))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::BIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Y9
    #[test]
    fn a_count_comes_back_from_its_positions() {
        for count in [1, 2, 255, 256, 16_383, 16_384, 40_000, 1_000_000, 4_000_000] {
            let found = positions(count);
            assert!(
                found.is_sorted() && found.windows(2).all(|pair| pair[0] < pair[1]),
                "{found:?}"
            );
            assert_eq!(found.iter().map(|&position| u32::from(position)).sum::<u32>(), count);
        }
        // A text of two mebibytes has no higher count.
        assert_eq!(positions(u32::MAX).len(), MAX_POSITIONS);
    }

    #[test]
    fn terms_are_quoted() {
        assert_eq!(any_of_query(&["it's".into(), "a\\b".into()]), r"'it''s' | 'a\\b'");
        assert_eq!(tag_term("tag-", &"ä".repeat(1_500)).len(), 4 + MAX_TERM_BYTES);
    }
}
