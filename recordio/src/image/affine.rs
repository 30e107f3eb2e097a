//! Affine transformations as OpenCV's `warpAffine` does them for bytes: positions in 1/32 of a pixel.

use super::picture::{Picture, View};
use super::resize::Method;

/// A map of positions (x, y) of the source to positions of the result: two rows of factors of x, y and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Affine([[f32; 3]; 2]);

/// Bits of a position's fraction in the result's tables.
const POSITION_BITS: u32 = 10;
/// Bits of a position's fraction by which weights are chosen.
const FRACTION_BITS: u32 = 5;

impl Affine {
    /// Rotation by degrees, shear, scale and aspect ratio, which map the centre of `from` to the centre of `to`
    /// (width, height).
    pub(super) fn about_centre(
        (angle, shear, scale, aspect): (f64, f32, f32, f32),
        from: (f32, f32),
        to: (f32, f32),
    ) -> Affine {
        let (cos, sin) = (angle.to_radians().cos() as f32, angle.to_radians().sin() as f32);
        let height_scale = 2.0 * scale / (1.0 + aspect);
        let width_scale = aspect * height_scale;
        let x = (height_scale * cos - shear * sin * width_scale, height_scale * sin + shear * cos * width_scale);
        let y = (-sin * width_scale, cos * width_scale);
        let shift = |(a, b): (f32, f32), to: f32| (to - (a * from.0 + b * from.1)) / 2.0;
        Affine([[x.0, x.1, shift(x, to.0)], [y.0, y.1, shift(y, to.1)]])
    }

    /// Where the position (x, y) of the source is in the result.
    pub(super) fn position(&self, x: f32, y: f32) -> (f32, f32) {
        let [a, b] = self.0;
        (a[0] * x + a[1] * y + a[2], b[0] * x + b[1] * y + b[2])
    }

    /// The map of positions of the result to positions of the source.
    fn inverse(&self) -> [[f64; 3]; 2] {
        let [a, b] = self.0.map(|row| row.map(f64::from));
        let determinant = a[0] * b[1] - a[1] * b[0];
        let factor = if determinant == 0.0 { 0.0 } else { 1.0 / determinant };
        let (x, y) = ([b[1] * factor, -a[1] * factor], [-b[0] * factor, a[0] * factor]);
        [[x[0], x[1], -x[0] * a[2] - x[1] * b[2]], [y[0], y[1], -y[0] * a[2] - y[1] * b[2]]]
    }

    /// Applies it. Pixels of the result that come from outside are `fill`.
    pub(super) fn apply(
        &self,
        from: View<'_>,
        (width, height): (usize, usize),
        method: Method,
        fill: u8,
        out: &mut Picture,
    ) {
        let [to_x, to_y] = self.inverse();
        let fixed = |value: f64| (value * f64::from(1 << POSITION_BITS)).round_ties_even() as i64;
        let channels = from.channels;
        out.reshape(width, height, channels);
        let rounding = match method {
            Method::Nearest => 1 << (POSITION_BITS - 1),
            _ => 1 << (POSITION_BITS - FRACTION_BITS - 1),
        };
        for (y, row) in out.rows_mut().enumerate() {
            let y = y as f64;
            let begin = [to_x, to_y].map(|row| fixed(row[1] * y + row[2]) + rounding);
            for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                let at_x = begin[0] + fixed(to_x[0] * x as f64);
                let at_y = begin[1] + fixed(to_y[0] * x as f64);
                match method {
                    Method::Nearest => {
                        let source = Source { view: from, fill };
                        let (x, y) = (at_x >> POSITION_BITS, at_y >> POSITION_BITS);
                        pixel.iter_mut().enumerate().for_each(|(channel, out)| *out = source.byte(x, y, channel));
                    }
                    _ => between(&Source { view: from, fill }, at_x, at_y, pixel),
                }
            }
        }
    }
}

/// A picture with a border without end.
struct Source<'a> {
    view: View<'a>,
    fill: u8,
}

impl Source<'_> {
    fn byte(&self, x: i64, y: i64, channel: usize) -> u8 {
        let is_inside = (0..self.view.width as i64).contains(&x) && (0..self.view.height as i64).contains(&y);
        if is_inside { self.view.row(y as usize)[x as usize * self.view.channels + channel] } else { self.fill }
    }
}

/// The pixel at a position, from the four around it.
fn between(source: &Source<'_>, at_x: i64, at_y: i64, pixel: &mut [u8]) {
    let shift = POSITION_BITS - FRACTION_BITS;
    let (at_x, at_y) = (at_x >> shift, at_y >> shift);
    let (x, y) = (at_x >> FRACTION_BITS, at_y >> FRACTION_BITS);
    let one = 1 << FRACTION_BITS;
    let (right, below) = ((at_x & (one - 1)) as u32, (at_y & (one - 1)) as u32);
    let (left, above) = (one as u32 - right, one as u32 - below);
    for (channel, out) in pixel.iter_mut().enumerate() {
        let byte = |x, y| u32::from(source.byte(x, y, channel));
        let sum = above * (left * byte(x, y) + right * byte(x + 1, y))
            + below * (left * byte(x, y + 1) + right * byte(x + 1, y + 1));
        *out = ((sum + (1 << (2 * FRACTION_BITS - 1))) >> (2 * FRACTION_BITS)) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squares() -> Picture {
        let data = (0..64_u8).map(|n| if n % 8 < 4 { n } else { 255 - n }).collect();
        Picture { width: 8, height: 8, channels: 1, data }
    }

    #[test]
    fn identity_changes_nothing() {
        let (picture, mut out) = (squares(), Picture::default());
        let identity = Affine::about_centre((0.0, 0.0, 1.0, 1.0), (8.0, 8.0), (8.0, 8.0));
        for method in [Method::Nearest, Method::Linear] {
            identity.apply(picture.view(), (8, 8), method, 9, &mut out);
            assert_eq!(out, picture);
        }
        assert_eq!(identity.position(3.0, 5.0), (3.0, 5.0));
    }

    /// By 180 degrees about the corner between pixels (the centre of 8 × 8 as OpenCV counts), so shifted by one pixel.
    #[test]
    fn half_a_turn_turns_the_picture_and_fills_the_border() {
        let (picture, mut out) = (squares(), Picture::default());
        let turn = Affine::about_centre((180.0, 0.0, 1.0, 1.0), (8.0, 8.0), (8.0, 8.0));
        turn.apply(picture.view(), (8, 8), Method::Linear, 9, &mut out);
        for y in 0..8 {
            for x in 0..8 {
                let want = if x == 0 || y == 0 { 9 } else { picture.data[(8 - y) * 8 + 8 - x] };
                assert_eq!(out.data[y * 8 + x], want, "{x} {y}");
            }
        }
    }

    #[test]
    fn positions_follow_the_pixels() {
        let mut picture = Picture { width: 40, height: 40, channels: 1, data: vec![0; 1600] };
        picture.data[12 * 40 + 25] = 255;
        let affine = Affine::about_centre((30.0, 0.1, 1.5, 1.0), (40.0, 40.0), (60.0, 60.0));
        let mut out = Picture::default();
        affine.apply(picture.view(), (60, 60), Method::Linear, 0, &mut out);
        let brightest = out.data.iter().enumerate().max_by_key(|(_, byte)| **byte).map(|(n, _)| (n % 60, n / 60));
        let (x, y) = affine.position(25.0, 12.0);
        let (found_x, found_y) = brightest.unwrap_or_default();
        assert!((found_x as f32 - x).abs() < 1.0 && (found_y as f32 - y).abs() < 1.0, "{brightest:?} {x} {y}");
    }
}
