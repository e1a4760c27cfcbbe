"""For the lab's tests: empty axes, and kernels, one headless, one live, each started once for all that need it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from matplotlib.figure import Figure

pytest.register_assert_rewrite("tests.lab.checks")

ROOT = Path(__file__).resolve().parents[2]


class Kernel:
    """A Python kernel to which a test talks as a front end does: cells, and messages of widgets."""

    def __init__(self, headless: bool) -> None:
        from jupyter_client import KernelManager

        changed = {"FEDBOOK_HEADLESS": "1" if headless else "0", "OMP_NUM_THREADS": "1"}
        changed["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(env={**os.environ, **changed})
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str) -> list[dict]:
        """The outputs of a cell (data, text, error) as the messages' contents with their type."""
        from textwrap import dedent

        return self._outputs(self.client.execute(dedent(code)))

    def send(self, model_id: str, data: dict) -> list[dict]:
        """A front end's message to a widget; the outputs it causes until the kernel is idle again."""
        content = {"comm_id": model_id, "data": data}
        message = self.client.session.msg("comm_msg", content)
        self.client.shell_channel.send(message)
        return self._outputs(message["header"]["msg_id"])

    def move(self, model_id: str, value) -> list[dict]:
        """Move a control."""
        return self.send(model_id, {"method": "update", "state": {"value": value}, "buffer_paths": []})

    def click(self, model_id: str) -> list[dict]:
        """Click a button."""
        return self.send(model_id, {"method": "custom", "content": {"event": "click"}})

    def value(self, expression: str):
        """The value of an expression in the kernel."""
        import ast

        outputs = self.run(f"print(repr({expression}))")
        assert outputs and outputs[0]["type"] == "stream", outputs
        return ast.literal_eval(outputs[0]["text"])

    def _outputs(self, msg_id: str) -> list[dict]:
        outputs, end = [], time.monotonic() + 60
        while time.monotonic() < end:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return outputs
            if kind in ("stream", "display_data", "execute_result", "error", "comm_open", "comm_msg"):
                outputs.append({"type": kind, **content})
        raise TimeoutError("the kernel did not become idle within a minute")

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="session")
def headless_kernel():
    kernel = Kernel(headless=True)
    yield kernel
    kernel.close()


@pytest.fixture(scope="session")
def live_kernel():
    kernel = Kernel(headless=False)
    yield kernel
    kernel.close()


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture
def axes():
    return Figure().subplots(1, 2)


@pytest.fixture
def three():
    return Figure().subplots(1, 3)
