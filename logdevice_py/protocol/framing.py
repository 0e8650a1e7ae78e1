"""Bytes to messages and back.

A frame is ``u32 length (of everything behind it), u16 fields length, u8 type, u8 flags, u32 crc32c (of length to flags and of the fields),
fields, payload``, big-endian. The payload is not covered: it carries its own checksum end to end.

A length over the limit is refused before anything is allocated for it. Any violation raises `ProtocolError`: the connection is closed and
nobody else notices.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NoReturn

import msgpack
from google_crc32c import extend, value
from msgpack import unpackb

from logdevice_py.core.entry import BODY_SIZE_MAX
from logdevice_py.core.status import ProtocolError
from logdevice_py.protocol.declare import CODEC_OF, CODECS

_HEAD: Final = struct.Struct(">IHBB")
_CRC: Final = struct.Struct(">I")
_FRAME_HEAD: Final = struct.Struct(">IHBBI")
HEAD_SIZE: Final = _FRAME_HEAD.size
_CRC_AT: Final = _HEAD.size
_LENGTH_MIN: Final = HEAD_SIZE - 4
FRAME_SIZE_MAX: Final = BODY_SIZE_MAX + (1 << 20)
"""Of any frame, length field included."""
FRAME_SIZE_MAX_BEFORE_HELLO: Final = 4096
"""Of a frame from a peer that has not introduced itself."""
FIELDS_SIZE_MAX: Final = 65_535
_JOINED_PAYLOAD_MAX: Final = 4096
"""One piece costs less than two up to here."""
_BUFFER_SIZE: Final = 1 << 18
_BUFFER_SIZE_BUSY: Final = 1 << 21
"""Of a connection that carries large frames: with less room most of them arrive in pieces that have to be moved."""


def encode_frame(message: Any) -> list[bytes]:
    """The frame of a message as one or two pieces; a payload that is not small is passed on, not copied."""
    codec = CODEC_OF[type(message)]
    fields = codec.pack(message)
    size = len(fields)
    assert size <= FIELDS_SIZE_MAX, f"{codec.name}: {size} bytes of fields"
    if codec.payload is None:
        head = _HEAD.pack(_LENGTH_MIN + size, size, codec.number, 0)
        return [head + _CRC.pack(extend(value(head), fields)) + fields]
    payload = getattr(message, codec.payload)
    length = len(payload)
    head = _HEAD.pack(_LENGTH_MIN + size + length, size, codec.number, 0)
    crc = _CRC.pack(extend(value(head), fields))
    if length <= _JOINED_PAYLOAD_MAX:
        return [b"".join((head, crc, fields, payload))]
    return [head + crc + fields, payload]


def decode_frame(frame: bytes) -> Any:
    """The message of one complete frame."""
    reader = FrameReader()
    messages = reader.feed(frame)
    if len(messages) != 1 or reader.pending:
        raise ProtocolError("not exactly one frame")
    return messages[0]


class FrameReader:
    """Cuts a byte stream into messages. Memory is bounded by the frame limit in force.

    Use: fill a part of `get_buffer()`, then call `received` with the number of bytes filled; or call `feed`.
    """

    __slots__ = ("_buffer", "_read", "_sound_crc", "_write", "frame_size_max")

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX, *, buffer_size: int = _BUFFER_SIZE) -> None:
        """
        Args:
            buffer_size: bytes of the buffer at first; it grows for what needs more.
        """
        self.frame_size_max = frame_size_max
        self._buffer = bytearray(min(buffer_size, 2 * frame_size_max))
        self._read = 0
        self._write = 0
        self._sound_crc = -1
        """Checksum of the frame begun, when its head and fields match it and only its payload is not complete."""

    @property
    def pending(self) -> int:
        """Bytes received that are no complete frame yet."""
        return self._write - self._read

    def feed(self, data: bytes) -> list[Any]:
        """The messages completed by these bytes."""
        count, write = len(data), self._write
        if write + count <= len(self._buffer):
            self._buffer[write : write + count] = data
            return self.received(count)
        messages: list[Any] = []
        at = 0
        while at < count:
            view = self.get_buffer()
            size = min(len(view), count - at)
            view[:size] = data[at : at + size]
            del view  # the buffer cannot grow while somebody looks at it
            messages += self.received(size)
            at += size
        return messages

    def get_buffer(self, _hint: int = -1) -> memoryview:
        """Where the next bytes go."""
        free = len(self._buffer) - self._write
        wanted = self._wanted()
        if free < wanted:
            self._make_room(wanted)
        return memoryview(self._buffer)[self._write :]

    def _wanted(self) -> int:
        """How many bytes would be useful: what the frame begun still lacks, and some more."""
        if self._write - self._read >= 4:
            length = int.from_bytes(self._buffer[self._read : self._read + 4], "big")
            return max(length + 4 - (self._write - self._read), 16384)
        return 16384

    def _make_room(self, wanted: int) -> None:
        """Move what is pending to the front; grow only for a frame that is within the limit."""
        pending = bytes(memoryview(self._buffer)[self._read : self._write])
        needed = len(pending) + wanted
        size = max(_BUFFER_SIZE_BUSY if needed > _BUFFER_SIZE // 4 else _BUFFER_SIZE, needed)
        if size > len(self._buffer) or len(self._buffer) > 4 * size:
            self._buffer = bytearray(size)
        self._buffer[: len(pending)] = pending
        self._read, self._write = 0, len(pending)

    def received(self, count: int) -> list[Any]:
        """The messages completed by `count` further bytes."""
        write = self._write = self._write + count
        messages: list[Any] = []
        read, largest = self._read, self.frame_size_max - 4
        view = memoryview(self._buffer)
        try:
            while write - read >= HEAD_SIZE:
                length, fields_length, type_, flags, crc = _FRAME_HEAD.unpack_from(view, read)
                if not _LENGTH_MIN <= length <= largest:
                    self._refuse(length)
                end = read + 4 + length
                at = read + HEAD_SIZE + fields_length
                if at > end:
                    raise ProtocolError(f"{fields_length} bytes of fields do not fit a frame of {length + 4}")
                if write < end and (write < at or crc == self._sound_crc):
                    break
                head = bytes(view[read:at])
                fields = head[HEAD_SIZE:]
                if crc != extend(value(head[:_CRC_AT]), fields):
                    raise ProtocolError("the frame does not match its checksum")
                if write < end:
                    # a damaged length must not let the connection wait for bytes that nobody sent
                    self._sound_crc = crc
                    break
                self._sound_crc = -1
                messages.append(_decode(type_, flags, fields, bytes(view[at:end]) if at < end else b""))
                read = end
            else:
                if write - read >= 4:
                    length = int.from_bytes(view[read : read + 4], "big")
                    if not _LENGTH_MIN <= length <= largest:
                        self._refuse(length)
        finally:
            view.release()
            if read == write:
                read = self._write = 0
            self._read = read
        return messages

    def _refuse(self, length: int) -> NoReturn:
        raise ProtocolError(f"a frame of {length + 4} bytes; {HEAD_SIZE} to {self.frame_size_max} are allowed")


def _decode(type_: int, flags: int, fields: bytes, payload: bytes) -> Any:
    if flags:
        raise ProtocolError(f"frame flags {flags:#x} are not known")
    codec = CODECS.get(type_)
    if codec is None:
        raise ProtocolError(f"message type {type_} is not known")
    try:
        array = unpackb(fields, max_map_len=0, max_ext_len=0)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ProtocolError(f"{codec.name}: fields cannot be unpacked: {error}") from None
    if type(array) is not list:
        raise ProtocolError(f"{codec.name}: fields are no array")
    return codec.unpack(array, payload)
