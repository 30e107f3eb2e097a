//! Random changes of brightness, contrast, saturation, hue and lighting.

use super::picture::{Picture, grey};
use super::random::Random;

/// The ranges of random changes of colour. The names are MXNet's parameters.
#[derive(Clone, Debug, Default)]
pub struct ColourJitter {
    /// All channels are multiplied by 1 ± this, at most.
    pub brightness: f32,
    /// Distances from the mean brightness are multiplied by 1 ± this, at most.
    pub contrast: f32,
    /// Distances from the pixel's own brightness are multiplied by 1 ± this, at most.
    pub saturation: f32,
    /// Largest change of the hue, in units of 2 degrees.
    pub random_h: i32,
    /// Largest change of the saturation in HLS, of 255.
    pub random_s: i32,
    /// Largest change of the lightness in HLS, of 255.
    pub random_l: i32,
    /// Standard deviation of the noise along the principal components of ImageNet's colours.
    pub pca_noise: f32,
}

/// Principal components of ImageNet's colours (RGB), each times the root of its variance (Krizhevsky et al. 2012).
const COMPONENTS: [[f32; 3]; 3] = [
    [-0.5675 * 55.46, -0.5808 * 55.46, -0.5836 * 55.46],
    [0.7192 * 4.794, -0.0045 * 4.794, -0.6948 * 4.794],
    [0.4009 * 1.148, -0.8140 * 1.148, 0.4203 * 1.148],
];

fn byte(value: f32) -> u8 {
    value.round_ties_even().clamp(0.0, 255.0) as u8
}

impl ColourJitter {
    /// Whether it changes nothing.
    pub(super) fn is_off(&self) -> bool {
        let ColourJitter { brightness, contrast, saturation, random_h, random_s, random_l, pca_noise } = self;
        [*brightness, *contrast, *saturation, *pca_noise] == [0.0; 4] && [*random_h, *random_s, *random_l] == [0; 3]
    }

    /// Changes the colours of an RGB (or RGBA) picture, in this order: brightness, contrast and saturation, in a random
    /// order; hue, saturation and lightness; noise. Of a grey picture only brightness and contrast are changed.
    pub(super) fn apply(&self, picture: &mut Picture, random: &mut Random) {
        if self.is_off() {
            return;
        }
        let around_one = |range: f32, random: &mut Random| random.within(1.0 - range, 1.0 + range);
        let brightness = around_one(self.brightness, random);
        let contrast = around_one(self.contrast, random);
        let saturation = around_one(self.saturation, random);
        let mut order = [0, 1, 2];
        random.shuffle(&mut order);
        let is_grey = picture.channels == 1;
        for step in order {
            match step {
                0 if self.brightness > 0.0 => map(picture, |pixel| pixel.map(|it| byte(f32::from(it) * brightness))),
                1 if self.contrast > 0.0 => {
                    let shift = (1.0 - contrast) * mean_brightness(picture);
                    map(picture, |pixel| pixel.map(|it| byte(f32::from(it) * contrast + shift)));
                }
                2 if self.saturation > 0.0 && !is_grey => map(picture, |pixel| {
                    let shift = (1.0 - saturation) * f32::from(grey(pixel));
                    pixel.map(|it| byte(f32::from(it) * saturation + shift))
                }),
                _ => {}
            }
        }
        if is_grey {
            return;
        }
        if [self.random_h, self.random_l, self.random_s] != [0; 3] {
            let shift = [self.random_h, self.random_l, self.random_s].map(|range| near_centre(range, random));
            map(picture, |pixel| shift_hls(pixel, shift));
        }
        if self.pca_noise > 0.0 {
            let strength = [0; 3].map(|_| random.normal() * self.pca_noise);
            let noise = [0, 1, 2].map(|channel| (0..3).map(|n| COMPONENTS[n][channel] * strength[n]).sum::<f32>());
            map(picture, |pixel| [0, 1, 2].map(|channel| byte(f32::from(pixel[channel]) + noise[channel])));
        }
    }
}

/// Changes each pixel; a grey one as three equal channels.
fn map(picture: &mut Picture, change: impl Fn([u8; 3]) -> [u8; 3]) {
    match picture.channels {
        1 => picture.bytes_mut().iter_mut().for_each(|pixel| *pixel = change([*pixel; 3])[0]),
        channels => picture.bytes_mut().chunks_exact_mut(channels).for_each(|pixel| {
            let changed = change([pixel[0], pixel[1], pixel[2]]);
            pixel[..3].copy_from_slice(&changed);
        }),
    }
}

fn mean_brightness(picture: &Picture) -> f32 {
    let pixels = (picture.width * picture.height).max(1) as f64;
    let sum: u64 = match picture.channels {
        1 => picture.bytes().iter().map(|pixel| u64::from(*pixel)).sum(),
        channels => {
            picture.bytes().chunks_exact(channels).map(|pixel| u64::from(grey([pixel[0], pixel[1], pixel[2]]))).sum()
        }
    };
    (sum as f64 / pixels) as f32
}

/// A random integer within ± `range`, more often near 0: from a weighted sum of two uniform numbers, as in MXNet.
fn near_centre(range: i32, random: &mut Random) -> i32 {
    let unit = (random.unit() + 4.0 * random.unit()) / 5.0;
    (unit * range as f32 * 2.0 - range as f32) as i32
}

/// Shifts hue (0..180, units of 2 degrees), lightness and saturation (0..=255) of a pixel, each up to its bounds.
fn shift_hls(pixel: [u8; 3], shift: [i32; 3]) -> [u8; 3] {
    let hls = to_hls(pixel).map(|value| value.round_ties_even() as i32);
    let bounds = [180, 255, 255];
    let shifted = [0, 1, 2].map(|n| (hls[n] + shift[n]).clamp(0, bounds[n]) as f32);
    from_hls(shifted)
}

fn to_hls(pixel: [u8; 3]) -> [f32; 3] {
    let [red, green, blue] = pixel.map(|it| f32::from(it) / 255.0);
    let (most, least) = (red.max(green).max(blue), red.min(green).min(blue));
    let (sum, range) = (most + least, most - least);
    if range <= f32::EPSILON {
        return [0.0, sum / 2.0 * 255.0, 0.0];
    }
    let saturation = if sum < 1.0 { range / sum } else { range / (2.0 - sum) };
    let hue = if most == red {
        (green - blue) * 60.0 / range
    } else if most == green {
        (blue - red) * 60.0 / range + 120.0
    } else {
        (red - green) * 60.0 / range + 240.0
    };
    [hue.rem_euclid(360.0) / 2.0, sum / 2.0 * 255.0, saturation * 255.0]
}

fn from_hls([hue, lightness, saturation]: [f32; 3]) -> [u8; 3] {
    let (hue, lightness, saturation) = (hue / 30.0, lightness / 255.0, saturation / 255.0);
    let most =
        if lightness <= 0.5 { lightness * (1.0 + saturation) } else { lightness + saturation - lightness * saturation };
    let least = 2.0 * lightness - most;
    // Position of each channel's peak: red at 0, green at 2, blue at 4 sextants.
    [0.0, 2.0, 4.0].map(|peak| {
        let distance = ((hue - peak).rem_euclid(6.0) - 3.0).abs();
        byte((least + (most - least) * (distance - 1.0).clamp(0.0, 1.0)) * 255.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colours() -> Picture {
        let mut random = Random::new(8, 0, 0);
        Picture { width: 16, height: 16, channels: 3, data: (0..768).map(|_| random.up_to(255) as u8).collect() }
    }

    fn changed(jitter: &ColourJitter, record: u64) -> Picture {
        let mut picture = colours();
        jitter.apply(&mut picture, &mut Random::new(0, 0, record));
        picture
    }

    /// The factor that the first draw within 1 ± `range` gives, as `apply` draws it.
    fn factors(record: u64, ranges: [f32; 3]) -> [f32; 3] {
        let mut random = Random::new(0, 0, record);
        ranges.map(|range| random.within(1.0 - range, 1.0 + range))
    }

    #[test]
    fn brightness_multiplies_all_channels() {
        for record in 0..20 {
            let [factor, ..] = factors(record, [0.4, 0.0, 0.0]);
            let out = changed(&ColourJitter { brightness: 0.4, ..ColourJitter::default() }, record);
            let want = colours().data.iter().map(|it| byte(f32::from(*it) * factor)).collect::<Vec<_>>();
            assert!((0.6..=1.4).contains(&factor) && out.data == want);
        }
    }

    #[test]
    fn contrast_keeps_the_mean_and_saturation_each_brightness() {
        let mean = mean_brightness(&colours());
        let [_, contrast, _] = factors(1, [0.0, 0.2, 0.0]);
        let out = changed(&ColourJitter { contrast: 0.2, ..ColourJitter::default() }, 1);
        for (to, from) in out.data.iter().zip(&colours().data) {
            let want = (mean + (f32::from(*from) - mean) * contrast).clamp(0.0, 255.0);
            assert!((f32::from(*to) - want).abs() < 0.51, "{to} {want}");
        }
        let [.., saturation] = factors(2, [0.0, 0.0, 0.3]);
        let out = changed(&ColourJitter { saturation: 0.3, ..ColourJitter::default() }, 2);
        for (to, from) in out.data.chunks_exact(3).zip(colours().data.chunks_exact(3)) {
            let own = 0.299 * f32::from(from[0]) + 0.587 * f32::from(from[1]) + 0.114 * f32::from(from[2]);
            for channel in 0..3 {
                let want = (own + (f32::from(from[channel]) - own) * saturation).clamp(0.0, 255.0);
                assert!((f32::from(to[channel]) - want).abs() < 0.8, "{to:?} {from:?}");
            }
        }
    }

    #[test]
    fn hls_of_known_colours() {
        for (pixel, hls) in [
            ([255, 0, 0], [0.0, 127.5, 255.0]),
            ([0, 255, 0], [60.0, 127.5, 255.0]),
            ([0, 0, 255], [120.0, 127.5, 255.0]),
            ([255, 255, 0], [30.0, 127.5, 255.0]),
            ([128, 128, 128], [0.0, 128.0, 0.0]),
        ] {
            assert_eq!(to_hls(pixel), hls);
            assert_eq!(from_hls(hls), pixel);
        }
        assert_eq!(shift_hls([255, 0, 0], [60, 0, 0])[1], 255);
        for pixel in colours().data.chunks_exact(3) {
            let pixel = [pixel[0], pixel[1], pixel[2]];
            assert!(from_hls(to_hls(pixel)).iter().zip(pixel).all(|(a, b)| a.abs_diff(b) <= 1), "{pixel:?}");
        }
    }

    #[test]
    fn hue_saturation_and_lightness_are_shifted_alike_in_all_pixels() {
        let jitter = ColourJitter { random_h: 20, random_s: 40, random_l: 30, ..ColourJitter::default() };
        let mut seen = [(0, 0); 3];
        for record in 0..300 {
            let mut random = Random::new(0, 0, record);
            let _ = [0.0; 3].map(|range| random.within(1.0 - range, 1.0 + range));
            random.shuffle(&mut [0, 1, 2]);
            let shift = [20, 30, 40].map(|range| near_centre(range, &mut random));
            for (seen, shift) in seen.iter_mut().zip(shift) {
                *seen = (seen.0.min(shift), seen.1.max(shift));
            }
            let (from, out) = (colours(), changed(&jitter, record));
            let pixels = from.data.as_chunks::<3>().0.iter().zip(out.data.as_chunks::<3>().0);
            pixels.take(20).for_each(|(from, to)| assert_eq!(shift_hls(*from, shift), *to));
        }
        for ((low, high), range) in seen.into_iter().zip([20, 30, 40]) {
            assert!((-range..=-range * 3 / 4).contains(&low) && (range * 3 / 4..=range).contains(&high), "{seen:?}");
        }
    }

    #[test]
    fn noise_shifts_all_pixels_alike() {
        let out = changed(&ColourJitter { pca_noise: 0.1, ..ColourJitter::default() }, 4);
        let shift = |n: usize| i32::from(out.data[n]) - i32::from(colours().data[n]);
        let reds = (0..256).filter(|n| (30..225).contains(&colours().data[3 * n]));
        let inner: Vec<_> = reds.map(|n| shift(3 * n)).collect();
        assert!(inner.iter().all(|it| (it - inner[0]).abs() <= 1) && inner[0] != 0, "{inner:?}");
    }
}
