"""The processor in place of a slot that does not come in time."""

import itertools
import threading
from ctypes import memmove, string_at

from ._library import Compute, OrElseValues, Release

_keys = itertools.count(1)
# What the library still may call, by the key that it is given.
_fallbacks = {}
_lock = threading.Lock()


class OrElse:
    """Lets the processor of this machine do a job, or the rest of it, that has waited ``after`` seconds for a slot; at once if
    the pool gives none.

    Without ``compute`` the library's own code of the shipped accelerators does it. ``compute(data, state, arguments, is_last)``
    gets bytes, as the kernel does, and returns the output, or a pair of output and next state if the accelerator has a state. It
    runs on a thread of the library; its exception ends the job.
    """

    def __init__(self, after, compute=None):
        self.after, self.compute = after, compute

    def _values(self, call):
        """What the library is told. ``call`` keeps the exception of ``compute``."""
        after_ms = max(0, int(self.after * 1000))
        if self.compute is None:
            return OrElseValues(after_ms, Compute(), None, Release())
        with _lock:
            key = next(_keys)
            _fallbacks[key] = (self.compute, call)
        return OrElseValues(after_ms, _compute, key, _release)


class Call:
    """Why a function of the program failed."""

    def __init__(self):
        self.exception = None


@Compute
def _compute(chunk, key):
    compute, call = _fallbacks[key]
    try:
        it = chunk.contents
        data, state = string_at(it.input, it.input_bytes), string_at(it.state, it.state_bytes)
        made = compute(data, state, string_at(it.arguments, it.argument_bytes), bool(it.is_last))
        output, state = made if it.state_bytes else (made, b"")
        for what, bytes_, expected, target in (
            ("output", output, it.output_bytes, it.output),
            ("next state", state, it.state_bytes, it.next_state),
        ):
            view = memoryview(bytes_).cast("B")
            if len(view) != expected:
                raise ValueError(f"the {what} has {len(view)} bytes; return {expected}")
            memmove(target, view.tobytes(), expected)
        return 0
    except BaseException as exception:
        call.exception = exception
        return 1


@Release
def _release(key):
    with _lock:
        _fallbacks.pop(key, None)
