//! Numeric kernels of the embedding model's forward pass, vectorized for the running processor.
//!
//! This is a separate crate so that it can be compiled with full optimization in development
//! builds.
//!
//! A weight matrix has one row per output, as in the model file, so nothing is transposed on
//! loading. Activations are stored column-major (one column per token): one weight is broadcast
//! over many tokens, and no horizontal reductions are needed. The shapes are those of one model and
//! are checked when it is loaded. No external input reaches an index here; a wrong shape is a bug
//! and panics.

use pulp::{Arch, Simd, WithSimd};

/// The number of bytes of the left matrix that are processed with all columns at a time: they fit
/// the L2 cache.
const BLOCK_BYTES: usize = 160 << 10;
/// The number of rows computed at a time: with two vectors of columns, as many accumulators as the
/// smallest register file holds.
const TILE_ROWS: usize = 6;
/// The number of lanes of the widest vector of any processor.
pub const LANES: usize = 16;

/// A matrix within a longer slice.
#[derive(Clone, Copy)]
pub struct MatrixView<'a> {
    /// The elements, from the first one.
    pub numbers: &'a [f32],
    /// The distance between rows.
    pub stride: usize,
}

/// A matrix product: `out = a · b`, plus a bias.
pub struct MatMul<'a> {
    pub a: MatrixView<'a>,
    pub b: MatrixView<'a>,
    /// Added to every element of a row, one value per row; empty for none.
    pub bias: &'a [f32],
    pub out: &'a mut [f32],
    /// The distance between rows of `out`.
    pub out_stride: usize,
    /// The number of rows of `a`.
    pub rows: usize,
    /// The number of columns of `a`, and of rows of `b`.
    pub depth: usize,
    /// The number of columns of `b` to compute, a multiple of [`LANES`].
    pub width: usize,
}

impl MatMul<'_> {
    /// Computes the product; `room` is a scratch buffer for reuse.
    pub fn compute(self, room: &mut Vec<f32>) {
        Arch::new().dispatch(MatMulKernel { product: self, room });
    }
}

struct MatMulKernel<'a, 'r> {
    product: MatMul<'a>,
    room: &'r mut Vec<f32>,
}

impl WithSimd for MatMulKernel<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { product: MatMul { a, b, bias, out, out_stride, rows, depth, width }, room } =
            self;
        let two = 2 * S::F32_LANES;
        // Two vectors of columns are packed together, row after row, so that they are read
        // sequentially.
        room.clear();
        for column in (0..width).step_by(two) {
            let wide = two.min(width - column);
            for row in b.numbers.chunks(b.stride).take(depth) {
                room.extend_from_slice(&row[column..column + wide]);
            }
        }
        let block = (BLOCK_BYTES / (4 * depth.max(1))).next_multiple_of(TILE_ROWS);
        for first in (0..rows).step_by(block) {
            let last = rows.min(first + block);
            for (column, panel) in (0..width).step_by(two).zip(room.chunks(two * depth)) {
                let panel = S::as_simd_f32s(panel).0;
                for row in (first..last).step_by(TILE_ROWS) {
                    let a = MatrixView { numbers: &a.numbers[row * a.stride..], ..a };
                    let bias = bias.get(row..).unwrap_or_default();
                    let out = &mut out[row * out_stride + column..];
                    match (column + two <= width, last - row) {
                        (true, 1) => {
                            compute_tile::<S, 1, 2>(simd, a, panel, bias, out, out_stride, depth)
                        }
                        (true, 2) => {
                            compute_tile::<S, 2, 2>(simd, a, panel, bias, out, out_stride, depth)
                        }
                        (true, 3) => {
                            compute_tile::<S, 3, 2>(simd, a, panel, bias, out, out_stride, depth)
                        }
                        (true, 4) => {
                            compute_tile::<S, 4, 2>(simd, a, panel, bias, out, out_stride, depth)
                        }
                        (true, 5) => {
                            compute_tile::<S, 5, 2>(simd, a, panel, bias, out, out_stride, depth)
                        }
                        (true, _) => compute_tile::<S, TILE_ROWS, 2>(
                            simd, a, panel, bias, out, out_stride, depth,
                        ),
                        (false, 1) => {
                            compute_tile::<S, 1, 1>(simd, a, panel, bias, out, out_stride, depth)
                        }
                        (false, 2) => {
                            compute_tile::<S, 2, 1>(simd, a, panel, bias, out, out_stride, depth)
                        }
                        (false, 3) => {
                            compute_tile::<S, 3, 1>(simd, a, panel, bias, out, out_stride, depth)
                        }
                        (false, 4) => {
                            compute_tile::<S, 4, 1>(simd, a, panel, bias, out, out_stride, depth)
                        }
                        (false, 5) => {
                            compute_tile::<S, 5, 1>(simd, a, panel, bias, out, out_stride, depth)
                        }
                        (false, _) => compute_tile::<S, TILE_ROWS, 1>(
                            simd, a, panel, bias, out, out_stride, depth,
                        ),
                    }
                }
            }
        }
    }
}

/// Computes `R` rows with `C` vectors of columns.
#[inline(always)]
fn compute_tile<S: Simd, const R: usize, const C: usize>(
    simd: S,
    a: MatrixView,
    panel: &[S::f32s],
    bias: &[f32],
    out: &mut [f32],
    out_stride: usize,
    depth: usize,
) {
    let a: [&[f32]; R] = std::array::from_fn(|r| &a.numbers[r * a.stride..][..depth]);
    let panel = &panel.as_chunks::<C>().0[..depth];
    let mut sums: [[S::f32s; C]; R] =
        std::array::from_fn(|r| [simd.splat_f32s(bias.get(r).copied().unwrap_or(0.0)); C]);
    for step in 0..depth {
        let b = panel[step];
        for r in 0..R {
            let a = simd.splat_f32s(a[r][step]);
            for c in 0..C {
                sums[r][c] = simd.mul_add_e_f32s(a, b[c], sums[r][c]);
            }
        }
    }
    for r in 0..R {
        S::as_mut_simd_f32s(&mut out[r * out_stride..][..C * S::F32_LANES])
            .0
            .copy_from_slice(&sums[r]);
    }
}

/// Softmax of each column, after multiplying with `scale`; rows have `stride` elements.
pub fn softmax(rows: &mut [f32], stride: usize, scale: f32) {
    let (mut tops, mut sums) = (vec![f32::NEG_INFINITY; stride], vec![0.0; stride]);
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for row in rows.chunks_exact(stride) {
                tops.iter_mut()
                    .zip(row)
                    .for_each(|(top, &x)| *top = if x > *top { x } else { *top });
            }
            for row in rows.chunks_exact_mut(stride) {
                for ((x, top), sum) in row.iter_mut().zip(&tops).zip(&mut sums) {
                    *x = exp((*x - top) * scale);
                    *sum += *x;
                }
            }
            sums.iter_mut().for_each(|sum| *sum = 1.0 / *sum);
            for row in rows.chunks_exact_mut(stride) {
                row.iter_mut().zip(&sums).for_each(|(x, share)| *x *= share);
            }
        },
    );
}

/// The activation function GELU, `x · Φ(x)`.
pub fn gelu(xs: &mut [f32]) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for x in xs.iter_mut() {
                *x = 0.5 * *x * (1.0 + erf(*x * std::f32::consts::FRAC_1_SQRT_2));
            }
        },
    );
}

/// Adds `more` to `x` and normalizes each column to mean 0 and variance 1, then applies the learned
/// scale and shift of each row. The number of rows is that of the scales.
pub fn add_and_layer_norm(x: &mut [f32], more: Option<&[f32]>, scale: &[f32], shift: &[f32]) {
    let stride = x.len() / scale.len();
    let share = 1.0 / scale.len() as f32;
    let (mut means, mut spreads) = (vec![0.0; stride], vec![0.0; stride]);
    Arch::new().dispatch(
        #[inline(always)]
        || {
            if let Some(more) = more {
                x.iter_mut().zip(more).for_each(|(x, more)| *x += more);
            }
            for row in x.chunks_exact(stride) {
                means.iter_mut().zip(row).for_each(|(mean, x)| *mean += x);
            }
            means.iter_mut().for_each(|mean| *mean *= share);
            for row in x.chunks_exact_mut(stride) {
                for ((x, mean), spread) in row.iter_mut().zip(&means).zip(&mut spreads) {
                    *x -= mean;
                    *spread += *x * *x;
                }
            }
            spreads.iter_mut().for_each(|spread| *spread = 1.0 / (*spread * share + 1e-12).sqrt());
            for ((row, scale), shift) in x.chunks_exact_mut(stride).zip(scale).zip(shift) {
                row.iter_mut()
                    .zip(&spreads)
                    .for_each(|(x, spread)| *x = *x * spread * scale + shift);
            }
        },
    );
}

/// The Hamming distance of each row to `to`; [`u32::MAX`] for a row of zeros.
pub fn hamming_distances<const N: usize>(
    rows: impl Iterator<Item = [u64; N]>,
    to: &[u64; N],
) -> Vec<u32> {
    let mut found = Vec::with_capacity(rows.size_hint().0);
    // Processors of the last ten years have a population count instruction, but not all do.
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for row in rows {
                let (mut bits, mut any) = (0, 0);
                for (a, b) in row.iter().zip(to) {
                    bits += (a ^ b).count_ones();
                    any |= a;
                }
                found.push(if any == 0 { u32::MAX } else { bits });
            }
        },
    );
    found
}

/// e to the `x`, for `x` up to 0, within a few parts in ten million, without branches.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding this constant leaves the nearest integer in the lowest bits.
    const ROUNDING_SHIFT: f32 = 12_582_912.0;
    // ln 2 in two parts, the first so short that its multiples are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = if x < -87.0 { -87.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUNDING_SHIFT;
    let whole = shifted - ROUNDING_SHIFT;
    let rest = (x - whole * LN_2_HIGH) - whole * LN_2_LOW;
    let series = 1.0
        + rest
            * (1.0
                + rest
                    * (1.0 / 2.0
                        + rest
                            * (1.0 / 6.0
                                + rest * (1.0 / 24.0 + rest * (1.0 / 120.0 + rest / 720.0)))));
    series * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23)
}

/// The error function within 4e-7: a quotient of two polynomials in x², fitted to [0, 3.9]; beyond
/// that it is 1.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let x = if x > 3.9 { 3.9 } else { x };
    let x = if x < -3.9 { -3.9 } else { x };
    let t = x * x;
    let above = std::f32::consts::FRAC_2_SQRT_PI
        + t * (0.191_940_92
            + t * (0.052_966_885 + t * (3.836_865_8e-3 + t * (2.874_56e-4 + t * 2.050_375_3e-6))));
    let below = 1.0
        + t * (0.503_435
            + t * (0.114_758_14 + t * (0.015_109_185 + t * (1.181_73e-3 + t * 3.823_054_8e-5))));
    x * above / below
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same in double precision by the series, which converges everywhere.
    fn erf_by_series(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            let n = f64::from(n);
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn exp_and_erf_are_right_to_a_millionth() {
        for step in 0..=8_700 {
            let x = -0.01 * step as f32;
            let right = f64::from(x).exp();
            assert!((f64::from(exp(x)) - right).abs() <= 1e-6 * right, "exp({x})");
        }
        assert!(exp(f32::NEG_INFINITY) < 1e-37);
        for step in -5_000..=5_000 {
            let x = 0.001 * step as f32;
            assert!((f64::from(erf(x)) - erf_by_series(f64::from(x))).abs() <= 1e-6, "erf({x})");
        }
        assert!((erf(1e30) - 1.0).abs() <= 1e-6 && (erf(-1e30) + 1.0).abs() <= 1e-6);
    }

    #[test]
    fn bits_that_differ_are_counted() {
        let rows = [[0b1011, u64::MAX], [0, 0], [1, 0], [0b1000, u64::MAX >> 1]];
        assert_eq!(hamming_distances(rows.into_iter(), &[0b1010, u64::MAX]), [1, u32::MAX, 67, 2]);
    }

    fn numbers(count: usize) -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-1.0_f32..1.0, count)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn products_are_those_of_the_school(
            (rows, a) in (1_usize..20).prop_flat_map(|rows| (Just(rows), numbers(rows * 1536))),
            b in numbers(48 * 1536),
            bias in numbers(20),
        ) {
            let mut room = Vec::new();
            for (depth, width, bias) in [(1, 16, &bias[..0]), (32, 48, &bias[..]), (384, 32, &bias[..]), (1536, 48, &bias[..0])] {
                let mut out = vec![7.0; rows * 48];
                let windows = (MatrixView { numbers: &a, stride: 1536 }, MatrixView { numbers: &b, stride: 48 });
                MatMul { a: windows.0, b: windows.1, bias, out: &mut out, out_stride: 48, rows, depth, width }.compute(&mut room);
                for r in 0..rows {
                    for c in 0..48 {
                        let parts = || (0..depth).map(|k| f64::from(a[r * 1536 + k]) * f64::from(b[k * 48 + c]));
                        let school: f64 = parts().sum();
                        let right = if c < width { school + bias.get(r).map_or(0.0, |bias| f64::from(*bias)) } else { 7.0 };
                        // Each addition rounds by the size of the sum so far; the error grows with
                        // the root of the number of additions.
                        let usual = (parts().map(|part| part * part).sum::<f64>() / depth as f64).sqrt();
                        let rounding = 3.0 * f64::from(f32::EPSILON) * depth as f64 * usual;
                        let off = (f64::from(out[r * 48 + c]) - right).abs();
                        prop_assert!(off < 1e-6 + rounding, "{depth} {r} {c}: {off} {rounding}");
                    }
                }
            }
        }

        #[test]
        fn a_softmax_column_is_a_distribution(column in prop::collection::vec(-50.0_f32..50.0, 1..40)) {
            let mut rows: Vec<f32> = column.iter().flat_map(|&x| [x, 9.0, -x]).collect();
            softmax(&mut rows, 3, 0.5);
            let top = column.iter().copied().fold(f32::MIN, f32::max);
            let sum: f64 = column.iter().map(|x| f64::from((x - top) * 0.5).exp()).sum();
            for (row, x) in rows.chunks(3).zip(&column) {
                let right = f64::from((x - top) * 0.5).exp() / sum;
                prop_assert!((f64::from(row[0]) - right).abs() < 1e-6 && (row[1] * column.len() as f32 - 1.0).abs() < 1e-5, "{row:?}");
            }
        }

        #[test]
        fn a_normed_column_has_mean_0_and_variance_1(x in numbers(3 * 384), more in numbers(3 * 384)) {
            let mut out = x.clone();
            add_and_layer_norm(&mut out, Some(&more), &[1.0; 384], &[0.0; 384]);
            for at in 0..3 {
                let column: Vec<f32> = out.iter().copied().skip(at).step_by(3).collect();
                let mean = column.iter().sum::<f32>() / 384.0;
                let variance = column.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 384.0;
                prop_assert!(mean.abs() < 1e-4 && (variance - 1.0).abs() < 1e-3, "{at}: {mean} {variance}");
                prop_assert_eq!((x[at] + more[at]) < (x[at + 3] + more[at + 3]), column[0] < column[1]);
            }
            add_and_layer_norm(&mut out, None, &[2.0; 384], &[3.0; 384]);
            let mean = out.iter().sum::<f32>() / out.len() as f32;
            prop_assert!((mean - 3.0).abs() < 1e-3, "{mean}");
        }
    }
}
