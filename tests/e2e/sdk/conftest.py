"""Real SDKs against a real server with the CPU voice: environments, servers, ears.

A client is a script in `clients/` that runs in the SDK's own environment, finds the server in its
environment variables, and prints one JSON object as its last line. `docs/protocol/dialects.md` says
how to add one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import trustme

from rtts.audio.resample import Resampler
from tests.e2e.sdk import environments

CLIENTS = Path(__file__).parent / "clients"
KEY = "k-test"
TEXT = "The shop opens at nine in the morning. Please bring your ticket and a pen."
LONG = " ".join([TEXT] * 12)


@dataclass(frozen=True)
class Serving:
    """A server that runs, as a client is told about it."""

    url: str
    certificate: Path | None = None

    @property
    def ws_url(self) -> str:
        return "ws" + self.url.removeprefix("http")

    def metric(self, name: str) -> float:
        """A sample of `/metrics`, labels and all: 'rtts_streams_total{outcome="cancelled"}'."""
        verify: Any = ssl.create_default_context(cafile=self.certificate)
        headers = {"authorization": f"Bearer {KEY}"}
        text = httpx.get(self.url + "/metrics", headers=headers, verify=verify).text
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def cancelled(self) -> float:
        return self.metric('rtts_streams_total{outcome="cancelled"}')

    def is_quiet(self, within_s: float = 3.0) -> bool:
        """Whether the engine has nothing left to do, soon."""
        ends = time.monotonic() + within_s
        while self.metric("rtts_engine_utterances") or self.metric("rtts_contexts"):
            if time.monotonic() > ends:
                return False
            time.sleep(0.05)
        return True


@contextlib.contextmanager
def serving(where: Path, engine: str = "cpu", **settings: str) -> Iterator[Serving]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("RTTS_")}
    env |= {"RTTS_SERVER_API_KEYS": KEY, **settings}
    command = [sys.executable, "-m", "rtts", "serve", "--port", "0", "--engine", engine]
    log = (where / "server.log").open("w")
    process = subprocess.Popen(
        command, env=env, cwd=where, stdout=subprocess.PIPE, stderr=log, text=True
    )
    try:
        assert process.stdout is not None
        address = ""
        for line in process.stdout:
            found = re.match(r"listening on ws(s?://[^/]+)/", line)
            address = found[1] if found else address
            if line.strip() == "ready":
                break
        assert address and process.poll() is None, (where / "server.log").read_text()
        certificate = settings.get("RTTS_SERVER_SSL_CERTFILE")
        yield Serving("http" + address, Path(certificate) if certificate else None)
    finally:
        process.terminate()
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()
        log.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """`rtts serve` with the CPU voice and an API key."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="session")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """The same over TLS, for SDKs that speak nothing else."""
    where = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    chain, key = where / "chain.pem", where / "key.pem"
    for part in (*certificate.cert_chain_pems, authority.cert_pem):
        part.write_to_path(chain, append=True)
    certificate.private_key_pem.write_to_path(key)
    with serving(
        where, RTTS_SERVER_SSL_CERTFILE=str(chain), RTTS_SERVER_SSL_KEYFILE=str(key)
    ) as running:
        yield running


@pytest.fixture(scope="session")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server whose samples are exact, and which sends them as soon as they exist."""
    where = tmp_path_factory.mktemp("tones")
    settings = {"RTTS_SESSION_MAX_LEAD_S": "600", "RTTS_SESSION_RESUME_WINDOW_S": "2"}
    with serving(where, "tone", **settings) as running:
        yield running


def interpreter(name: str) -> Path:
    """The interpreter of an SDK's environment; without one a skip, in CI a failure."""
    found = environments.interpreter(name)
    if found is None:
        missing = f"the SDK environment {name!r} is not there: make sdks"
        if name == "node" and shutil.which("node") is None:
            missing = "node is not installed"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


class Client:
    """Runs clients. `tmp` is where they put audio."""

    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp

    def __call__(
        self, environment: str, script: str, server: Serving, *arguments: str, timeout_s: float = 50
    ) -> dict[str, Any]:
        """What the client said. It has failed if it exits with anything but 0."""
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env |= {
            "SDK_URL": server.url,
            "SDK_WS_URL": server.ws_url,
            "SDK_KEY": KEY,
            "SDK_TEXT": TEXT,
            "SDK_LONG": LONG,
            "SDK_OUT": str(self.tmp),
        }
        if server.certificate is not None:
            env |= dict.fromkeys(("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"), str(server.certificate))
        command = [str(interpreter(environment)), str(CLIENTS / script), *arguments]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        said = done.stdout.strip().splitlines()
        return json.loads(said[-1]) if said else {}

    def pcm(self, name: str, width: str = "<i2") -> np.ndarray:
        """Samples that a client left in a file, as float32."""
        samples = np.frombuffer((self.tmp / name).read_bytes(), width)
        return samples.astype(np.float32) / (32768 if width == "<i2" else 1)


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path)


class Ears:
    """Speech recognition in a process of its own."""

    def __init__(self, tmp: Path) -> None:
        self._tmp = tmp
        self._process = subprocess.Popen(
            [str(interpreter("asr")), str(CLIENTS / "asr.py")],
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def word_errors(self, samples: np.ndarray, rate_hz: int, text: str = TEXT) -> float:
        """Share of the words of `text` that were not heard in float samples."""
        assert self._process.stdin is not None and self._process.stdout is not None
        pcm = (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
        if rate_hz != 16_000:
            resampler = Resampler(rate_hz, 16_000)
            pcm = resampler.process(pcm) + resampler.flush()
        return self.word_errors_in(self._wav(pcm), text)

    def word_errors_in(self, file: Path, text: str = TEXT) -> float:
        """The same in a file of any format FFmpeg reads."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"path": str(file), "text": text}) + "\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline())["word_errors"])

    def _wav(self, pcm: bytes) -> Path:
        path = self._tmp / "heard.wav"
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            file.writeframes(pcm)
        return path

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def ears(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ears]:
    listening = Ears(tmp_path_factory.mktemp("ears"))
    yield listening
    listening.close()
