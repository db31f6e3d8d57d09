"""`rtts synth`: one text through a Qwen3-TTS checkpoint, exactly repeatable, with its codes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rtts.cli.failure import CommandError
from rtts.cli.flags import Commands, add_command, add_model_flags, add_setting, resolve

if TYPE_CHECKING:
    from rtts.cli.terminal import Progress
    from rtts.engine.qwen.config import ModelConfig
    from rtts.engine.qwen.offline import Spoken
    from rtts.engine.qwen.references import RegisteredVoice
    from rtts.engine.qwen.synth import Synthesizer, SynthRequest
    from rtts.settings import Settings
    from rtts.voices.recording import Samples

_MORE = """
The text is spoken as the reference package would: to the model's own end or the frame limit, without
the live engine's budgets. `rtts say` speaks with any engine. On a GPU it runs the plain modules, not
the captured frame of the live engine: the oracle, and several times slower.

  rtts synth --engine qwen --model DIR --text "Hello." --voice ryan --language en -o hello.wav
  rtts synth --engine qwen --model DIR --text "Hello." --greedy --codes codes.json"""
_MOST_SEED = 2**63
_LONGEST_REFERENCE_S = 300  # a typing error rather than a voice
_MOST_FRAMES = 32_000  # the talker's positions, 32,768, hold head and text too


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        commands, "synth", "speak one text with Qwen3-TTS, repeatably, to a file", more=_MORE
    )
    model = parser.add_argument_group("model")
    add_setting(model, "--engine", "engine.kind", metavar="KIND", help="qwen; no other has codes")
    add_model_flags(model)
    add_setting(model, "--dtype", "qwen.dtype", metavar="T", help="float32, bfloat16, float16")
    speech = parser.add_argument_group("speech")
    speech.add_argument("--text", metavar="T", required=True, help="- reads standard input")
    speech.add_argument("--voice", metavar="V", help="preset speaker, or a registered voice")
    speech.add_argument("--language", metavar="L", default="auto", help="en, zh, ...; default auto")
    speech.add_argument("--instruct", metavar="I", help="how to speak, or whose voice to design")
    speech.add_argument(
        "--layout",
        choices=("complete", "streaming"),
        default="complete",
        help="all text before the audio (default), or beside it, as for text that arrives",
    )
    clone = parser.add_argument_group("voice cloning, with a Base checkpoint")
    clone.add_argument("--ref-audio", metavar="F", type=Path, help="WAV, FLAC, Ogg or MP3")
    clone.add_argument("--ref-text", metavar="T", help="what it says")
    clone.add_argument("--x-vector", action="store_true", help="take only the voice's x-vector")
    clone.add_argument(
        "--save-voice",
        metavar="FILE",
        type=Path,
        help="keep the voice: NAME.safetensors in the folder of qwen.voices_dir is voice NAME",
    )
    draws = parser.add_argument_group("draws")
    which = draws.add_mutually_exclusive_group()
    which.add_argument("--seed", type=_seed, metavar="N", help="default 0")
    which.add_argument("--greedy", action="store_true", help="the best code, always")
    draws.add_argument(
        "--rng",
        choices=("seeded", "reference"),
        default="seeded",
        help="the live engine's draws (default), or torch's in the reference package's order",
    )
    draws.add_argument("--max-frames", type=_frames, metavar="N", help="80 ms each")
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", metavar="FILE", help="WAV; - is standard output")
    out.add_argument("--codes", metavar="FILE", type=Path, help='{"codes": [[16 ints] a frame]}')
    out.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    parser.set_defaults(run=run)


def _seed(text: str) -> int:
    return _whole_number(text, -_MOST_SEED, _MOST_SEED - 1)


def _frames(text: str) -> int:
    return _whole_number(text, 1, _MOST_FRAMES)


def _whole_number(text: str, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number in {least} to {most}")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Speak."""
    _check_flags(arguments)
    settings = resolve(arguments).settings
    if settings.engine.kind != "qwen":
        raise CommandError(
            f"the {settings.engine.kind} engine has no codes and draws nothing: give --engine qwen, "
            "or speak with `rtts say -o FILE`"
        )
    from rtts.cli.terminal import Progress
    from rtts.engine.qwen.factory import find_checkpoint, prepare_device
    from rtts.engine.qwen.options import FRAME_S

    folder, config = find_checkpoint(settings.qwen)
    _check_fit(arguments, config)
    text = sys.stdin.read() if arguments.text == "-" else arguments.text
    if not text.strip():
        raise CommandError("there is no text to speak")
    progress = Progress(is_quiet=arguments.quiet)
    _warn_unheard(arguments, config, progress)
    with progress.working("loading torch and the model"):
        from rtts.engine.qwen.synth import Synthesizer

        prepare_device(settings.qwen)
        synthesizer = Synthesizer(folder, settings.qwen.device, _dtype(settings))
    request = _request(arguments, settings, folder, synthesizer, text)
    with progress.working("speaking"):
        spoken = synthesizer.synthesize(request)
    _write(arguments, spoken)
    seconds = len(spoken.codes) * FRAME_S
    end = "" if spoken.ended else ", cut at the frame limit"
    where = ", ".join(str(each) for each in (arguments.output, arguments.codes) if each)
    progress.say(f"{where} ({len(spoken.codes)} frames, {seconds:.1f} s of speech{end})")
    return 0


def _dtype(settings: Settings) -> str:
    if settings.qwen.dtype != "auto":
        return settings.qwen.dtype
    return "float32" if settings.qwen.device == "cpu" else "bfloat16"


# --- what fits together --------------------------------------------------------------------------


def _check_flags(arguments: argparse.Namespace) -> None:
    """Refuse flags that contradict each other, whatever the checkpoint."""
    parser = arguments.parser
    if arguments.output is None and arguments.codes is None:
        parser.error("where to? Give -o FILE, --codes FILE or both")
    voice = arguments.save_voice
    if voice is not None and voice.suffix != ".safetensors":
        parser.error(f"--save-voice: {voice.name} does not end in .safetensors")
    for path in (arguments.output, arguments.codes):  # now, not after minutes of work
        if path is not None and not Path(path).parent.is_dir():
            parser.error(f"there is no directory {Path(path).parent} for {Path(path).name}")
    if arguments.ref_audio is None:
        if arguments.ref_text is not None or arguments.x_vector or voice is not None:
            parser.error(
                "--ref-text, --x-vector and --save-voice are about --ref-audio, which is not given"
            )
        return
    if arguments.voice is not None:
        parser.error("--voice and --ref-audio both say who speaks")
    if not arguments.x_vector and not (arguments.ref_text or "").strip():
        parser.error("--ref-audio needs --ref-text, or --x-vector to do without")


def _check_fit(arguments: argparse.Namespace, config: ModelConfig) -> None:
    """Refuse what this checkpoint would ignore.

    Raises:
        CommandError: Names the flag and what the checkpoint is.
    """
    from rtts.engine.qwen.config import ModelType

    kind = config.model_type
    if arguments.ref_audio is not None and kind is not ModelType.BASE:
        raise CommandError(f"--ref-audio: a {kind} checkpoint does not clone voices; base ones do")
    if arguments.voice is not None and kind is ModelType.VOICE_DESIGN:
        raise CommandError("--voice: a voice_design checkpoint takes its voice from --instruct")
    if arguments.instruct and kind is ModelType.BASE:
        raise CommandError("--instruct: a base checkpoint takes none")


def _warn_unheard(arguments: argparse.Namespace, config: ModelConfig, progress: Progress) -> None:
    """Say what makes no difference: the reference package drops it without a word."""
    if arguments.instruct and not config.takes_instructions:
        progress.say(f"--instruct is not heard: presets of this size ({config.size}) take none")


def _request(
    arguments: argparse.Namespace,
    settings: Settings,
    folder: Path,
    synthesizer: Synthesizer,
    text: str,
) -> SynthRequest:
    from rtts.engine.qwen.config import ModelType
    from rtts.engine.qwen.prompt import Layout
    from rtts.engine.qwen.synth import Rng, SynthRequest

    config = synthesizer.model.config
    voice, clone = "", None
    if config.model_type is ModelType.CUSTOM_VOICE:
        voice = arguments.voice or settings.session.voice or next(iter(config.talker.speakers), "")
    elif config.model_type is ModelType.BASE:
        clone = _clone(arguments, settings, folder, synthesizer)
    return SynthRequest(
        text,
        voice,
        arguments.language,
        arguments.instruct or "",
        clone,
        Layout(arguments.layout),
        seed=arguments.seed or 0,
        greedy=arguments.greedy,
        rng=Rng(arguments.rng),
        max_frames=arguments.max_frames,
    )


# --- voices of Base checkpoints ------------------------------------------------------------------


def _clone(
    arguments: argparse.Namespace, settings: Settings, model_folder: Path, synthesizer: Synthesizer
) -> RegisteredVoice:
    """The voice of the reference audio, or the registered one that is named.

    Raises:
        CommandError: There is neither.
    """
    from rtts.engine.qwen.references import VoiceShelf

    model = synthesizer.model
    if arguments.ref_audio is not None:
        return _from_audio(arguments, model_folder, synthesizer)
    folder = Path(settings.qwen.voices_dir) if settings.qwen.voices_dir else None
    shelf = VoiceShelf(folder, model.config, model.dtype, model.device)
    if arguments.voice in shelf.damaged:
        raise CommandError(shelf.damaged[arguments.voice])
    if arguments.voice not in shelf.voices:
        names = ", ".join(shelf.voices) or "none is registered, see qwen.voices_dir"
        raise CommandError(f"a base checkpoint needs --ref-audio, or --voice of one of: {names}")
    return shelf.voices[arguments.voice]


def _from_audio(
    arguments: argparse.Namespace, folder: Path, synthesizer: Synthesizer
) -> RegisteredVoice:
    import tempfile

    from rtts.engine.qwen.clone import register_voice
    from rtts.engine.qwen.extra import torch
    from rtts.engine.qwen.references import load_voice

    model = synthesizer.model
    samples = torch.from_numpy(_reference(arguments.ref_audio))
    transcript = "" if arguments.x_vector else arguments.ref_text
    with tempfile.TemporaryDirectory() as name:
        path = arguments.save_voice or Path(name) / "reference.safetensors"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"{path.parent} cannot be made: {error.strerror}") from error
        register_voice(folder, path, samples, transcript)
        return load_voice(path, model.config, model.dtype, model.device)


def _reference(path: Path) -> Samples:
    """The samples of a recording as 24 kHz mono, as the reference package reads it.

    Raises:
        CommandError: It cannot be read, or is empty or too long.
    """
    from rtts.errors import BadRequestError
    from rtts.voices.recording import at_model_rate, decode

    try:
        samples, rate_hz = decode(path.read_bytes(), _LONGEST_REFERENCE_S)
    except OSError as error:
        raise CommandError(f"--ref-audio: {path} cannot be read: {error.strerror}") from error
    except BadRequestError as error:
        why = error.message.removeprefix("audio: ")
        raise CommandError(f"--ref-audio: {path}: {why}") from error
    if not len(samples):
        raise CommandError(f"--ref-audio: {path} is empty")
    if len(samples) > _LONGEST_REFERENCE_S * rate_hz:
        raise CommandError(f"--ref-audio: {path} is longer than {_LONGEST_REFERENCE_S} s")
    return at_model_rate(samples.mean(axis=1), rate_hz)


# --- output --------------------------------------------------------------------------------------


def _write(arguments: argparse.Namespace, spoken: Spoken) -> None:
    """Write codes and speech.

    Raises:
        CommandError: A file cannot be written.
    """
    from rtts.audio.wav import wav_bytes
    from rtts.engine.qwen.config import SAMPLE_RATE_HZ
    from rtts.engine.qwen.synth import write_codes

    try:
        if arguments.codes is not None:
            write_codes(arguments.codes, spoken)
        if arguments.output == "-":
            sys.stdout.buffer.write(wav_bytes(spoken.pcm, SAMPLE_RATE_HZ))
        elif arguments.output is not None:
            Path(arguments.output).write_bytes(wav_bytes(spoken.pcm, SAMPLE_RATE_HZ))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"{error.filename} cannot be written: {error.strerror}") from error
