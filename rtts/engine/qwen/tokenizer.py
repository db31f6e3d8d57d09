"""Text to ids: the released byte-pair vocabulary, without its control tokens.

User text is only ever split into ordinary pieces, so "<|im_end|>" in it is eleven characters to
speak, not the end of the prompt. The structure around text is added by id in `prompt`.

`StableText` releases ids of text that is still arriving: byte pairs never merge across pre-tokens,
so a pre-token is safe once another follows it.
"""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

from rtts.errors import ConfigError

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Pre-token pattern of the Qwen2 tokenizer."""


class TextTokenizer:
    """Byte-pair encoding of plain text."""

    def __init__(self, vocab: dict[str, int], merges: list[tuple[str, str]]) -> None:
        from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
        from tokenizers.models import BPE

        self._vocab = vocab
        split = pre_tokenizers.Split(Regex(_SPLIT), "isolated")
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges))
        self._tokenizer.normalizer = normalizers.NFC()
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, letters])
        self._piecewise = Tokenizer(BPE(vocab=vocab, merges=merges))
        self._piecewise.pre_tokenizer = letters
        self._splitter = split

    @property
    def largest_id(self) -> int:
        """The largest id a text can have."""
        return max(self._vocab.values())

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; lone surrogates become the replacement character."""
        whole = text.encode("utf-8", "replace").decode("utf-8")
        ids: list[int] = self._tokenizer.encode(whole, add_special_tokens=False).ids
        return ids

    def word(self, text: str) -> int:
        """The id of a text that must be one token.

        Raises:
            ConfigError: It is not.
        """
        ids = self.encode(text)
        if len(ids) != 1:
            raise ConfigError(f"tokenizer: {text!r} must be one token, it is {len(ids)}")
        return ids[0]

    def split_stable(self, text: str) -> tuple[list[str], str]:
        """The pre-tokens of `text` that no further text can change, and the rest.

        The rest is the last pre-token; if that is white space or begins with a combining mark, the
        pre-tokens before too, up to one that does not. `text` must be in NFC.
        """
        pieces = self._splitter.pre_tokenize_str(text)
        keep = len(pieces)
        while keep:
            keep -= 1
            piece = pieces[keep][0]
            if not piece.isspace() and not unicodedata.combining(piece[0]):
                break
        stable = [piece for piece, _ in pieces[:keep]]
        return stable, text[sum(map(len, stable)) :]

    def encode_piece(self, piece: str) -> list[int]:
        """Ids of one pre-token (alone, a run of white space would be split otherwise)."""
        whole = piece.encode("utf-8", "replace").decode("utf-8")
        ids: list[int] = self._piecewise.encode(whole, add_special_tokens=False).ids
        return ids


class StableText:
    """Ids of a text that arrives in parts, released as soon as nothing later can change them.

    Whatever the parts, the ids are those of the whole text.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._held = ""

    def feed(self, text: str) -> list[int]:
        """Take more text; the ids that are now certain."""
        held = (self._held + text).encode("utf-8", "replace").decode("utf-8")
        stable, self._held = self._tokenizer.split_stable(unicodedata.normalize("NFC", held))
        return [id_ for piece in stable for id_ in self._tokenizer.encode_piece(piece)]

    def flush(self) -> list[int]:
        """No more text: the ids of what was held."""
        ready, self._held = self._held, ""
        return self._tokenizer.encode(ready) if ready else []


def load_tokenizer(folder: Path) -> TextTokenizer:
    """Read `vocab.json` and `merges.txt`.

    Raises:
        ConfigError: One is missing or damaged.
    """
    try:
        vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise ConfigError(f"model folder {folder}: cannot read {error.filename}") from error
    except ValueError as error:
        raise ConfigError(f"model folder {folder}: vocab.json is not JSON") from error
    merges = []
    for line in lines:
        if not line or line.startswith("#version"):
            continue
        left, _, right = line.partition(" ")
        if not left or not right:
            raise ConfigError(f"model folder {folder}: merges.txt has the line {line!r}")
        merges.append((left, right))
    if not isinstance(vocab, dict) or not all(type(id_) is int for id_ in vocab.values()):
        raise ConfigError(f"model folder {folder}: vocab.json must map pieces to ids")
    unknown = {"".join(pair) for pair in merges} | {each for pair in merges for each in pair}
    if unknown := unknown - set(vocab):
        raise ConfigError(
            f"model folder {folder}: merges.txt has {min(unknown)!r}, vocab.json has not"
        )
    return TextTokenizer(vocab, merges)
