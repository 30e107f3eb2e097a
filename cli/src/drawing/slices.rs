//! Chooses the slices to draw from a tensor's shape. Works with strides only, not with elements.

/// The meaning of a volume's axes, which determines the orientation of its slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axes {
    /// Right, front, up, as in NIfTI: x points right, y and z point up.
    #[default]
    Xyz,
    /// As in a stack of images: z and y point down, x points right.
    Zyx,
}

/// A slice, described by its steps in the tensor's elements: rows go down, columns go right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub rows: usize,
    pub columns: usize,
    origin: usize,
    down: isize,
    right: isize,
    /// Step from one colour to the next, if the elements are red, green and blue.
    colour: Option<usize>,
}

impl View {
    /// Index of the element at a row, column and colour.
    pub fn element(&self, row: usize, column: usize, colour: usize) -> usize {
        let at = self.origin as isize + row as isize * self.down + column as isize * self.right;
        at as usize + colour * self.colour.unwrap_or(0)
    }

    /// Whether the elements are colours.
    pub fn is_coloured(&self) -> bool {
        self.colour.is_some()
    }
}

/// How a part is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Drawing {
    /// One slice, or three perpendicular ones.
    Slices(Vec<View>),
    /// A curve with this number of values.
    Curve(usize),
    /// One number or a few, written as text.
    Values,
    /// No elements.
    Empty,
}

/// Minimum number of values of a curve. Fewer are written as text.
const CURVE: usize = 9;
/// Maximum length of an axis of colours.
const COLOURS: usize = 4;
/// Maximum length of an axis of channels. The other axes must be longer than twice this.
const CHANNELS: usize = 4;

#[derive(Clone, Copy)]
struct Axis {
    len: usize,
    step: usize,
}

/// Chooses how to draw a tensor of this shape. Axes of length 1 are ignored. Of axes beyond three, and of channels that
/// are not colours, only the first entry is drawn.
pub(super) fn drawing(shape: &[u64], axes: Axes) -> Drawing {
    if shape.contains(&0) {
        return Drawing::Empty;
    }
    let mut step = 1;
    let mut all = Vec::new();
    for len in shape.iter().rev().map(|len| *len as usize) {
        all.push(Axis { len, step });
        step = step.saturating_mul(len); // a shape of zero-size elements can be arbitrarily large
    }
    all.reverse();
    all.retain(|axis| axis.len > 1);
    while all.len() > 4 {
        all.remove(0);
    }
    if let [first, .., last] = all[..]
        && all.len() == 4
    {
        all.remove(if last.len < first.len { 3 } else { 0 });
    }
    match all[..] {
        [] => Drawing::Values,
        [only] if only.len < CURVE => Drawing::Values,
        [only] => Drawing::Curve(only.len),
        [down, right] => Drawing::Slices(vec![view(0, (down, false), (right, false), None)]),
        [a, b, channels] if are_channels(channels, a, b) => Drawing::Slices(vec![coloured(a, b, channels)]),
        [channels, a, b] if are_channels(channels, a, b) => Drawing::Slices(vec![coloured(a, b, channels)]),
        [a, b, c] => Drawing::Slices(middle(a, b, c, axes)),
        _ => Drawing::Empty,
    }
}

fn are_channels(channels: Axis, a: Axis, b: Axis) -> bool {
    channels.len <= CHANNELS && a.len.min(b.len) > 2 * CHANNELS
}

fn coloured(down: Axis, right: Axis, channels: Axis) -> View {
    let colours = (3..=COLOURS).contains(&channels.len);
    view(0, (down, false), (right, false), colours.then_some(channels.step))
}

fn view(origin: usize, down: (Axis, bool), right: (Axis, bool), colour: Option<usize>) -> View {
    let turned = |(axis, back): (Axis, bool)| {
        let step = axis.step as isize;
        if back { (-step, (axis.len - 1).saturating_mul(axis.step)) } else { (step, 0) }
    };
    let ((down_step, from_below), (right_step, from_right)) = (turned(down), turned(right));
    View {
        rows: down.0.len,
        columns: right.0.len,
        origin: origin.saturating_add(from_below).saturating_add(from_right),
        down: down_step,
        right: right_step,
        colour,
    }
}

/// The three middle slices: from above, from the front, from the side.
fn middle(a: Axis, b: Axis, c: Axis, axes: Axes) -> Vec<View> {
    let at = |axis: Axis| (axis.len / 2).saturating_mul(axis.step);
    match axes {
        Axes::Xyz => vec![
            view(at(c), (b, true), (a, false), None),
            view(at(b), (c, true), (a, false), None),
            view(at(a), (c, true), (b, false), None),
        ],
        Axes::Zyx => vec![
            view(at(a), (b, false), (c, false), None),
            view(at(b), (a, false), (c, false), None),
            view(at(c), (a, false), (b, false), None),
        ],
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    fn slices(shape: &[u64], axes: Axes) -> Vec<View> {
        match drawing(shape, axes) {
            Drawing::Slices(views) => views,
            other => panic!("{shape:?}: {other:?}"),
        }
    }

    fn sizes(shape: &[u64]) -> Vec<(usize, usize)> {
        slices(shape, Axes::Xyz).iter().map(|view| (view.rows, view.columns)).collect()
    }

    #[test]
    fn volumes_are_cut_in_the_middle_and_drawn_upright() {
        assert_eq!(sizes(&[10, 20, 30]), [(20, 10), (30, 10), (30, 20)]);
        let flat = |x: usize, y: usize, z: usize| (x * 20 + y) * 30 + z;
        let [above, front, side] = slices(&[10, 20, 30], Axes::Xyz)[..] else { panic!() };
        assert_eq!(above.element(0, 3, 0), flat(3, 19, 15), "the front is on top");
        assert_eq!(front.element(0, 3, 0), flat(3, 10, 29), "the upper end is on top");
        assert_eq!(side.element(29, 4, 0), flat(5, 4, 0));
        let [above, front, side] = slices(&[10, 20, 30], Axes::Zyx)[..] else { panic!() };
        assert_eq!(above.element(2, 3, 0), flat(5, 2, 3));
        assert_eq!(front.element(2, 3, 0), flat(2, 10, 3));
        assert_eq!(side.element(2, 3, 0), flat(2, 3, 15));
    }

    #[test]
    fn channel_axes_are_recognized() {
        assert_eq!(sizes(&[2, 10, 20, 30]), sizes(&[10, 20, 30]), "leading channels");
        assert_eq!(sizes(&[10, 20, 30, 2]), sizes(&[10, 20, 30]), "trailing channels");
        assert_eq!(sizes(&[1, 1, 10, 20, 30]), sizes(&[10, 20, 30]));
        assert_eq!(sizes(&[7, 5, 2, 10, 20, 30]), sizes(&[10, 20, 30]));
        for shape in [&[28, 40, 3][..], &[3, 28, 40], &[28, 40, 4], &[1, 28, 40, 3]] {
            let views = slices(shape, Axes::Xyz);
            assert_eq!((views.len(), views[0].rows, views[0].columns), (1, 28, 40), "{shape:?}");
            assert!(views[0].is_coloured(), "{shape:?}");
        }
        assert_eq!(slices(&[28, 40, 3], Axes::Xyz)[0].element(1, 2, 1), (40 + 2) * 3 + 1);
        assert_eq!(slices(&[3, 28, 40], Axes::Xyz)[0].element(1, 2, 1), 28 * 40 + 40 + 2);
        assert!(!slices(&[28, 40, 2], Axes::Xyz)[0].is_coloured());
        assert_eq!(sizes(&[4, 4, 4]), [(4, 4); 3], "a small volume has no channels");
    }

    #[test]
    fn shapes_with_less_than_two_axes_become_a_curve_or_text() {
        assert_eq!(drawing(&[], Axes::Xyz), Drawing::Values);
        assert_eq!(drawing(&[1, 1], Axes::Xyz), Drawing::Values);
        assert_eq!(drawing(&[3], Axes::Xyz), Drawing::Values);
        assert_eq!(drawing(&[1, 100], Axes::Xyz), Drawing::Curve(100));
        assert_eq!(drawing(&[10, 0, 3], Axes::Xyz), Drawing::Empty);
        // A shape of zero-size elements can be arbitrarily large.
        assert_eq!(slices(&[1 << 40, 1 << 40, 1 << 40], Axes::Xyz).len(), 3);
    }
}
