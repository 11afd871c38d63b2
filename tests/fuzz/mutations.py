"""Damage for record data: blind, and with knowledge of the format.

Blind damage mostly dies at the checksum. So most mutations put the checksum right again, to reach
the code behind it: header fields with telling values, varints that grow or shrink, codecs that do
not fit the stream, batches cut, doubled and swapped. Everything follows from one ``Random``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from random import Random

from kfast.testing.batches import ABORT, COMMIT, Record, uvarint
from tests.reference.batches import (
    encode_control_batch,
    encode_message_set,
    encode_record_batch,
    with_crc,
)
from tests.reference.compression import Codec, lz4_compress, zstd_compress
from tests.reference.native import split

INTERESTING = (
    *(-(2**63), -(2**31), -2, -1, 0, 1, 6, 7, 8, 48, 49, 127, 128, 2**15, 2**31 - 13),
    *(2**31 - 12, 2**31 - 1, 2**32, 2**62, 2**63 - 2, 2**63 - 1),
)

V2_FIELDS = (  # position and struct code of every header field
    *((0, "q"), (8, "i"), (12, "i"), (16, "b"), (17, "i"), (21, "h"), (23, "i")),
    *((27, "q"), (35, "q"), (43, "q"), (51, "h"), (53, "i"), (57, "i")),
)
MESSAGE_FIELDS = ((0, "q"), (8, "i"), (12, "i"), (16, "b"), (17, "b"), (18, "q"), (18, "i"))
LONG_VARINTS = (
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x80\x00",
    b"\xff" * 9 + b"\x01",
    b"\x80\x00",
    b"\x01",
    b"\x03",
    b"\x00",
)


def _fits(value: int, code: str) -> int:
    bits = 8 * struct.calcsize(code)
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _blob(rng: Random) -> bytes | None:
    size = rng.choice((-1, 0, 1, 5, 62, 63, 64, 200))
    return None if size < 0 else rng.randbytes(size) if rng.random() < 0.5 else b"x" * size


def sample(rng: Random) -> bytes:
    """A well-formed slice of a few batches of all kinds."""
    offset = rng.choice((0, 0, 50))
    parts = []
    for _ in range(rng.randint(1, 4)):
        n = rng.randint(1, 6)
        records = [
            Record(
                _blob(rng),
                _blob(rng),
                (("h", _blob(rng)),) * rng.choice((0, 0, 0, 1, 3)),
                rng.randint(0, 500),
            )
            for _ in range(n)
        ]
        kind = rng.randint(0, 9)
        if kind < 6:
            parts.append(
                encode_record_batch(
                    records,
                    offset,
                    rng.choice(list(Codec)) if kind > 1 else 0,
                    producer_id=rng.choice((-1, 9)),
                    transactional=rng.random() < 0.3,
                    log_append_time=rng.choice((None, None, 5)),
                )
            )
        elif kind < 8:
            plain = [Record(r.key, r.value, (), r.timestamp) for r in records]
            codec = rng.choice((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
            parts.append(encode_message_set(plain, offset, codec, magic=rng.randint(0, 1)))
        else:
            n = 1
            parts.append(encode_control_batch(offset, 9, rng.choice((ABORT, COMMIT))))
        offset += n
    return b"".join(parts)


# --- one batch ------------------------------------------------------------------------------------


def repair(batch: bytes) -> bytes:
    """The batch with a checksum that is right, if it is long enough to have one."""
    if len(batch) < 18:
        return batch
    if batch[16] == 2:
        return with_crc(batch) if len(batch) >= 21 else batch
    return batch[:12] + struct.pack(">I", zlib.crc32(batch[16:])) + batch[16:]


def set_field(rng: Random, batch: bytes) -> bytes:
    at, code = rng.choice(V2_FIELDS if batch[16:17] == b"\x02" else MESSAGE_FIELDS)
    size = struct.calcsize(code)
    if at + size > len(batch):
        return batch
    old = struct.unpack_from(f">{code}", batch, at)[0]
    new = rng.choice((rng.choice(INTERESTING), old + rng.randint(-3, 3), rng.getrandbits(64)))
    return batch[:at] + struct.pack(f">{code}", _fits(new, code)) + batch[at + size :]


def flip_bits(rng: Random, batch: bytes) -> bytes:
    out = bytearray(batch)
    for _ in range(rng.randint(1, 4)):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def splice(rng: Random, batch: bytes) -> bytes:
    """Put other bytes into the records, usually with the length put right."""
    at = rng.randint(min(61, len(batch)), len(batch))
    gone = rng.randint(0, min(6, len(batch) - at))
    new = rng.choice((*LONG_VARINTS, b"", uvarint(rng.getrandbits(rng.randint(1, 40)))))
    out = batch[:at] + new + batch[at + gone :]
    if rng.random() < 0.8:
        out = out[:8] + struct.pack(">i", len(out) - 12) + out[12:]
    return out


def other_codec(rng: Random, batch: bytes) -> bytes:
    at = 22 if batch[16:17] == b"\x02" else 17
    if len(batch) <= at:
        return batch
    return batch[:at] + bytes([batch[at] & 0xF8 | rng.randint(0, 7)]) + batch[at + 1 :]


def bomb(rng: Random, batch: bytes) -> bytes:
    """A batch that inflates to much more than it is."""
    plain = bytes(rng.choice((100, 70_000, 3 << 20)))
    codec = rng.choice((Codec.LZ4, Codec.ZSTD))
    payload = lz4_compress(plain) if codec == Codec.LZ4 else zstd_compress(plain)
    return encode_record_batch([Record()] * rng.choice((1, 9)), 0, codec, payload=payload)


BATCH_MUTATIONS: tuple[Callable[[Random, bytes], bytes], ...] = (
    set_field,
    set_field,
    flip_bits,
    splice,
    splice,
    other_codec,
    bomb,
)


# --- a slice --------------------------------------------------------------------------------------


def mutate(rng: Random, data: bytes) -> bytes:
    """Damage ``data`` in one to three places."""
    kind = rng.random()
    if kind < 0.05:
        return rng.randbytes(rng.randint(0, 200))
    if kind < 0.15:
        return flip_bits(rng, data)
    batches = split(data)
    for _ in range(rng.randint(1, 3)):
        i = rng.randrange(len(batches))
        if rng.random() < 0.1:
            batches.insert(i, rng.choice(batches))
        else:
            made = rng.choice(BATCH_MUTATIONS)(rng, batches[i])
            batches[i] = repair(made) if rng.random() < 0.9 else made
    out = b"".join(batches)
    return out[: rng.randint(0, len(out))] if rng.random() < 0.2 else out


# --- a value --------------------------------------------------------------------------------------


def damaged(rng: Random, value: bytes, interesting: Sequence[bytes]) -> bytes:
    """The value with a few bytes changed, replaced, removed or doubled."""
    for _ in range(rng.randint(1, 3)):
        at, size = rng.randint(0, len(value)), rng.randint(0, 4)
        kind = rng.randrange(4)
        if kind == 0 and at < len(value):
            value = value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :]
        elif kind == 1:
            value = value[:at] + rng.choice(interesting) + value[at + size :]
        elif kind == 2:
            value = value[:at] if rng.random() < 0.5 else value[:at] + value[at + size :]
        else:
            value = value[: at + size] + value[at:]
    return value
