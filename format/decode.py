"""A decoder of segments, and of plain RecordIO, `.idx` and `.lst` files, in plain Python (3.9, standard library).

It follows SPEC.md section by section and can be read beside it; it is meant to be clear, not fast. It shares no code
with the library. Every function takes the whole file as `bytes`; offsets and lengths are in bytes. What is refused is a
`FormatError` with one of the names of section 19. The outcomes are those of vectors/README.md.

    python3 decode.py [--kind segment|recordio|idx|lst] FILE...    prints them as JSON; status 1 when a file is refused
"""

from __future__ import annotations

import json
import re
import struct
import sys
import zlib
from dataclasses import dataclass, field

MAGIC = bytes.fromhex("0a23d7ce")
RECORD_MAX = (1 << 29) - 1
PIECE = 1 << 28
SIZE_MAX = (1 << 63) - 1
META_MAX, LEVELS, VALUES = 1 << 24, 16, 65_536
PARTS_MAX, PIECES_MAX, TEXT_MAX, AXES_MAX = 4096, 1 << 16, 65_535, 64
DECODED_MAX, FACTOR_MAX = 1 << 40, 65_536
NUMPY = 255
DTYPES = {
    0: ("bytes", 1), 1: ("bool", 1), 2: ("u8", 1), 3: ("u16", 2), 4: ("u32", 4), 5: ("u64", 8), 6: ("i8", 1),
    7: ("i16", 2), 8: ("i32", 4), 9: ("i64", 8), 10: ("f16", 2), 11: ("bf16", 2), 12: ("f32", 4), 13: ("f64", 8),
    14: ("c64", 8), 15: ("c128", 16)}  # fmt: skip


class FormatError(ValueError):
    """`name` is one of section 19; `at` is an offset or None. `line`, from 1, is there for `BadLine` alone."""

    def __init__(self, name, at=None, why="", line=None):
        super().__init__(f"{name}" + (f" at {at}" if at is not None else "") + (f": {why}" if why else ""))
        self.name, self.at, self.line = name, at, line


# --- 2 Frames ---------------------------------------------------------------------------------------------------------


@dataclass
class Record:
    """A record: where its first frame begins, where its last one ends, its payload, and how often it is split."""

    at: int
    end: int
    payload: bytes
    splits: int
    framed: bool  # it begins with a frame of flag 1


def magics(data, begin, end):
    """The offsets of the magic at multiples of 4 in data[begin:end]. `begin` is a multiple of 4."""
    at = data.find(MAGIC, begin, end)
    while at >= 0:
        if at % 4 == 0:
            yield at
        at = data.find(MAGIC, at + 1, end)


def read_record(data, at, end, strict=True):
    """The record that begins at `at` and ends at or before `end`. Not `strict`: a magic in a payload is let pass."""
    pos, payload, parts, last = at, bytearray(), 0, False
    while not last:
        if end - pos < 8:
            raise FormatError("Truncated", pos, "no frame")
        if data[pos : pos + 4] != MAGIC:
            raise FormatError("BadMagic", pos)
        (word,) = struct.unpack_from("<I", data, pos + 4)
        flag, length = word >> 29, word & RECORD_MAX
        if flag > 3:
            raise FormatError("BadFlag", pos, f"flag {flag}")
        if flag in (1, 2) and length % 4:
            raise FormatError("UnalignedPart", pos, f"length {length}")
        if (flag in (0, 1)) != (parts == 0):
            raise FormatError("BadFlag", pos, f"flag {flag} out of order")
        if len(payload) + (4 if parts else 0) + length > RECORD_MAX:
            raise FormatError("TooLarge", None, "a record")
        padding = pos + 8 + length
        after = padding + -length % 4
        if after > end:
            raise FormatError("Truncated", pos, f"length {length}")
        if any(data[padding:after]):
            raise FormatError("DirtyPadding", padding)
        for magic in magics(data, pos + 8, padding if strict else pos + 8):
            raise FormatError("UnescapedMagic", magic)
        payload += (MAGIC if parts else b"") + data[pos + 8 : padding]
        pos, parts, last = after, parts + 1, flag in (0, 3)
    return Record(at, pos, bytes(payload), parts - 1, parts > 1)


# --- 1 Fields of a record ---------------------------------------------------------------------------------------------


class Fields:
    """Reads fields from the front of a payload. Errors name `at`, the offset of the record's first frame."""

    def __init__(self, payload, at):
        self.data, self.at, self.pos = payload, at, 0

    def left(self):
        return len(self.data) - self.pos

    def take(self, size):
        if size > self.left():
            raise FormatError("Truncated", self.at, f"{size} bytes wanted, {self.left()} left")
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def number(self, size, order="little"):
        return int.from_bytes(self.take(size), order)

    def varint(self):
        value = 0
        for n in range(10):
            byte = self.number(1)
            value |= (byte & 0x7F) << 7 * n
            if byte < 0x80:
                if (n and byte == 0) or value >> 64:
                    break
                return value
        raise self.malformed("a varint that is not the shortest form of 64 bits")

    def text(self):
        size = self.varint()
        if size > TEXT_MAX:
            raise FormatError("TooLarge", None, "a text")
        return self.utf8(size)

    def utf8(self, size):
        try:
            return self.take(size).decode("utf-8")
        except UnicodeDecodeError:
            raise self.malformed("a text is not UTF-8") from None

    def nothing_left(self):
        if self.left():
            raise self.malformed(f"{self.left()} bytes follow the last field")

    def malformed(self, why):
        return FormatError("Malformed", self.at, why)


# --- 12 Meta ----------------------------------------------------------------------------------------------------------


def read_map(fields, size):
    """The map in the next `size` bytes, in the form that vectors/README.md gives values."""
    if size > META_MAX:
        raise FormatError("TooLarge", None, "a map")
    inner = Fields(fields.take(size), fields.at)
    if inner.left() and inner.data[0] >> 5 != 5:
        raise inner.malformed("the outermost value is no map")
    value = _value(inner, 0, [VALUES])
    inner.nothing_left()
    return value


def _value(fields, level, left):
    """One CBOR value at `level`; `left[0]` counts the values that may still come."""
    if level > LEVELS:
        raise FormatError("TooLarge", None, "levels of a map")
    if level:
        left[0] -= 1
        if left[0] < 0:
            raise FormatError("TooLarge", None, "values of a map")
    first = fields.number(1)
    major, info = first >> 5, first & 31
    if major == 7:
        if first in (0xF4, 0xF5, 0xF6):
            return {0xF4: False, 0xF5: True, 0xF6: None}[first]
        if first == 0xFB:
            return {"f64": fields.take(8).hex()}
        raise fields.malformed(f"a value 0x{first:02x}")
    if major == 6 or info > 27:
        raise fields.malformed(f"a value 0x{first:02x}")
    number = _argument(fields, info)
    if major == 0:
        return number
    if major == 1:
        return -1 - number
    if major == 2:
        return {"bytes": fields.take(number).hex()}
    if major == 3:
        return fields.utf8(number)
    if major == 4:
        return {"array": [_value(fields, level + 1, left) for _ in range(number)]}
    entries, keys = [], set()
    for _ in range(number):
        first = fields.number(1)
        if first >> 5 != 3 or first & 31 > 27:
            raise fields.malformed("a key is no text")
        key = fields.utf8(_argument(fields, first & 31))
        if key in keys:
            raise fields.malformed(f"the key {key!r} stands twice")
        keys.add(key)
        entries.append([key, _value(fields, level + 1, left)])
    return {"map": entries}


def _argument(fields, info):
    """The number in the head of a CBOR value, in its shortest form."""
    if info < 24:
        return info
    size = 1 << info - 24
    number = fields.number(size, "big")
    if number < (24 if size == 1 else 1 << 4 * size):
        raise fields.malformed("a number is not in its shortest form")
    return number


# --- 4 and 5 Segment info, schema, dtype, shape -----------------------------------------------------------------------


@dataclass
class Info:
    id: bytes
    born: int
    created_unix_ms: int
    first_number: int
    schema: list  # of (name, dtype, shape)
    provenance: dict
    raw: bytes  # the bytes it was read from


def read_info(fields):
    begin = fields.pos
    id, born, created, first = fields.take(16), fields.number(8), fields.number(8), fields.number(8)
    count = fields.varint()
    if count > PARTS_MAX:
        raise FormatError("TooLarge", None, "parts")
    schema, names = [], set()
    for _ in range(count):
        name = fields.text()
        if not name or name in names:
            raise fields.malformed(f"the name {name!r}")
        names.add(name)
        dtype, shape = read_dtype(fields), read_shape(fields)
        tensor_length(dtype, shape)
        schema.append((name, dtype, shape))
    provenance = read_map(fields, fields.varint())
    return Info(id, born, created, first, schema, provenance, fields.data[begin : fields.pos])


def read_dtype(fields):
    """(code, item size, description or None)"""
    code, size = fields.number(1), fields.varint()
    if size >> 32:
        raise FormatError("TooLarge", None, "an item size")
    if code in DTYPES and DTYPES[code][1] != size:
        raise fields.malformed(f"item size {size} for dtype {code}")
    return code, size, fields.text() if code == NUMPY else None


def read_shape(fields):
    axes = fields.number(1)
    if axes > AXES_MAX:
        raise FormatError("TooLarge", None, "axes")
    return [fields.varint() for _ in range(axes)]


def tensor_length(dtype, shape):
    """The bytes of a tensor."""
    length = dtype[1]
    for axis in shape:
        length *= axis
        if length > SIZE_MAX:
            raise FormatError("TooLarge", None, "a tensor")
    return length


def read_header(data):
    """(info, version as text, where the header record ends)"""
    record = read_record(data, 0, len(data))
    fields = Fields(record.payload, 0)
    if len(record.payload) < 16 or record.payload[:8] != b"RINGREEL":
        raise FormatError("NotASegment")
    fields.take(8)
    major = fields.number(1)
    if major != 1:
        raise FormatError("Version", None, f"major version {major}")
    minor, zero, crc = fields.number(1), fields.take(2), fields.number(4)
    if crc != zlib.crc32(record.payload[16:], zlib.crc32(record.payload[:12])):
        raise FormatError("Checksum", 0)
    if any(zero):
        raise FormatError("DirtyPadding", 0, "a reserved field of the header")
    info = read_info(fields)
    if minor == 0:
        fields.nothing_left()
    return info, f"1.{minor}", record.end


# --- 6 and 7 Heads and parts ------------------------------------------------------------------------------------------


@dataclass
class Piece:
    """A record of a large part. `pad` is the offset of the pad before it, or None."""

    pad: int | None
    at: int
    length: int
    splits: int
    end: int


@dataclass
class Part:
    name: str
    dtype: tuple
    shape: list
    length: int  # of the tensor
    codec: int
    stored_len: int
    crc: int | None = None
    inline: bytes | None = None
    pieces: list = field(default_factory=list)
    at: int = 0  # what its errors name: its first record, or the head


@dataclass
class Head:
    at: int
    end: int  # of the sample
    ordinal: int
    unix_ms: int
    crc: int
    meta: dict
    parts: list


def check_bound(record, id):
    """The type of a record whose checksum is bound to its place (section 10)."""
    fields = Fields(record.payload, record.at)
    crc, kind = fields.number(4), fields.number(1)
    if crc != bound_crc(record, id):
        raise FormatError("Checksum", record.at)
    return kind


def bound_crc(record, id):
    return zlib.crc32(record.payload[4:], zlib.crc32(id + struct.pack("<Q", record.at)))


def read_head(record, info):
    """What a record of type `S` says, and where its sample's records lie."""
    fields = Fields(record.payload, record.at)
    crc = fields.number(4)
    fields.take(1)
    ordinal, time, size = fields.varint(), fields.varint(), fields.varint()
    meta = read_map(fields, size) if size else {"map": []}
    parts, pos, pieces = [], record.end, 0
    for default in info.schema:
        part = read_part_fields(fields, default, PIECES_MAX - pieces)
        pos = place(part, pos) if part.inline is None else pos
        part.at = part.pieces[0].at if part.pieces else record.at
        pieces += len(part.pieces)
        parts.append(part)
    fields.nothing_left()
    unix_ms = min(info.created_unix_ms + time, (1 << 64) - 1)
    return Head(record.at, pos, ordinal, unix_ms, crc, meta, parts)


def read_part_fields(fields, default, pieces_left):
    name, dtype, shape = default
    flags = fields.number(1)
    if flags & 0xE0:
        raise fields.malformed(f"flags 0x{flags:02x} of a part")
    if flags & 1:
        dtype, shape = read_dtype(fields), read_shape(fields)
    length, codec = tensor_length(dtype, shape), flags >> 2 & 3
    stored_len = fields.varint() if codec else length
    if stored_len > SIZE_MAX:
        raise FormatError("TooLarge", None, "stored bytes")
    part = Part(name, dtype, shape, length, codec, stored_len)
    if not flags & 2:
        part.inline = fields.take(stored_len)
        return part
    part.crc = fields.number(4)
    count = max(1, -(-stored_len // PIECE))
    if count > pieces_left:
        raise FormatError("TooLarge", None, "pieces of a sample")
    for n in range(count):
        size = min(PIECE, stored_len - n * PIECE)
        splits = fields.varint() if flags & 0x10 else 0
        if splits > size // 4:
            raise fields.malformed(f"{splits} splits in {size} bytes")
        part.pieces.append(Piece(None, 0, size, splits, 0))
    return part


def place(part, pos):
    """Says where the records of a large part lie, from where the record before them ends to where the last one ends."""
    for piece in part.pieces:
        if (pos + 8) % 64:
            piece.pad, pos = pos, pos + 8 + -(pos + 16) % 64
        piece.at = pos
        pos = piece.end = pos + 8 + piece.length + -piece.length % 4 + 4 * piece.splits
        if pos > SIZE_MAX:
            raise FormatError("TooLarge", None, "an offset")
    return pos


def check_pad(data, piece, end):
    if piece.pad is None:
        return
    record = read_record(data, piece.pad, end)
    if record.end != piece.at or any(record.payload) or record.framed:
        raise FormatError("DirtyPadding", piece.pad, "a pad")


def tensor(data, part, end, strict=False):
    """The bytes of a part's tensor. In this order: records, checksum, dtype, codec, decompression. Not the pads."""
    stored = part.inline
    if stored is None:
        stored = b"".join(read_piece(data, piece, end, strict) for piece in part.pieces)
        if zlib.crc32(stored) != part.crc:
            raise FormatError("Checksum", part.at)
    if part.dtype[0] not in DTYPES and part.dtype[0] != NUMPY:
        raise FormatError("UnknownDType", None, f"code {part.dtype[0]}")
    if part.codec > 1:
        raise FormatError("UnknownCodec", None, f"codec {part.codec}")
    if part.codec == 0:
        return stored
    if part.length > DECODED_MAX:
        raise FormatError("TooLarge", None, "a compressed part")
    try:
        return decompress(stored, part.length)
    except ValueError as error:
        raise FormatError("Decompress", part.at, str(error)) from None


def read_piece(data, piece, end, strict):
    record = read_record(data, piece.at, end, strict)
    if len(record.payload) != piece.length or record.end != piece.end:
        raise FormatError("Malformed", piece.at, "a record that is not as the head says")
    return record.payload


def decompress(stored, length):
    """The `length` bytes of one zstd frame; `ValueError` when it holds anything else."""
    if length > FACTOR_MAX * len(stored):
        raise ValueError("so much cannot come out of it")
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        import zstd  # the file beside this one

        return zstd.decompress(stored, length)
    decoder = zstd.ZstdDecompressor()
    try:
        out = decoder.decompress(stored, length + 1)
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from None
    if len(out) != length or not decoder.eof or decoder.unused_data:
        raise ValueError("not one frame of the length")
    return out


# --- 8 and 9 Footer and trailer ---------------------------------------------------------------------------------------


@dataclass
class Footer:
    at: int
    end: int
    crc: int
    version: str
    count: int
    heads_crc: int
    table: list
    info: Info


def read_footer(record):
    """What a record of type `F` says, by itself."""
    payload, fields = record.payload, Fields(record.payload, record.at)
    crc, _, major, minor, zero = (fields.number(size) for size in (4, 1, 1, 1, 1))
    count, heads_crc, zero_2 = fields.number(8), fields.number(4), fields.number(4)
    table = fields.take(8 * count)
    id = fields.take(16)
    if crc != bound_crc(record, id):
        raise FormatError("Checksum", record.at)
    if payload[4] != ord("F"):
        raise fields.malformed("no footer")
    if major != 1:
        raise FormatError("Version", None, f"major version {major}")
    if zero or zero_2:
        raise FormatError("DirtyPadding", record.at, "a reserved field of the footer")
    table = list(struct.unpack(f"<{count}Q", table))
    fields.pos -= 16
    info = read_info(fields)
    if minor == 0:
        fields.nothing_left()
    return Footer(record.at, record.end, crc, f"1.{minor}", count, heads_crc, table, info)


def read_trailer(data):
    """The offset of the footer that the trailer of the file names."""
    at, raw = len(data) - 32, data[-32:]
    if len(raw) < 32 or raw[24:] != b"REELTAIL":
        raise FormatError("NotASegment", None, "no trailer")
    footer, salt, crc = struct.unpack_from("<QII", raw, 8)
    if crc != zlib.crc32(raw[8:20]):
        raise FormatError("Checksum", at)
    if raw[:8] != MAGIC + struct.pack("<I", 24):
        raise FormatError("Malformed", at, "no frame of 24 bytes")
    if footer % 4 or footer >= at:
        raise FormatError("Malformed", at, "the offset of the footer")
    if salt != (zlib.crc32(raw[8:16] + bytes(4)) == int.from_bytes(MAGIC, "little")):
        raise FormatError("Malformed", at, f"salt {salt}")
    return footer


def check_end(data, footer):
    """Checks that the trailer of this footer follows it, and nothing after that."""
    if len(data) < footer.end + 32:
        raise FormatError("Truncated", footer.end, "the trailer")
    if len(data) > footer.end + 32:
        raise FormatError("Malformed", footer.end, "bytes after the trailer")
    if read_trailer(data) != footer.at:
        raise FormatError("Malformed", footer.end, "the trailer names another footer")


# --- 15 Reading -------------------------------------------------------------------------------------------------------


def check(data):
    """Reads a segment from front to back and checks everything. Gives its outcome."""
    info, version, pos = read_header(data)
    heads, samples = [], []
    while True:
        record = read_record(data, pos, len(data))
        kind, pos = check_bound(record, info.id), record.end
        if kind == ord("F"):
            break
        if kind != ord("S"):
            continue
        head = read_head(record, info)
        if head.ordinal != len(heads):
            raise FormatError("Malformed", head.at, f"ordinal {head.ordinal}")
        samples.append(sample_outcome(head, [part_outcome(data, part, len(data)) for part in head.parts]))
        heads.append(head)
        pos = head.end
    footer = read_footer(record)
    if footer.count != len(heads):
        raise FormatError("Malformed", footer.at, "the number of samples")
    if footer.heads_crc != zlib.crc32(b"".join(struct.pack("<I", head.crc) for head in heads)):
        raise FormatError("Checksum", footer.at, "of the heads")
    if footer.table != [head.at for head in heads]:
        raise FormatError("Malformed", footer.at, "the table")
    if footer.info.raw != info.raw:
        raise FormatError("Malformed", footer.at, "another segment info than in the header")
    check_end(data, footer)
    return segment_outcome(version, info, samples, footer)


def by_position(data):
    """Reads a segment by trailer and table. Returns its outcome; the error of a damaged sample is in the place of its outcome."""
    record = read_record(data, read_trailer(data), len(data) - 32)
    if record.end != len(data) - 32:
        raise FormatError("Malformed", record.at, "the footer does not end at the trailer")
    footer, samples = read_footer(record), []
    if any(a % 4 or b <= a for a, b in zip(footer.table, footer.table[1:] + [footer.at])):
        raise FormatError("Malformed", footer.at, "offsets that do not ascend, or are no multiples of 4")
    for n, (begin, end) in enumerate(zip(footer.table, footer.table[1:] + [footer.at])):
        try:
            record = read_record(data, begin, end)
            if check_bound(record, footer.info.id) != ord("S"):
                raise FormatError("Malformed", begin, "no head")
            head = read_head(record, footer.info)
            if head.ordinal != n:
                raise FormatError("Malformed", begin, f"ordinal {head.ordinal}")
            samples.append(sample_outcome(head, [part_outcome(data, part, end, True) for part in head.parts]))
        except FormatError as error:
            samples.append({"error": error_outcome(error)})
    return segment_outcome(footer.version, footer.info, samples, footer)


# --- 16 Salvage -------------------------------------------------------------------------------------------------------


def salvage(data):
    """What is left of a damaged segment: its samples, and the stretches that could not be used."""
    samples, skipped, why, last = [], [], None, -1
    try:
        info, _, pos = read_header(data)
    except FormatError as error:
        why, pos, info = error, 0, info_from_a_footer(data)
        if info is None:
            return {"samples": [], "skipped": [[0, len(data), why.name]]}
    while pos < len(data):
        found = None
        if why is None:
            try:
                found = what_passes(data, pos, info, last)
            except FormatError as error:
                why = error
        if why is not None:
            begin, (pos, found) = pos, search(data, pos, info, last)
            skipped.append([begin, pos, why.name])
            why = None
        if isinstance(found, Footer):
            try:
                check_end(data, found)
            except FormatError as error:
                skipped.append([found.end, len(data), error.name])
            return {"samples": samples, "skipped": skipped}
        if isinstance(found, Head):
            last = found.ordinal
            parts = [salvage_part(data, part, skipped) for part in found.parts]
            samples.append({"ordinal": found.ordinal, "at": found.at, "parts": parts})
        pos = found.end if found else pos
    if not any(end == len(data) for _, end, _ in skipped):
        skipped.append([len(data), len(data), "Truncated"])
    return {"samples": samples, "skipped": skipped}


def info_from_a_footer(data):
    try:
        return read_footer(read_record(data, read_trailer(data), len(data) - 32)).info
    except FormatError:
        pass
    for at in magics(data, 0, len(data)):
        try:
            return read_footer(read_record(data, at, len(data))).info
        except FormatError:
            pass
    return None


def what_passes(data, at, info, last):
    """The head, the footer or the other record that begins at `at`. `last` is the ordinal of the head before."""
    record = read_record(data, at, len(data))
    kind = check_bound(record, info.id)
    if kind == ord("F"):
        return read_footer(record)
    if kind != ord("S"):
        return record
    head = read_head(record, info)
    if head.ordinal <= last:
        raise FormatError("Malformed", at, f"ordinal {head.ordinal}")
    return head


def search(data, begin, info, last):
    """The next head or footer after `begin`, and its offset; the end of the file and None when there is none."""
    for at in magics(data, begin + 4, len(data)):
        try:
            found = what_passes(data, at, info, last)
            if not isinstance(found, Record):
                return at, found
        except FormatError:
            pass
    return len(data), None


def salvage_part(data, part, skipped):
    """The CRC-32 of a part's tensor, or the name of its error. A large part that is damaged is added to `skipped`."""
    end = len(data)
    for piece in part.pieces:
        try:
            check_pad(data, piece, end)
        except FormatError as error:
            if piece.pad < end:
                skipped.append([piece.pad, min(piece.at, end), error.name])
    try:
        return crc_outcome(tensor(data, part, end))
    except FormatError as error:
        if part.pieces and part.at < end and error.name not in ("UnknownDType", "UnknownCodec"):
            skipped[:] = [stretch for stretch in skipped if stretch[0] < part.at]  # pads between its pieces lie in it
            skipped.append([part.at, min(part.pieces[-1].end, end), error.name])
        return error.name


# --- Plain RecordIO, .idx, .lst ---------------------------------------------------------------------------------------


def recordio(data):
    """The records of a plain file, read strictly."""
    records, pos = [], 0
    while pos < len(data):
        record = read_record(data, pos, len(data))
        records.append(record)
        pos = record.end
    return [
        {"at": record.at, "length": len(record.payload), "splits": record.splits, "crc32": crc_outcome(record.payload)}
        for record in records
    ]


def resync(data):
    """The records of a damaged plain file, and the stretches between them."""
    records, skipped, pos, begin, why = [], [], 0, None, None
    while pos < len(data):
        try:
            record = read_record(data, pos, len(data))
        except FormatError as error:
            if begin is None:
                begin, why = pos, error.name
            pos = next(magics(data, pos + 4, len(data)), len(data))  # flags 2 and 3 do not pass there
            continue
        if begin is not None:
            skipped.append([begin, pos, why])
            begin = None
        records.append([pos, len(record.payload), crc_outcome(record.payload)])
        pos = record.end
    if begin is not None:
        skipped.append([begin, len(data), why])
    return {"records": records, "skipped": skipped}


def lines(data):
    """(number from 1, offset, the fields between TABs) of each line. Lines end with LF, or CR LF; the last need not."""
    at, number = 0, 1
    while at < len(data):
        end = data.find(b"\n", at)
        line = data[at:] if end < 0 else data[at:end].removesuffix(b"\r")
        try:
            yield number, at, line.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            raise FormatError("BadLine", at, "not UTF-8", number) from None
        at, number = len(data) if end < 0 else end + 1, number + 1


def decimal(text):
    """An unsigned integer of 64 bits, or None."""
    return int(text) if re.fullmatch("[0-9]{1,40}", text) and int(text) < 1 << 64 else None


FLOAT = re.compile(r"[+-]?(inf|infinity|nan|(\d+\.?\d*|\.\d+)(e[+-]?\d+)?)", re.IGNORECASE | re.ASCII)


def label(text):
    """The bits of a binary32 as eight hexadecimal digits, or None."""
    if not FLOAT.fullmatch(text):
        return None
    try:
        return struct.pack(">f", float(text)).hex()
    except OverflowError:
        return "ff800000" if text.startswith("-") else "7f800000"


def read_idx(data):
    """The entries of an index, `key TAB offset` in each line. A key may stand more than once."""
    entries = []
    for number, at, texts in lines(data):
        offset = decimal(texts[1]) if len(texts) == 2 else None
        if not texts[0] or offset is None:
            raise FormatError("BadLine", at, "not key, TAB, offset", number)
        entries.append([texts[0], offset])
    return entries


def read_lst(data):
    """The entries of a list for im2rec, `index TAB label [TAB label...] TAB path` in each line."""
    entries = []
    for number, at, texts in lines(data):
        index, labels, path = decimal(texts[0]), [label(text) for text in texts[1:-1]], texts[-1]
        if index is None or not labels or None in labels or not path or path.endswith("\r"):
            raise FormatError("BadLine", at, "not index, labels, path", number)
        entries.append({"index": index, "labels": labels, "path": path})
    return entries


# --- 20 Outcomes ------------------------------------------------------------------------------------------------------


def hex8(number):
    return f"{number:08x}"


def crc_outcome(data):
    return hex8(zlib.crc32(data))


def error_outcome(error):
    outcome = {"name": error.name, "at": error.at}
    return outcome if error.line is None else outcome | {"line": error.line}


def dtype_outcome(dtype):
    code, size, descr = dtype
    if code == NUMPY:
        return {"name": "numpy", "itemsize": size, "descr": descr}
    if code in DTYPES:
        return {"name": DTYPES[code][0], "itemsize": size}
    return {"name": None, "itemsize": size, "code": code}


def part_outcome(data, part, end, by_itself=False):
    """The outcome of a part. It holds what is unknown; other errors are raised, or are in it too with `by_itself`."""
    outcome = {"name": part.name, "dtype": dtype_outcome(part.dtype), "shape": part.shape}
    outcome |= {"codec": {0: "plain", 1: "zstd"}.get(part.codec, part.codec), "large": part.inline is None}
    outcome |= {"stored_len": part.stored_len, "splits": [piece.splits for piece in part.pieces]}
    try:
        for piece in [] if by_itself else part.pieces:
            check_pad(data, piece, end)
        return outcome | {"crc32": crc_outcome(tensor(data, part, end, strict=not by_itself))}
    except FormatError as error:
        if not by_itself and error.name not in ("UnknownDType", "UnknownCodec"):
            raise
        return outcome | {"error": error_outcome(error)}


def sample_outcome(head, parts):
    outcome = {"at": head.at, "end": head.end, "ordinal": head.ordinal, "unix_ms": head.unix_ms}
    return outcome | {"crc32": hex8(head.crc), "meta": head.meta, "parts": parts}


def segment_outcome(version, info, samples, footer):
    schema = [{"name": name, "dtype": dtype_outcome(dtype), "shape": shape} for name, dtype, shape in info.schema]
    about = {"id": info.id.hex(), "born": info.born, "created_unix_ms": info.created_unix_ms}
    about |= {"first_number": info.first_number, "schema": schema, "provenance": info.provenance}
    end = {"at": footer.at, "count": footer.count, "heads_crc32": hex8(footer.heads_crc), "check": hex8(footer.crc)}
    return {"kind": "segment", "version": version, "info": about, "samples": samples, "footer": end}


def kind_of(path, data):
    """What a file is, by its name and its first record."""
    for kind in ("idx", "lst"):
        if path.endswith("." + kind):
            return kind
    return "segment" if data[8:16] == b"RINGREEL" else "recordio"


def outcome(data, kind):
    """The outcome of a file, as vectors/README.md has it."""
    key, read = {
        "segment": (None, check),
        "recordio": ("records", recordio),
        "idx": ("entries", read_idx),
        "lst": ("entries", read_lst),
    }[kind]
    try:
        return read(data) if key is None else {"kind": kind, key: read(data)}
    except FormatError as error:
        refused = {"kind": kind, "error": error_outcome(error)}
        if kind == "segment":
            refused["salvage"] = salvage(data)
        elif kind == "recordio":
            refused["resync"] = resync(data)
        return refused


def main(arguments):
    kind = arguments[1] if arguments[:1] == ["--kind"] else None
    status = 0
    for path in arguments[2:] if kind else arguments:
        with open(path, "rb") as file:
            data = file.read()
        result = outcome(data, kind or kind_of(path, data))
        status |= "error" in result
        print(json.dumps({"path": path} | result, ensure_ascii=False))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
