//! The geometric steps that an image takes. They are planned from its size and random numbers alone, so that its mask and
//! its boxes take the same steps.

use super::affine::Affine;
use super::picture::Rect;
use super::random::Random;
use super::resize::{Interpolation, Method};

/// Geometric augmentation: resize, affine transformation, padding, crop and mirror, in this order. The names are MXNet's
/// parameters.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Length that the shorter edge is resized to before anything else.
    pub resize: Option<usize>,
    /// Rotation, shear and scale.
    pub affine: AffineRange,
    /// Pixels of `fill_value` that are added on each side.
    pub pad: usize,
    /// Value of pixels outside the image.
    pub fill_value: u8,
    /// How the crop is chosen.
    pub crop: Crop,
    /// Whether the crop is at a random place instead of the centre.
    pub rand_crop: bool,
    /// Which images are mirrored.
    pub mirror: Mirror,
    /// How pixels are interpolated.
    pub inter_method: Interpolation,
}

impl Default for Geometry {
    fn default() -> Geometry {
        Geometry {
            resize: None,
            affine: AffineRange::default(),
            pad: 0,
            fill_value: 255,
            crop: Crop::Fixed,
            rand_crop: false,
            mirror: Mirror::Never,
            inter_method: Interpolation::Linear,
        }
    }
}

/// How the part of an image that becomes the output is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Crop {
    /// A part of the output's size. A smaller image is enlarged until it covers the output.
    Fixed,
    /// A square part with an edge of `min` to `max` pixels, resized to the output's size.
    Square {
        /// Shortest edge.
        min: usize,
        /// Longest edge.
        max: usize,
    },
    /// A part with `area` of the image's pixels and an aspect ratio out of `aspect`, either way round, at a random place,
    /// resized to the output's size. Where ten tries find no part within the image, as `Fixed`.
    RandomResized {
        /// Least and largest share of the image's area.
        area: (f32, f32),
        /// Least and largest ratio of width to height.
        aspect: (f32, f32),
    },
}

/// Which images are mirrored, left to right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mirror {
    /// None.
    #[default]
    Never,
    /// All.
    Always,
    /// Half of them, at random.
    Random,
}

/// The ranges of a random affine transformation about the centre.
#[derive(Clone, Debug)]
pub struct AffineRange {
    /// An angle of rotation in degrees that all images get.
    pub rotate: Option<i32>,
    /// Largest random rotation, either way, in degrees.
    pub max_rotate_angle: i32,
    /// Largest random shear, either way.
    pub max_shear_ratio: f32,
    /// Least and largest random scale.
    pub scale: (f32, f32),
    /// Least and largest ratio of the scale of the width to that of the height.
    pub aspect: (f32, f32),
    /// Least and largest edge of the result in pixels.
    pub size: (f32, f32),
}

impl Default for AffineRange {
    fn default() -> AffineRange {
        AffineRange {
            rotate: None,
            max_rotate_angle: 0,
            max_shear_ratio: 0.0,
            scale: (1.0, 1.0),
            aspect: (1.0, 1.0),
            size: (0.0, 1e10),
        }
    }
}

impl AffineRange {
    fn is_identity(&self) -> bool {
        let AffineRange { rotate, max_rotate_angle, max_shear_ratio, scale, aspect, size } = self;
        rotate.is_none_or(|angle| angle <= 0)
            && (*max_rotate_angle, *max_shear_ratio) == (0, 0.0)
            && [*scale, *aspect] == [(1.0, 1.0); 2]
            && *size == (0.0, 1e10)
    }
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Resize { width: usize, height: usize, method: Method },
    Warp { affine: Affine, width: usize, height: usize, method: Method },
    Pad { by: usize },
    Crop(Rect),
    Mirror,
}

/// Widest or highest picture that a step may make.
const LARGEST: usize = 1 << 16;

/// Steps and the size of the picture after them.
struct Planner<'a> {
    options: &'a Geometry,
    random: &'a mut Random,
    width: usize,
    height: usize,
    steps: Vec<Step>,
}

impl Geometry {
    /// The steps of an image of `source` pixels (width, height) to the size `target`.
    ///
    /// # Errors
    /// What cannot be done with an image of this size, in words.
    pub(super) fn plan(
        &self,
        source: (usize, usize),
        target: (usize, usize),
        random: &mut Random,
    ) -> Result<Vec<Step>, String> {
        let mut plan = Planner { options: self, random, width: source.0, height: source.1, steps: Vec::new() };
        plan.resize_shorter_edge()?;
        plan.warp()?;
        if self.pad > 0 {
            plan.steps.push(Step::Pad { by: self.pad });
            plan.width += 2 * self.pad;
            plan.height += 2 * self.pad;
        }
        match self.crop {
            Crop::Fixed => plan.crop_fixed(target)?,
            Crop::Square { min, max } => plan.crop_square(min, max, target)?,
            Crop::RandomResized { area, aspect } => plan.crop_random_resized(area, aspect, target)?,
        }
        let is_mirrored = match self.mirror {
            Mirror::Never => false,
            Mirror::Always => true,
            Mirror::Random => plan.random.coin(),
        };
        if is_mirrored {
            plan.steps.push(Step::Mirror);
        }
        Ok(plan.steps)
    }
}

impl Planner<'_> {
    fn method(&mut self, from: (usize, usize), to: (usize, usize)) -> Method {
        match self.options.inter_method {
            Interpolation::Nearest => Method::Nearest,
            Interpolation::Linear => Method::Linear,
            Interpolation::Cubic => Method::Cubic,
            Interpolation::Area => Method::Area,
            Interpolation::Auto if to.0 > from.0 && to.1 > from.1 => Method::Cubic,
            Interpolation::Auto if to.0 < from.0 && to.1 < from.1 => Method::Area,
            Interpolation::Auto => Method::Linear,
            Interpolation::Random => {
                [Method::Nearest, Method::Linear, Method::Cubic, Method::Area][self.random.up_to(3)]
            }
        }
    }

    fn resize(&mut self, width: usize, height: usize) -> Result<(), String> {
        if width == 0 || height == 0 || width > LARGEST || height > LARGEST {
            return Err(format!("of {}x{} pixels cannot be resized to {width}x{height}", self.width, self.height));
        }
        let method = self.method((self.width, self.height), (width, height));
        self.steps.push(Step::Resize { width, height, method });
        (self.width, self.height) = (width, height);
        Ok(())
    }

    fn resize_shorter_edge(&mut self) -> Result<(), String> {
        let Some(edge) = self.options.resize else { return Ok(()) };
        let (width, height) = (self.width, self.height);
        if height > width { self.resize(edge, edge * height / width) } else { self.resize(edge * width / height, edge) }
    }

    fn warp(&mut self) -> Result<(), String> {
        let options = self.options;
        let range = &options.affine;
        if range.is_identity() {
            return Ok(());
        }
        let random = &mut *self.random;
        let shear = random.within(-range.max_shear_ratio, range.max_shear_ratio);
        let angle = random.between(-range.max_rotate_angle, range.max_rotate_angle);
        let angle = range.rotate.filter(|angle| *angle > 0).unwrap_or(angle);
        let scale = random.within(range.scale.0, range.scale.1);
        let aspect = random.within(range.aspect.0, range.aspect.1);
        let edge = |len: usize| (scale * len as f32).min(range.size.1).max(range.size.0);
        let (width, height) = (edge(self.width), edge(self.height));
        if !(width >= 1.0 && height >= 1.0 && width <= LARGEST as f32 && height <= LARGEST as f32) {
            return Err(format!("of {}x{} pixels cannot be scaled by {scale}", self.width, self.height));
        }
        let affine = Affine::about_centre(
            (f64::from(angle), shear, scale, aspect),
            (self.width as f32, self.height as f32),
            (width, height),
        );
        let (width, height) = (width as usize, height as usize);
        let method = match self.method((self.width, self.height), (width, height)) {
            Method::Nearest => Method::Nearest,
            Method::Linear | Method::Cubic | Method::Area => Method::Linear,
        };
        self.steps.push(Step::Warp { affine, width, height, method });
        (self.width, self.height) = (width, height);
        Ok(())
    }

    /// A crop of `width` × `height` pixels, at a random place or in the centre.
    fn crop(&mut self, (width, height): (usize, usize), is_random: bool) {
        let (right, bottom) = (self.width - width, self.height - height);
        let (x, y) = if is_random {
            let y = self.random.up_to(bottom);
            (self.random.up_to(right), y)
        } else {
            (right / 2, bottom / 2)
        };
        if (self.width, self.height) != (width, height) {
            self.steps.push(Step::Crop(Rect { x, y, width, height }));
        }
        (self.width, self.height) = (width, height);
    }

    fn crop_fixed(&mut self, (width, height): (usize, usize)) -> Result<(), String> {
        let scaled = |to: usize, from: usize, len: usize| (to as f32 / from as f32 * len as f32) as usize;
        if self.height < height {
            self.resize(scaled(height, self.height, self.width), height)?;
        }
        if self.width < width {
            self.resize(width, scaled(width, self.width, self.height))?;
        }
        if self.height < height {
            self.resize(self.width, height)?; // one row was lost by rounding
        }
        self.crop((width, height), self.options.rand_crop);
        Ok(())
    }

    fn crop_square(&mut self, min: usize, max: usize, target: (usize, usize)) -> Result<(), String> {
        if self.width < max || self.height < max {
            return Err(format!("of {}x{} pixels is smaller than max_crop_size {max}", self.width, self.height));
        }
        let edge = min + self.random.up_to(max - min);
        self.crop((edge, edge), self.options.rand_crop);
        self.resize(target.0, target.1)
    }

    fn crop_random_resized(
        &mut self,
        area: (f32, f32),
        aspect: (f32, f32),
        target: (usize, usize),
    ) -> Result<(), String> {
        for _ in 0..10 {
            let area = self.random.within(area.0, area.1) * (self.width * self.height) as f32;
            let ratio = self.random.within(aspect.0, aspect.1);
            let (mut width, mut height) = ((area * ratio).sqrt().round(), (area / ratio).sqrt().round());
            if self.random.coin() {
                (width, height) = (height, width);
            }
            if width >= 1.0 && height >= 1.0 && width <= self.width as f32 && height <= self.height as f32 {
                self.crop((width as usize, height as usize), true);
                return self.resize(target.0, target.1);
            }
        }
        self.crop_fixed(target)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn plan(geometry: &Geometry, source: (usize, usize), target: (usize, usize), record: u64) -> Vec<Step> {
        geometry.plan(source, target, &mut Random::new(0, 0, record)).unwrap()
    }

    #[test]
    fn shorter_edge_is_resized_and_the_centre_cropped() {
        let geometry = Geometry { resize: Some(256), ..Geometry::default() };
        let crop = Rect { x: 58, y: 16, width: 224, height: 224 };
        let want = [Step::Resize { width: 341, height: 256, method: Method::Linear }, Step::Crop(crop)];
        assert_eq!(plan(&geometry, (500, 375), (224, 224), 0), want);
    }

    #[test]
    fn small_images_are_enlarged_until_they_cover_the_output() {
        let steps = plan(&Geometry::default(), (20, 10), (32, 30), 0);
        assert_eq!(steps[0], Step::Resize { width: 60, height: 30, method: Method::Linear });
        assert_eq!(steps[1], Step::Crop(Rect { x: 14, y: 0, width: 32, height: 30 }));
    }

    #[test]
    fn random_crops_reach_all_places() {
        let geometry = Geometry { rand_crop: true, mirror: Mirror::Random, ..Geometry::default() };
        let (mut places, mut mirrored) = (std::collections::BTreeSet::new(), 0);
        for record in 0..600 {
            let steps = plan(&geometry, (12, 11), (10, 10), record);
            let Step::Crop(rect) = steps[0] else { unreachable!("{steps:?}") };
            places.insert((rect.x, rect.y));
            mirrored += usize::from(steps.contains(&Step::Mirror));
        }
        assert_eq!(places.len(), 6);
        assert!((240..360).contains(&mirrored), "{mirrored}");
    }

    #[test]
    fn random_resized_crops_have_the_area_and_the_aspect_ratio() {
        let crop = Crop::RandomResized { area: (0.1, 0.5), aspect: (0.75, 1.25) };
        let geometry = Geometry { crop, ..Geometry::default() };
        let (mut least, mut most) = (1.0_f64, 0.0_f64);
        for record in 0..500 {
            let steps = plan(&geometry, (400, 300), (224, 224), record);
            let Step::Crop(rect) = steps[0] else { unreachable!("{steps:?}") };
            assert_eq!(steps[1], Step::Resize { width: 224, height: 224, method: Method::Linear });
            let area = (rect.width * rect.height) as f64 / 120_000.0;
            let aspect = rect.width as f64 / rect.height as f64;
            assert!((0.098..0.502).contains(&area) && (0.74..1.35).contains(&aspect), "{rect:?}");
            assert!(rect.x + rect.width <= 400 && rect.y + rect.height <= 300);
            (least, most) = (least.min(area), most.max(area));
        }
        assert!(least < 0.12 && most > 0.48, "{least} {most}");
    }

    #[test]
    fn random_resized_crops_that_never_fit_become_centre_crops() {
        let crop = Crop::RandomResized { area: (4.0, 4.0), aspect: (1.0, 1.0) };
        let steps = plan(&Geometry { crop, ..Geometry::default() }, (40, 40), (20, 20), 3);
        assert_eq!(steps, [Step::Crop(Rect { x: 10, y: 10, width: 20, height: 20 })]);
    }

    /// Angle, shear, scale and aspect ratio, from the columns of the matrix.
    #[test]
    fn random_affine_transformations_stay_within_their_ranges() {
        let affine = AffineRange {
            max_rotate_angle: 20,
            max_shear_ratio: 0.2,
            scale: (0.8, 1.3),
            aspect: (0.9, 1.1),
            ..AffineRange::default()
        };
        let geometry = Geometry { affine, ..Geometry::default() };
        let mut ranges = [(f32::MAX, f32::MIN); 4];
        for record in 0..2000 {
            let steps = plan(&geometry, (100, 80), (20, 20), record);
            let Step::Warp { affine, width, height, .. } = steps[0] else { unreachable!("{steps:?}") };
            let at = |x, y| affine.position(x, y);
            let (centre, origin) = (at(50.0, 40.0), at(0.0, 0.0));
            let off = (centre.0 - width as f32 / 2.0, centre.1 - height as f32 / 2.0);
            assert!(off.0.abs() <= 0.51 && off.1.abs() <= 0.51, "{off:?}");
            let x = (at(1.0, 0.0).0 - origin.0, at(1.0, 0.0).1 - origin.1);
            let y = (at(0.0, 1.0).0 - origin.0, at(0.0, 1.0).1 - origin.1);
            let (across, angle) = (x.1.hypot(y.1), (-x.1).atan2(y.1));
            let (sin, cos) = angle.sin_cos();
            let (along, sheared) = (x.0 * cos + y.0 * sin, y.0 * cos - x.0 * sin);
            let found = [angle.to_degrees(), sheared / across, f32::midpoint(along, across), across / along];
            for (range, value) in ranges.iter_mut().zip(found) {
                *range = (range.0.min(value), range.1.max(value));
            }
        }
        let allowed = [(-20.0, 20.0), (-0.2, 0.2), (0.8, 1.3), (0.9, 1.1)];
        for ((low, high), (least, most)) in ranges.into_iter().zip(allowed) {
            let slack = (most - least) / 100.0;
            assert!((least - slack..least + 2.0 * slack).contains(&low), "{ranges:?}");
            assert!((most - 2.0 * slack..most + slack).contains(&high), "{ranges:?}");
        }
    }

    #[test]
    fn square_crops_larger_than_the_image_are_an_error() {
        let geometry = Geometry { crop: Crop::Square { min: 10, max: 50 }, ..Geometry::default() };
        assert!(geometry.plan((49, 60), (8, 8), &mut Random::new(0, 0, 0)).is_err());
        let steps = plan(&geometry, (50, 60), (8, 8), 1);
        assert_eq!(steps.last(), Some(&Step::Resize { width: 8, height: 8, method: Method::Linear }));
    }
}
