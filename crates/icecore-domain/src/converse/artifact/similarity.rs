//! Text similarity, estimated from a short MinHash sketch that the index stores.

use icecore_text::scripts::is_han_or_kana;

use crate::hash::Hash;

/// Maximum number of hashes per sketch; up to this number of features, similarity is exact.
const MAX_SKETCH_HASHES: usize = 128;
/// Number of consecutive words that form one feature (shingle) of prose.
const SHINGLE_WORDS: usize = 3;

/// The smallest hashes of a text's features: lines for code, three-word shingles for prose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimilaritySketch {
    size: u32,
    low: Vec<u32>,
}

impl SimilaritySketch {
    /// Sketches code: each non-empty line without its indentation.
    pub fn of_code(text: &str) -> Self {
        let telling =
            |line: &&str| line.chars().filter(|c| c.is_alphanumeric()).take(4).count() == 4;
        let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
        let hashes: Vec<u32> =
            lines().filter(telling).map(|line| hash_bytes(line.as_bytes())).collect();
        if hashes.is_empty() {
            Self::from_hashes(lines().map(|line| hash_bytes(line.as_bytes())).collect())
        } else {
            Self::from_hashes(hashes)
        }
    }

    /// Sketches prose: its three-word shingles, ignoring case.
    pub fn of_prose(text: &str) -> Self {
        let words: Vec<u32> = words(text).map(hash_lowercase).collect();
        if words.len() < SHINGLE_WORDS {
            return Self::from_hashes(words);
        }
        let join = |row: &[u32]| {
            row.iter().fold(17_u32, |sum, word| mix_bits(u64::from(sum) << 32 | u64::from(*word)))
        };
        Self::from_hashes(words.windows(SHINGLE_WORDS).map(join).collect())
    }

    fn from_hashes(mut hashes: Vec<u32>) -> Self {
        hashes.sort_unstable();
        hashes.dedup();
        let size = u32::try_from(hashes.len()).unwrap_or(u32::MAX);
        hashes.truncate(MAX_SKETCH_HASHES);
        Self { size, low: hashes }
    }

    /// Number of distinct features of the text.
    pub fn feature_count(&self) -> u32 {
        self.size
    }

    /// Jaccard similarity: common features divided by all features of either text.
    fn jaccard(&self, other: &Self) -> f32 {
        let (mut a, mut b, mut both, mut seen) = (0, 0, 0_u16, 0_u16);
        // The union's smallest hashes are known only up to the size of the shorter full sketch.
        let exact =
            self.size as usize <= MAX_SKETCH_HASHES && other.size as usize <= MAX_SKETCH_HASHES;
        while (exact || usize::from(seen) < MAX_SKETCH_HASHES)
            && (a < self.low.len() || b < other.low.len())
        {
            match (self.low.get(a), other.low.get(b)) {
                (Some(left), Some(right)) if left == right => {
                    (a, b, both) = (a + 1, b + 1, both + 1)
                }
                (Some(left), Some(right)) if left > right => b += 1,
                (None, Some(_)) => b += 1,
                _ => a += 1,
            }
            seen += 1;
        }
        if seen == 0 { 0.0 } else { f32::from(both) / f32::from(seen) }
    }

    /// Dice similarity: twice the common features divided by the sum of both counts, from 0 to 1.
    pub fn dice_similarity(&self, other: &Self) -> f32 {
        let shared = self.jaccard(other);
        2.0 * shared / (1.0 + shared)
    }

    /// The share of this text's features that the other text contains.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn containment_in(&self, other: &Self) -> f32 {
        let shared = self.jaccard(other);
        let both = shared / (1.0 + shared) * (self.size as f32 + other.size as f32);
        if self.size == 0 { 0.0 } else { (both / self.size as f32).min(1.0) }
    }

    /// Encodes the sketch for the index: the feature count and the hashes.
    pub fn encode(&self) -> String {
        let mut text = format!("{}:", self.size);
        self.low.iter().for_each(|hash| text.push_str(&format!("{hash:08x}")));
        text
    }

    /// Decodes what [`SimilaritySketch::encode`] wrote.
    pub fn decode(text: &str) -> Option<Self> {
        let (size, hashes) = text.split_once(':')?;
        if !hashes.is_ascii() || hashes.len() % 8 != 0 || hashes.len() > MAX_SKETCH_HASHES * 8 {
            return None;
        }
        let low: Option<Vec<u32>> = hashes
            .as_bytes()
            .chunks_exact(8)
            .map(|digits| {
                std::str::from_utf8(digits)
                    .ok()
                    .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            })
            .collect();
        Some(Self { size: size.parse().ok()?, low: low.filter(|low| low.is_sorted())? })
    }
}

/// Splits a text into words: runs of letters and digits, or single characters in scripts without
/// spaces.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.find(char::is_alphanumeric)?;
        rest = &rest[start..];
        let first = rest.chars().next()?;
        let len = if is_han_or_kana(first) {
            first.len_utf8()
        } else {
            rest.find(|c: char| {
                !(c.is_alphanumeric() || c == '\'' || c == '’') || is_han_or_kana(c)
            })
            .unwrap_or(rest.len())
        };
        let (word, after) = rest.split_at(len);
        rest = after;
        Some(word)
    })
}

/// Counts the words of a text; in scripts without spaces, two characters are a word.
pub fn word_count(text: &str) -> usize {
    let (mut words_counted, mut characters) = (0, 0);
    for word in words(text) {
        if word.starts_with(is_han_or_kana) { characters += 1 } else { words_counted += 1 }
    }
    words_counted + characters / 2
}

fn hash_bytes(bytes: &[u8]) -> u32 {
    mix_bits(bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    }))
}

fn hash_lowercase(word: &str) -> u32 {
    if word.is_ascii() {
        let step = |sum: u64, byte: &u8| {
            (sum ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01b3)
        };
        mix_bits(word.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, step))
    } else {
        hash_bytes(word.to_lowercase().as_bytes())
    }
}

/// Spreads a number's information over all of its bits.
fn mix_bits(mut value: u64) -> u32 {
    value = (value ^ (value >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    value = (value ^ (value >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    u32::try_from((value ^ (value >> 33)) >> 32).unwrap_or_default()
}

/// The hash of a text as the index stores it.
pub fn text_hash(text: &str) -> Hash {
    Hash::of(text.as_bytes())
}
