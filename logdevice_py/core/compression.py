"""Packs bytes by a codec, and unpacks them to a size that was declared and is bounded."""

from __future__ import annotations

import enum
from typing import Final

import lz4.block
import zstandard

from logdevice_py.core.status import CorruptEntryError


class Compression(enum.IntEnum):
    """How bytes are packed. Values are on disk and on the wire: never reused."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


_ZSTD_COMPRESS: Final = zstandard.ZstdCompressor(level=1, write_content_size=True)
_ZSTD_DECOMPRESS: Final = zstandard.ZstdDecompressor()


def pack(data: bytes, compression: Compression) -> tuple[Compression, bytes]:
    """The bytes packed, and by which codec: NONE when the one asked for does not make them smaller."""
    packed = data
    if compression is Compression.LZ4:
        packed = lz4.block.compress(data, store_size=False)
    elif compression is Compression.ZSTD:
        packed = _ZSTD_COMPRESS.compress(data)
    return (compression, packed) if len(packed) < len(data) else (Compression.NONE, data)


def unpack(codec: int, packed: bytes | memoryview, size: int, size_max: int) -> bytes | memoryview:
    """The bytes that were packed, `packed` itself where they are not. The memory used is bounded by `size_max` whatever they say.

    Raises:
        CorruptEntryError: they do not unpack to the size that is declared, or that is too large.
    """
    if size > size_max:
        raise CorruptEntryError(f"{size} bytes are over the limit of {size_max}")
    data: bytes | memoryview
    try:
        if codec == Compression.NONE:
            data = packed
        elif codec == Compression.LZ4:
            data = lz4.block.decompress(packed, uncompressed_size=size)
        elif codec == Compression.ZSTD:
            if zstandard.frame_content_size(packed) != size:
                raise CorruptEntryError("a zstd frame does not declare its size")
            data = _ZSTD_DECOMPRESS.decompress(packed, max_output_size=size)
        else:
            raise CorruptEntryError(f"codec {codec} is not known")
    except (ValueError, lz4.block.LZ4BlockError, zstandard.ZstdError) as error:
        raise CorruptEntryError(f"what is packed cannot be unpacked: {error}") from None
    if len(data) != size:
        raise CorruptEntryError(f"what is packed unpacks to {len(data)} bytes, it declares {size}")
    return data
