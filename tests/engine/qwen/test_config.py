"""A wrong folder is refused by name before anything runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rtts.engine.qwen.config import ModelType, load_config
from rtts.engine.qwen.frame import Model
from rtts.errors import ConfigError


@pytest.fixture
def copied(checkpoint: Callable[[str, int], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint("base", 0), tmp_path / "model"))


def edit(path: Path, change: Callable[[Any], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def test_reads_a_released_layout(copied: Path) -> None:
    """Dimensions come from the files; unknown keys are tolerated."""
    edit(copied / "config.json", lambda c: c.update(new_key=1))
    config = load_config(copied)
    assert config.model_type is ModelType.BASE
    assert config.codec.samples_per_frame == 1920
    assert config.talker.stack.heads == 4
    assert config.speaker_encoder is not None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda c: c["talker_config"].pop("num_hidden_layers"), "num_hidden_layers is missing"),
        (lambda c: c["talker_config"].update(hidden_size="48"), "hidden_size must be a whole"),
        (lambda c: c.update(tts_model_type="singer"), "tts_model_type 'singer'"),
        (lambda c: c["talker_config"].update(num_code_groups=8), "disagree on groups"),
        (lambda c: c["talker_config"].update(codec_eos_token_id=99999), "codec_eos_token_id"),
        (lambda c: c.update(talker_config=3), "an object is needed"),
        (lambda c: c["talker_config"].update(spk_id={"ann": 99999}), "spk_id of ann, 99999, is"),
        (lambda c: c["talker_config"].update(codec_language_id={"x": -1}), "language_id of x, -1,"),
        (lambda c: c["talker_config"].update(codec_think_id=5000), "codec_think_id, 5000, is"),
        (lambda c: c.update(tts_pad_token_id=99999), "tts_pad_token_id, 99999, is outside"),
    ],
)
def test_wrong_settings_are_named(copied: Path, change: Any, named: str) -> None:
    """A missing, mistyped or contradictory key is a ConfigError that names it."""
    edit(copied / "config.json", change)
    with pytest.raises(ConfigError, match=named):
        load_config(copied)


def test_missing_and_damaged_files(copied: Path) -> None:
    """No config, no weights, cut weights: each is a ConfigError that names the file."""
    weights = copied / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[: len(data) // 2])
    with pytest.raises(ConfigError, match=r"model\.safetensors"):
        Model(copied, torch.float32, "cpu")
    weights.unlink()
    with pytest.raises(ConfigError, match=r"model\.safetensors"):
        Model(copied, torch.float32, "cpu")
    (copied / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        load_config(copied)
    with pytest.raises(ConfigError, match=r"config\.json"):
        load_config(copied / "nowhere")


def test_tensors_are_checked(copied: Path) -> None:
    """A missing tensor, one of another shape, one nobody knows: each is named."""
    path = copied / "model.safetensors"
    tensors = load_file(path)
    name = "talker.codec_head.weight"
    save_file({k: v for k, v in tensors.items() if k != name}, path)
    with pytest.raises(ConfigError, match="codec_head.weight is missing"):
        Model(copied, torch.float32, "cpu")
    save_file({**tensors, name: torch.zeros(3, 3)}, path)
    with pytest.raises(ConfigError, match=r"codec_head.weight has shape \(3, 3\)"):
        Model(copied, torch.float32, "cpu")
    save_file({**tensors, "talker.extra": torch.zeros(1)}, path)
    with pytest.raises(ConfigError, match=r"talker\.extra"):
        Model(copied, torch.float32, "cpu")


def test_shards(copied: Path) -> None:
    """Weights in shards load like weights in one file."""
    path = copied / "model.safetensors"
    tensors = load_file(path)
    names = sorted(tensors)
    index = {}
    for i, part in enumerate((names[::2], names[1::2])):
        file = f"model-{i + 1:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, copied / file)
        index |= dict.fromkeys(part, file)
    path.unlink()
    (copied / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    model = Model(copied, torch.float32, "cpu")
    assert torch.equal(tensors["talker.codec_head.weight"], model.talker.codec_head)


def test_without_torch() -> None:
    """The package imports without torch; what computes raises a ConfigError naming the extra."""
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import rtts.engine.qwen, rtts.engine.qwen.config, rtts.engine.qwen.scheduler\n"
        "from rtts.errors import ConfigError\n"
        "try:\n    import rtts.engine.qwen.engine\n"
        "except ConfigError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "rtts[qwen]" in run.stdout
