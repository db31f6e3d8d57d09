"""libopus by ctypes: finding the library, an `Encoder` and a `Decoder` in the shape of opuslib's.

Importing this module loads nothing. `load_library` does, once, from the first place that has one:

1. the path it is given (nothing else is tried then),
2. the wheel `opuslib-next-bundled`, which ships libopus for the usual platforms,
3. the copy inside the PyAV wheel,
4. the system's, by its plain soname. Not by `find_library`, which needs ldconfig or a compiler.

Calls keep the interpreter lock. Releasing it (ctypes' default) lets another thread that runs
Python take it for its 5 ms switch interval at every packet: four packets took 22 ms beside such a
thread and 1 ms with the lock kept. This module knows nothing about containers or resampling, and
does not read the environment.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import sys
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_int32, c_uint32, c_void_p
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from rtts.audio.pcm import PcmBytes
from rtts.errors import ConfigError, InternalError

OPUS_RATES_HZ: Final = (8000, 12000, 16000, 24000, 48000)

# RFC 6716 section 3.2: a packet holds at most 120 ms; its frames are at least 20 ms when it holds
# that much, at most 1275 bytes each, and the code bytes around them stay under 32.
_MAX_PACKET_BYTES: Final = 6 * 1275 + 32
_MAX_PACKETS_PER_S: Final = 400  # the shortest frame is 2.5 ms
_MAX_PACKET_UNITS: Final = 48  # 120 ms in units of 2.5 ms

# opus_defines.h: request numbers; each getter is its setter plus one.
_SET_BITRATE: Final = 4002
_SET_VBR: Final = 4006
_SET_COMPLEXITY: Final = 4010
_SET_INBAND_FEC: Final = 4012
_SET_PACKET_LOSS_PERC: Final = 4014
_SET_DTX: Final = 4016
_SET_SIGNAL: Final = 4024
_GET_LOOKAHEAD: Final = 4027
_RESET_STATE: Final = 4028
_GET_FINAL_RANGE: Final = 4031
_GET_LAST_PACKET_DURATION: Final = 4039

_HOW_TO_GET_IT: Final = (
    "pip install opuslib-next-bundled (Linux, macOS, Windows), or install the system's libopus "
    "(apt install libopus0, apk add opus, brew install opus), or set audio.opus_library to the path "
    "of one; PCM, WAV and G.711 work without it"
)


class Application(IntEnum):
    """What an encoder is tuned for."""

    VOIP = 2048
    AUDIO = 2049
    RESTRICTED_LOWDELAY = 2051


class Signal(IntEnum):
    """What an encoder is told to expect."""

    AUTO = -1000
    VOICE = 3001
    MUSIC = 3002


class OpusError(InternalError):
    """libopus refused a call.

    Attributes:
        status: Its error number (opus_defines.h), negative.
    """

    def __init__(self, call: str, status: int, reason: str) -> None:
        super().__init__(f"{call}: {reason} ({status})")
        self.status = status


@dataclass(frozen=True, slots=True)
class OpusLibrary:
    """A loaded libopus.

    Attributes:
        path: Where it was loaded from; a bare soname if the system's loader found it.
        version: What it says of itself ("libopus 1.5.2"; some builds say "libopus unknown").
        source: "configured", "opuslib-next-bundled", "pyav" or "system".
        skipped: Candidates that exist but could not be loaded, with the reason.
        functions: The C functions, declared; a call keeps the interpreter lock.
        unlocked_encode: `opus_encode`, letting other threads run meanwhile.
    """

    path: str
    version: str
    source: str
    skipped: tuple[str, ...]
    functions: Any = field(repr=False, compare=False)
    unlocked_encode: Any = field(repr=False, compare=False)

    def check(self, call: str, status: int) -> int:
        """Pass a non-negative status through.

        Raises:
            OpusError: The status is negative.
        """
        if status < 0:
            reason: bytes = self.functions.opus_strerror(status)
            raise OpusError(call, status, reason.decode("ascii", "replace"))
        return status


_LOADED: dict[str | None, OpusLibrary | ConfigError] = {}


def load_library(path: str | None = None) -> OpusLibrary:
    """Load libopus, once: later calls return the same library (or raise the same error).

    Args:
        path: A library to use; it then is the one that later calls without a path return.

    Raises:
        ConfigError: There is none, or `path` is none; the message says how to get one.
    """
    if path not in _LOADED:
        try:
            _LOADED[path] = _load_configured(path) if path is not None else _load_first_found()
        except ConfigError as error:
            _LOADED[path] = error
    outcome = _LOADED[path]
    if isinstance(outcome, ConfigError):
        raise ConfigError(outcome.message) from outcome
    if path is not None:
        _LOADED[None] = outcome
    return outcome


def opus_available() -> bool:
    """Whether `load_library()` finds one."""
    try:
        load_library()
    except ConfigError:
        return False
    return True


def _load_configured(path: str) -> OpusLibrary:
    try:
        return _open(path, "configured", ())
    except (OSError, AttributeError) as error:
        raise ConfigError(f"no libopus at {path!r}: {error}; {_HOW_TO_GET_IT}") from error


def _load_first_found() -> OpusLibrary:
    skipped: list[str] = []
    for path, source in _candidates():
        try:
            return _open(path, source, tuple(skipped))
        except (OSError, AttributeError) as error:
            skipped.append(f"{path}: {error}")
    raise ConfigError(f"no libopus found ({'; '.join(skipped)}); to get it: {_HOW_TO_GET_IT}")


def _candidates() -> Iterator[tuple[str, str]]:
    """Paths to try, with the name of their source, best first."""
    suffix = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
    stem = "opus" if sys.platform == "win32" else "libopus"
    bundled = _package_directory("opuslib_next")
    if bundled and (library := bundled / "_native" / f"{stem}{suffix}").exists():
        yield str(library), "opuslib-next-bundled"
    pyav = _package_directory("av")
    if pyav:
        for directory in (pyav.parent / "av.libs", pyav / ".dylibs"):
            pattern = str(Path(glob.escape(str(directory))) / f"{stem}*{suffix}*")
            for found in sorted(glob.glob(pattern)):
                yield found, "pyav"
    soname = {"darwin": "libopus.0.dylib", "win32": "opus.dll"}.get(sys.platform, "libopus.so.0")
    yield soname, "system"


def _package_directory(name: str) -> Path | None:
    """Where a package lies, without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _open(path: str, source: str, skipped: tuple[str, ...]) -> OpusLibrary:
    """Load one library and declare what we call.

    Raises:
        OSError: It cannot be loaded.
        AttributeError: It is not a libopus.
    """
    functions = ctypes.PyDLL(path)
    for name, result, arguments in (
        ("opus_get_version_string", c_char_p, []),
        ("opus_strerror", c_char_p, [c_int]),
        ("opus_encoder_get_size", c_int, [c_int]),
        ("opus_encoder_init", c_int, [c_void_p, c_int32, c_int, c_int]),
        ("opus_encode", c_int32, [c_void_p, c_char_p, c_int, c_void_p, c_int32]),
        ("opus_decoder_get_size", c_int, [c_int]),
        ("opus_decoder_init", c_int, [c_void_p, c_int32, c_int]),
        ("opus_decode", c_int, [c_void_p, c_char_p, c_int32, c_void_p, c_int, c_int]),
        # Variadic: only the fixed arguments are declared. ctypes then passes the others the
        # variadic way, which on Apple's arm64 is not the way of named arguments.
        ("opus_encoder_ctl", c_int, [c_void_p, c_int]),
        ("opus_decoder_ctl", c_int, [c_void_p, c_int]),
    ):
        function = getattr(functions, name)
        function.restype = result
        function.argtypes = arguments
    unlocked_encode = ctypes.CDLL(path).opus_encode
    unlocked_encode.restype = functions.opus_encode.restype
    unlocked_encode.argtypes = functions.opus_encode.argtypes
    version: bytes = functions.opus_get_version_string()
    named = version.decode("ascii", "replace")
    return OpusLibrary(path, named, source, skipped, functions, unlocked_encode)


class _Coder:
    """State of libopus in memory that Python owns: it is freed with the object, with no finalizer.

    (`opus_*_create` is malloc and `opus_*_init`; neither coder holds any memory of its own.)
    """

    __slots__ = ("_ctl", "_library", "_state", "channels", "fs")

    def __init__(self, kind: str, fs: int, channels: int, *options: int) -> None:
        if fs not in OPUS_RATES_HZ:
            raise ValueError(f"opus does not run at {fs} Hz, only at {OPUS_RATES_HZ}")
        if channels not in (1, 2):
            raise ValueError(f"{channels} channels: one or two are supported")
        self.fs = fs
        self.channels = channels
        self._library = load_library()
        functions = self._library.functions
        size = getattr(functions, f"opus_{kind}_get_size")(channels)
        self._state = ctypes.create_string_buffer(size)
        status = getattr(functions, f"opus_{kind}_init")(self._state, fs, channels, *options)
        self._library.check(f"opus_{kind}_init", status)
        self._ctl = getattr(functions, f"opus_{kind}_ctl")

    def reset_state(self) -> None:
        """Forget all audio; the settings stay."""
        self._library.check("reset", self._ctl(self._state, _RESET_STATE))

    @property
    def final_range(self) -> int:
        """The range coder's last state: equal on both sides of a packet that was decoded right."""
        value = c_uint32()
        self._library.check("ctl", self._ctl(self._state, _GET_FINAL_RANGE, byref(value)))
        return value.value

    def _get(self, request: int) -> int:
        value = c_int32()
        self._library.check(f"ctl {request}", self._ctl(self._state, request, byref(value)))
        return value.value

    def _set(self, request: int, value: int) -> None:
        self._library.check(f"ctl {request}", self._ctl(self._state, request, c_int32(value)))


class _Setting:
    """An integer setting of an encoder, by the number of its CTL."""

    def __init__(self, request: int, meaning: str) -> None:
        self._request = request
        self.__doc__ = meaning

    def __get__(self, coder: _Coder, owner: type[_Coder]) -> int:
        return coder._get(self._request + 1)

    def __set__(self, coder: _Coder, value: int) -> None:
        coder._set(self._request, value)


class Encoder(_Coder):
    """An Opus encoder. Owner: its stream; not for two threads at once.

    A setting outside libopus' range raises `OpusError`.
    """

    __slots__ = ("_encode", "_packet", "_packet_view")

    bitrate = _Setting(_SET_BITRATE, "Bits per second, 500 to 512000.")
    complexity = _Setting(_SET_COMPLEXITY, "0 (least CPU) to 10 (best); may change at any packet.")
    signal = _Setting(_SET_SIGNAL, "A `Signal`.")
    vbr = _Setting(_SET_VBR, "1: bits follow the audio; 0: every packet has the same size.")
    dtx = _Setting(_SET_DTX, "1: silence becomes packets of one or two bytes.")
    inband_fec = _Setting(_SET_INBAND_FEC, "1: a packet also carries a poor copy of the last.")
    packet_loss_perc = _Setting(_SET_PACKET_LOSS_PERC, "Expected loss, 0 to 100 percent.")

    def __init__(
        self,
        fs: int,
        channels: int,
        application: int = Application.AUDIO,
        *,
        keeps_lock: bool = True,
    ) -> None:
        """Make an encoder.

        Args:
            fs: Sample rate in Hz, one of `OPUS_RATES_HZ`.
            channels: 1, or 2 (interleaved).
            application: An `Application`.
            keeps_lock: Encode under the interpreter lock: quicker where other threads run Python.
                Without it, several encoders can be at work on several threads.

        Raises:
            ValueError: The rate or the channels are none of Opus'.
            ConfigError: There is no libopus.
        """
        super().__init__("encoder", fs, channels, application)
        library = self._library
        self._encode = library.functions.opus_encode if keeps_lock else library.unlocked_encode
        self._packet = ctypes.create_string_buffer(_MAX_PACKET_BYTES)
        self._packet_view = memoryview(self._packet).cast("B")

    @property
    def lookahead(self) -> int:
        """Samples by which the decoded audio trails the input: the pre-skip, at `fs`."""
        return self._get(_GET_LOOKAHEAD)

    def encode(self, pcm: PcmBytes, frame_size: int) -> bytes:
        """Encode one packet.

        Args:
            pcm: `frame_size * channels` samples, s16le. `bytes` are not copied.
            frame_size: Samples a channel: 2.5, 5, 10, 20, 40, 60, 80, 100 or 120 ms.

        Raises:
            ValueError: `pcm` has another length.
            OpusError: libopus does not take that frame size.
        """
        if type(pcm) is not bytes:
            pcm = bytes(pcm)
        if len(pcm) != frame_size * self.channels * 2 or not pcm:
            raise ValueError(f"{len(pcm)} bytes are not {frame_size} samples a channel")
        size = self._encode(self._state, pcm, frame_size, self._packet, _MAX_PACKET_BYTES)
        if size < 0:
            self._library.check("opus_encode", size)
        return bytes(self._packet_view[:size])


class Decoder(_Coder):
    """An Opus decoder. Owner: its stream; not for two threads at once."""

    __slots__ = ("_decode", "_pcm", "_pcm_view")

    def __init__(self, fs: int, channels: int) -> None:
        """Make a decoder that gives `channels` channels at `fs` Hz, whatever was encoded.

        Raises:
            ValueError: The rate or the channels are none of Opus'.
            ConfigError: There is no libopus.
        """
        super().__init__("decoder", fs, channels)
        self._decode = self._library.functions.opus_decode
        room = fs // _MAX_PACKETS_PER_S * _MAX_PACKET_UNITS
        self._pcm = ctypes.create_string_buffer(room * channels * 2)
        self._pcm_view = memoryview(self._pcm).cast("B")

    @property
    def last_packet_duration(self) -> int:
        """Samples a channel of the last packet that was decoded or concealed; 0 before any."""
        return self._get(_GET_LAST_PACKET_DURATION)

    def decode(
        self, packet: PcmBytes | None, frame_size: int | None = None, decode_fec: bool = False
    ) -> bytes:
        """Decode one packet, or make up for a lost one.

        Args:
            packet: The packet; None for one that was lost (its audio is extrapolated).
            frame_size: Samples a channel to make up for, where `packet` is None or `decode_fec`
                is set (by default as many as the last packet had); else the most to decode (by
                default 120 ms, which fits any packet).
            decode_fec: `packet` is the one *after* the lost one: use the copy it may carry.

        Returns:
            s16le PCM, interleaved.

        Raises:
            ValueError: An empty packet, or a frame size that is out of range or unknown.
            OpusError: The packet is broken.
        """
        if packet is not None and type(packet) is not bytes:
            packet = bytes(packet)
        if packet == b"":
            raise ValueError("an Opus packet has at least one byte")
        most = len(self._pcm) // (2 * self.channels)
        if frame_size is None:
            conceals = packet is None or decode_fec
            frame_size = self.last_packet_duration if conceals else most
        if not 0 < frame_size <= most:
            raise ValueError(f"frame size {frame_size} is not in 1..{most}")
        size = len(packet) if packet is not None else 0
        samples = self._decode(self._state, packet, size, self._pcm, frame_size, decode_fec)
        if samples < 0:
            self._library.check("opus_decode", samples)
        return bytes(self._pcm_view[: samples * self.channels * 2])
