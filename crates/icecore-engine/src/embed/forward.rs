//! From tokens to what the model makes of them: six layers of attention and thought.
//!
//! Several texts go through together. What is done to each token alone is done to the rows of all of them at once;
//! where the tokens of a text look at each other, each text is by itself, so none is padded to another's length.
//!
//! Somebody waits for the vector of a question, and a single short text leaves nothing else to share out: then a second
//! thread computes one half of every product (see [`Hand`]).

use std::ops::Range;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::Scope;

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

/// So often it is looked for the other thread's next word before sleeping: waking up takes longer than most products.
const LOOKS: u32 = 2_000;

/// One half of a product to be computed: these rows with the second half of a matrix.
struct Half<'a> {
    x: Vec<f32>,
    with: &'a Dense,
}

/// A second thread that computes halves.
pub(super) struct Hand<'a> {
    asks: Sender<Half<'a>>,
    told: Receiver<Vec<f32>>,
}

impl<'a> Hand<'a> {
    /// Lends a hand until it is dropped.
    pub(super) fn lend<'scope>(scope: &'scope Scope<'scope, '_>) -> Self
    where
        'a: 'scope,
    {
        let (asks, asked) = mpsc::channel::<Half<'a>>();
        let (tells, told) = mpsc::channel();
        scope.spawn(move || {
            while let Some(Half { x, with }) = next(&asked) {
                let (weights, bias) = with.second_half();
                let mut out = vec![0.0; x.len() / with.depth() * bias.len()];
                multiply(&x, weights, bias, &mut out);
                if tells.send(out).is_err() {
                    break;
                }
            }
        });
        Self { asks, told }
    }
}

/// What comes next; none if nobody sends any more.
fn next<T>(from: &Receiver<T>) -> Option<T> {
    for _ in 0..LOOKS {
        match from.try_recv() {
            Ok(found) => return Some(found),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    from.recv().ok()
}

fn multiply(x: &[f32], weights: &[f32], bias: &[f32], out: &mut [f32]) {
    if weights.len() == INNER * bias.len() { dense_1536(x, weights, bias, out) } else { dense_384(x, weights, bias, out) }
}

/// `out = x · weightsᵀ + bias`, with both hands if there are two.
fn through<'a>(x: &[f32], with: &'a Dense, out: &mut [f32], hand: Option<&Hand<'a>>) {
    let Some(hand) = hand.filter(|hand| hand.asks.send(Half { x: x.to_vec(), with }).is_ok()) else {
        return multiply(x, &with.weights, &with.bias, out);
    };
    let (weights, bias) = with.first_half();
    let mut first = vec![0.0; x.len() / with.depth() * bias.len()];
    multiply(x, weights, bias, &mut first);
    match next(&hand.told) {
        Some(second) => {
            let halves = first.chunks_exact(bias.len()).zip(second.chunks_exact(with.bias.len() - bias.len()));
            for (row, (first, second)) in out.chunks_exact_mut(with.bias.len()).zip(halves) {
                row[..first.len()].copy_from_slice(first);
                row[first.len()..].copy_from_slice(second);
            }
        }
        // It died; what it would have said is said without it.
        None => multiply(x, &with.weights, &with.bias, out),
    }
}

/// What the last layer says of every token of these texts, one row of [`DIMENSIONS`] numbers each, in their order.
pub(super) fn states<'a>(
    weights: &'a Weights,
    texts: &[&[u32]],
    scratch: &mut Scratch,
    hand: Option<&Hand<'a>>,
) -> Result<Vec<f32>, EmbedError> {
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
        through(&x, &layer.asked, asked, hand);
        let mut first = 0;
        for text in texts {
            attend(asked, first..first + text.len(), told, keys, scores);
            first += text.len();
        }
        // The queries are not needed any more, and are long enough for what is told.
        let answer = &mut asked[..rows * DIMENSIONS];
        through(told, &layer.told, answer, hand);
        add_and_norm(&mut x, Some(answer), &layer.told_norm.scale, &layer.told_norm.shift);
        through(&x, &layer.up, inner, hand);
        gelu(inner);
        through(inner, &layer.down, told, hand);
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
