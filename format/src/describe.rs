//! Describes each byte of a record's payload, without a second decoder: the decoder that reads the record reports
//! each field to a trace, which records it here. If a checksum or a constant is wrong, at which a reader stops, the
//! trace records the error at that field and the decoder continues. If the decoder cannot continue, the rest is
//! [`FieldKind::NotUnderstood`].

use crate::dtype::DType;
use crate::error::{FormatError, Result};
use crate::meta::Meta;
use crate::recordio::image::Image;
use crate::segment::footer::{Footer, TAG, Trailer};
use crate::segment::head::Head;
use crate::segment::header::{SIGNATURE, SegmentInfo};
use crate::segment::{BoundCrc, SegmentId, TYPE_FOOTER, TYPE_SAMPLE};
use crate::wire::{Cursor, Trace};
use bytes::Bytes;
use std::fmt;
use std::ops::Range;

/// Kind of a field of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // `FieldKind::words` has a name for each
pub enum FieldKind {
    Signature,
    Major,
    Minor,
    Zero,
    Crc,
    Type,
    SegmentId,
    Born,
    Created,
    FirstNumber,
    PartCount,
    PartNameLength,
    PartName,
    DTypeCode,
    ItemSize,
    DescriptionLength,
    Description,
    AxisCount,
    Axis(u8),
    ProvenanceLength,
    Provenance,
    Ordinal,
    Time,
    MetaLength,
    Meta,
    Flags,
    StoredLength,
    PartCrc,
    Splits(usize),
    InlineBytes,
    Count,
    HeadsCrc,
    Table,
    FooterAt,
    Salt,
    Tag,
    ImageFlag,
    ImageLabel,
    ImageId,
    ImageId2,
    ImageLabels,
    ImageContent,
    /// Bytes that this version of the format does not allow here.
    Leftover,
    /// The decoder stopped here: the field's error says why.
    NotUnderstood,
}

impl FieldKind {
    /// Returns its name in a description (without the number of an axis or of splits), and its name in errors.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            FieldKind::Signature => ("signature", "the header"),
            FieldKind::Major => ("major version", "the version"),
            FieldKind::Minor => ("minor version", "the version"),
            FieldKind::Zero => ("zero", "zeros"),
            FieldKind::Crc => ("CRC-32", "a checksum"),
            FieldKind::Type => ("type", "the type of a record"),
            FieldKind::SegmentId => ("segment id", "segment id"),
            FieldKind::Born => ("born", "born"),
            FieldKind::Created => ("created", "time"),
            FieldKind::FirstNumber => ("first number", "first number"),
            FieldKind::PartCount => ("number of parts", "number of parts"),
            FieldKind::PartNameLength => ("length of the name", "name of a part"),
            FieldKind::PartName => ("name", "name of a part"),
            FieldKind::DTypeCode => ("dtype code", "dtype"),
            FieldKind::ItemSize => ("item size", "item size"),
            FieldKind::DescriptionLength => ("length of the description", "NumPy type description"),
            FieldKind::Description => ("description", "NumPy type description"),
            FieldKind::AxisCount => ("number of axes", "number of axes"),
            FieldKind::Axis(_) => ("axis", "length of an axis"),
            FieldKind::ProvenanceLength => ("length of the provenance", "length of the provenance"),
            FieldKind::Provenance => ("provenance", "provenance"),
            FieldKind::Ordinal => ("ordinal", "ordinal"),
            FieldKind::Time => ("time", "time"),
            FieldKind::MetaLength => ("length of the meta", "length of meta"),
            FieldKind::Meta => ("meta", "meta"),
            FieldKind::Flags => ("flags", "flags of a part"),
            FieldKind::StoredLength => ("stored length", "stored length of a part"),
            FieldKind::PartCrc => ("CRC-32 of its stored bytes", "checksum of a part"),
            FieldKind::Splits(_) => ("splits of record", "number of splits"),
            FieldKind::InlineBytes => ("its bytes", "a part"),
            FieldKind::Count => ("count", "the number of samples"),
            FieldKind::HeadsCrc => ("CRC-32 of the heads' CRC-32s", "the heads' checksum"),
            FieldKind::Table => ("table", "the footer's table of offsets"),
            FieldKind::FooterAt => ("offset of the footer", "the offset of the footer"),
            FieldKind::Salt => ("salt", "the salt"),
            FieldKind::Tag => ("tag", "the tag"),
            FieldKind::ImageFlag => ("IRHeader: flag", "an image's header"),
            FieldKind::ImageLabel => ("IRHeader: label", "an image's header"),
            FieldKind::ImageId => ("IRHeader: id", "an image's header"),
            FieldKind::ImageId2 => ("IRHeader: id2", "an image's header"),
            FieldKind::ImageLabels => ("labels", "an image's header"),
            FieldKind::ImageContent => ("content", "an image"),
            FieldKind::Leftover | FieldKind::NotUnderstood => ("?", "?"),
        }
    }

    /// Returns its name in errors.
    pub(crate) fn in_errors(self) -> &'static str {
        self.words().1
    }
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldKind::Axis(n) => write!(f, "axis {n}"),
            FieldKind::Splits(n) => write!(f, "splits of record {n}"),
            other => f.write_str(other.words().0),
        }
    }
}

/// Value of a field.
#[derive(Clone, Debug)]
pub enum FieldValue {
    /// Bytes without further meaning.
    Bytes,
    /// A number, which may also be a checksum, a type, flags, or the bits of a float.
    Number(u64),
    /// An element type.
    DTypeCode {
        /// Its code.
        code: u8,
        /// Its name; `numpy` for a type with a description, `None` for a type of a later version.
        name: Option<&'static str>,
    },
    /// Text. Bytes that are not UTF-8 are replaced.
    Text(String),
    /// A segment id.
    Id(SegmentId),
    /// A map, or the error of decoding it.
    Map(Result<Meta>),
    /// Labels of an image.
    Labels(Vec<f32>),
}

/// A field of a payload. The fields of a payload follow each other without gaps.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its kind.
    pub kind: FieldKind,
    /// The part that it describes: number and name. The name is empty in the fields that contain the name.
    pub part: Option<(usize, String)>,
    /// Its bytes, as offsets in the payload.
    pub bytes: Range<usize>,
    /// Its value.
    pub value: FieldValue,
    /// Why a reader refuses it.
    pub error: Option<FormatError>,
}

impl Field {
    /// Returns its name, with that of its part.
    pub fn name(&self) -> String {
        match &self.part {
            Some((n, name)) if name.is_empty() => format!("part {n}: {}", self.kind),
            Some((_, name)) => format!("{name}: {}", self.kind),
            None => self.kind.to_string(),
        }
    }
}

/// Describes the fields of a header, head, footer or trailer. The kind follows from the first bytes (for a trailer,
/// the last ones). `frames` are the file offsets of its frames. `info` is the segment's, which a head needs. Returns
/// `None` for any other payload.
pub fn describe(payload: &[u8], frames: Range<u64>, info: Option<&SegmentInfo>) -> Option<Vec<Field>> {
    let mut cursor = Cursor::traced(payload, frames.start, Fields::default());
    let decoded = match (payload.get(4), info) {
        _ if payload.starts_with(SIGNATURE) => SegmentInfo::decode_header_fields(&mut cursor).map(drop),
        _ if payload.len() == 24 && payload.ends_with(TAG) => {
            Trailer::decode_fields(&mut cursor, frames.start).map(drop)
        }
        (Some(&TYPE_SAMPLE), Some(info)) => {
            let decoded = Head::default().decode_fields(&mut cursor, frames.clone(), info);
            let checked = BoundCrc::new(info.id).check(payload, frames.start, "a sample's head");
            let noted = checked.map(drop).or_else(|error| cursor.refuse(FieldKind::Crc, error));
            decoded.and(noted)
        }
        (Some(&TYPE_FOOTER), _) => {
            Footer::decode_fields(&mut cursor, &Bytes::copy_from_slice(payload), frames.start).map(drop)
        }
        _ => return None,
    };
    Some(finish(cursor, decoded))
}

/// Describes the fields of a record that begins with MXNet's image header.
pub fn describe_image(payload: &[u8]) -> Vec<Field> {
    let mut cursor = Cursor::traced(payload, 0, Fields::default());
    let decoded = Image::decode_fields(&mut cursor).map(drop);
    finish(cursor, decoded)
}

/// Returns the decoded fields, and one for the rest, if any.
fn finish(cursor: Cursor<'_, Fields>, decoded: Result<()>) -> Vec<Field> {
    let (error, rest) = (decoded.err(), cursor.payload().len());
    let Fields { mut fields, .. } = cursor.trace;
    let begin = fields.last().map_or(0, |last| last.bytes.end);
    if error.is_some() || begin < rest {
        let kind = if error.is_some() { FieldKind::NotUnderstood } else { FieldKind::Leftover };
        fields.push(Field { kind, part: None, bytes: begin..rest, value: FieldValue::Bytes, error });
    }
    fields
}

/// The trace that records the fields.
#[derive(Default)]
struct Fields {
    fields: Vec<Field>,
    part: Option<(usize, String)>,
}

impl Trace for Fields {
    fn field(&mut self, kind: FieldKind, bytes: Range<usize>, content: &[u8], number: Option<u64>) {
        let value = match (kind, number) {
            (FieldKind::DTypeCode, Some(number)) => {
                let code = number as u8;
                FieldValue::DTypeCode { code, name: DType::name_of_code(code) }
            }
            (_, Some(number)) => FieldValue::Number(number),
            (FieldKind::PartName | FieldKind::Description, _) => {
                FieldValue::Text(String::from_utf8_lossy(content).into_owned())
            }
            (FieldKind::Meta | FieldKind::Provenance, _) => FieldValue::Map(Meta::decode(content, 0)),
            (FieldKind::ImageLabels, _) => {
                FieldValue::Labels(content.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect())
            }
            (FieldKind::SegmentId, _) => {
                content.try_into().map_or(FieldValue::Bytes, |id| FieldValue::Id(SegmentId(id)))
            }
            _ => FieldValue::Bytes,
        };
        self.fields.push(Field { kind, part: self.part.clone(), bytes, value, error: None });
    }

    fn part(&mut self, part: Option<(usize, &str)>) {
        self.part = part.map(|(n, name)| (n, name.to_owned()));
    }

    fn refuse(&mut self, kind: FieldKind, error: FormatError) -> Result<()> {
        // If the payload is too short for the field, the error is reported when the field is read.
        if let Some(field) = self.fields.iter_mut().rev().find(|field| field.kind == kind) {
            field.error = Some(error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Schema;

    fn info() -> Result<SegmentInfo> {
        let (id, schema) = (SegmentId([7; 16]), Schema::new([("data", DType::U8, vec![2])])?);
        Ok(SegmentInfo { id, born: 1, created_unix_ms: 0, first_number: 0, schema, provenance: Meta::new() })
    }

    #[test]
    fn truncated_head_is_described_to_its_end() -> Result<()> {
        let (info, payload) = (info()?, [1, 2, 3, 4, b'S', 0x85, 0x01, 9, 0, 0, 1]);
        for len in 5..=payload.len() {
            let fields = describe(&payload[..len], 0..0, Some(&info)).unwrap_or_default();
            assert_eq!(fields.iter().map(|field| field.bytes.len()).sum::<usize>(), len);
            assert!(fields.last().is_some_and(|last| last.kind == FieldKind::NotUnderstood), "{fields:?}");
        }
        let fields = describe(&payload, 0..0, Some(&info)).unwrap_or_default();
        assert!(matches!(fields[0].error, Some(FormatError::Checksum { .. })), "{fields:?}");
        let ordinal = &fields[2];
        assert!(ordinal.bytes.len() == 2 && matches!(ordinal.value, FieldValue::Number(133)), "{ordinal:?}");
        Ok(())
    }

    #[test]
    fn intact_header_is_described_without_errors() -> Result<()> {
        let payload = info()?.encode_header()?;
        let fields = describe(&payload, 0..0, None).unwrap_or_default();
        assert!(fields.iter().all(|field| field.error.is_none() && field.kind != FieldKind::Leftover), "{fields:?}");
        assert_eq!(fields.iter().map(|field| field.bytes.len()).sum::<usize>(), payload.len());
        let mut dirty = payload;
        dirty[10] = 1;
        let fields = describe(&dirty, 0..0, None).unwrap_or_default();
        let refused: Vec<FieldKind> = fields.iter().filter(|f| f.error.is_some()).map(|f| f.kind).collect();
        assert_eq!(refused, [FieldKind::Zero, FieldKind::Crc]);
        Ok(())
    }
}
