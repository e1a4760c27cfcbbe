"""A headless Chromium, driven over its DevTools socket; where there is none, these tests say so and are skipped."""

import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from contextlib import suppress

import pytest

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35, " ": 32, "Enter": 13}


class Page:
    """One tab: open an address, ask it in JavaScript, press keys in it, and hear what went wrong in it."""

    def __init__(self, socket):
        self.socket, self.numbers, self.problems = socket, itertools.count(1), []
        for name in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{name}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # else no element ever hears of its focus

    def call(self, method, **params):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (answer := self._heard()).get("id") != number:
            pass
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _heard(self):
        message = json.loads(self.socket.recv())
        what = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(what["exceptionDetails"].get("exception", what["exceptionDetails"]))
        entry = what.get("entry", {})
        if entry.get("level") == "error" and "beforeunload" not in entry["text"]:  # leaving without saving is ours
            self.problems.append(entry["text"])
        if message.get("method") == "Page.javascriptDialogOpening":  # "leave without saving?"
            answer = {"method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
            self.socket.send(json.dumps({"id": next(self.numbers)} | answer))
        return message

    def open(self, address):
        """Go there and wait until it has loaded."""
        self.problems.clear()
        self.call("Page.navigate", url=address)
        self.until(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(address[:4])})")

    def ask(self, expression):
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression, seconds=30.0):
        deadline = time.monotonic() + seconds
        while not self.ask(expression):
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {expression}"
            time.sleep(0.02)

    def wide(self, width):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def press(self, key):
        code = {"key": key, "code": key if key != " " else "Space", "windowsVirtualKeyCode": KEYS[key]}
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **code)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """The socket's address of a Chromium that ends with the tests; the network is off."""
    if PROGRAM is None:
        pytest.skip("no Chromium here: the pages were not tried in a browser")
    folder = tmp_path_factory.mktemp("chromium")
    command = [PROGRAM, "--headless", "--no-sandbox", f"--user-data-dir={folder}", "--remote-debugging-port=0"]
    command += ["--remote-allow-origins=*", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    known, deadline = folder / "DevToolsActivePort", time.monotonic() + 60
    while not known.is_file() or not known.read_text().strip():
        assert time.monotonic() < deadline and process.poll() is None, "Chromium did not start"
        time.sleep(0.05)
    yield f"http://127.0.0.1:{known.read_text().split()[0]}"
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    process.kill()


@pytest.fixture(scope="module")
def page(browser):
    """A tab of one's own."""
    import websocket

    with urllib.request.urlopen(f"{browser}/json") as answer:
        tab = next(one for one in json.load(answer) if one["type"] == "page")
    socket = websocket.create_connection(tab["webSocketDebuggerUrl"], timeout=240)
    yield Page(socket)
    socket.close()
