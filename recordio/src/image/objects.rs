//! Boxes of objects, which take the steps of their image.
//!
//! Labels are those of MXNet's detection records: the length A of a header, the width B of an object, what else the header
//! has, and B numbers for each object: its class, the left, upper, right and lower edge of its box (0 to 1, of the image's
//! width and height), and anything else.

use super::geometry::Step;

/// How objects are read and given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objects {
    /// Objects of an image, at most. Fewer are followed by rows of -1.
    pub most: usize,
    /// Numbers of an object: 5 or more.
    pub width: usize,
    /// The share of its box that has to be left in the result for an object to be given.
    pub min_coverage: f32,
}

/// A rectangle in pixels: left, upper, right, lower edge.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bounds([f32; 4]);

impl Bounds {
    fn area(self) -> f32 {
        let [left, upper, right, lower] = self.0;
        (right - left).max(0.0) * (lower - upper).max(0.0)
    }

    /// Where it is after a step on a picture of the size (width, height), and the size after it.
    fn after(self, step: &Step, (wide, high): (usize, usize)) -> (Bounds, (usize, usize)) {
        let [left, upper, right, lower] = self.0;
        match step {
            Step::Resize { width, height, .. } => {
                let (x, y) = (*width as f32 / wide as f32, *height as f32 / high as f32);
                (Bounds([left * x, upper * y, right * x, lower * y]), (*width, *height))
            }
            Step::Warp { affine, width, height, .. } => {
                // The transformation maps the centres of pixels, which count from 0.
                let corners = [(left, upper), (right, upper), (left, lower), (right, lower)].map(|(x, y)| {
                    let (x, y) = affine.position(x - 0.5, y - 0.5);
                    (x + 0.5, y + 0.5)
                });
                let fold = |of: fn(&(f32, f32)) -> f32, choose: fn(f32, f32) -> f32| {
                    corners.iter().map(of).fold(of(&corners[0]), choose)
                };
                let (x, y) = (|corner: &(f32, f32)| corner.0, |corner: &(f32, f32)| corner.1);
                (
                    Bounds([fold(x, f32::min), fold(y, f32::min), fold(x, f32::max), fold(y, f32::max)]),
                    (*width, *height),
                )
            }
            Step::Pad { by } => {
                let shift = *by as f32;
                (Bounds(self.0.map(|edge| edge + shift)), (wide + 2 * by, high + 2 * by))
            }
            Step::Crop(rect) => {
                let (x, y) = (rect.x as f32, rect.y as f32);
                (Bounds([left - x, upper - y, right - x, lower - y]), (rect.width, rect.height))
            }
            Step::Mirror => (Bounds([wide as f32 - right, upper, wide as f32 - left, lower]), (wide, high)),
        }
    }
}

impl Objects {
    /// Writes the objects of `labels` as they are after `steps` on an image of `source` pixels (width, height).
    ///
    /// # Errors
    /// Labels of another form, or more objects than there is room for, in words.
    pub(super) fn transform(
        &self,
        labels: &[f32],
        steps: &[Step],
        source: (usize, usize),
        out: &mut [f32],
    ) -> Result<(), String> {
        let [header, width, ..] = *labels else {
            return Err("has no labels of objects: expected header length and object width first".to_owned());
        };
        let objects = labels.get(header as usize..).unwrap_or_default();
        if width != self.width as f32 || header < 2.0 || !objects.len().is_multiple_of(self.width) {
            return Err(format!(
                "has {} labels with a header of {header} and objects of {width} numbers, but object_width is {}",
                labels.len(),
                self.width
            ));
        }
        if objects.len() > out.len() {
            let count = objects.len() / self.width;
            return Err(format!("has {count} objects, more than max_objects {}", self.most));
        }
        out.fill(-1.0);
        let mut rows = out.chunks_exact_mut(self.width);
        for object in objects.chunks_exact(self.width) {
            let (wide, high) = (source.0 as f32, source.1 as f32);
            let edges = Bounds([object[1] * wide, object[2] * high, object[3] * wide, object[4] * high]);
            let (bounds, (wide, high)) =
                steps.iter().fold((edges, source), |(bounds, size), step| bounds.after(step, size));
            let [left, upper, right, lower] = bounds.0;
            let (wide, high) = (wide as f32, high as f32);
            let clip = |edge: f32, most: f32| edge.clamp(0.0, most);
            let kept = Bounds([clip(left, wide), clip(upper, high), clip(right, wide), clip(lower, high)]);
            if kept.area() <= 0.0 || kept.area() < self.min_coverage * bounds.area() {
                continue;
            }
            let Some(row) = rows.next() else { break };
            row.copy_from_slice(object);
            let [left, upper, right, lower] = kept.0;
            row[1..5].copy_from_slice(&[left / wide, upper / high, right / wide, lower / high]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::affine::Affine;
    use super::super::picture::Rect;
    use super::super::resize::Method;
    use super::*;

    const OBJECTS: Objects = Objects { most: 2, width: 5, min_coverage: 0.3 };

    fn transformed(objects: &[[f32; 5]], steps: &[Step], source: (usize, usize)) -> Result<Vec<f32>, String> {
        let labels = [&[2.0, 5.0], objects.as_flattened()].concat();
        let mut out = vec![0.0; 10];
        OBJECTS.transform(&labels, steps, source, &mut out)?;
        Ok(out)
    }

    #[test]
    fn boxes_follow_crops_mirrors_and_resizes() {
        let crop = Step::Crop(Rect { x: 10, y: 20, width: 50, height: 50 });
        let resize = Step::Resize { width: 25, height: 25, method: Method::Linear };
        let out = transformed(&[[7.0, 0.2, 0.25, 0.4, 0.75]], &[crop, resize, Step::Mirror], (100, 80));
        // 20 to 40, 20 to 60 pixels; cropped 10 to 30, 0 to 40 of 50; mirrored 20 to 40.
        assert_eq!(out, Ok(vec![7.0, 0.4, 0.0, 0.8, 0.8, -1.0, -1.0, -1.0, -1.0, -1.0]));
    }

    #[test]
    fn boxes_follow_rotations_and_padding() {
        let affine = Affine::about_centre((90.0, 0.0, 1.0, 1.0), (40.0, 40.0), (40.0, 40.0));
        let warp = Step::Warp { affine, width: 40, height: 40, method: Method::Linear };
        let out = transformed(&[[1.0, 0.5, 0.5, 0.75, 0.6]], &[Step::Pad { by: 10 }, warp], (20, 20));
        let out = out.unwrap_or_default();
        // Padded: 20 to 25, 20 to 22 of 40. A quarter turn maps centre (x, y) to (y, 40 - x).
        let want = [1.0, 20.0 / 40.0, 16.0 / 40.0, 22.0 / 40.0, 21.0 / 40.0];
        assert!(out.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-4), "{out:?} {want:?}");
    }

    #[test]
    fn objects_that_are_mostly_cut_off_are_left_out() {
        let crop = Step::Crop(Rect { x: 0, y: 0, width: 50, height: 100 });
        let (mostly_out, mostly_in) = ([1.0, 0.4, 0.0, 0.9, 1.0], [2.0, 0.3, 0.0, 0.6, 1.0]);
        let out = transformed(&[mostly_out, mostly_in], &[crop], (100, 100)).unwrap_or_default();
        assert_eq!(out[..5], [2.0, 0.6, 0.0, 1.0, 1.0]);
        assert_eq!(out[5..], [-1.0; 5]);
    }

    #[test]
    fn labels_of_another_form_are_errors() {
        let mut out = [0.0; 10];
        for labels in [&[][..], &[2.0], &[2.0, 6.0, 0.0, 0.0, 0.0, 1.0, 1.0], &[2.0, 5.0, 1.0], &[1.0, 5.0]] {
            assert!(OBJECTS.transform(labels, &[], (8, 8), &mut out).is_err(), "{labels:?}");
        }
        assert!(transformed(&[[0.0; 5]; 3], &[], (8, 8)).is_err());
    }
}
