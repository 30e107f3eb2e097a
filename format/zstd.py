"""One zstd frame, decoded in plain Python. Written from RFC 8878, for `decode.py` where Python has no zstd of its own.

Slow and small. It takes exactly one frame without a dictionary and gives exactly the length that was asked for.
Everything else is a `ValueError`. It never holds more than that length plus one block.
"""

MAGIC = 0xFD2FB528
BLOCK_MAX = 1 << 17

LITERAL_LENGTHS = [(n, 0) for n in range(16)] + [
    (16, 1), (18, 1), (20, 1), (22, 1), (24, 2), (28, 2), (32, 3), (40, 3), (48, 4), (64, 6), (128, 7), (256, 8),
    (512, 9), (1024, 10), (2048, 11), (4096, 12), (8192, 13), (16384, 14), (32768, 15), (65536, 16)]  # fmt: skip
MATCH_LENGTHS = [(n + 3, 0) for n in range(32)] + [
    (35, 1), (37, 1), (39, 1), (41, 1), (43, 2), (47, 2), (51, 3), (59, 3), (67, 4), (83, 4), (99, 5), (131, 7),
    (259, 8), (515, 9), (1027, 10), (2051, 11), (4099, 12), (8195, 13), (16387, 14), (32771, 15),
    (65539, 16)]  # fmt: skip
OFFSETS = [(1 << n, n) for n in range(32)]

# Of each of the three codes: base and extra bits, greatest accuracy, accuracy and counts of the predefined table.
CODES = {
    "literals": (LITERAL_LENGTHS, 9, 6, [4, 3] + [2] * 11 + [1] * 3 + [2] * 9 + [3, 2] + [1] * 5 + [-1] * 4),
    "offset": (OFFSETS, 8, 5, [1] * 6 + [2] * 3 + [1] * 15 + [-1] * 5),
    "match": (MATCH_LENGTHS, 9, 6, [1, 4, 3] + [2] * 6 + [1] * 37 + [-1] * 7),
}


def decompress(data, length):
    """The `length` bytes that the one frame in `data` holds. `ValueError` when it holds anything else."""
    try:
        out, end = _frame(data, length)
    except IndexError:
        raise ValueError("the frame is cut off") from None
    _need(end == len(data), "bytes follow the frame")
    return out


def _need(condition, message):
    if not condition:
        raise ValueError(message)


def _take(data, pos, size):
    """`size` bytes at `pos` as a number."""
    _need(pos + size <= len(data), "the frame is cut off")
    return int.from_bytes(data[pos : pos + size], "little")


def _frame(data, length):
    """The contents of the frame at 0, and where it ends."""
    _need(_take(data, 0, 4) == MAGIC, "no zstd frame")
    flags, pos = _take(data, 4, 1), 5
    _need(not flags & 0x08, "a reserved bit is set")
    single, window = flags & 0x20, None
    if not single:
        byte, pos = _take(data, pos, 1), pos + 1
        window = (1 << 10 + (byte >> 3)) // 8 * (8 + (byte & 7))
    size = (0, 1, 2, 4)[flags & 3]
    _need(_take(data, pos, size) == 0, "a dictionary is wanted")
    pos += size
    size = (1 if single else 0, 2, 4, 8)[flags >> 6]
    if size:
        content, pos = _take(data, pos, size) + (256 if size == 2 else 0), pos + size
        _need(content == length, "the frame has another length")
        window = content if single else window
    block_max, out, state = min(window, BLOCK_MAX), bytearray(), _State()
    last = False
    while not last:
        head, pos = _take(data, pos, 3), pos + 3
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        _need(kind != 3 and size <= block_max, "a block of a kind or size that is not allowed")
        if kind == 1:
            _need(len(out) + size <= length, "more than the length")
            out += bytes([_take(data, pos, 1)]) * size
            pos += 1
            continue
        _take(data, pos, size)
        before = len(out)
        if kind == 0:
            out += data[pos : pos + size]
        else:
            state.block(data[pos : pos + size], out, min(block_max, length - before))
        _need(len(out) <= length, "more than the length")
        pos += size
    if flags & 0x04:
        _need(_take(data, pos, 4) == xxh64(bytes(out)) & 0xFFFFFFFF, "the checksum does not match")
        pos += 4
    _need(len(out) == length, "less than the length")
    return bytes(out), pos


class _State:
    """What one block leaves for the next: the Huffman table, the three FSE tables, the last three offsets."""

    def __init__(self):
        self.huffman, self.tables, self.offsets = None, {}, [1, 4, 8]

    def block(self, data, out, limit):
        """Appends a compressed block to `out`, at most `limit` bytes."""
        end = len(out) + limit
        literals, pos = self._literals(data, limit)
        count, pos = _take(data, pos, 1), pos + 1
        if count == 255:
            count, pos = _take(data, pos, 2) + 0x7F00, pos + 2
        elif count >= 128:
            count, pos = (count - 128 << 8) + _take(data, pos, 1), pos + 1
        if count == 0:
            _need(pos == len(data), "bytes follow the block")
            out += literals
            return
        modes, pos = _take(data, pos, 1), pos + 1
        _need(not modes & 3, "a reserved bit is set")
        for name, shift in (("literals", 6), ("offset", 4), ("match", 2)):
            pos = self._table(name, modes >> shift & 3, data, pos)
        used = self._sequences(data[pos:], count, literals, out, end)
        out += literals[used:]
        _need(len(out) <= end, "a block is too long")

    def _literals(self, data, limit):
        first = _take(data, 0, 1)
        kind, form = first & 3, first >> 2 & 3
        if kind < 2:
            head, shift = ((1, 3), (2, 4), (1, 3), (3, 4))[form]
            size = _take(data, 0, head) >> shift
            _need(size <= limit, "too many literals")
            if kind == 1:
                return bytes([_take(data, head, 1)]) * size, head + 1
            _take(data, head, size)
            return bytes(data[head : head + size]), head + size
        head, bits = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
        sizes = _take(data, 0, head) >> 4
        size, packed = sizes & (1 << bits) - 1, sizes >> bits
        _need(size <= limit, "too many literals")
        _take(data, head, packed)
        end, body = head + packed, data[head : head + packed]
        if kind == 2:
            self.huffman, used = _huffman(body)
            body = body[used:]
        _need(self.huffman is not None, "no Huffman table so far")
        if form == 0:
            return _huffman_stream(self.huffman, body, size), end
        each, lengths = (size + 3) // 4, [_take(body, 2 * n, 2) for n in range(3)]
        lengths.append(len(body) - 6 - sum(lengths))
        _need(lengths[3] > 0 and size >= 3 * each, "four streams that do not fit")
        parts, at = [], 6
        for n, part in enumerate(lengths):
            parts.append(_huffman_stream(self.huffman, body[at : at + part], each if n < 3 else size - 3 * each))
            at += part
        return b"".join(parts), end

    def _table(self, name, mode, data, pos):
        codes, most, accuracy, counts = CODES[name]
        if mode == 0:
            self.tables[name] = accuracy, _fse_table(counts, accuracy)
        elif mode == 1:
            symbol, pos = _take(data, pos, 1), pos + 1
            _need(symbol < len(codes), "a code that is not in use")
            self.tables[name] = 0, [(symbol, 0, 0)]
        elif mode == 2:
            counts, accuracy, used = _fse_counts(data[pos:], most, len(codes))
            self.tables[name], pos = (accuracy, _fse_table(counts, accuracy)), pos + used
        _need(name in self.tables, "no table so far")
        return pos

    def _sequences(self, data, count, literals, out, end):
        bits, used = _Backwards(data), 0
        tables = {name: self.tables[name][1] for name in CODES}
        states = {name: bits.read(self.tables[name][0]) for name in CODES}
        for n in range(count):
            codes = {name: tables[name][states[name]][0] for name in CODES}
            value = (1 << codes["offset"]) + bits.read(codes["offset"])
            base, extra = MATCH_LENGTHS[codes["match"]]
            match = base + bits.read(extra)
            base, extra = LITERAL_LENGTHS[codes["literals"]]
            run = base + bits.read(extra)
            if n + 1 < count:
                for name in ("literals", "match", "offset"):
                    _, size, base = tables[name][states[name]]
                    states[name] = base + bits.read(size)
            offset = self._offset(value, run)
            _need(used + run <= len(literals), "more literals than there are")
            out += literals[used : used + run]
            used += run
            _need(0 < offset <= len(out) and len(out) + match <= end, "a match outside of the data")
            while match:
                piece = out[len(out) - offset :][:match]
                out += piece
                match -= len(piece)
        _need(bits.left == 0, "bits are left over")
        return used

    def _offset(self, value, run):
        last = self.offsets
        if value > 3:
            self.offsets = [value - 3, last[0], last[1]]
        else:
            which = value - 1 + (run == 0)
            offset = last[0] - 1 if which == 3 else last[which]
            if which:
                self.offsets = [offset, last[0], last[2] if which == 1 else last[1]]
        return self.offsets[0]


class _Backwards:
    """A bit stream that is read from its end. `left` goes below 0 when more is read than there is; that is then 0."""

    def __init__(self, data):
        _need(data and data[-1], "a bit stream without an end")
        self.data, self.left = data, len(data) * 8 - 9 + data[-1].bit_length()

    def peek(self, size):
        low = self.left - size
        if low < 0:
            return (self._bits(0, self.left) << -low) if self.left > 0 else 0
        return self._bits(low, size)

    def _bits(self, low, size):
        word = int.from_bytes(self.data[low >> 3 : (low + size + 7) >> 3], "little")
        return word >> (low & 7) & (1 << size) - 1

    def read(self, size):
        value = self.peek(size)
        self.left -= size
        return value


def _fse_counts(data, most, symbols):
    """A table's counts, its accuracy, and the bytes that they take."""
    stream, pos = int.from_bytes(data[:512], "little"), 4
    accuracy = (stream & 15) + 5
    _need(accuracy <= most, "too great an accuracy")
    left, counts = 1 << accuracy, []
    while left > 0 and len(counts) < symbols:
        size = (left + 1).bit_length()
        value, low = stream >> pos & (1 << size) - 1, (1 << size - 1) - 1
        short = (1 << size) - 2 - left
        if value & low < short:
            value, size = value & low, size - 1
        elif value > low:
            value -= short
        pos += size
        counts.append(value - 1)
        left -= abs(value - 1)
        repeat = 3 if value == 1 else 0
        while repeat == 3:
            repeat, pos = stream >> pos & 3, pos + 2
            counts += [0] * repeat
    used = (pos + 7) // 8
    _need(left == 0 and len(counts) <= symbols and used <= len(data), "counts that do not add up")
    return counts, accuracy, used


def _fse_table(counts, accuracy):
    """For each state its symbol, the bits to read, and what to add to them for the next state."""
    size = 1 << accuracy
    symbols, high = [0] * size, size - 1
    for symbol, count in enumerate(counts):
        if count == -1:
            symbols[high], high = symbol, high - 1
    pos, step = 0, (size >> 1) + (size >> 3) + 3
    for symbol, count in enumerate(counts):
        for _ in range(count):
            symbols[pos] = symbol
            pos = pos + step & size - 1
            while pos > high:
                pos = pos + step & size - 1
    following, table = [abs(count) for count in counts], []
    for symbol in symbols:
        number = following[symbol]
        following[symbol] += 1
        bits = accuracy + 1 - number.bit_length()
        table.append((symbol, bits, (number << bits) - size))
    return table


def _huffman(data):
    """A Huffman table (greatest length; symbol and length for each pattern of that many bits), and the bytes it took."""
    first = _take(data, 0, 1)
    if first >= 128:
        count, used = first - 127, 1 + (first - 126) // 2
        nibbles = _take(data, 1, used - 1) and data[1:used] or bytes(used - 1)
        weights = [nibbles[n // 2] >> (0 if n % 2 else 4) & 15 for n in range(count)]
    else:
        used = 1 + first
        _take(data, 1, first)
        weights = _weights(data[1:used])
    total = sum(1 << weight >> 1 for weight in weights)
    _need(total > 0, "no weights")
    longest = total.bit_length()
    rest = (1 << longest) - total
    _need(longest <= 11 and rest & rest - 1 == 0 and max(weights) <= longest, "weights that do not add up")
    weights.append(rest.bit_length())
    table = []
    for weight in range(1, longest + 1):
        for symbol, own in enumerate(weights):
            if own == weight:
                table += [(symbol, longest + 1 - weight)] * (1 << weight - 1)
    return (longest, table), used


def _weights(data):
    """Weights that are packed with FSE: two states that take turns, until the stream is used up."""
    counts, accuracy, used = _fse_counts(data, 6, 256)
    table, bits, weights = _fse_table(counts, accuracy), _Backwards(data[used:]), []
    states = [bits.read(accuracy), bits.read(accuracy)]
    _need(bits.left >= 0, "weights that are cut off")
    turn = 0
    while True:
        symbol, size, base = table[states[turn]]
        weights.append(symbol)
        states[turn] = base + bits.read(size)
        turn = 1 - turn
        if bits.left < 0:
            weights.append(table[states[turn]][0])
            break
        _need(len(weights) < 255, "too many weights")
    _need(len(weights) <= 255, "too many weights")
    return weights


def _huffman_stream(huffman, data, count):
    longest, table = huffman
    bits, out = _Backwards(data), bytearray()
    for _ in range(count):
        symbol, size = table[bits.peek(longest)]
        bits.left -= size
        out.append(symbol)
    _need(bits.left == 0, "bits are left over")
    return bytes(out)


def xxh64(data):
    """The XXH64 hash of `data` with seed 0."""
    p1, p2, p3, p4, p5 = (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)  # fmt: skip
    full = (1 << 64) - 1

    def turn(value, bits):
        return (value << bits | value >> 64 - bits) & full

    def step(value, word):
        return turn(value + word * p2 & full, 31) * p1 & full

    def word(at, size=8):
        return int.from_bytes(data[at : at + size], "little")

    at, value = 0, p5
    if len(data) >= 32:
        lanes = [p1 + p2 & full, p2, 0, -p1 & full]
        while at + 32 <= len(data):
            lanes = [step(lane, word(at + 8 * n)) for n, lane in enumerate(lanes)]
            at += 32
        value = sum(turn(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & full
        for lane in lanes:
            value = (value ^ step(0, lane)) * p1 + p4 & full
    value = value + len(data) & full
    while at + 8 <= len(data):
        value = turn(value ^ step(0, word(at)), 27) * p1 + p4 & full
        at += 8
    if at + 4 <= len(data):
        value = turn(value ^ word(at, 4) * p1 & full, 23) * p2 + p3 & full
        at += 4
    for byte in data[at:]:
        value = turn(value ^ byte * p5 & full, 11) * p1 & full
    value = (value ^ value >> 33) * p2 & full
    value = (value ^ value >> 29) * p3 & full
    return value ^ value >> 32
