"""Small datasets, a server on the loopback interface, and a listing of folders, for the tests of the data."""

from __future__ import annotations

import hashlib
import http.server
import importlib.util
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

Respond = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture
def listing() -> Callable[[Path], dict[str, str]]:
    """A function: every file and folder below a folder, with the files' checksums."""

    def walk(folder: Path) -> dict[str, str]:
        return {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            if path.is_file()
            else "/"
            for path in sorted(folder.rglob("*"))
        }

    return walk


@pytest.fixture(scope="session")
def make() -> ModuleType:
    """The script that makes what ships, ``data/make.py``."""
    spec = importlib.util.spec_from_file_location("make_data", Path(__file__).parents[2] / "data" / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Server:
    """Serves bytes by name on 127.0.0.1; ``asked`` lists the names asked for."""

    def __init__(self) -> None:
        self.content: dict[str, bytes | Respond] = {}
        self.asked: list[str] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.lstrip("/")
                server.asked.append(name)
                answer = server.content.get(name)
                if callable(answer):
                    answer(self)
                elif answer is None:
                    self.send_error(404)
                else:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads = True
        self.thread = threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.httpd.server_address[1]}/{name}"

    def close(self) -> None:
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    running = Server()
    yield running
    running.close()
