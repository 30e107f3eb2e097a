//! Errors of the format. Each variant says what is wrong, and most say where: a byte offset from the start of the
//! file.

use thiserror::Error;

/// A `Result` with this crate's error.
pub type Result<T> = std::result::Result<T, FormatError>;

/// What the decoder or the encoder refuses. Offsets (`at`) are bytes from the start of the file or of the input.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A frame does not begin with the RecordIO magic.
    #[error("byte {at}: not a record: expected the magic 0xced7230a, found {found:#010x}")]
    BadMagic {
        /// Where the frame should begin.
        at: u64,
        /// The four bytes found there, little endian.
        found: u32,
    },
    /// The continuation flag breaks the order: whole, or first, any number of middle, last.
    #[error("byte {at}: record part with flag {found} where {expected} was expected (a part is missing or doubled)")]
    BadFlag {
        /// Where the frame begins.
        at: u64,
        /// The flag found.
        found: u8,
        /// The flags that are allowed here.
        expected: &'static str,
    },
    /// A part of a split record, not its last, has a length that is not a multiple of four.
    #[error(
        "byte {at}: inner part of a split record has length {len}, which is not a multiple of 4: either its length is \
         damaged, or the file is in the dialect of ml-io and SageMaker, which cuts records anywhere and joins them \
         without the magic; that is not RecordIO as dmlc and MXNet write it: convert the file with the tool that \
         wrote it"
    )]
    UnalignedPart {
        /// Where the frame begins.
        at: u64,
        /// Its length.
        len: u64,
    },
    /// A payload contains the magic at a place where a writer must escape it.
    #[error(
        "byte {at}: the magic occurs at a multiple of 4 inside a record: either a record's length is damaged, or the \
         writer of this file never escapes the magic (a dialect that cannot be split or resynchronised); write the \
         file again with a writer that does"
    )]
    UnescapedMagic {
        /// File offset of that magic.
        at: u64,
    },
    /// A line of an `.idx` or `.lst` file is malformed.
    #[error("line {line} (byte {at}) {what}")]
    BadLine {
        /// Where the line begins.
        at: u64,
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The input ends before the end that its lengths give.
    #[error("byte {at}: truncated: {what} needs {need} bytes, {have} are left")]
    Truncated {
        /// Where the truncated item begins.
        at: u64,
        /// What was being read.
        what: &'static str,
        /// Bytes needed.
        need: u64,
        /// Bytes left.
        have: u64,
    },
    /// Padding contains bytes other than zero.
    #[error("byte {at}: padding is not zero")]
    DirtyPadding {
        /// Where the padding begins.
        at: u64,
    },
    /// A checksum does not match.
    #[error("byte {at}: {what} is damaged: CRC-32 is {computed:08x}, recorded {stored:08x}")]
    Checksum {
        /// Where the checked item begins.
        at: u64,
        /// What it is.
        what: &'static str,
        /// The checksum in the file.
        stored: u32,
        /// The checksum of the bytes found.
        computed: u32,
    },
    /// The file is not a ringreel segment (it may be a plain `.rec` file).
    #[error("not a ringreel segment: {why}")]
    NotASegment {
        /// What shows that.
        why: &'static str,
    },
    /// The segment was written by another major version.
    #[error(
        "segment of format {major}.{minor}; this program reads format {}.x: use a ringreel of that version (or this byte is damaged)",
        crate::FORMAT_MAJOR
    )]
    Version {
        /// Major version found.
        major: u8,
        /// Minor version found.
        minor: u8,
    },
    /// A field has a value that the format does not allow.
    #[error("byte {at}: {what}")]
    Malformed {
        /// Where the record begins.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A dtype code of a later version.
    #[error("part {part:?} has dtype code {code:#04x}, unknown to this version: only this part cannot be read")]
    UnknownDType {
        /// The part's name.
        part: String,
        /// The code found.
        code: u8,
    },
    /// A codec of a later version.
    #[error("part {part:?} has codec {code}, unknown to this version: only this part cannot be read")]
    UnknownCodec {
        /// The part's name.
        part: String,
        /// The code found.
        code: u8,
    },
    /// A value exceeds a limit.
    #[error("{what}: {value} is over the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// A compressed part does not decompress to its declared size.
    #[error("byte {at}: compressed part {part:?}: {why}")]
    Decompress {
        /// Where the part's first record begins; where the head begins if the part is in the head.
        at: u64,
        /// The part's name.
        part: String,
        /// The error of zstd, or what differs.
        why: String,
    },
    /// The caller's arguments to the writer do not match.
    #[error("{0}")]
    Input(String),
    /// The source or the sink of the bytes failed.
    #[error("{0}")]
    Io(std::sync::Arc<std::io::Error>),
}

impl From<std::io::Error> for FormatError {
    fn from(error: std::io::Error) -> FormatError {
        FormatError::Io(error.into())
    }
}

impl FormatError {
    /// Returns its name, as in section 19 of SPEC.md.
    pub fn name(&self) -> &'static str {
        match self {
            FormatError::BadMagic { .. } => "BadMagic",
            FormatError::BadFlag { .. } => "BadFlag",
            FormatError::UnalignedPart { .. } => "UnalignedPart",
            FormatError::UnescapedMagic { .. } => "UnescapedMagic",
            FormatError::BadLine { .. } => "BadLine",
            FormatError::Truncated { .. } => "Truncated",
            FormatError::DirtyPadding { .. } => "DirtyPadding",
            FormatError::Checksum { .. } => "Checksum",
            FormatError::NotASegment { .. } => "NotASegment",
            FormatError::Version { .. } => "Version",
            FormatError::Malformed { .. } => "Malformed",
            FormatError::UnknownDType { .. } => "UnknownDType",
            FormatError::UnknownCodec { .. } => "UnknownCodec",
            FormatError::TooLarge { .. } => "TooLarge",
            FormatError::Decompress { .. } => "Decompress",
            FormatError::Input(_) => "Input",
            FormatError::Io(_) => "Io",
        }
    }

    /// Returns the byte offset that it names, from the start of the file.
    pub fn at(&self) -> Option<u64> {
        match self {
            FormatError::BadMagic { at, .. }
            | FormatError::BadFlag { at, .. }
            | FormatError::UnalignedPart { at, .. }
            | FormatError::UnescapedMagic { at }
            | FormatError::BadLine { at, .. }
            | FormatError::Truncated { at, .. }
            | FormatError::DirtyPadding { at }
            | FormatError::Checksum { at, .. }
            | FormatError::Malformed { at, .. }
            | FormatError::Decompress { at, .. } => Some(*at),
            _ => None,
        }
    }
}
