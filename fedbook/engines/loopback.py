"""A run on Flower's engine with all its processes on this machine: a SuperLink, SuperNodes with their own folders.

TLS between them, and only the nodes registered here may join. On machines of your own start the same commands there;
the page "Real machines" of the book shows each.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedbook.engines.flower import held, write_plan
from fedbook.experiment import Plan

APP = '''"""The app that Flower runs: both halves are fedbook's."""

from fedbook.engines import flower

server = flower.server
client = flower.client
'''
PROJECT = """[project]
name = "fedbook-run"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedbook"

[tool.flwr.app.components]
serverapp = "fedbook_app:server"
clientapp = "fedbook_app:client"

[tool.flwr.app.config]
plan = {plan}
out = {out}
nodes = {nodes}
patience = 600.0
judged = true
"""
CONNECTION = """[superlink]
default = "here"

[superlink.here]
address = "127.0.0.1:{port}"
root-certificates = {authority}
"""


class EngineFailed(RuntimeError):
    """One of Flower's programs ended as it should not; the text has its last words."""


def launch(chosen: Plan, out: Path, nodes: int) -> dict:
    """Run ``chosen`` to its end (or on to it, from what ``out`` holds) and return its result.

    ``out`` gets result, history, rounds.csv and checkpoint, a folder for each node's state, and the programs' logs.
    Raises: ValueError (more nodes than clients), EngineFailed.
    """
    clients = chosen.rounds().federation.num_clients
    if not 1 <= nodes <= clients:
        raise ValueError(f"nodes: got {nodes}; allowed is a whole number in [1, {clients}], the clients of this run")
    out = Path(out).resolve()
    engine = out / "flower"
    app = engine / "app"
    app.mkdir(parents=True, exist_ok=True)
    (app / "fedbook_app.py").write_text(APP)
    texts = {"plan": json.dumps(write_plan(chosen)), "out": json.dumps(str(out), ensure_ascii=False)}
    (app / "pyproject.toml").write_text(PROJECT.format(nodes=nodes, **texts), encoding="utf-8")
    certificates(engine, nodes)
    port, authority = free_port(), str(engine / "authority.pem")
    (engine / "config.toml").write_text(
        CONNECTION.format(port=port, authority=json.dumps(authority, ensure_ascii=False)), encoding="utf-8"
    )
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"FLWR_HOME": str(engine), "FLWR_TELEMETRY_ENABLED": "0", "PATH": programs}
    with ExitStack() as running:

        def start(name: str, *words: str) -> None:
            running.enter_context(_program(engine / f"{name}.log", [_beside(words[0]), *words[1:]], environment))

        def ask(*words: str) -> str:
            return _asked([_beside("flwr"), *words], environment)

        start(
            "superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(port), "--enable-supernode-auth",
            "--ssl-certfile", str(engine / "server.pem"), "--ssl-keyfile", str(engine / "server.key"),
            "--ssl-ca-certfile", authority, "--disable-runtime-dependency-installation",
        )  # fmt: skip
        _until_there(port, engine / "superlink.log")
        for node in held(clients, nodes):
            folder = out / "nodes" / node
            folder.mkdir(parents=True, exist_ok=True)
            ask("supernode", "register", str(engine / f"node{node}.pub"), "here")
            start(
                f"node{node}", "flower-supernode", "--superlink", f"127.0.0.1:{port}", "--root-certificates", authority,
                "--auth-supernode-private-key", str(engine / f"node{node}.key"), "--port", str(free_port()),
                "--node-config", f'node="{node}" folder={json.dumps(str(folder), ensure_ascii=False)}',
            )  # fmt: skip
        with _put_aside(out / "result.json"):
            words = ask("run", str(app), "here", "--stream")
            if not (out / "result.json").exists():
                raise EngineFailed(f"the run ended without a result; its last words:\n{_last(words)}")
    return json.loads((out / "result.json").read_text())


@contextmanager
def _put_aside(path: Path) -> Iterator[None]:
    """Inside, the file is not there; if no new one has come, the old one is put back."""
    aside = path.with_name(f".{path.name}.before")
    if path.exists():
        os.replace(path, aside)
    try:
        yield
    finally:
        if aside.exists() and not path.exists():
            os.replace(aside, path)
        aside.unlink(missing_ok=True)


def certificates(folder: Path, nodes: int) -> None:
    """An authority for this start alone, the server's certificate for this machine, a key pair for each node.

    Keys are readable by their owner only. A node keeps its keys; the certificates last 30 days and are made anew.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as Private
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey as Public

    def secret(path: Path, form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8) -> Private:
        key = ec.generate_private_key(ec.SECP384R1())
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        return key

    def name(word: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, word)])

    def certificate(subject: str, public: Public, own: bool) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name("fedbook")).public_key(public)
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=own, path_length=None), critical=True)
        )  # fmt: skip

    for number in range(nodes):
        if (folder / f"node{number}.pub").exists():
            continue
        public = secret(folder / f"node{number}.key", serialization.PrivateFormat.OpenSSH).public_key()
        (folder / f"node{number}.pub").write_bytes(
            public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        )
    authority, key = secret(folder / "authority.key"), secret(folder / "server.key")
    here = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = {
        "authority.pem": certificate("fedbook", authority.public_key(), True),
        "server.pem": certificate("localhost", key.public_key(), False).add_extension(here, critical=False),
    }
    for file, builder in made.items():
        signed = builder.sign(authority, hashes.SHA384())
        (folder / file).write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def free_port() -> int:
    """A port on this machine that nobody listens to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _beside(program: str) -> str:
    """A program of the environment that this Python is of."""
    path = Path(sys.executable).with_name(program)
    if not path.exists():
        raise EngineFailed(f"{program} is not there; install it with: pip install 'fedbook[flower]'")
    return str(path)


@contextmanager
def _program(log: Path, words: Sequence[str], environment: dict[str, str]) -> Iterator[None]:
    with open(log, "ab") as file:
        process = subprocess.Popen(
            words, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _asked(words: Sequence[str], environment: dict[str, str]) -> str:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(words, env=environment, **pipes)
    if done.returncode:
        raise EngineFailed(
            f"{' '.join([Path(words[0]).name, *words[1:3]])} failed; its last words:\n{_last(done.stdout)}"
        )
    return done.stdout


def _until_there(port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise EngineFailed(f"the SuperLink did not start within 60 s; its last words:\n{_last(log.read_text())}")


def _last(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-15:])
