//! Postings: the passages that contain a term, with counts, packed small enough to be read whole.
//!
//! Passage numbers ascend within a block and from block to block.

/// One passage that contains a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posting {
    /// The passage's number.
    pub passage: u32,
    /// How often the term occurs in it.
    pub count: u32,
}

/// A block of this size takes no more postings, so that appending stays cheap.
pub const MAX_BLOCK_BYTES: usize = 4096;

/// Consecutive postings, packed with ascending passage numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PostingBlock {
    /// The packed postings.
    pub bytes: Vec<u8>,
    /// The last passage in it; 0 in an empty block, as no passage has that number.
    pub last: u32,
}

fn write_varint(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_varint(bytes: &[u8], at: &mut usize) -> Option<u32> {
    let mut number = 0_u32;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

impl PostingBlock {
    /// Whether the next posting needs a new block.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= MAX_BLOCK_BYTES
    }

    /// Appends a posting. Its passage must be greater than all passages in the block.
    pub fn push(&mut self, posting: Posting) {
        write_varint(&mut self.bytes, posting.passage.wrapping_sub(self.last));
        write_varint(&mut self.bytes, posting.count);
        self.last = posting.passage;
    }

    /// Decodes postings up to the first unreadable one.
    pub fn decode(bytes: &[u8]) -> impl Iterator<Item = Posting> + '_ {
        let (mut at, mut passage) = (0, 0_u32);
        std::iter::from_fn(move || {
            passage = passage.wrapping_add(read_varint(bytes, &mut at)?);
            Some(Posting { passage, count: read_varint(bytes, &mut at)? })
        })
    }
}

impl FromIterator<Posting> for PostingBlock {
    fn from_iter<I: IntoIterator<Item = Posting>>(postings: I) -> Self {
        let mut block = Self::default();
        postings.into_iter().for_each(|posting| block.push(posting));
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        // Y9
        #[test]
        fn what_was_packed_is_read(mut passages in proptest::collection::btree_set(1_u32.., 0..200), counts in proptest::collection::vec(1_u32.., 200)) {
            let postings: Vec<Posting> = std::mem::take(&mut passages).into_iter().zip(counts).map(|(passage, count)| Posting { passage, count }).collect();
            let block: PostingBlock = postings.iter().copied().collect();
            proptest::prop_assert_eq!(PostingBlock::decode(&block.bytes).collect::<Vec<_>>(), postings);
        }

        // Y9
        #[test]
        fn damaged_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..100)) {
            proptest::prop_assert!(PostingBlock::decode(&bytes).count() <= bytes.len());
        }
    }
}
