"""Jobs."""

import asyncio
import time
from ctypes import byref, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass

from ._errors import PENDING, TIMEOUT
from ._library import Arguments, Buffer, StatusValues, check, error, library, view

# Python sees Ctrl-C between two waits.
_SLICE_S = 0.2
_STATES = ("waiting", "attaching", "running", "ended")


@dataclass(frozen=True)
class Status:
    """How far a job is; ``reason`` says why it waits."""

    state: str
    slots: int
    input_bytes: int
    output_bytes: int
    reason: str


def open(accelerator, workload_bytes, *, timeout=None, **arguments):
    """Opens a job over so many bytes of input, and waits until it has a slot, at most ``timeout`` seconds.

    The accelerator's arguments, such as ``key``, are keywords.
    """
    job = Job(accelerator, workload_bytes, arguments)
    try:
        job._wait(timeout)
    except BaseException:
        job.close()
        raise
    return job


async def open_async(accelerator, workload_bytes, **arguments):
    """Like ``open``, for asyncio. ``asyncio.timeout`` limits the wait."""
    job = Job(accelerator, workload_bytes, arguments)
    try:
        await job._ended()
    except BaseException:
        job.close()
        raise
    return job


class Job:
    """A job with a slot; a context manager that closes it. One thread at a time uses a job; ``cancel`` and ``status``
    are for any."""

    def __init__(self, accelerator, workload_bytes, arguments):
        handle = c_void_p()
        self._handle = None
        with Arguments(arguments) as given:
            check(
                library.acc_start_open(
                    accelerator.encode(), workload_bytes, given.array, given.count, byref(handle)
                )
            )
        self._handle = handle

    @property
    def input(self):
        """The job's input buffer, a writable memoryview; ``numpy.frombuffer(job.input, dtype)`` copies nothing."""
        address, count = c_void_p(), c_size_t()
        check(library.acc_input(self._handle, byref(address), byref(count)))
        return view(address.value, count.value)

    def run(self, count, timeout=None):
        """Runs the first ``count`` bytes of the input buffer as the next piece of the job's input. Returns a memoryview of
        the output, which is the library's memory and valid until the next operation."""
        check(library.acc_start_run(self._handle, count))
        self._wait(timeout)
        return self._output()

    async def run_async(self, count):
        """Like ``run``, for asyncio."""
        check(library.acc_start_run(self._handle, count))
        await self._ended()
        return self._output()

    def stream(self, data, out=None, timeout=None):
        """Runs all of ``data``, of any length, and returns the output: a new bytearray, or the part of ``out`` that was
        written, as a memoryview."""
        out = self._room(data) if out is None else out
        with Buffer(data) as source, Buffer(out, writable=True) as target:
            check(
                library.acc_start_stream(self._handle, source.address, source.bytes, target.address, target.bytes)
            )
            try:
                self._wait(timeout)
            except BaseException:
                # The buffers are the program's again.
                self.cancel()
                raise
        return self._written(out)

    async def stream_async(self, data, out=None):
        """Like ``stream``, for asyncio."""
        out = self._room(data) if out is None else out
        with Buffer(data) as source, Buffer(out, writable=True) as target:
            check(
                library.acc_start_stream(self._handle, source.address, source.bytes, target.address, target.bytes)
            )
            try:
                await self._ended()
            except BaseException:
                self.cancel()
                raise
        return self._written(out)

    def stream_files(self, source, target):
        """Runs what a file, socket or pipe yields until its end, and writes the output to another one."""
        check(library.acc_stream_descriptors(self._handle, source.fileno(), target.fileno(), -1))

    def status(self):
        """How far the job is, and why it waits."""
        values = StatusValues()
        check(library.acc_status(self._handle, byref(values)))
        reason = values.reason.decode("utf-8", "replace")
        return Status(_STATES[values.state], values.slots, values.input_bytes, values.output_bytes, reason)

    def cancel(self):
        """Gives the job up, and returns at once."""
        check(library.acc_cancel(self._handle))

    def close(self):
        """Gives the slot up."""
        handle, self._handle = self._handle, None
        if handle is not None:
            check(library.acc_close(handle))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.cancel()
        self.close()

    def __del__(self):
        if self._handle is not None:
            library.acc_close(self._handle)

    def _wait(self, timeout):
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE_S if ends is None else min(_SLICE_S, ends - time.monotonic())
            code = library.acc_wait(self._handle, max(0, int(left * 1000)))
            if code != TIMEOUT:
                check(code)
                return
            if ends is not None and time.monotonic() >= ends:
                raise error(code)

    async def _ended(self):
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        descriptor = check(library.acc_descriptor(self._handle))
        loop.add_reader(descriptor, ready.set)
        try:
            while check(library.acc_poll(self._handle)) == PENDING:
                await ready.wait()
                ready.clear()
        finally:
            loop.remove_reader(descriptor)

    def _output(self):
        address, count = c_void_p(), c_size_t()
        check(library.acc_output(self._handle, byref(address), byref(count)))
        return view(address.value, count.value)

    def _room(self, data):
        with Buffer(data) as source:
            count = c_uint64()
            check(library.acc_output_size(self._handle, source.bytes, byref(count)))
        return bytearray(count.value)

    def _written(self, out):
        count = self.status().output_bytes
        if isinstance(out, bytearray) and len(out) == count:
            return out
        return memoryview(out).cast("B")[:count]
