//! Resizing as OpenCV's `resize` does it for bytes, to the same fixed-point arithmetic.

use super::picture::{Picture, Rect, View};

/// How pixels between pixels are made: MXNet's `inter_method`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// 0: the nearest pixel.
    Nearest,
    /// 1: between 2×2 pixels.
    #[default]
    Linear,
    /// 2: between 4×4 pixels.
    Cubic,
    /// 3: the mean of all pixels that a pixel of the result covers; `Linear` where the result is larger.
    Area,
    /// 9: `Cubic` where the result is larger, `Area` where it is smaller, `Linear` else.
    Auto,
    /// 10: one of the first four, at random.
    Random,
}

/// One of the methods that resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Nearest,
    Linear,
    Cubic,
    Area,
}

/// Bits of a weight's fraction.
const WEIGHT_BITS: u32 = 11;
const ONE: f32 = (1 << WEIGHT_BITS) as f32;

/// Memory that is used again.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    columns: Vec<Tap>,
    above: Row,
    below: Row,
    wide: Vec<i32>,
    sums: Vec<f32>,
}

/// A row that was resized in its width, and which one.
#[derive(Debug, Default)]
struct Row {
    source: Option<usize>,
    /// A sixteenth of pixel × weight, as OpenCV keeps it.
    values: Vec<i16>,
}

/// The two source pixels of a pixel of the result, as offsets into a row, and their weights.
#[derive(Clone, Copy, Debug)]
struct Tap {
    first: usize,
    second: usize,
    weights: [i16; 2],
}

/// The rectangle `part` of what `from` becomes when it is resized to `width` × `height`.
pub(super) fn resize(
    from: View<'_>,
    (width, height): (usize, usize),
    part: Rect,
    method: Method,
    out: &mut Picture,
    scratch: &mut Scratch,
) {
    out.reshape(part.width, part.height, from.channels);
    if from.width == width && from.height == height {
        return from.crop(part).copy_to(out);
    }
    let scale = (from.width as f64 / width as f64, from.height as f64 / height as f64);
    let halves = scale == (2.0, 2.0);
    let shrinks = scale.0 >= 1.0 && scale.1 >= 1.0;
    match method {
        Method::Nearest => nearest(from, scale, part, out),
        Method::Linear if halves => area(from, scale, part, out, &mut scratch.sums),
        Method::Linear => linear(from, scale, part, out, scratch, place),
        Method::Cubic => cubic(from, scale, part, out, &mut scratch.wide),
        Method::Area if shrinks => area(from, scale, part, out, &mut scratch.sums),
        Method::Area => linear(from, scale, part, out, scratch, place_of_area),
    }
}

fn nearest(from: View<'_>, scale: (f64, f64), part: Rect, out: &mut Picture) {
    let channels = from.channels;
    let source = |at: usize, scale: f64, len: usize| ((at as f64 * scale).floor() as usize).min(len - 1);
    for (y, row) in out.rows_mut().enumerate() {
        let line = from.row(source(part.y + y, scale.1, from.height));
        for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
            let at = source(part.x + x, scale.0, from.width) * channels;
            pixel.copy_from_slice(&line[at..at + channels]);
        }
    }
}

/// The source pixel before position `at` of the result, and how far behind it the position is.
fn place(at: usize, scale: f64) -> (i64, f32) {
    let exact = ((at as f64 + 0.5) * scale - 0.5) as f32;
    let before = exact.floor();
    (before as i64, exact - before)
}

/// The same for `Area` where the result is larger.
fn place_of_area(at: usize, scale: f64) -> (i64, f32) {
    let before = (at as f64 * scale).floor();
    let fraction = ((at as f64 + 1.0) - (before + 1.0) / scale) as f32;
    (before as i64, if fraction <= 0.0 { 0.0 } else { fraction - fraction.floor() })
}

fn weight(fraction: f32) -> i16 {
    (fraction * ONE).round_ties_even() as i16
}

fn linear(
    from: View<'_>,
    scale: (f64, f64),
    part: Rect,
    out: &mut Picture,
    scratch: &mut Scratch,
    place: fn(usize, f64) -> (i64, f32),
) {
    let last = from.width as i64 - 1;
    let Scratch { columns, above, below, .. } = scratch;
    columns.clear();
    columns.extend((part.x..part.x + part.width).map(|x| {
        let (before, fraction) = place(x, scale.0);
        let fraction = if before < 0 || before >= last { 0.0 } else { fraction };
        let (first, second) = (before.clamp(0, last) as usize, (before + 1).clamp(0, last) as usize);
        let weights = [weight(1.0 - fraction), weight(fraction)];
        Tap { first: first * from.channels, second: second * from.channels, weights }
    }));
    (above.source, below.source) = (None, None);
    let last = from.height as i64 - 1;
    for (y, row) in out.rows_mut().enumerate() {
        let (before, fraction) = place(part.y + y, scale.1);
        let (first, second) = (before.clamp(0, last) as usize, (before + 1).clamp(0, last) as usize);
        if above.source != Some(first) && below.source == Some(first) {
            std::mem::swap(above, below);
        }
        above.fill(from, first, columns);
        below.fill(from, second, columns);
        blend(&above.values, &below.values, [weight(1.0 - fraction), weight(fraction)], row);
    }
}

impl Row {
    /// Makes it row `source` of `from`, resized in its width.
    fn fill(&mut self, from: View<'_>, source: usize, columns: &[Tap]) {
        if self.source == Some(source) {
            return;
        }
        self.source = Some(source);
        let line = from.row(source);
        self.values.resize(columns.len() * from.channels, 0);
        match from.channels {
            1 => widen::<1>(line, columns, &mut self.values),
            3 => widen::<3>(line, columns, &mut self.values),
            _ => widen::<4>(line, columns, &mut self.values),
        }
    }
}

fn widen<const C: usize>(line: &[u8], columns: &[Tap], out: &mut [i16]) {
    for (out, tap) in out.as_chunks_mut::<C>().0.iter_mut().zip(columns) {
        let (Some(first), Some(second)) = (line[tap.first..].first_chunk::<C>(), line[tap.second..].first_chunk::<C>())
        else {
            return;
        };
        let [a, b] = tap.weights.map(i32::from);
        for channel in 0..C {
            out[channel] = ((i32::from(first[channel]) * a + i32::from(second[channel]) * b) >> 4) as i16;
        }
    }
}

fn blend(above: &[i16], below: &[i16], [a, b]: [i16; 2], out: &mut [u8]) {
    let high = |value: i16, weight: i16| ((i32::from(value) * i32::from(weight)) >> 16) as i16;
    for ((out, above), below) in out.iter_mut().zip(above).zip(below) {
        *out = ((high(*above, a) + high(*below, b) + 2) >> 2) as u8;
    }
}

/// The weights of the four pixels around a position.
fn cubic_weights(x: f32) -> [i32; 4] {
    const A: f32 = -0.75;
    let outer = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let inner = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let (a, b, c) = (outer(x + 1.0), inner(x), inner(1.0 - x));
    [a, b, c, 1.0 - a - b - c].map(|weight| (weight * ONE).round_ties_even() as i32)
}

fn cubic(from: View<'_>, scale: (f64, f64), part: Rect, out: &mut Picture, wide: &mut Vec<i32>) {
    let channels = from.channels;
    let around = |at: usize, scale: f64, len: usize| {
        let (before, fraction) = place(at, scale);
        let pixel = |n: i64| (before - 1 + n).clamp(0, len as i64 - 1) as usize;
        ([pixel(0), pixel(1), pixel(2), pixel(3)], cubic_weights(fraction))
    };
    let rows: Vec<_> = (part.y..part.y + part.height).map(|y| around(y, scale.1, from.height)).collect();
    let columns: Vec<_> = (part.x..part.x + part.width).map(|x| around(x, scale.0, from.width)).collect();
    let width = part.width * channels;
    wide.clear();
    for line in from.rows() {
        wide.extend(columns.iter().flat_map(|(pixels, weights)| {
            (0..channels).map(move |channel| {
                pixels.iter().zip(weights).map(|(x, w)| i32::from(line[x * channels + channel]) * w).sum::<i32>()
            })
        }));
    }
    for (row, (lines, weights)) in out.rows_mut().zip(rows) {
        let lines = lines.map(|y| &wide[y * width..][..width]);
        for (x, out) in row.iter_mut().enumerate() {
            let sum: i64 = lines.iter().zip(weights).map(|(line, w)| i64::from(line[x]) * i64::from(w)).sum();
            *out = ((sum + (1 << (2 * WEIGHT_BITS - 1))) >> (2 * WEIGHT_BITS)).clamp(0, 255) as u8;
        }
    }
}

/// Which source pixels a pixel of the result covers, and how much of it each one is.
fn covered(at: usize, scale: f64, len: usize) -> Vec<(usize, f32)> {
    let (begin, end) = (at as f64 * scale, (at as f64 + 1.0) * scale);
    let cell = scale.min(len as f64 - begin);
    let (first, last) = (begin.ceil() as usize, (end.floor() as usize).min(len - 1));
    let first = first.min(last);
    let mut found = Vec::new();
    if first as f64 - begin > 1e-3 {
        found.push((first - 1, ((first as f64 - begin) / cell) as f32));
    }
    found.extend((first..last).map(|pixel| (pixel, (1.0 / cell) as f32)));
    if end - last as f64 > 1e-3 {
        found.push((last, ((end - last as f64).min(1.0).min(cell) / cell) as f32));
    }
    found
}

fn area(from: View<'_>, scale: (f64, f64), part: Rect, out: &mut Picture, sums: &mut Vec<f32>) {
    let channels = from.channels;
    let is_whole = scale.0.fract() == 0.0 && scale.1.fract() == 0.0;
    let columns: Vec<_> = (part.x..part.x + part.width).map(|x| covered(x, scale.0, from.width)).collect();
    for (y, row) in out.rows_mut().enumerate() {
        sums.clear();
        sums.resize(row.len(), 0.0);
        for (line, of_row) in covered(part.y + y, scale.1, from.height) {
            let line = from.row(line);
            let of_row = if is_whole { 1.0 } else { of_row };
            for (sums, pixels) in sums.chunks_exact_mut(channels).zip(&columns) {
                for (channel, sum) in sums.iter_mut().enumerate() {
                    let of = |(x, of_x): &(usize, f32)| {
                        f32::from(line[x * channels + channel]) * if is_whole { 1.0 } else { *of_x }
                    };
                    *sum += of_row * pixels.iter().map(of).sum::<f32>();
                }
            }
        }
        let whole = (scale.0 * scale.1) as f32;
        for (out, sum) in row.iter_mut().zip(&*sums) {
            *out = match is_whole {
                true if whole == 4.0 => ((*sum as u32 + 2) >> 2) as u8,
                true => (sum * (1.0 / whole)).round_ties_even() as u8,
                false => sum.round_ties_even() as u8,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: [Method; 4] = [Method::Nearest, Method::Linear, Method::Cubic, Method::Area];

    fn noise(width: usize, height: usize, channels: usize) -> Picture {
        let mut random = super::super::random::Random::new(1, width as u64, height as u64);
        let data = (0..width * height * channels).map(|_| random.up_to(255) as u8).collect();
        Picture { width, height, channels, data }
    }

    fn resized(from: &Picture, size: (usize, usize), part: Rect, method: Method) -> Picture {
        let mut out = Picture::default();
        resize(from.view(), size, part, method, &mut out, &mut Scratch::default());
        out
    }

    fn whole((width, height): (usize, usize)) -> Rect {
        Rect { x: 0, y: 0, width, height }
    }

    #[test]
    fn parts_equal_crops_of_the_whole() {
        let part = Rect { x: 3, y: 2, width: 5, height: 6 };
        for channels in [1, 3, 4] {
            let picture = noise(21, 17, channels);
            for size in [(10, 9), (33, 40), (21, 9), (42, 34), (10, 8)] {
                for method in METHODS {
                    let mut crop = Picture::default();
                    resized(&picture, size, whole(size), method).view().crop(part).copy_to(&mut crop);
                    assert_eq!(resized(&picture, size, part, method), crop, "{size:?} {method:?}");
                }
            }
        }
    }

    #[test]
    fn constant_pictures_stay_constant() {
        let picture = Picture { width: 9, height: 7, channels: 3, data: vec![201; 9 * 7 * 3] };
        for size in [(3, 3), (20, 20), (9, 3), (4, 4), (3, 7), (18, 14)] {
            for method in METHODS {
                let out = resized(&picture, size, whole(size), method);
                assert!(out.data.iter().all(|byte| byte.abs_diff(201) <= 1), "{size:?} {method:?} {:?}", out.data);
            }
        }
    }

    /// Against the definition in floating point.
    #[test]
    fn linear_is_within_one_of_its_definition() {
        let (picture, size) = (noise(31, 23, 3), (19, 40));
        let out = resized(&picture, size, whole(size), Method::Linear);
        let at =
            |x: i64, y: i64, c| f64::from(picture.view().row(y.clamp(0, 22) as usize)[x.clamp(0, 30) as usize * 3 + c]);
        for (n, byte) in out.data.iter().enumerate() {
            let (x, y, c) = (n / 3 % 19, n / 57, n % 3);
            let (x, y) = ((x as f64 + 0.5) * 31.0 / 19.0 - 0.5, (y as f64 + 0.5) * 23.0 / 40.0 - 0.5);
            let (left, top) = (x.floor(), y.floor());
            let (fx, fy, left, top) = (x - left, y - top, left as i64, top as i64);
            let row = |y| at(left, y, c) * (1.0 - fx) + at(left + 1, y, c) * fx;
            let want = row(top) * (1.0 - fy) + row(top + 1) * fy;
            assert!((f64::from(*byte) - want).abs() <= 1.0, "{n}: {byte} {want}");
        }
    }
}
