"""Flower's engines on this machine: a SuperLink, with SuperNodes or a simulation, and a run of an app on them.

Deployed nodes use TLS and authenticate with keys. Run as `python -m benchmarks.flower_engines FOUND.json NODES ENTRIES
ROUNDS`. It always ends the processes that it started.
"""

import datetime
import ipaddress
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tacit.integrations.flower import api

APP = Path(__file__).parent / "flower_app"
BIN = Path(sys.executable).parent
"""Folder of Flower's programs."""
PATIENCE = 1200.0
"""Seconds to wait for a run. A message between processes takes Flower about ten of them."""
PLAIN = NoEncryption()
BYTECODE = Path(tempfile.gettempdir()) / "tacit-flower-bytecode"


def run_deployed(
    folder: Path, nodes: int, entries: int, rounds: int, *, beside: bool = False, forked: bool = False
) -> list[dict[str, Any]]:
    """Returns the results of the rounds of a run on SuperNodes, in their order.

    Args:
        folder: An empty folder.
        nodes: The number of nodes.
        entries: The length of their vectors.
        rounds: The number of rounds.
        beside: Whether each round is followed by one of Flower's SecAgg+.
        forked: Whether Tacit's worker forks the processes of messages, instead of Flower starting them.
    """
    federation = api.trial(folder / "keys" / "federation.toml", "secagg", nodes)
    certificate, key = _make_certificates(folder)
    tls = ["--ssl-ca-certfile", certificate, "--ssl-certfile", certificate, "--ssl-keyfile", key]
    with _engine(folder, f'root-certificates = "{certificate}"', "--enable-supernode-auth", *tls) as engine:
        for place in range(nodes):
            private, public = _node_key(folder, place)
            engine.do("supernode", "register", str(public), "here")
            config = f'tacit-federation="{federation}" tacit-me="p{place}" partition-id={place}'
            port = _port()
            mine = ["--auth-supernode-private-key", private, "--node-config", config, "--port", port]
            mine += ["--isolation", "process"] if forked else []
            engine.start("flower-supernode", "--superlink", engine.at, "--root-certificates", certificate, *mine)
            if forked:
                _reachable(port)
                worker = ["-m", "tacit.integrations.flower.worker", "--insecure"]
                engine.start("python", *worker, "--runtime-api-address", f"127.0.0.1:{port}")
        return _run_and_report(engine, federation, entries, rounds, beside=beside)


def run_simulated(folder: Path, nodes: int, entries: int, rounds: int) -> list[dict[str, Any]]:
    """Returns the results of the rounds of a run in simulation."""
    federation = api.trial(folder / "keys" / "federation.toml", "secagg", nodes)
    with _engine(folder, "insecure = true", "--insecure", "--simulation") as engine:
        return _run_and_report(engine, federation, entries, rounds, "--federation-config", f"num-supernodes={nodes}")


def example(folder: Path, app: Path, nodes: int, options: str) -> str:
    """Returns the output of `flwr run` for an app in simulation, with options of its configuration."""
    with _engine(folder, "insecure = true", "--insecure", "--simulation") as engine:
        more = ["--run-config", options, "--federation-config", f"num-supernodes={nodes}", "--stream"]
        return engine.do("run", str(app), "here", *more)


def _run_and_report(
    engine: "_Engine", federation: Path, entries: int, rounds: int, *more: str, beside: bool = False
) -> list[dict[str, Any]]:
    """Runs the app that writes down its averages, and returns them."""
    report = engine.folder / "report.json"
    sizes = f"entries={entries} rounds={rounds} beside={str(beside).lower()}"
    options = f'tacit-federation="{federation}" {sizes} report="{report}"'
    engine.do("run", str(APP), "here", "--run-config", options, *more)
    deadline = time.monotonic() + PATIENCE
    while not report.exists():
        if time.monotonic() > deadline:
            logs = {path.name: path.read_text(errors="replace")[-1500:] for path in engine.folder.glob("*.log")}
            raise RuntimeError(f"no result after {PATIENCE:g} s: {logs}")
        time.sleep(0.5)
    found: list[dict[str, Any]] = json.loads(report.read_text())
    calls = [json.loads(line) for line in report.with_suffix(".calls").read_text().splitlines()]
    for each in found:
        for hop in each["times"]:
            hop["calls"] = [call for call in calls if hop["began"] <= call["called"] <= hop["ended"]]
    return found


@dataclass
class _Engine:
    """Running processes, and their folder."""

    folder: Path
    at: str
    surroundings: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *command: Any) -> None:
        """Starts a program that keeps running."""
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            words = [BIN / command[0], *(str(word) for word in command[1:])]
            made = subprocess.Popen(words, env=self.surroundings, stdout=log, stderr=log)  # noqa: S603
        self.processes.append(made)

    def do(self, *command: str) -> str:
        """Runs one of Flower's commands, and returns its output."""
        ended = subprocess.run(  # noqa: S603
            [BIN / "flwr", *command],
            env=self.surroundings,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if ended.returncode:
            raise RuntimeError(f"flwr {command[0]} failed: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
        return ended.stdout

    def end(self) -> None:
        """Ends the started processes, which end their own children."""
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _engine(folder: Path, connection: str, *options: Any) -> Iterator[_Engine]:
    """Starts a SuperLink, and ends it and everything else that was started."""
    link, home = _port(), folder / "home"
    home.mkdir()
    (home / "config.toml").write_text(f'[superlink.here]\naddress = "127.0.0.1:{link}"\n{connection}\n')
    # Flower starts its own programs by name, so those of this interpreter come first.
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    # An installed Flower has its bytecode; where Python may not write it beside the code, it goes to this folder.
    told = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(BYTECODE)}
    told |= {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "PATH": path}
    engine = _Engine(folder, f"127.0.0.1:{link}", {**os.environ, **told})
    listening = ["--host", "127.0.0.1", "--port", link, "--disable-runtime-dependency-installation"]
    try:
        engine.start("flower-superlink", *listening, *options)
        _reachable(link)
        yield engine
    finally:
        engine.end()


def _port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _reachable(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _make_certificates(folder: Path) -> tuple[Path, Path]:
    """Writes a self-signed certificate for this machine and its key; returns their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    certificate, private = folder / "ca.pem", folder / "ca.key"
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, PLAIN))
    return certificate, private


def _node_key(folder: Path, place: int) -> tuple[Path, Path]:
    """Writes the private and the public key of a SuperNode; returns their paths."""
    key = ec.generate_private_key(ec.SECP384R1())
    private, public = folder / f"node{place}", folder / f"node{place}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, PLAIN))
    private.chmod(0o600)
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return private, public


if __name__ == "__main__":
    target, *sizes = sys.argv[1:]
    with tempfile.TemporaryDirectory() as where:
        Path(target).write_text(json.dumps(run_deployed(Path(where), *map(int, sizes))))
