"""libfpga_acc.so by ctypes."""

import ctypes
import os
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

from ._errors import TIMEOUT, Error, Timeout

REASON_BYTES = 256


class Argument(Structure):
    _fields_ = [("name", c_char_p), ("value", c_void_p), ("bytes", c_size_t)]


class Config(Structure):
    _fields_ = [("brokers", c_char_p), ("token_file", c_char_p), ("authorities", c_char_p), ("node", c_char_p)]


class StatusValues(Structure):
    _fields_ = [
        ("state", c_int),
        ("slots", c_uint32),
        ("input_bytes", c_uint64),
        ("output_bytes", c_uint64),
        ("processor_bytes", c_uint64),
        ("reason", c_char * REASON_BYTES),
    ]


class Chunk(Structure):
    _fields_ = [
        ("input", c_void_p),
        ("input_bytes", c_size_t),
        ("arguments", c_void_p),
        ("argument_bytes", c_size_t),
        ("state", c_void_p),
        ("next_state", c_void_p),
        ("state_bytes", c_size_t),
        ("output", c_void_p),
        ("output_bytes", c_size_t),
        ("is_last", c_int),
    ]


Compute = CFUNCTYPE(c_int, POINTER(Chunk), c_void_p)
Release = CFUNCTYPE(None, c_void_p)


class OrElseValues(Structure):
    _fields_ = [("after_ms", c_uint64), ("compute", Compute), ("data", c_void_p), ("release", Release)]


class Goal(Structure):
    _fields_ = [("actions", c_uint64), ("within_ms", c_uint64), ("actions_per_hour", c_uint64)]


class Done(Structure):
    _fields_ = [("tag", c_uint64), ("code", c_int), ("output", c_void_p), ("bytes", c_size_t)]


class StatisticsValues(Structure):
    _fields_ = [
        ("elapsed_ms", c_uint64),
        ("waiting", c_uint64),
        ("under_way", c_uint64),
        ("done", c_uint64),
        ("failed", c_uint64),
        ("repeated", c_uint64),
        ("lost_slots", c_uint64),
        ("input_bytes", c_uint64),
        ("output_bytes", c_uint64),
        ("slots", c_uint32),
        ("has_forecast", c_int),
        ("reaches_goal", c_int),
        ("forecast_ms", c_uint64),
        ("forecast_actions_per_hour", c_uint64),
        ("reason", c_char * REASON_BYTES),
    ]


class _PyBuffer(Structure):
    """CPython's Py_buffer."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


def _load():
    """The library of this package, or else one that the system finds."""
    here = os.path.join(os.path.dirname(__file__), "libfpga_acc.so.0")
    return ctypes.CDLL(here if os.path.exists(here) else "libfpga_acc.so.0")


library = _load()
library.acc_last_error.restype = c_char_p
_functions = {
    "acc_configure": [POINTER(Config)],
    "acc_start_open_or_else": [
        c_char_p,
        c_uint64,
        POINTER(Argument),
        c_size_t,
        POINTER(OrElseValues),
        POINTER(c_void_p),
    ],
    "acc_start_open_many": [c_char_p, c_uint64, POINTER(Argument), c_size_t, POINTER(c_void_p), c_uint32],
    "acc_input": [c_void_p, POINTER(c_void_p), POINTER(c_size_t)],
    "acc_start_run": [c_void_p, c_size_t],
    "acc_start_stream": [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t],
    "acc_stream_descriptors": [c_void_p, c_int, c_int, c_int64],
    "acc_output": [c_void_p, POINTER(c_void_p), POINTER(c_size_t)],
    "acc_output_size": [c_void_p, c_uint64, POINTER(c_uint64)],
    "acc_wait": [c_void_p, c_int64],
    "acc_poll": [c_void_p],
    "acc_descriptor": [c_void_p],
    "acc_status": [c_void_p, POINTER(StatusValues)],
    "acc_cancel": [c_void_p],
    "acc_close": [c_void_p],
    "acc_group_open": [c_char_p, POINTER(Argument), c_size_t, POINTER(Goal), c_uint32, c_uint32, POINTER(c_void_p)],
    "acc_group_submit": [c_void_p, c_uint64, c_void_p, c_size_t, c_int64],
    "acc_group_next": [c_void_p, POINTER(Done), c_int64],
    "acc_group_descriptor": [c_void_p],
    "acc_group_statistics": [c_void_p, POINTER(StatisticsValues)],
    "acc_group_wait": [c_void_p, c_int64],
    "acc_group_close": [c_void_p, c_int64],
}
for _name, _arguments in _functions.items():
    getattr(library, _name).argtypes = _arguments


def error(code):
    """The exception of a code that a function has returned on this thread."""
    text = library.acc_last_error().decode("utf-8", "replace")
    return Timeout(code, text) if code == TIMEOUT else Error(code, text)


def check(code):
    """Returns what a function has returned, or raises its error."""
    if code < 0:
        raise error(code)
    return code


class Buffer:
    """The memory of an object with the buffer protocol, which stays where it is until it is released."""

    def __init__(self, data, writable=False):
        self._view = _PyBuffer()
        # PyBUF_SIMPLE, and PyBUF_WRITABLE.
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(data), byref(self._view), 1 if writable else 0)
        self.address, self.bytes = self._view.buf, self._view.len

    def release(self):
        ctypes.pythonapi.PyBuffer_Release(byref(self._view))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Arguments:
    """The arguments of an accelerator for a call."""

    def __init__(self, values):
        self._buffers = [Buffer(value) for value in values.values()]
        entries = zip(values, self._buffers)
        self.array = (Argument * len(values))(*(Argument(name.encode(), it.address, it.bytes) for name, it in entries))
        self.count = len(values)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for buffer in self._buffers:
            buffer.release()


def configure(brokers=None, token_file=None, authorities=None, node=None):
    """Says where the pool is, in place of the environment, before the first job or group of the process."""
    texts = [None if text is None else os.fsencode(text) for text in (brokers, token_file, authorities, node)]
    check(library.acc_configure(byref(Config(*texts))))
