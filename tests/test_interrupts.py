import os
import signal
import threading

import pytest
import torch
from torch.func import vmap

from fedbook import interrupts

pytestmark = pytest.mark.usefixtures("ctrl_c")


def press():
    """Ctrl-C, handled before the next line: Python runs a handler between two instructions of the main thread."""
    os.kill(os.getpid(), signal.SIGINT)


def handler():
    return signal.getsignal(signal.SIGINT)


def test_an_interrupt_waits_for_the_next_point():
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        interrupts.point()
        press()
        reached.append("the line after")
        interrupts.point()
        reached.append("beyond the point")
    assert reached == ["the line after"] and handler() is signal.default_int_handler
    interrupts.point()  # raised once


def test_the_end_is_a_point_whatever_ends_it():
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        press()
    with pytest.raises(KeyboardInterrupt) as caught, interrupts.held():
        press()
        raise ValueError("its own end")
    assert isinstance(caught.value.__context__, ValueError)
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        with interrupts.held():
            press()
        pytest.fail("the inner end is a point too")
    assert handler() is signal.default_int_handler


def test_a_second_one_comes_at_once():
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        press()
        press()
        pytest.fail("held twice")
    interrupts.point()
    assert handler() is signal.default_int_handler


def test_a_handler_of_somebody_else_stays():
    seen = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    theirs = handler()
    with interrupts.held():
        press()
        interrupts.point()
        assert handler() is theirs
    assert seen == [1] and handler() is theirs


def test_another_thread_neither_holds_nor_is_interrupted():
    found = []

    def work():
        with interrupts.held():
            found.append(handler())
            interrupts.point()

    with pytest.raises(KeyboardInterrupt), interrupts.held():
        press()
        ours = handler()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert found == [ours]


def test_no_interrupt_lands_inside_a_vectorised_step():
    """The reason for all this: raised there, it leaves the bookkeeping of torch.func half undone."""
    inside = []

    def pressed(x):
        press()
        inside.append(1)
        return x * 2

    with pytest.raises(KeyboardInterrupt), interrupts.held():
        assert vmap(pressed)(torch.ones(3)).tolist() == [2.0] * 3
        interrupts.point()
    assert inside == [1] and vmap(lambda x: x + 1)(torch.ones(2)).tolist() == [2.0, 2.0]
