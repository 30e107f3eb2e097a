//! One image from its record to its slot of a batch.

use super::colour::ColourJitter;
use super::geometry::{Geometry, Step};
use super::masks;
use super::output::{Writer, pad, whole};
use super::picture::{Picture, Rect, decode};
use super::random::Random;
use super::resize::{Method, Scratch, resize};

/// Memory of one thread, used again for each image.
#[derive(Default)]
pub(super) struct Workspace {
    /// The bytes of the record.
    pub(super) record: Vec<u8>,
    picture: Picture,
    other: Picture,
    scratch: Scratch,
}

/// Decoding, augmentation and normalisation of single images.
pub(super) struct Pipeline {
    pub(super) channels: usize,
    /// Width and height of the result.
    pub(super) size: (usize, usize),
    pub(super) geometry: Geometry,
    pub(super) colour: ColourJitter,
    pub(super) writer: Writer,
}

/// The size of an image and the steps that it took.
pub(super) struct Taken {
    /// Its width and height in its file.
    pub(super) source: (usize, usize),
    pub(super) steps: Vec<Step>,
}

/// Where an image's numbers are written.
pub(super) enum Target<'a> {
    U8(&'a mut [u8]),
    F32(&'a mut [f32]),
}

impl Pipeline {
    /// Decodes, augments and writes the image file `content`.
    ///
    /// # Errors
    /// What is wrong with the image, in words.
    pub(super) fn run(
        &self,
        content: &[u8],
        random: &mut Random,
        space: &mut Workspace,
        target: Target<'_>,
    ) -> Result<Taken, String> {
        decode(content, self.channels, &mut space.picture)?;
        let source = (space.picture.width, space.picture.height);
        let steps = self.geometry.plan(source, self.size, random)?;
        let (mut part, is_mirrored) = space.apply(&steps, None, self.geometry.fill_value);
        if !self.colour.is_off() {
            space.picture.view().crop(part).copy_to(&mut space.other);
            std::mem::swap(&mut space.picture, &mut space.other);
            part = whole(&space.picture);
            self.colour.apply(&mut space.picture, random);
        }
        let view = space.picture.view().crop(part);
        match target {
            Target::U8(out) => self.writer.write_u8(view, is_mirrored, out),
            Target::F32(out) => self.writer.write_f32(view, is_mirrored, random, out),
        }
        Ok(Taken { source, steps })
    }

    /// Decodes the mask `content` and writes it after the steps that its image took.
    ///
    /// # Errors
    /// What is wrong with the mask, in words.
    pub(super) fn run_mask(
        &self,
        content: &[u8],
        taken: &Taken,
        fill: u8,
        space: &mut Workspace,
        out: &mut [u8],
    ) -> Result<(), String> {
        masks::decode(content, &mut space.picture)?;
        let (width, height) = (space.picture.width, space.picture.height);
        if (width, height) != taken.source {
            let (wide, high) = taken.source;
            return Err(format!("has {wide}x{high} pixels, but its mask has {width}x{height}"));
        }
        let (part, is_mirrored) = space.apply(&taken.steps, Some(Method::Nearest), fill);
        self.writer.write_u8(space.picture.view().crop(part), is_mirrored, out);
        Ok(())
    }
}

impl Workspace {
    /// Takes the steps on the picture. Returns the part of it that is the result, and whether that is to be mirrored.
    /// `method`: in place of the methods of the steps.
    fn apply(&mut self, steps: &[Step], method: Option<Method>, fill: u8) -> (Rect, bool) {
        let Workspace { picture, other, scratch, .. } = self;
        let (mut part, mut is_mirrored) = (whole(picture), false);
        let mut steps = steps.iter().peekable();
        while let Some(step) = steps.next() {
            let view = picture.view().crop(part);
            match step {
                Step::Crop(rect) => {
                    part = Rect { x: part.x + rect.x, y: part.y + rect.y, ..*rect };
                    continue;
                }
                Step::Mirror => {
                    is_mirrored = !is_mirrored;
                    continue;
                }
                Step::Resize { width, height, method: own } => {
                    // Only what the crop behind it keeps is made.
                    let kept = match steps.peek() {
                        Some(Step::Crop(rect)) => *rect,
                        _ => Rect { x: 0, y: 0, width: *width, height: *height },
                    };
                    steps.next_if(|step| matches!(step, Step::Crop(_)));
                    resize(view, (*width, *height), kept, method.unwrap_or(*own), other, scratch);
                }
                Step::Warp { affine, width, height, method: own } => {
                    affine.apply(view, (*width, *height), method.unwrap_or(*own), fill, other);
                }
                Step::Pad { by } => pad(view, *by, fill, other),
            }
            std::mem::swap(picture, other);
            part = whole(picture);
        }
        (part, is_mirrored)
    }
}
