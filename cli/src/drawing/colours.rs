//! The colours of labels and of the sheet.

use image::Rgb;

pub(super) const PAGE: Rgb<u8> = Rgb([11, 13, 18]);
pub(super) const CARD: Rgb<u8> = Rgb([22, 25, 33]);
pub(super) const BRIGHT: Rgb<u8> = Rgb([236, 239, 244]);
pub(super) const DIM: Rgb<u8> = Rgb([150, 159, 173]);
pub(super) const BAD: Rgb<u8> = Rgb([235, 87, 87]);
pub(super) const CURVE: Rgb<u8> = Rgb([94, 174, 255]);

/// The colours of the first labels, easy to tell apart on black and on white.
const FIRST: [[u8; 3]; 12] = [
    [230, 85, 80],
    [70, 150, 235],
    [245, 200, 66],
    [72, 200, 140],
    [190, 110, 230],
    [245, 140, 50],
    [60, 205, 215],
    [240, 120, 180],
    [160, 205, 70],
    [120, 110, 240],
    [200, 150, 110],
    [120, 220, 180],
];

/// The colour of a label, the same in every sample; `None` for 0, the background.
pub fn of_label(label: i64) -> Option<Rgb<u8>> {
    if label == 0 {
        return None;
    }
    if let Some(colour) = label.checked_sub(1).and_then(|n| usize::try_from(n).ok()).and_then(|n| FIRST.get(n)) {
        return Some(Rgb(*colour));
    }
    // Steps of the golden ratio keep the hues of many labels far apart.
    let n = label.unsigned_abs() as f64;
    let hue = (n * 0.618_033_988_749_895).fract() * 6.0;
    let (strong, weak) = if label % 2 == 0 { (235.0, 70.0) } else { (200.0, 95.0) };
    let channel = |shift: f64| {
        let away = ((hue + shift).rem_euclid(6.0) - 3.0).abs() - 1.0;
        (weak + (strong - weak) * away.clamp(0.0, 1.0)) as u8
    };
    Some(Rgb([channel(0.0), channel(4.0), channel(2.0)]))
}

/// Blends `over`, half transparent, onto `below`.
pub(super) fn blend(below: Rgb<u8>, over: Rgb<u8>) -> Rgb<u8> {
    let mix = |n: usize| ((u16::from(below.0[n]) + u16::from(over.0[n])) / 2) as u8;
    Rgb([mix(0), mix(1), mix(2)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn labels_have_different_colours_and_the_background_has_none() {
        let colours: HashSet<_> = (1..=60).filter_map(of_label).collect();
        assert_eq!(colours.len(), 60);
        assert_eq!(of_label(0), None);
        for extreme in [i64::MIN, -1, i64::MAX] {
            assert!(of_label(extreme).is_some());
        }
    }
}
