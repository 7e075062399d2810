//! Compact embedding vectors: quantized to one byte per component ([`PackedVector`]), and to one
//! bit per component ([`SignVector`]) for a fast first pass.
//!
//! A query compares up to a million vectors. A packed vector takes a quarter of the memory and is
//! compared in integer arithmetic. The loss of accuracy is far below what changes the ranking.

/// The number of components of a vector.
pub const DIMENSIONS: usize = 384;
/// The size of a packed vector.
pub const PACKED_BYTES: usize = DIMENSIONS + 4;
/// The number of 64-bit words in a sign vector.
const SIGN_U64S: usize = DIMENSIONS / 64;

/// A vector quantized to one byte per component, with a common scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PackedVector {
    scale: f32,
    bytes: [i8; DIMENSIONS],
}

/// A sign-quantized vector: a bit is set where the component is above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SignVector(pub [u64; SIGN_U64S]);

/// Quantizes a vector. Components that are not finite count as 0.
pub fn pack_vector(numbers: &[f32; DIMENSIONS]) -> PackedVector {
    let numbers = numbers.map(|x| if x.is_finite() { x } else { 0.0 });
    let greatest = numbers.iter().fold(0.0_f32, |greatest, x| greatest.max(x.abs()));
    if greatest == 0.0 {
        return PackedVector { scale: 0.0, bytes: [0; DIMENSIONS] };
    }
    // Divide first: 127 / greatest may overflow.
    PackedVector {
        scale: greatest / 127.0,
        bytes: numbers.map(|x| (x / greatest * 127.0).round() as i8),
    }
}

/// The dot product; for vectors of length 1 this is the cosine similarity.
#[inline]
pub fn dot_product(a: &PackedVector, b: &PackedVector) -> f32 {
    // The product of two bytes fits 16 bits. The compiler vectorizes this form with chunks of this
    // length.
    let mut sum = 0;
    for (a, b) in a.bytes.as_chunks::<32>().0.iter().zip(b.bytes.as_chunks::<32>().0) {
        sum += a.iter().zip(b).map(|(a, b)| i32::from(i16::from(*a) * i16::from(*b))).sum::<i32>();
    }
    sum as f32 * a.scale * b.scale
}

impl PackedVector {
    /// The vector with its quantization error.
    pub fn unpack(&self) -> [f32; DIMENSIONS] {
        // Multiplying the greatest component back may overflow to infinity.
        self.bytes.map(|byte| (f32::from(byte) * self.scale).clamp(f32::MIN, f32::MAX))
    }

    /// The signs of the components.
    pub fn signs(&self) -> SignVector {
        SignVector::from_bits(|at| self.bytes[at] > 0)
    }

    /// The stored form: the scale in little-endian order, then the bytes.
    pub fn to_bytes(&self) -> [u8; PACKED_BYTES] {
        let mut kept = [0; PACKED_BYTES];
        let (scale, bytes) = kept.split_at_mut(4);
        scale.copy_from_slice(&self.scale.to_le_bytes());
        bytes.iter_mut().zip(self.bytes).for_each(|(kept, byte)| *kept = byte.cast_unsigned());
        kept
    }

    /// Reads the stored form; `None` if the length or the scale is wrong.
    pub fn from_bytes(kept: &[u8]) -> Option<Self> {
        let kept: &[u8; PACKED_BYTES] = kept.try_into().ok()?;
        let (scale, bytes) = kept.split_first_chunk::<4>()?;
        let scale = f32::from_le_bytes(*scale);
        // A loop over slices compiles to a copy; mapping an array of this length does not.
        let mut signed = [0; DIMENSIONS];
        signed.iter_mut().zip(bytes).for_each(|(signed, byte)| *signed = byte.cast_signed());
        (scale.is_finite() && scale >= 0.0).then_some(Self { scale, bytes: signed })
    }
}

impl SignVector {
    /// Marks a missing vector.
    pub const NONE: Self = Self([0; SIGN_U64S]);

    /// The signs of a vector.
    pub fn from_numbers(numbers: &[f32; DIMENSIONS]) -> Self {
        Self::from_bits(|at| numbers[at] > 0.0)
    }

    fn from_bits(set: impl Fn(usize) -> bool) -> Self {
        let word = |word: usize| {
            (0..64).fold(0, |bits, bit| bits | u64::from(set(64 * word + bit)) << bit)
        };
        Self(std::array::from_fn(word))
    }

    /// The number of differing bits: 0 for the same direction, about 192 for unrelated vectors.
    #[inline]
    pub fn hamming_distance(&self, other: &Self) -> u32 {
        self.0.iter().zip(other.0).map(|(a, b)| (a ^ b).count_ones()).sum()
    }

    /// Whether this marks a missing vector.
    pub fn is_none(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Adds up the directions of many vectors: per component, 1 for each set bit and -1 for each
    /// unset bit.
    pub fn sum_directions(all: impl IntoIterator<Item = Self>) -> [i32; DIMENSIONS] {
        /// The bits of a byte, one per byte, so that one addition counts eight components.
        const SPREAD: [u64; 256] = {
            let mut spread = [0; 256];
            let mut byte = 0;
            while byte < 256 {
                let mut bit = 0;
                while bit < 8 {
                    spread[byte] |= (byte as u64 >> bit & 1) << (8 * bit);
                    bit += 1;
                }
                byte += 1;
            }
            spread
        };
        let mut sum = [0; DIMENSIONS];
        let mut all = all.into_iter().peekable();
        while all.peek().is_some() {
            // A byte counts to 255.
            let (mut ups, mut many) = ([0_u64; DIMENSIONS / 8], 0);
            for one in all.by_ref().take(255) {
                many += 1;
                for (word, ups) in one.0.iter().zip(ups.as_chunks_mut::<8>().0) {
                    word.to_le_bytes()
                        .iter()
                        .zip(ups)
                        .for_each(|(&byte, ups)| *ups += SPREAD[usize::from(byte)]);
                }
            }
            let ups = ups.iter().flat_map(|ups| ups.to_le_bytes());
            sum.iter_mut().zip(ups).for_each(|(sum, ups)| *sum += 2 * i32::from(ups) - many);
        }
        sum
    }

    /// The cosine similarity estimated from the signs alone.
    pub fn estimated_cosine(&self, other: &Self) -> f32 {
        (std::f32::consts::PI * self.hamming_distance(other) as f32 / DIMENSIONS as f32).cos()
    }

    /// The stored form, little-endian.
    pub fn to_bytes(&self) -> [u8; DIMENSIONS / 8] {
        let mut kept = [0; DIMENSIONS / 8];
        kept.as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip(self.0)
            .for_each(|(kept, word)| *kept = word.to_le_bytes());
        kept
    }

    /// Reads the stored form; `None` if the length is wrong.
    pub fn from_bytes(kept: &[u8]) -> Option<Self> {
        let kept: &[u8; DIMENSIONS / 8] = kept.try_into().ok()?;
        let words: &[[u8; 8]; SIGN_U64S] = kept.as_chunks().0.try_into().ok()?;
        Some(Self(words.map(u64::from_le_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Vectors of length 1, uniformly distributed over all directions: normally distributed
    /// components, approximated by sums of many numbers.
    fn unit() -> impl Strategy<Value = [f32; DIMENSIONS]> {
        prop::collection::vec(prop::collection::vec(-1.0_f32..1.0, 6), DIMENSIONS).prop_map(
            |numbers| {
                let numbers: [f32; DIMENSIONS] = std::array::from_fn(|at| numbers[at].iter().sum());
                let length = exact(&numbers, &numbers).sqrt();
                numbers.map(|x| x / length as f32)
            },
        )
    }

    /// A second vector, more or less similar to the first.
    fn pair() -> impl Strategy<Value = ([f32; DIMENSIONS], [f32; DIMENSIONS])> {
        (unit(), unit(), 0.0_f32..1.0).prop_map(|(a, b, near)| {
            let mixed: [f32; DIMENSIONS] =
                std::array::from_fn(|at| near * a[at] + (1.0 - near) * b[at]);
            let length = exact(&mixed, &mixed).sqrt() as f32;
            (a, mixed.map(|x| x / length))
        })
    }

    fn exact(a: &[f32; DIMENSIONS], b: &[f32; DIMENSIONS]) -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_packed_vector_is_as_near_to_others_as_the_vector_is((a, b) in pair()) {
            let right = exact(&a, &b);
            prop_assert!((f64::from(dot_product(&pack_vector(&a), &pack_vector(&b))) - right).abs() < 0.01);
            prop_assert!((exact(&pack_vector(&a).unpack(), &b) - right).abs() < 0.01);
            prop_assert!((dot_product(&pack_vector(&a), &pack_vector(&a)) - 1.0).abs() < 0.01);
        }

        #[test]
        fn the_whole_numbers_add_up(a in prop::collection::vec(any::<i8>(), DIMENSIONS), b in prop::collection::vec(any::<i8>(), DIMENSIONS)) {
            let packed = |bytes: &[i8]| PackedVector { scale: 1.0, bytes: bytes.try_into().unwrap() };
            let right: i32 = a.iter().zip(&b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
            prop_assert_eq!(dot_product(&packed(&a), &packed(&b)), right as f32);
        }

        #[test]
        fn signs_differ_by_the_angle((a, b) in pair()) {
            let (signs, others) = (SignVector::from_numbers(&a), SignVector::from_numbers(&b));
            let right = (0..DIMENSIONS).filter(|at| (a[*at] > 0.0) != (b[*at] > 0.0)).count();
            prop_assert_eq!(signs.hamming_distance(&others) as usize, right);
            prop_assert_eq!(signs.hamming_distance(&signs), 0);
            let angle = exact(&a, &b).clamp(-1.0, 1.0).acos() / std::f64::consts::PI;
            prop_assert!((f64::from(signs.hamming_distance(&others)) / DIMENSIONS as f64 - angle).abs() < 0.2);
            prop_assert!((f64::from(signs.estimated_cosine(&others)) - exact(&a, &b)).abs() < 0.5);
        // More vectors than a byte can count.
            for (ups, downs) in [(1, 1), (0, 1), (300, 7), (0, 0)] {
                let all = std::iter::repeat_n(signs, ups).chain(std::iter::repeat_n(others, downs));
                let sum = |x: f32, many: usize| many as i32 * if x > 0.0 { 1 } else { -1 };
                let right: Vec<i32> = (0..DIMENSIONS).map(|at| sum(a[at], ups) + sum(b[at], downs)).collect();
                prop_assert_eq!(SignVector::sum_directions(all).to_vec(), right);
            }
        }

        #[test]
        fn what_is_kept_comes_back(a in unit()) {
            let (packed, signs) = (pack_vector(&a), SignVector::from_numbers(&a));
            prop_assert_eq!(PackedVector::from_bytes(&packed.to_bytes()), Some(packed));
            prop_assert_eq!(SignVector::from_bytes(&signs.to_bytes()), Some(signs));
        // Packing may round a very small component to 0 but never changes its sign.
            prop_assert_eq!(packed.signs().0.iter().zip(signs.0).all(|(packed, whole)| packed & !whole == 0), true);
        }

        #[test]
        fn no_bytes_and_no_numbers_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..500), number in any::<f32>(), other in any::<f32>()) {
            let mut numbers = [number; DIMENSIONS];
            numbers[7] = other;
            let packed = pack_vector(&numbers);
            prop_assert!(packed.unpack().iter().all(|x| x.is_finite()));
            prop_assert!(PackedVector::from_bytes(&bytes).is_none_or(|packed| packed.to_bytes() == bytes.as_slice()));
            prop_assert_eq!(SignVector::from_bytes(&bytes).is_some(), bytes.len() == DIMENSIONS / 8);
        }
    }

    #[test]
    fn odd_vectors_are_packed_too() {
        assert_eq!(pack_vector(&[0.0; DIMENSIONS]).unpack(), [0.0; DIMENSIONS]);
        assert_eq!(
            dot_product(&pack_vector(&[f32::NAN; DIMENSIONS]), &pack_vector(&[1.0; DIMENSIONS])),
            0.0
        );
        assert!(pack_vector(&[f32::MAX; DIMENSIONS]).unpack().iter().all(|x| x.is_finite()));
        assert!(pack_vector(&[1e-44; DIMENSIONS]).unpack().iter().all(|x| x.is_finite()));
        let mut kept = pack_vector(&[0.05; DIMENSIONS]).to_bytes();
        kept[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        assert_eq!(PackedVector::from_bytes(&kept), None);
        assert_eq!(PackedVector::from_bytes(&kept[1..]), None);
    }
}
