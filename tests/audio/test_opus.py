from __future__ import annotations

import ctypes
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.audio import opus
from rtts.audio.opus import (
    OPUS_RATES_HZ,
    Application,
    Decoder,
    Encoder,
    OpusError,
    Signal,
    load_library,
    opus_available,
)
from rtts.errors import ConfigError, RttsError
from tests.audio.signals import cut, noise, samples_of, voice


def encode_all(encoder: Encoder, pcm: bytes, frame_ms: float = 20) -> list[bytes]:
    size = int(encoder.fs * frame_ms / 1000)
    chunks = cut(pcm, [size * encoder.channels])
    return [encoder.encode(chunk, size) for chunk in chunks]


# --- coding ----------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(OPUS_RATES_HZ),
    st.sampled_from([1, 2]),
    st.sampled_from(list(Application)),
    st.sampled_from([2.5, 5, 10, 20, 40, 60, 120]),
    st.integers(6_000, 256_000),
    st.integers(0, 10),
)
def test_both_sides_agree_on_every_packet(
    fs: int, channels: int, application: Application, frame_ms: float, bitrate: int, complexity: int
) -> None:
    """Each packet decodes to the samples that went in, and both range coders end in one state."""
    encoder, decoder = Encoder(fs, channels, application), Decoder(fs, channels)
    encoder.bitrate, encoder.complexity = bitrate, complexity
    size = int(fs * frame_ms / 1000)
    for chunk in cut(voice(3 * size * channels, fs), [size * channels]):
        pcm = decoder.decode(encoder.encode(chunk, size))
        assert len(pcm) == len(chunk)
        assert decoder.final_range == encoder.final_range
        assert decoder.last_packet_duration == size


@pytest.mark.parametrize("fs", OPUS_RATES_HZ)
def test_the_lookahead_is_the_delay(fs: int) -> None:
    """Decoded audio matches the input best exactly `lookahead` samples later."""
    encoder, decoder = Encoder(fs, 1), Decoder(fs, 1)
    encoder.bitrate, encoder.signal = 64_000, Signal.VOICE
    pcm = voice(fs, fs)
    heard = samples_of(b"".join(map(decoder.decode, encode_all(encoder, pcm))))
    said = samples_of(pcm)
    fits = [np.dot(said[: fs // 2], heard[lag : fs // 2 + lag]) for lag in range(fs // 50)]
    assert abs(int(np.argmax(fits)) - encoder.lookahead) <= 1
    assert encoder.lookahead * 48_000 // fs == 312


def test_buffers_of_any_kind_give_the_same_packet() -> None:
    """bytes, bytearray and memoryviews of bytes or of samples."""
    pcm = voice(480)
    packets = {
        Encoder(24_000, 1).encode(buffer, 480)
        for buffer in (pcm, bytearray(pcm), memoryview(pcm), memoryview(pcm).cast("h"))
    }
    assert len(packets) == 1
    packet = packets.pop()
    heard = {
        Decoder(24_000, 1).decode(buffer)
        for buffer in (packet, bytearray(packet), memoryview(packet))
    }
    assert len(heard) == 1


def test_a_buffer_of_the_wrong_length_never_reaches_libopus() -> None:
    """It reads as many samples as it is told, beyond the end of the buffer if need be."""
    encoder = Encoder(24_000, 1)
    for size in (0, 1, 100, 958, 962):
        with pytest.raises(ValueError, match="samples"):
            encoder.encode(bytes(size), 480)
    with pytest.raises(ValueError, match="samples"):
        Encoder(24_000, 2).encode(bytes(960), 480)
    with pytest.raises(ValueError, match="samples"):
        encoder.encode(b"", 0)
    with pytest.raises(OpusError, match=r"invalid argument \(-1\)"):
        encoder.encode(bytes(2 * 481), 481)


def test_broken_packets_are_refused() -> None:
    """What libopus says of them is in the message; the decoder goes on."""
    decoder = Decoder(24_000, 1)
    with pytest.raises(OpusError, match="corrupted stream") as caught:
        decoder.decode(b"\xff\xff\xff")
    assert caught.value.status == -4
    assert isinstance(caught.value, RttsError)
    with pytest.raises(ValueError, match="at least one byte"):
        decoder.decode(b"")
    assert len(decoder.decode(Encoder(24_000, 1).encode(voice(480), 480))) == 960


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_decode_or_are_refused(packet: bytes) -> None:
    """Nothing a peer sends does more than raise OpusError."""
    decoder = Decoder(24_000, 1)
    try:
        pcm = decoder.decode(packet)
    except OpusError:
        return
    assert 0 < len(pcm) <= 2 * 24_000 * 120 // 1000


def test_a_lost_packet_is_made_up_for() -> None:
    """Concealment gives as many samples as are missing, and resembles them."""
    fs, size = 24_000, 480
    packets = encode_all(Encoder(fs, 1), voice(size * 20))
    decoder = Decoder(fs, 1)
    with pytest.raises(ValueError, match="frame size"):
        decoder.decode(None)
    heard = [decoder.decode(packet) for packet in packets[:10]]
    assert len(decoder.decode(None)) == 2 * size
    assert len(decoder.decode(None, 2 * size)) == 4 * size
    for bad in (0, -480, 24_000):
        with pytest.raises(ValueError, match="frame size"):
            decoder.decode(None, bad)
    assert np.abs(samples_of(heard[-1])).max() > 1000

    concealing, deaf = Decoder(fs, 1), Decoder(fs, 1)
    for packet in packets[:10]:
        concealing.decode(packet)
        deaf.decode(packet)
    made_up = samples_of(concealing.decode(None))
    truth = samples_of(deaf.decode(packets[10]))
    assert np.abs(made_up - truth).mean() < 0.7 * np.abs(truth).mean()


def test_a_packet_carries_the_one_before_when_asked_to() -> None:
    """Forward error correction gets a lost packet closer than concealment does."""
    fs, size = 16_000, 320
    encoder = Encoder(fs, 1, Application.VOIP)
    encoder.inband_fec, encoder.packet_loss_perc, encoder.bitrate = 1, 30, 32_000
    packets = encode_all(encoder, voice(size * 40, fs))
    errors: dict[str, float] = {"concealed": 0.0, "corrected": 0.0}
    for lost in range(10, 38, 3):
        truth, concealed, corrected = Decoder(fs, 1), Decoder(fs, 1), Decoder(fs, 1)
        for packet in packets[:lost]:
            for decoder in (truth, concealed, corrected):
                decoder.decode(packet)
        expected = samples_of(truth.decode(packets[lost]))
        errors["concealed"] += np.abs(samples_of(concealed.decode(None)) - expected).sum()
        found = corrected.decode(packets[lost + 1], decode_fec=True)
        assert len(found) == 2 * size
        errors["corrected"] += np.abs(samples_of(found) - expected).sum()
    assert errors["corrected"] < 0.8 * errors["concealed"]


# --- state -----------------------------------------------------------------------------------


def test_settings_are_kept() -> None:
    """What is set is what is read, also after a reset."""
    encoder = Encoder(24_000, 1)
    values = {
        "bitrate": 24_000,
        "complexity": 3,
        "signal": Signal.VOICE,
        "vbr": 0,
        "dtx": 1,
        "inband_fec": 1,
        "packet_loss_perc": 7,
    }
    for name, value in values.items():
        setattr(encoder, name, value)
    encoder.reset_state()
    assert {name: getattr(encoder, name) for name in values} == values


@pytest.mark.parametrize(
    ("name", "value"),
    [("complexity", 11), ("complexity", -1), ("signal", 1), ("vbr", 2), ("packet_loss_perc", 101)],
)
def test_settings_out_of_range_are_refused(name: str, value: int) -> None:
    """With an error that can be printed."""
    encoder = Encoder(24_000, 1)
    with pytest.raises(OpusError, match="invalid argument"):
        setattr(encoder, name, value)


def test_vbr_and_dtx_do_what_they_say() -> None:
    """Without VBR all packets have one size; with DTX silence becomes next to nothing."""
    encoder = Encoder(24_000, 1)
    encoder.vbr, encoder.bitrate = 0, 32_000
    assert {len(packet) for packet in encode_all(encoder, voice(480 * 20))} == {80}
    encoder = Encoder(24_000, 1)
    encoder.dtx, encoder.signal = 1, Signal.VOICE
    assert sum(len(packet) <= 2 for packet in encode_all(encoder, bytes(960 * 50))) > 25


def test_reset_makes_it_new() -> None:
    """After a reset, encoder and decoder do what fresh ones do."""
    pcm = voice(480 * 10)
    encoder, decoder = Encoder(24_000, 1), Decoder(24_000, 1)
    packets = encode_all(encoder, pcm)
    heard = list(map(decoder.decode, packets))
    assert encode_all(encoder, pcm) != packets, "the audio before a packet matters"
    encoder.reset_state()
    decoder.reset_state()
    assert encode_all(encoder, pcm) == packets
    assert list(map(decoder.decode, packets)) == heard


def test_two_at_once_are_independent() -> None:
    """Interleaved encoders give what each gives alone."""
    one, two = voice(480 * 10, seed=1), voice(480 * 10, seed=2)
    alone = encode_all(Encoder(24_000, 1), one), encode_all(Encoder(24_000, 1), two)
    first, second = Encoder(24_000, 1), Encoder(24_000, 1)
    pairs = zip(cut(one, [480]), cut(two, [480]), strict=True)
    both = [(first.encode(a, 480), second.encode(b, 480)) for a, b in pairs]
    assert both == list(zip(*alone, strict=True))


def test_state_is_freed_with_its_object() -> None:
    """Nothing is left of a hundred encoders and decoders, also when making one failed."""
    load_library()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        coders = [(Encoder(24_000, 1), Decoder(24_000, 1)) for _ in range(50)]
        held = tracemalloc.get_traced_memory()[0] - before
        del coders
        for _ in range(50):
            with pytest.raises(OpusError, match="invalid argument"):
                Encoder(24_000, 1, 9)
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held > 50 * 40_000
    assert left < 40_000


@pytest.mark.parametrize("make", [Encoder, Decoder])
def test_rates_and_channels_opus_does_not_have(make: type[Encoder] | type[Decoder]) -> None:
    """They are refused by name."""
    with pytest.raises(ValueError, match="44100 Hz"):
        make(44_100, 1)
    with pytest.raises(ValueError, match="3 channels"):
        make(24_000, 3)


# --- finding the library ---------------------------------------------------------------------


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing had been loaded yet."""
    monkeypatch.setattr(opus, "_LOADED", {})


def test_importing_loads_nothing() -> None:
    """Only a call of load_library opens the shared object."""
    script = (
        "import rtts.audio.formats, rtts.audio.opus as opus\n"
        "assert not opus._LOADED\n"
        "opus.load_library()\n"
        "assert opus._LOADED\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


def test_the_bundled_library_is_found_and_cached(unloaded: None) -> None:
    """The wheel's copy is used, its import is not, and there is one library for all."""
    library = load_library()
    assert library.source == "opuslib-next-bundled"
    assert Path(library.path).parent.name == "_native"
    assert library.version.startswith("libopus")
    assert library.skipped == ()
    assert load_library() is library
    assert opus_available()
    assert "opuslib_next" not in sys.modules


def test_a_configured_path_is_the_only_one_tried(unloaded: None) -> None:
    """It wins over the bundled library from then on; a wrong one is an error, not a fallback."""
    bundled = load_library()
    configured = load_library(bundled.path)
    assert configured.source == "configured"
    assert load_library() is configured
    assert Encoder(24_000, 1)._library is configured
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"no libopus at '/no/such\.so'.*audio\.opus_library"):
            load_library("/no/such.so")
    assert load_library() is configured


def test_a_library_that_is_no_libopus(unloaded: None) -> None:
    """Loads, has not the functions, is refused."""
    path = {"darwin": "libSystem.dylib", "win32": "msvcrt.dll"}.get(sys.platform, "libc.so.6")
    with pytest.raises(ConfigError, match="opus_get_version_string"):
        load_library(path)


def test_the_order_of_the_search(
    unloaded: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A broken bundled library is passed over, and said so; then PyAV's is taken."""
    real = Path(load_library().path)
    monkeypatch.setattr(opus, "_LOADED", {})
    (tmp_path / "opuslib_next" / "_native").mkdir(parents=True)
    broken = tmp_path / "opuslib_next" / "_native" / real.name
    broken.write_bytes(b"not a library")
    (tmp_path / "av.libs").mkdir()
    pyav = tmp_path / "av.libs" / f"{real.stem}-1a2b{real.suffix}"
    pyav.write_bytes(real.read_bytes())
    monkeypatch.setattr(opus, "_package_directory", lambda name: tmp_path / name)
    library = load_library()
    assert (library.source, library.path) == ("pyav", str(pyav))
    assert len(library.skipped) == 1
    assert str(broken) in library.skipped[0]


def test_packages_are_found_without_importing_them() -> None:
    """A missing one is None."""
    assert opus._package_directory("no_such_package_at_all") is None
    found = opus._package_directory("opuslib_next")
    assert found is not None
    assert found.name == "opuslib_next"


def test_without_libopus(unloaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how to get it, every time, and the search is not repeated."""
    searches = []

    def nothing() -> list[tuple[str, str]]:
        searches.append(1)
        return [("/no/libopus.so.0", "system")]

    monkeypatch.setattr(opus, "_candidates", nothing)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"no libopus found.*pip install opuslib-next"):
            Encoder(24_000, 1)
    assert not opus_available()
    assert searches == [1]


def test_variadic_functions_declare_their_fixed_arguments_only() -> None:
    """Else the value of a setting travels the wrong way on Apple's arm64."""
    functions = load_library().functions
    for name in ("opus_encoder_ctl", "opus_decoder_ctl"):
        assert getattr(functions, name).argtypes == [ctypes.c_void_p, ctypes.c_int]


def test_silence_and_noise_fit_the_packet_buffer() -> None:
    """The largest packets there are: 120 ms at the highest bitrate."""
    encoder, decoder = Encoder(48_000, 2), Decoder(48_000, 2)
    encoder.bitrate, encoder.complexity, encoder.vbr = 510_000, 0, 0
    packet = encoder.encode(noise(5760 * 2), 5760)
    assert 7_000 < len(packet) <= 6 * 1275 + 32
    assert len(decoder.decode(packet)) == 5760 * 4
