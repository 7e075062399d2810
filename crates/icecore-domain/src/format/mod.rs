//! File formats: lenient reading, and exactly one written form.

pub mod line;
