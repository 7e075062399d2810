//! The arithmetic of the embedding model's forward pass, with the widest vectors that this processor has.
//!
//! It is a crate of its own so that it can be compiled with all its optimisations while everything around it is not.
//!
//! Rows lie one after the other; a matrix of weights has one row for each output, as it lies in the file, so nothing
//! is turned around when a model is opened. The shapes are those of one model, checked when it is opened; nothing that
//! comes from outside reaches an index here, and a shape that does not fit is a mistake in our own code, and panics.

use pulp::{Arch, Simd, WithSimd};

/// How many bytes of weights are gone through with all rows before the next ones are: they stay in the second cache.
const BLOCK_BYTES: usize = 160 << 10;
/// How much of a row is multiplied at once, so that four rows and three of weights fit the first cache.
const PART: usize = 768;

/// `out = x · weightsᵀ + bias`, where `x` has rows of 384 numbers and `out` rows of as many as `bias` has, which must be a
/// multiple of three.
pub fn dense_384(x: &[f32], weights: &[f32], bias: &[f32], out: &mut [f32]) {
    dense::<384>(x, weights, bias, out);
}

/// The same for rows of 1536 numbers.
pub fn dense_1536(x: &[f32], weights: &[f32], bias: &[f32], out: &mut [f32]) {
    dense::<1536>(x, weights, bias, out);
}

fn dense<const DEPTH: usize>(x: &[f32], weights: &[f32], bias: &[f32], out: &mut [f32]) {
    struct Work<'a, const DEPTH: usize> {
        x: &'a [[f32; DEPTH]],
        weights: &'a [[f32; DEPTH]],
        bias: &'a [f32],
        out: &'a mut [f32],
    }
    impl<const DEPTH: usize> WithSimd for Work<'_, DEPTH> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            let Self { x, weights, bias, out } = self;
            let width = bias.len();
            for row in out.chunks_exact_mut(width) {
                row.copy_from_slice(bias);
            }
            for from in (0..DEPTH).step_by(PART) {
                let block = (BLOCK_BYTES / (4 * PART.min(DEPTH))).next_multiple_of(3);
                for (at, weights) in weights.chunks(block).enumerate() {
                    let mut outs = out.chunks_exact_mut(4 * width);
                    for (x, out) in x.as_chunks::<4>().0.iter().zip(outs.by_ref()) {
                        rows::<S, 4, DEPTH>(simd, x, weights, from, out, width, at * block);
                    }
                    let out = outs.into_remainder();
                    match x.as_chunks::<4>().1 {
                        [a] => rows(simd, &[*a], weights, from, out, width, at * block),
                        [a, b] => rows(simd, &[*a, *b], weights, from, out, width, at * block),
                        [a, b, c] => rows(simd, &[*a, *b, *c], weights, from, out, width, at * block),
                        _ => {}
                    }
                }
            }
        }
    }
    Arch::new().dispatch(Work { x: x.as_chunks::<DEPTH>().0, weights: weights.as_chunks::<DEPTH>().0, bias, out });
}

/// `R` rows with a block of weights, three of its rows at a time: so many sums as there are registers.
#[inline(always)]
fn rows<S: Simd, const R: usize, const DEPTH: usize>(
    simd: S,
    x: &[[f32; DEPTH]; R],
    weights: &[[f32; DEPTH]],
    from: usize,
    out: &mut [f32],
    width: usize,
    first: usize,
) {
    // The lengths are known when this is compiled, so that all rows are reached from one address.
    let (from, steps) = (from / S::F32_LANES, PART.min(DEPTH) / S::F32_LANES);
    let x: [&[S::f32s]; R] = std::array::from_fn(|r| &S::as_simd_f32s(&x[r]).0[from..from + steps]);
    for (triple, weights) in weights.as_chunks::<3>().0.iter().enumerate() {
        let w: [&[S::f32s]; 3] = std::array::from_fn(|c| &S::as_simd_f32s(&weights[c]).0[from..from + steps]);
        let mut sums = [[simd.splat_f32s(0.0); 3]; R];
        for step in 0..steps {
            let w = [w[0][step], w[1][step], w[2][step]];
            for r in 0..R {
                let x = x[r][step];
                for c in 0..3 {
                    sums[r][c] = simd.mul_add_e_f32s(x, w[c], sums[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..3 {
                out[r * width + first + 3 * triple + c] += simd.reduce_sum_f32s(sums[r][c]);
            }
        }
    }
}

/// A matrix inside a longer slice.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    /// Its numbers, from the first one on.
    pub numbers: &'a [f32],
    /// From one row to the next.
    pub stride: usize,
}

/// `out = a · b`.
pub struct Product<'a> {
    /// The one on the left.
    pub a: Window<'a>,
    /// The one on the right.
    pub b: Window<'a>,
    /// Where the product goes.
    pub out: &'a mut [f32],
    /// From one row of it to the next.
    pub out_stride: usize,
    /// The rows of `a`.
    pub rows: usize,
    /// The numbers of each, and the rows of `b`.
    pub depth: usize,
    /// The columns of `b` that are wanted, a multiple of [`LANES`].
    pub width: usize,
}

impl Product<'_> {
    /// Computes it.
    pub fn compute(self) {
        Arch::new().dispatch(self);
    }
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { a, b, out, out_stride, rows, depth, width } = self;
        let two = 2 * S::F32_LANES;
        let mut column = 0;
        while column < width {
            let wide = column + two <= width;
            for row in (0..rows).step_by(4) {
                let a = Window { numbers: &a.numbers[row * a.stride..], ..a };
                let out = &mut out[row * out_stride..];
                match (wide, rows - row) {
                    (true, 1) => tile::<S, 1, 2>(simd, a, b, out, out_stride, depth, column),
                    (true, 2) => tile::<S, 2, 2>(simd, a, b, out, out_stride, depth, column),
                    (true, 3) => tile::<S, 3, 2>(simd, a, b, out, out_stride, depth, column),
                    (true, _) => tile::<S, 4, 2>(simd, a, b, out, out_stride, depth, column),
                    (false, 1) => tile::<S, 1, 1>(simd, a, b, out, out_stride, depth, column),
                    (false, 2) => tile::<S, 2, 1>(simd, a, b, out, out_stride, depth, column),
                    (false, 3) => tile::<S, 3, 1>(simd, a, b, out, out_stride, depth, column),
                    (false, _) => tile::<S, 4, 1>(simd, a, b, out, out_stride, depth, column),
                }
            }
            column += if wide { two } else { S::F32_LANES };
        }
    }
}

/// The widest vector of any processor, in numbers.
pub const LANES: usize = 16;

#[inline(always)]
fn tile<S: Simd, const R: usize, const C: usize>(
    simd: S,
    a: Window,
    b: Window,
    out: &mut [f32],
    out_stride: usize,
    depth: usize,
    column: usize,
) {
    let a: [&[f32]; R] = std::array::from_fn(|r| &a.numbers[r * a.stride..][..depth]);
    let mut sums = [[simd.splat_f32s(0.0); C]; R];
    for step in 0..depth {
        let b = S::as_simd_f32s(&b.numbers[step * b.stride + column..][..C * S::F32_LANES]).0;
        for r in 0..R {
            let a = simd.splat_f32s(a[r][step]);
            for c in 0..C {
                sums[r][c] = simd.mul_add_e_f32s(a, b[c], sums[r][c]);
            }
        }
    }
    for r in 0..R {
        S::as_mut_simd_f32s(&mut out[r * out_stride + column..][..C * S::F32_LANES]).0.copy_from_slice(&sums[r]);
    }
}

/// Makes each row of `stride` numbers a distribution over its first `width` numbers, after multiplying with `scale`.
pub fn softmax(rows: &mut [f32], stride: usize, width: usize, scale: f32) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for row in rows.chunks_exact_mut(stride) {
                let (row, rest) = row.split_at_mut(width);
                rest.fill(0.0);
                let top = row.iter().fold(f32::NEG_INFINITY, |top, &x| if x > top { x } else { top });
                for x in row.iter_mut() {
                    *x = exp((*x - top) * scale);
                }
                let mut sums = [0.0; 8];
                let mut parts = row.chunks_exact(8);
                for part in parts.by_ref() {
                    for (sum, x) in sums.iter_mut().zip(part) {
                        *sum += x;
                    }
                }
                let sum = sums.iter().sum::<f32>() + parts.remainder().iter().sum::<f32>();
                let share = 1.0 / sum;
                for x in row.iter_mut() {
                    *x *= share;
                }
            }
        },
    );
}

/// The activation between the two halves of a layer, `x · Φ(x)`.
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

/// Adds `more` to `x` and brings each row to mean 0 and variance 1, then to the learned scale and shift.
pub fn add_and_norm(x: &mut [f32], more: Option<&[f32]>, scale: &[f32], shift: &[f32]) {
    struct Norm<'a> {
        x: &'a mut [f32],
        more: Option<&'a [f32]>,
        scale: &'a [f32],
        shift: &'a [f32],
    }
    impl WithSimd for Norm<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            let Self { x, more, scale, shift } = self;
            let width = scale.len();
            let (scale, shift) = (S::as_simd_f32s(scale).0, S::as_simd_f32s(shift).0);
            for (at, row) in x.chunks_exact_mut(width).enumerate() {
                let row = S::as_mut_simd_f32s(row).0;
                if let Some(more) = more.and_then(|more| more.get(at * width..(at + 1) * width)) {
                    for (x, more) in row.iter_mut().zip(S::as_simd_f32s(more).0) {
                        *x = simd.add_f32s(*x, *more);
                    }
                }
                let share = 1.0 / width as f32;
                let sum = row.iter().fold(simd.splat_f32s(0.0), |sum, x| simd.add_f32s(sum, *x));
                let mean = simd.splat_f32s(simd.reduce_sum_f32s(sum) * share);
                let mut squares = simd.splat_f32s(0.0);
                for x in row.iter_mut() {
                    *x = simd.sub_f32s(*x, mean);
                    squares = simd.mul_add_e_f32s(*x, *x, squares);
                }
                let spread = simd.splat_f32s(1.0 / (simd.reduce_sum_f32s(squares) * share + 1e-12).sqrt());
                for ((x, scale), shift) in row.iter_mut().zip(scale).zip(shift) {
                    *x = simd.mul_add_e_f32s(simd.mul_f32s(*x, spread), *scale, *shift);
                }
            }
        }
    }
    Arch::new().dispatch(Norm { x, more, scale, shift });
}

/// e to the `x`, for `x` up to 0, within a few parts in ten million. Everything in it is done in vectors.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding this leaves the nearest whole number in the lowest bits.
    const WHOLE: f32 = 12_582_912.0;
    // ln 2 in two parts, the first so short that its multiples are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = if x < -87.0 { -87.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + WHOLE;
    let whole = shifted - WHOLE;
    let rest = (x - whole * LN_2_HIGH) - whole * LN_2_LOW;
    let series = 1.0 + rest * (1.0 + rest * (1.0 / 2.0 + rest * (1.0 / 6.0 + rest * (1.0 / 24.0 + rest * (1.0 / 120.0 + rest / 720.0)))));
    series * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23)
}

/// The error function within 4e-7: a quotient of two polynomials in x², fitted to [0, 3.9]; beyond that it is 1.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let x = if x > 3.9 { 3.9 } else { x };
    let x = if x < -3.9 { -3.9 } else { x };
    let t = x * x;
    let above = std::f32::consts::FRAC_2_SQRT_PI
        + t * (0.191_940_92 + t * (0.052_966_885 + t * (3.836_865_8e-3 + t * (2.874_56e-4 + t * 2.050_375_3e-6))));
    let below = 1.0 + t * (0.503_435 + t * (0.114_758_14 + t * (0.015_109_185 + t * (1.181_73e-3 + t * 3.823_054_8e-5))));
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

    fn numbers(count: usize) -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-1.0_f32..1.0, count)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn products_are_those_of_the_school(
            (rows, a, b) in (1_usize..10).prop_flat_map(|rows| (Just(rows), numbers(rows * 1536), numbers(48 * 1536))),
            bias in numbers(48),
        ) {
            for depth in [16, 32, 384, 1536] {
                let school = |r: usize, c: usize, at: fn(usize, usize, usize) -> usize| -> f64 {
                    (0..depth).map(|k| f64::from(a[r * depth + k]) * f64::from(b[at(c, k, depth)])).sum()
                };
                let mut out = vec![7.0; rows * 48];
                match depth {
                    16 => dense::<16>(&a[..rows * depth], &b[..48 * depth], &bias, &mut out),
                    32 => dense::<32>(&a[..rows * depth], &b[..48 * depth], &bias, &mut out),
                    384 => dense::<384>(&a[..rows * depth], &b[..48 * depth], &bias, &mut out),
                    _ => dense::<1536>(&a[..rows * depth], &b[..48 * depth], &bias, &mut out),
                }
                let mut straight = vec![7.0; rows * 48];
                let windows = (Window { numbers: &a, stride: depth }, Window { numbers: &b, stride: 48 });
                Product { a: windows.0, b: windows.1, out: &mut straight, out_stride: 48, rows, depth, width: 48 }.compute();
                for r in 0..rows {
                    for c in 0..48 {
                        let right = school(r, c, |c, k, depth| c * depth + k) + f64::from(bias[c]);
                        prop_assert!((f64::from(out[r * 48 + c]) - right).abs() < 1e-4, "dense {depth} {r} {c}");
                        let right = school(r, c, |c, k, _| k * 48 + c);
                        prop_assert!((f64::from(straight[r * 48 + c]) - right).abs() < 1e-4, "product {depth} {r} {c}");
                    }
                }
            }
        }

        #[test]
        fn a_softmax_row_is_a_distribution(row in prop::collection::vec(-50.0_f32..50.0, 1..40)) {
            let (width, stride) = (row.len(), row.len().next_multiple_of(LANES));
            let mut rows = vec![9.0; 2 * stride];
            rows[..width].copy_from_slice(&row);
            rows[stride..][..width].copy_from_slice(&row);
            softmax(&mut rows, stride, width, 0.5);
            let top = row.iter().copied().fold(f32::MIN, f32::max);
            let sum: f64 = row.iter().map(|x| f64::from((x - top) * 0.5).exp()).sum();
            for (at, x) in rows.iter().enumerate() {
                let right = row.get(at % stride).map_or(0.0, |x| f64::from((x - top) * 0.5).exp() / sum);
                prop_assert!((f64::from(*x) - right).abs() < 1e-6, "{at}");
            }
        }

        #[test]
        fn a_normed_row_has_mean_0_and_variance_1(x in numbers(3 * 384), more in numbers(3 * 384)) {
            let mut out = x.clone();
            add_and_norm(&mut out, Some(&more), &[1.0; 384], &[0.0; 384]);
            for (at, row) in out.chunks(384).enumerate() {
                let mean = row.iter().sum::<f32>() / 384.0;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 384.0;
                prop_assert!(mean.abs() < 1e-4 && (variance - 1.0).abs() < 1e-3, "{at}: {mean} {variance}");
                let same = (x[at * 384] + more[at * 384]) < (x[at * 384 + 1] + more[at * 384 + 1]);
                prop_assert_eq!(same, row[0] < row[1]);
            }
        }
    }
}
