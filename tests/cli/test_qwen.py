"""Qwen3-TTS from the command line, on tiny checkpoints of random weights."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from rtts_client import Audio, Done, connect

from rtts.audio.wav import read_wav, wav_bytes
from rtts.cli import build_parser, engines, main, qwen_checks
from rtts.cli import synth as synth_command
from rtts.cli.looking import Check
from rtts.engine.qwen import factory
from rtts.engine.qwen.options import QwenOptions
from rtts.errors import ConfigError
from rtts.settings import load
from tests.voices import sounds

FRAME_SAMPLES = 1920


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny tensors: two threads are many times slower than one."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The folder of a tiny checkpoint, by its type; written once."""
    import torch

    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("checkpoints")

    def folder(kind: str) -> str:
        path = root / kind
        if not path.exists():
            assert main(["checkpoint", "--size", "tiny", "--type", kind, "-q", str(path)]) == 0
        return str(path)

    return folder


@pytest.fixture
def synth(rtts: Callable[..., object], checkpoints: Callable[[str], str]) -> Callable[..., object]:
    """Run `rtts synth` on a checkpoint type."""

    def run(kind: str, *argv: str) -> object:
        model = ("--engine", "qwen", "--model", checkpoints(kind), "--max-frames", "6")
        return rtts("synth", *model, *argv)

    return run


def read_json(url: str) -> dict[str, object]:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return dict(json.load(answer))


def tone(rate_hz: int, samples: int) -> bytes:
    """Not silence."""
    return wav_bytes(bytes(range(256)) * (samples // 128), rate_hz)


class TestCheckpoint:
    def test_same_arguments_same_bytes(self, rtts: Callable[..., object]) -> None:
        """Size, type and seed fix every byte; another seed has other weights."""
        for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
            outcome = rtts("checkpoint", "--size", "tiny", "--seed", seed, name)
            assert outcome.status == 0, outcome.err
            assert f"wrote {name} (" in outcome.err
        names = sorted(str(p.relative_to("a")) for p in Path("a").rglob("*") if p.is_file())
        assert "model.safetensors" in names
        assert all(Path("a", n).read_bytes() == Path("b", n).read_bytes() for n in names)
        weights = [Path(each, "model.safetensors").read_bytes() for each in "ac"]
        assert weights[0] != weights[1]

    def test_nothing_is_overwritten(self, rtts: Callable[..., object]) -> None:
        """A folder with anything in it, or a file, is left alone; an empty folder is used."""
        Path("full").mkdir()
        Path("full/notes.txt").write_text("mine")
        Path("file").write_text("mine")
        for name in ("full", "file"):
            outcome = rtts("checkpoint", "--size", "tiny", name)
            assert (outcome.status, outcome.err.count(f"{name} is there already")) == (1, 1)
        Path("empty").mkdir()
        assert rtts("checkpoint", "--size", "tiny", "-q", "empty").status == 0
        assert sorted(each.name for each in Path().iterdir()) == ["empty", "file", "full"]

    @pytest.mark.parametrize(
        ("error", "status"),
        [(OSError(errno.ENOSPC, "No space left on device"), 1), (KeyboardInterrupt(), 130)],
    )
    def test_half_of_one_is_none(
        self,
        rtts: Callable[..., object],
        monkeypatch: pytest.MonkeyPatch,
        error: BaseException,
        status: int,
    ) -> None:
        """What cannot be written to its end leaves nothing behind."""
        from rtts.engine.qwen import checkpoint

        def write(folder: Path, *_: object) -> None:
            folder.mkdir()
            (folder / "config.json").write_text("{}")
            raise error

        monkeypatch.setattr(checkpoint, "write_checkpoint", write)
        outcome = rtts("checkpoint", "--size", "tiny", "x")
        assert outcome.status == status
        assert list(Path().iterdir()) == []
        assert "No space left" in outcome.err or status == 130

    def test_what_there_is_none_of(self, rtts: Callable[..., object]) -> None:
        """A size that was never released for a type is refused."""
        outcome = rtts("checkpoint", "--size", "0.6b", "--type", "voice_design", "x")
        assert outcome.status == 2
        assert "voice_design exists only at 1.7b" in outcome.err
        assert not Path("x").exists()


class TestSynth:
    def test_repeats_itself(self, synth: Callable[..., object]) -> None:
        """Codes twice are the same codes, another seed's are others; 16 each, 80 ms of WAV each."""
        speech = ("--text", "Hello there.", "--voice", "ryan", "--language", "en")
        for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
            files = ("--codes", f"{name}.json", "-o", f"{name}.wav")
            outcome = synth("custom_voice", *speech, "--seed", seed, *files)
            assert outcome.status == 0, outcome.err
        a, b, c = (json.loads(Path(f"{each}.json").read_text())["codes"] for each in "abc")
        assert a == b != c
        assert 1 <= len(a) <= 6 and {len(frame) for frame in a} == {16}
        wav = read_wav(Path("a.wav").read_bytes())
        assert wav.pcm == read_wav(Path("b.wav").read_bytes()).pcm
        assert (wav.sample_rate_hz, wav.channels) == (24000, 1)
        assert len(wav.pcm) == 2 * FRAME_SAMPLES * len(a)
        assert f"{len(a)} frames" in outcome.err or len(c) != len(a)

    def test_every_flag_is_heard(self, synth: Callable[..., object]) -> None:
        """Layout, voice, language, instruction, draws and text each change the codes."""
        base = ["--text", "Hello there.", "--voice", "ryan"]
        changes: list[list[str]] = [
            [],
            ["--text", "Good bye now."],
            ["--voice", "vivian"],
            ["--language", "de"],
            ["--instruct", "whisper"],
            ["--layout", "streaming"],
            ["--greedy"],
            ["--rng", "reference"],
        ]
        seen = set()
        for change in changes:
            outcome = synth("custom_voice", *base, *change, "--codes", "codes.json")
            assert outcome.status == 0, outcome.err
            seen.add(Path("codes.json").read_text())
        assert len(seen) == len(changes)

    def test_text_from_a_pipe(self, checkpoints: Callable[[str], str]) -> None:
        """- reads standard input, -o - writes a WAV to standard output and nothing else there."""
        model = ["--engine", "qwen", "--model", checkpoints("custom_voice"), "--max-frames", "3"]
        run = subprocess.run(
            [sys.executable, "-m", "rtts", "synth", *model, "--text", "-", "-o", "-"],
            input=b"Hello.",
            capture_output=True,
        )
        assert run.returncode == 0, run.stderr
        assert len(read_wav(run.stdout).pcm) > 0

    @pytest.mark.parametrize(
        ("kind", "argv", "status", "complaint"),
        [
            ("custom_voice", ["--voice", "bob"], 1, "'bob' is not one of"),
            ("custom_voice", ["--language", "tlh"], 1, "'tlh' is not one of"),
            ("custom_voice", ["--text", ""], 1, "no text to speak"),
            ("custom_voice", ["--text", " \n "], 1, "no text to speak"),
            ("custom_voice", ["--ref-audio", "a.wav", "--x-vector"], 1, "does not clone voices"),
            ("custom_voice", ["--device", "tpu"], 2, "is not cpu, cuda or cuda:N"),
            ("custom_voice", ["--set", "engine.kind=cpu"], 1, "give --engine qwen"),
            ("voice_design", ["--voice", "bob"], 1, "takes its voice from --instruct"),
            ("base", [], 1, "needs --ref-audio"),
            ("base", ["--instruct", "softly", "--ref-audio", "a.wav", "--x-vector"], 1, "none"),
            ("base", ["--ref-audio", "a.wav", "--x-vector"], 1, "a.wav cannot be read"),
            ("base", ["--ref-audio", "a.wav"], 2, "needs --ref-text, or --x-vector"),
            ("base", ["--ref-audio", "a.wav", "--x-vector", "--voice", "b"], 2, "both say who"),
            ("custom_voice", ["--ref-text", "x"], 2, "which is not given"),
            ("custom_voice", ["--seed", "1", "--greedy"], 2, "not allowed with"),
            ("custom_voice", ["--seed", str(2**63)], 2, "is not a whole number in"),
            ("custom_voice", ["--max-frames", "0"], 2, "is not a whole number in"),
            ("custom_voice", ["--codes", "no/where.json"], 2, "there is no directory no"),
        ],
    )
    def test_refusals(
        self,
        synth: Callable[..., object],
        kind: str,
        argv: list[str],
        status: int,
        complaint: str,
    ) -> None:
        """What it cannot do it says in one line, and writes nothing."""
        outcome = synth(kind, "--text", "Hi", "-o", "x.wav", *argv)
        assert outcome.status == status
        assert complaint in outcome.err.splitlines()[-1]
        assert not Path("x.wav").exists()

    def test_small_presets_drop_the_instruction(
        self, rtts: Callable[..., object], checkpoints: Callable[[str], str]
    ) -> None:
        """As the reference package does for a 0.6B preset, but with a word about it."""
        shutil.copytree(checkpoints("custom_voice"), "small")
        settings = json.loads(Path("small/config.json").read_text())
        Path("small/config.json").write_text(json.dumps(settings | {"tts_model_size": "0b6"}))
        say = ("synth", "--engine", "qwen", "--model", "small", "--max-frames", "3", "--text", "Hi")
        assert rtts(*say, "--codes", "plain.json").status == 0
        outcome = rtts(*say, "--instruct", "softly", "--codes", "softly.json")
        assert (outcome.status, "--instruct is not heard" in outcome.err) == (0, True)
        assert Path("plain.json").read_text() == Path("softly.json").read_text()

    def test_output_is_needed(self, synth: Callable[..., object]) -> None:
        """Speech that goes nowhere is a mistake."""
        outcome = synth("custom_voice", "--text", "Hi")
        assert (outcome.status, "where to?" in outcome.err) == (2, True)

    def test_clones(self, synth: Callable[..., object], checkpoints: Callable[[str], str]) -> None:
        """The x-vector of any recording; a registered voice by its name."""
        Path("a.wav").write_bytes(tone(16000, 16000))
        outcome = synth(
            "base", "--text", "Hi", "--ref-audio", "a.wav", "--x-vector", "--codes", "a.json"
        )
        assert outcome.status == 0, outcome.err
        said = ("--ref-audio", "a.wav", "--ref-text", "a tone", "--codes", "c.json")
        for layout in ("streaming", "complete"):
            outcome = synth("base", "--text", "Hi", *said, "--layout", layout)
            assert outcome.status == 0, outcome.err
            assert Path("a.json").read_text() != Path("c.json").read_text()

        import torch

        from rtts.engine.qwen.clone import register_voice

        astray = ("--save-voice", "a.wav/x.safetensors", "--codes", "d.json")
        outcome = synth("base", "--text", "Hi", *said[:4], *astray)
        assert (outcome.status, "a.wav cannot be made" in outcome.err) == (1, True)
        kept = ("--save-voice", "voices/kept.safetensors", "--codes", "d.json")
        assert synth("base", "--text", "Hi", *said[:4], *kept).status == 0
        again = ("--voice", "kept", "--set", "qwen.voices_dir=voices", "--codes", "e.json")
        assert synth("base", "--text", "Hi", *again).status == 0
        assert Path("d.json").read_text() == Path("e.json").read_text()
        samples = torch.rand(24000, generator=torch.Generator().manual_seed(1)) - 0.5
        register_voice(Path(checkpoints("base")), Path("voices/ann.safetensors"), samples)
        registered = ("--set", "qwen.voices_dir=voices", "--codes", "b.json")
        assert synth("base", "--text", "Hi", "--voice", "ann", *registered).status == 0
        assert Path("a.json").read_text() != Path("b.json").read_text()
        outcome = synth("base", "--text", "Hi", "--voice", "bob", *registered)
        assert (outcome.status, "one of: ann, kept" in outcome.err) == (1, True)

    @pytest.mark.parametrize("rate_hz", [8000, 16000, 24000, 48000])
    def test_reference_rate(self, rate_hz: int) -> None:
        """A reference of any rate reaches the encoder at 24 kHz, a second of it as a second."""
        Path("a.wav").write_bytes(tone(rate_hz, rate_hz - rate_hz % 128))
        seconds = len(synth_command._reference(Path("a.wav"))) / 24000
        assert seconds == pytest.approx(1.0, abs=0.02)

    def test_reference_of_two_channels(self) -> None:
        """Channels are mixed, as the reference package does."""
        import numpy as np

        left, right = np.arange(2048, dtype="<i2"), np.arange(2048, dtype="<i2") * 3
        one = bytearray(wav_bytes(np.stack([left, right], 1).tobytes(), 24000))
        one[22], one[32] = 2, 4  # channels, bytes of a sample of all of them
        Path("a.wav").write_bytes(one)
        assert np.allclose(synth_command._reference(Path("a.wav")), left * 2 / 32768, atol=1e-6)

    @pytest.mark.parametrize(
        ("data", "complaint"),
        [
            (b"no WAV", "a.wav: not a recording that can be read"),
            (wav_bytes(b"", 24000), "is empty"),
            (tone(24000, 256), "must be mono and last"),
            (wav_bytes(bytes(48000), 24000), "silent"),
        ],
        ids=["other", "empty", "short", "silent"],
    )
    def test_reference_that_is_none(
        self, synth: Callable[..., object], data: bytes, complaint: str
    ) -> None:
        """Reference audio that says nothing about a voice is refused with the reason."""
        Path("a.wav").write_bytes(data)
        argv = ("--ref-audio", "a.wav", "--x-vector", "-o", "x.wav")
        outcome = synth("base", "--text", "Hi", *argv)
        assert outcome.status == 1
        assert complaint in outcome.err


class TestServe:
    @pytest.mark.parametrize("host", ["local", "remote"])
    async def test_speaks(
        self,
        spawn: Callable[..., subprocess.Popen[bytes]],
        checkpoints: Callable[[str], str],
        host: str,
    ) -> None:
        """A context over a WebSocket is spoken to its end, from a thread and from a process."""
        model = ("--engine", "qwen", "--model", checkpoints("custom_voice"))
        process = spawn("serve", "--port", "0", *model, "--engine-host", host)
        assert process.stdout is not None
        match = re.fullmatch(
            r"listening on ws(://\S+)/v1/tts \(qwen engine\)\n",
            process.stdout.readline().decode(),
        )
        assert match
        assert process.stdout.readline() == b"ready\n"
        assert read_json(f"http{match[1]}/readyz")["degraded"] == []
        audio_bytes, done = 0, None
        async with (
            connect(f"ws{match[1]}/v1/tts") as client,
            client.context(voice="ryan", language="en", seed=3) as context,
        ):
            async for event in context.speak("Hello there."):
                if isinstance(event, Audio):
                    audio_bytes += len(event.data)
                elif isinstance(event, Done):
                    done = event
        assert done is not None and done.reason == "completed"
        assert done.audio_ms > 0 and audio_bytes > 0
        process.terminate()
        assert process.wait(20) == 0

    @pytest.mark.parametrize(
        ("kind", "fields"),
        [
            ("base", {"name": "Ada", "transcript": "Hello there, hello.", "language": "en"}),
            ("voice_design", {"name": "Ada", "description": "a deep and slow voice"}),
        ],
    )
    async def test_speaks_with_a_voice_that_is_brought(
        self,
        spawn: Callable[..., subprocess.Popen[bytes]],
        checkpoints: Callable[[str], str],
        tmp_path: Path,
        kind: str,
        fields: dict[str, str],
    ) -> None:
        """A recording or description over HTTP is a voice by name at once, and after a restart."""
        model = ("--engine", "qwen", "--model", checkpoints(kind), "--set")
        store = f"voices.dir={tmp_path / 'voices'}"
        for is_restart in (False, True):
            process = spawn("serve", "--port", "0", *model, store)
            assert process.stdout is not None
            url = process.stdout.readline().decode().split()[2].removesuffix("/v1/tts")
            assert process.stdout.readline() == b"ready\n"
            async with httpx.AsyncClient(base_url="http" + url[2:], timeout=50) as http:
                if not is_restart and kind == "base":
                    assert (await http.get("/v1/voices")).json()["voices"] == []
                    files = {"audio": ("a.wav", sounds.file(sounds.hum(2.0)))}
                    made = await http.post("/v1/voices", data=fields, files=files)
                    assert made.status_code == 201, made.text
                elif not is_restart:
                    made = await http.post("/v1/voices", json=fields)
                    assert made.status_code == 201, made.text
                voice = (await http.get("/v1/voices/Ada")).json()
                assert voice["name"] == "Ada" and {"en", "zh"} <= set(voice["languages"])
            async with (
                connect(f"{url}/v1/tts") as client,
                client.context(voice="Ada", language="en") as context,
            ):
                events = [event async for event in context.speak("Hello there.")]
            assert isinstance(events[-1], Done) and events[-1].reason == "completed"
            assert events[-1].audio_ms > 0
            process.terminate()
            assert process.wait(20) == 0

    def test_mistakes_are_told_at_once(
        self, rtts: Callable[..., object], checkpoints: Callable[[str], str]
    ) -> None:
        """What can be known before an engine is started ends the command with 2 and one line."""
        mistakes = [
            ((), "qwen.model: the qwen engine needs a checkpoint"),
            (("--model", "nowhere"), "nowhere is not a folder"),
            (("--model", "."), "config.json"),
            (
                ("--model", checkpoints("base"), "--set", "qwen.voices_dir=."),
                "qwen.voices_dir: a Base checkpoint has no voices",
            ),
            (
                ("--model", checkpoints("voice_design"), "--set", "qwen.voices_dir=."),
                "qwen.voices_dir: voice_design checkpoints clone no voices",
            ),
        ]
        for argv, complaint in mistakes:
            outcome = rtts("serve", "--port", "0", "--engine", "qwen", *argv)
            assert outcome.status == 2
            assert complaint in outcome.err.splitlines()[-1]
            assert outcome.out == ""

    @pytest.mark.parametrize("host", ["local", "remote"])
    def test_mistakes_of_the_engine(
        self,
        rtts: Callable[..., object],
        checkpoints: Callable[[str], str],
        tmp_path: Path,
        host: str,
    ) -> None:
        """What only the engine finds, weights that end early, ends it the same way, not in a loop."""
        folder = tmp_path / "damaged"
        shutil.copytree(checkpoints("custom_voice"), folder)
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1000])
        model = ("--engine", "qwen", "--model", str(folder), "--engine-host", host)
        outcome = rtts("serve", "--port", "0", *model)
        assert outcome.status == 2
        assert f"cannot read {weights}" in outcome.err.splitlines()[-1]
        assert "Traceback" not in outcome.err

    def test_device_that_is_not_there(
        self,
        rtts: Callable[..., object],
        checkpoints: Callable[[str], str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A GPU that torch was not built for is refused before a process is started for it."""
        model = ("--engine", "qwen", "--model", checkpoints("custom_voice"))
        monkeypatch.setattr(factory.importlib.metadata, "version", lambda _: "2.13.0+cpu")
        outcome = rtts("serve", "--port", "0", *model, "--device", "cuda:1")
        assert outcome.status == 2
        assert "the torch that is installed is for CPUs" in outcome.err

    def test_where_it_runs(self, checkpoints: Callable[[str], str]) -> None:
        """By itself it gets a process of its own, whose factory travels without torch."""
        flags = [("", "engine.kind", "qwen"), ("", "qwen.model", checkpoints("custom_voice"))]
        settings = load(flags=flags, env={}).settings
        assert engines._host(settings, is_brief=False) == "remote"
        assert engines._host(settings, is_brief=True) == "remote"
        code = (
            "import pickle, sys; from rtts.cli.engines import _cores; from rtts.settings import load;"
            f"pickle.dumps(_cores(load(flags={flags!r}).settings)); print('torch' in sys.modules)"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (run.stdout, run.stderr) == ("False\n", "")

    def test_a_process_for_each_device(
        self, checkpoints: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each device of the settings goes to engines of its own, `workers` of them."""
        version = {"torch": "2.13.0"}
        known = importlib.metadata.version
        monkeypatch.setattr(
            factory.importlib.metadata, "version", lambda name: version.get(name) or known(name)
        )
        made: list[list[str]] = []

        class Noted:
            def __init__(self, _: object, *, each: list[tuple[QwenOptions]], name: str) -> None:
                made.append([options.device for (options,) in each])

        monkeypatch.setattr("rtts.engine.remote.RemoteEngine", Noted)
        model = ("", "qwen.model", checkpoints("custom_voice"))

        def make(*given: tuple[str, str]) -> None:
            flags = [("", "engine.kind", "qwen"), model, *(("", *each) for each in given)]
            engines.make_engine(load(flags=flags, env={}).settings)

        make(("qwen.device", "cuda:0, cuda:1"))
        make(("qwen.device", "cuda:0,cuda:1"), ("engine.workers", "2"))
        make()
        assert made == [["cuda:0", "cuda:1"], ["cuda:0", "cuda:1"] * 2, ["cpu"]]
        for wrong, said in (
            ({"qwen.device": "cuda:0,cuda:0"}, "named twice"),
            ({"qwen.device": "cuda:0,gpu"}, "is not cpu, cuda or cuda:N"),
            ({"qwen.device": "cuda:0,cuda:1", "engine.host": "local"}, "need a process each"),
            ({"qwen.device": "cuda", "qwen.slots": "auto", "engine.workers": "2"}, "all of its"),
        ):
            with pytest.raises(ConfigError, match=said):
                make(*wrong.items())


class TestWithoutTorch:
    @pytest.mark.parametrize(
        "argv",
        [
            ("serve", "--engine", "qwen", "--model", "x"),
            ("synth", "--engine", "qwen", "--model", "x", "--text", "x", "-o", "x.wav"),
            ("checkpoint", "--size", "tiny", "x"),
        ],
    )
    def test_one_remedy(
        self, rtts: Callable[..., object], monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]
    ) -> None:
        """Every command that needs it ends with 2 and says what to install."""
        monkeypatch.setitem(sys.modules, "torch", None)
        outcome = rtts(*argv)
        assert outcome.status == 2
        assert outcome.err.splitlines()[-1] == (
            "rtts: the qwen engine needs torch: pip install 'rtts[qwen]'"
        )

    def test_doctor(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is nothing wrong until it is wanted."""
        monkeypatch.setitem(sys.modules, "torch", None)
        monkeypatch.setattr(qwen_checks, "probe_torch", qwen_checks.Probe)
        settings = load(env={}).settings
        found = {each.name: each for each in qwen_checks.qwen_checks(settings, has_gpu=True)}
        assert found["qwen engine"].status == "missing"
        assert found["qwen engine"].remedy == "pip install 'rtts[qwen]'"


GIB = 2**30


class TestDoctor:
    @pytest.fixture
    def look(
        self, monkeypatch: pytest.MonkeyPatch, checkpoints: Callable[[str], str]
    ) -> Callable[..., dict[str, Check]]:
        """What doctor finds on a machine with these GPUs, by name; settings as (key, text)."""

        def run(
            *given: tuple[str, str],
            gpus: tuple[float, ...] = (),
            kind: str = "custom_voice",
            **probe: object,
        ) -> dict[str, Check]:
            if gpus:  # as with a torch that was built for them
                version = importlib.metadata.version
                monkeypatch.setattr(
                    factory.importlib.metadata,
                    "version",
                    lambda name: "2.13.0" if name == "torch" else version(name),
                )
            memory = tuple((int(gib * GIB), int(gib * GIB)) for gib in gpus)
            names = ("a card",) * len(gpus)
            said = {"cuda": "13.0", "triton": True, "names": names, "memory": memory, **probe}
            probed = qwen_checks.Probe(**said)  # type: ignore[arg-type]
            monkeypatch.setattr(qwen_checks, "probe_torch", lambda: probed)
            flags = [("", "qwen.model", checkpoints(kind)), *(("", *each) for each in given)]
            settings = load(flags=flags, env={}).settings
            found = qwen_checks.qwen_checks(settings, has_gpu=bool(gpus))
            return {each.name: each for each in found}

        return run

    def test_flash_attn_is_no_promise(
        self, monkeypatch: pytest.MonkeyPatch, look: Callable[..., dict[str, Check]]
    ) -> None:
        """Installed is not loaded: doctor says where it shows."""
        real = qwen_checks.version_of
        found_version = {"flash-attn": "2.8.3"}
        monkeypatch.setattr(
            qwen_checks, "version_of", lambda name: found_version.get(name) or real(name)
        )
        check = look()["flash-attn"]
        assert check.status == "ok"
        assert check.found.startswith("2.8.3; prefills voice heads on a GPU if it loads there")

    def test_on_a_cpu(self, look: Callable[..., dict[str, Check]]) -> None:
        """Nothing is wrong; the model is named and read, and so is the memory for it."""
        found = look()
        assert "sees no GPU" in found["torch"].found
        assert "CPU only" in found["qwen engine"].found
        assert "custom_voice checkpoint" in found["qwen engine"].found
        assert found["flash-attn"].found == "not installed; voice heads use torch's own (SDPA)"
        assert re.search(r"about 0\.\d GB for weights .* GB available", found["  memory"].found)
        assert {each.status for each in found.values()} == {"ok", "missing"}

    def test_main_memory_that_is_too_small(
        self, look: Callable[..., dict[str, Check]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Weights that do not fit are a problem before they are loaded."""
        monkeypatch.setattr(qwen_checks, "_available_bytes", lambda: 1000)
        assert look()["  memory"].status == "problem"

    def test_on_a_gpu(self, look: Callable[..., dict[str, Check]]) -> None:
        """How many slots fit is said of each card; of the one that is wanted, whether what is asked does."""
        found = look(gpus=(24.0, 0.5))
        assert "computes on a card, a card" in found["torch"].found
        assert "a GPU (--device cuda)" in found["qwen engine"].found
        assert found["  cuda:0 memory"].found.startswith("512 slots of ")
        assert found["  cuda:1 memory"].status == "missing"
        wanted = look(("qwen.device", "cuda:0,cuda:1"), ("qwen.slots", "400"), gpus=(24.0, 0.5))
        assert wanted["  cuda:0 memory"].found.startswith("400 slots of ")
        assert wanted["  cuda:1 memory"].status == "problem"
        absent = look(("qwen.device", "cuda:3"), gpus=(24.0,))
        assert absent["  cuda:3"].found == "torch sees 1 GPUs"

    def test_what_is_wrong_with_torch(self, look: Callable[..., dict[str, Check]]) -> None:
        """One that cannot be imported, one without Triton, one for CPUs beside a GPU."""
        broken = look(trouble="ImportError: libcudart.so.13")
        assert broken["torch"].found.endswith(": ImportError: libcudart.so.13")
        assert broken["torch"].status == "problem"
        assert look(gpus=(24.0,), triton=False)["torch"].status == "problem"
        check = qwen_checks._torch("2.13.0+cpu", qwen_checks.Probe(), has_gpu=True)
        assert (check.status, "there is a GPU" in check.remedy) == ("missing", True)

    def test_no_model(self, look: Callable[..., dict[str, Check]]) -> None:
        """Without one it says so; one that is nowhere is a problem."""
        look()
        (*_, unnamed) = qwen_checks.qwen_checks(load(env={}).settings, has_gpu=False)
        assert (unnamed.status, "no model is named" in unnamed.found) == ("ok", True)
        (*_, problem) = [*look(("qwen.model", "nowhere")).values()]
        assert (problem.status, "nowhere" in problem.found) == ("problem", True)

    @pytest.mark.parametrize("change", ["cut", "none", "rubbish", "shard"])
    def test_a_damaged_folder(
        self,
        look: Callable[..., dict[str, Check]],
        checkpoints: Callable[[str], str],
        tmp_path: Path,
        change: str,
    ) -> None:
        """Tensors that are missing or cut short are found without loading them."""
        folder = shutil.copytree(checkpoints("custom_voice"), tmp_path / "copy")
        tensors = folder / "model.safetensors"
        if change == "cut":
            os.truncate(tensors, tensors.stat().st_size - 1)
        elif change == "rubbish":
            tensors.write_bytes(b"not a tensor in sight")
        else:
            tensors.unlink()
        if change == "shard":
            index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        engine = look(("qwen.model", str(folder)))["qwen engine"]
        said = {"cut": "fetch it again", "rubbish": "not a safetensors", "none": "neither"}
        assert engine.status == "problem"
        assert said.get(change, "No such file") in engine.found

    def test_torch_is_really_asked(self) -> None:
        """The probe's program runs, here with a torch for CPUs."""
        probe = qwen_checks.probe_torch()
        assert (probe.trouble, probe.names) == ("", ())


def test_examples_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """The command lines in the help texts are understood."""
    for command in ("synth", "checkpoint"):
        with pytest.raises(SystemExit):
            build_parser().parse_args([command, "--help"])
        calls = re.findall(r"^  rtts (.*)$", capsys.readouterr().out, re.MULTILINE)
        assert len(calls) == 2
        for call in calls:
            import shlex

            build_parser().parse_args(shlex.split(call))
