//! From tokens to what the model makes of them: six layers of attention and thought.
//!
//! Several texts go through together. What is done to each token alone is done to the rows of all of them at once;
//! where the tokens of a text look at each other, each text is by itself, so none is padded to another's length.

use std::ops::Range;

use icecore_kernels::{LANES, Product, Window, add_and_norm, dense_384, dense_1536, gelu, softmax};

use super::weights::{Dense, HEAD, HEADS, INNER, Weights};
use super::{DIMENSIONS, EmbedError};

/// The numbers of a row that holds queries, keys and values.
const ASKED: usize = 3 * DIMENSIONS;

/// Room for the numbers on their way, used again for every batch.
#[derive(Default)]
pub(super) struct Scratch {
    asked: Vec<f32>,
    told: Vec<f32>,
    inner: Vec<f32>,
    keys: Vec<f32>,
    scores: Vec<f32>,
}

/// What the last layer says of every token of these texts, one row of [`DIMENSIONS`] numbers each, in their order.
pub(super) fn states(weights: &Weights, texts: &[&[u32]], scratch: &mut Scratch) -> Result<Vec<f32>, EmbedError> {
    let rows: usize = texts.iter().map(|text| text.len()).sum();
    let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0).next_multiple_of(LANES);
    let mut x = vec![0.0; rows * DIMENSIONS];
    let places = texts.iter().flat_map(|text| text.iter().zip(weights.places.as_chunks::<DIMENSIONS>().0));
    for (row, (id, place)) in x.as_chunks_mut::<DIMENSIONS>().0.iter_mut().zip(places) {
        weights.word(*id, row)?;
        row.iter_mut().zip(place).for_each(|(x, place)| *x += place);
    }
    add_and_norm(&mut x, None, &weights.norm.scale, &weights.norm.shift);

    let Scratch { asked, told, inner, keys, scores } = scratch;
    asked.resize(rows * ASKED, 0.0);
    told.resize(rows * DIMENSIONS, 0.0);
    inner.resize(rows * INNER, 0.0);
    keys.resize(HEAD * longest, 0.0);
    scores.resize(longest * longest, 0.0);
    for layer in &weights.layers {
        let through = |x: &[f32], with: &Dense, out: &mut [f32]| dense_384(x, &with.weights, &with.bias, out);
        through(&x, &layer.asked, asked);
        let mut first = 0;
        for text in texts {
            attend(asked, first..first + text.len(), told, keys, scores);
            first += text.len();
        }
        // The queries are not needed any more, and are long enough for what is told.
        let answer = &mut asked[..rows * DIMENSIONS];
        through(told, &layer.told, answer);
        add_and_norm(&mut x, Some(answer), &layer.told_norm.scale, &layer.told_norm.shift);
        through(&x, &layer.up, inner);
        gelu(inner);
        dense_1536(inner, &layer.down.weights, &layer.down.bias, told);
        add_and_norm(&mut x, Some(told), &layer.down_norm.scale, &layer.down_norm.shift);
    }
    Ok(x)
}

/// Lets the tokens of one text look at each other, head by head.
fn attend(asked: &[f32], rows: Range<usize>, told: &mut [f32], keys: &mut [f32], scores: &mut [f32]) {
    let count = rows.len();
    let stride = count.next_multiple_of(LANES);
    let asked = &asked[rows.start * ASKED..rows.end * ASKED];
    let told = &mut told[rows.start * DIMENSIONS..rows.end * DIMENSIONS];
    let scale = 1.0 / (HEAD as f32).sqrt();
    for head in 0..HEADS {
        let [queries, head_keys, values] = [0, 1, 2].map(|part| &asked[part * DIMENSIONS + head * HEAD..]);
        // The keys stand upright, so that a query meets many of them at once.
        let keys = &mut keys[..HEAD * stride];
        for (at, key) in head_keys.chunks(ASKED).enumerate() {
            for (number, row) in key[..HEAD].iter().zip(keys.chunks_exact_mut(stride)) {
                row[at] = *number;
            }
        }
        let scores = &mut scores[..count * stride];
        Product {
            a: Window { numbers: queries, stride: ASKED },
            b: Window { numbers: keys, stride },
            out: scores,
            out_stride: stride,
            rows: count,
            depth: HEAD,
            width: stride,
        }
        .compute();
        softmax(scores, stride, count, scale);
        Product {
            a: Window { numbers: scores, stride },
            b: Window { numbers: values, stride: ASKED },
            out: &mut told[head * HEAD..],
            out_stride: DIMENSIONS,
            rows: count,
            depth: count,
            width: HEAD,
        }
        .compute();
    }
}
