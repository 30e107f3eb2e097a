//! Bit-exact equivalent of OpenCV's `cv2.resize` with `INTER_LINEAR` for 8-bit images.
//!
//! Like `modules/imgproc/src/resize.cpp` of OpenCV 4: weights are rounded to 1/2048; rows are weighted first, then columns,
//! dropping 4 and then 16 bits. If both sides are halved exactly, the result is the mean of four pixels.

use super::image::Pixels;

/// The two input elements of an output element, and their weights.
struct Between {
    first: usize,
    second: usize,
    weights: [i32; 2],
}

/// Resizes `source` to `width` × `height` pixels, each at least 1.
pub fn resize(source: &Pixels, width: usize, height: usize) -> Pixels {
    let mut out = Pixels { width, height, channels: source.channels, data: Vec::new() };
    if (source.width, source.height) == (2 * width, 2 * height) {
        out.data = halved(source);
        return out;
    }
    let columns: Vec<Between> = between(source.width, width, true).collect();
    let row_len = source.width * source.channels;
    let weighted = |row: usize| -> Vec<i32> {
        let row = &source.data[row * row_len..][..row_len];
        let pixel = |column: &Between, c: usize| {
            let at = |n: usize| i32::from(row[n * source.channels + c]);
            at(column.first) * column.weights[0] + at(column.second) * column.weights[1]
        };
        columns.iter().flat_map(|column| (0..source.channels).map(move |c| pixel(column, c))).collect()
    };
    // Two weighted rows are kept, because successive output rows mostly need the same ones.
    let mut held: [(usize, Vec<i32>); 2] = [(0, weighted(0)), (usize::MAX, Vec::new())];
    out.data.reserve(width * height * source.channels);
    for row in between(source.height, height, false) {
        if held[0].0 != row.first {
            held.swap(0, 1);
            if held[0].0 != row.first {
                held[0] = (row.first, weighted(row.first));
            }
        }
        if held[1].0 != row.second {
            held[1] = if row.second == row.first { held[0].clone() } else { (row.second, weighted(row.second)) };
        }
        let [w0, w1] = row.weights;
        let mixed = held[0].1.iter().zip(&held[1].1).map(|(a, b)| ((w0 * (a >> 4)) >> 16) + ((w1 * (b >> 4)) >> 16));
        out.data.extend(mixed.map(|sum| ((sum + 2) >> 2) as u8));
    }
    out
}

/// Returns for each of `to` elements its two elements of `from`. Columns beyond the border use the border alone; rows keep
/// their weights there.
fn between(from: usize, to: usize, column: bool) -> impl Iterator<Item = Between> {
    let scale = 1.0 / (to as f64 / from as f64);
    (0..to).map(move |n| {
        let at = ((n as f64 + 0.5) * scale - 0.5) as f32;
        let (floor, last) = (at.floor(), from as i64 - 1);
        let (mut first, mut part) = (floor as i64, at - floor);
        if column && first < 0 {
            (first, part) = (0, 0.0);
        }
        if column && first >= last {
            (first, part) = (last, 0.0);
        }
        let weight = |x: f32| (x * 2048.0).round_ties_even() as i32;
        let clip = |n: i64| n.clamp(0, last) as usize;
        Between { first: clip(first), second: clip(first + 1), weights: [weight(1.0 - part), weight(part)] }
    })
}

fn halved(source: &Pixels) -> Vec<u8> {
    let (channels, row) = (source.channels, source.width * source.channels);
    let mut out = Vec::with_capacity(source.data.len() / 4);
    for rows in source.data.chunks_exact(2 * row) {
        for x in 0..source.width / 2 {
            for c in 0..channels {
                let at = |n: usize| u32::from(rows[n + 2 * x * channels + c]);
                out.push(((at(0) + at(channels) + at(row) + at(row + channels) + 2) >> 2) as u8);
            }
        }
    }
    out
}
