"""Jobs."""

import asyncio
import time
from ctypes import byref, c_size_t, c_uint64, c_void_p, memmove
from dataclasses import dataclass

from ._errors import PENDING, TIMEOUT, Closed, Error
from ._fallback import Call
from ._library import Arguments, Buffer, StatusValues, check, error, library

# Python sees Ctrl-C between two waits.
_SLICE_S = 0.2
_STATES = ("waiting", "attaching", "running", "ended", "on the processor")


@dataclass(frozen=True)
class Status:
    """How far a job is; ``reason`` says why it waits. ``processor_bytes`` of the input were done by the processor of this
    machine, since no slot came in time."""

    state: str
    slots: int
    input_bytes: int
    output_bytes: int
    processor_bytes: int
    reason: str


def open(accelerator, workload_bytes, *, timeout=None, or_else=None, **arguments):
    """Opens a job over so many bytes of input, and waits until it has a slot, at most ``timeout`` seconds. With an ``OrElse``
    the processor does the job if no slot comes in time.

    The accelerator's arguments, such as ``key``, are keywords.
    """
    job = Job(accelerator, workload_bytes, arguments, or_else)
    try:
        job.wait(timeout)
    except BaseException:
        job.cancel()
        raise
    return job


async def open_async(accelerator, workload_bytes, *, or_else=None, **arguments):
    """Like ``open``, for asyncio. ``asyncio.timeout`` limits the wait."""
    job = Job(accelerator, workload_bytes, arguments, or_else)
    try:
        await job._ended()
    except BaseException:
        job.cancel()
        raise
    return job


def open_many(accelerator, workload_bytes, count, /, *, timeout=None, **arguments):
    """Opens ``count`` jobs, each over so many bytes of input, and waits until all have slots: they get them at the same
    time, or none does. Returns a list of jobs."""
    jobs = _start_many(accelerator, workload_bytes, count, arguments)
    ends = None if timeout is None else time.monotonic() + timeout
    try:
        for job in jobs:
            job.wait(None if ends is None else max(0, ends - time.monotonic()))
    except BaseException:
        _cancel(jobs)
        raise
    return jobs


async def open_many_async(accelerator, workload_bytes, count, /, **arguments):
    """Like ``open_many``, for asyncio. ``asyncio.timeout`` limits the wait."""
    jobs = _start_many(accelerator, workload_bytes, count, arguments)
    try:
        for job in jobs:
            await job._ended()
    except BaseException:
        _cancel(jobs)
        raise
    return jobs


def _start_many(accelerator, workload_bytes, count, arguments):
    handles = (c_void_p * max(count, 1))()
    with Arguments(arguments) as given:
        check(
            library.acc_start_open_many(
                accelerator.encode(), workload_bytes, given.array, given.count, handles, count
            )
        )
    return [Job._of(_Handle(handle)) for handle in handles]


def _cancel(jobs):
    for job in jobs:
        job.cancel()


class _Handle(c_void_p):
    """A handle of the library, which lives until no call of any thread uses it any more."""

    def __del__(self):
        if self:
            library.acc_close(self)


class Job:
    """A job; a context manager that closes it. ``Job(...)`` does not wait: ``wait`` does, and ``status`` says why the job
    waits; ``open`` returns a job that has a slot. One thread at a time uses a job; ``cancel`` and ``status`` are for
    any."""

    def __init__(self, accelerator, workload_bytes, arguments=(), or_else=None):
        self._open, self._call = _Handle(), Call()
        with Arguments(dict(arguments)) as given:
            name, otherwise = accelerator.encode(), or_else and byref(or_else._values(self._call))
            check(
                library.acc_start_open_or_else(
                    name, workload_bytes, given.array, given.count, otherwise, byref(self._open)
                )
            )

    @classmethod
    def _of(cls, handle):
        """A job that the library has begun."""
        job = cls.__new__(cls)
        job._open, job._call = handle, Call()
        return job

    @property
    def _handle(self):
        if not self._open:
            raise Closed("the job is closed")
        return self._open

    def run(self, data, out=None, timeout=None):
        """Runs ``data`` as the next piece of the job's input, at most ``buffer_bytes`` of it, and returns the output: a new
        bytearray, or the part of ``out`` that was written, as a memoryview. The piece with which the input reaches
        ``workload_bytes`` is the last one."""
        self._start_run(data)
        self.wait(timeout)
        return self._output(out)

    async def run_async(self, data, out=None):
        """Like ``run``, for asyncio."""
        self._start_run(data)
        await self._ended()
        return self._output(out)

    @property
    def buffer_bytes(self):
        """Bytes that a run takes at most."""
        return self._buffer()[1]

    def stream(self, data, out=None, timeout=None):
        """Runs all of ``data``, of any length, and returns the output: a new bytearray, or the part of ``out`` that was
        written, as a memoryview. Python copies none of it."""
        out = self._room(data) if out is None else out
        with Buffer(data) as source, Buffer(out, writable=True) as target:
            self._start_stream(source, target)
            try:
                self.wait(timeout)
            except BaseException:
                # The buffers are the program's again.
                self.cancel()
                raise
        return self._written(out)

    async def stream_async(self, data, out=None):
        """Like ``stream``, for asyncio."""
        out = self._room(data) if out is None else out
        with Buffer(data) as source, Buffer(out, writable=True) as target:
            self._start_stream(source, target)
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
        state, bytes_ = _STATES[values.state], (values.input_bytes, values.output_bytes, values.processor_bytes)
        return Status(state, values.slots, *bytes_, reason)

    def wait(self, timeout=None):
        """Waits until the job has a slot, or its operation has ended, at most ``timeout`` seconds."""
        handle, ends = self._handle, None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE_S if ends is None else min(_SLICE_S, ends - time.monotonic())
            code = library.acc_wait(handle, max(0, int(left * 1000)))
            if code != TIMEOUT:
                self._check(code)
                return
            if ends is not None and time.monotonic() >= ends:
                raise error(code)

    def _check(self, code):
        """Returns what a function has returned, or raises its error, from that of the program's own function."""
        try:
            return check(code)
        except Error as error:
            raise error from self._call.exception

    def cancel(self):
        """Gives the job up, and returns at once."""
        check(library.acc_cancel(self._handle))

    def close(self):
        """Gives the slot up."""
        self._open = _Handle()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None and self._open:
            self.cancel()
        self.close()

    async def _ended(self):
        handle = self._handle
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        descriptor = check(library.acc_descriptor(handle))
        loop.add_reader(descriptor, ready.set)
        try:
            while self._check(library.acc_poll(handle)) == PENDING:
                await ready.wait()
                ready.clear()
        finally:
            loop.remove_reader(descriptor)

    def _buffer(self):
        address, count = c_void_p(), c_size_t()
        check(library.acc_input(self._handle, byref(address), byref(count)))
        return address.value, count.value

    def _start_run(self, data):
        address, room = self._buffer()
        with Buffer(data) as source:
            # The library refuses what is longer.
            memmove(address, source.address, min(source.bytes, room))
            check(library.acc_start_run(self._handle, source.bytes))

    def _output(self, out):
        address, count = c_void_p(), c_size_t()
        check(library.acc_output(self._handle, byref(address), byref(count)))
        out = bytearray(count.value) if out is None else out
        with Buffer(out, writable=True) as target:
            if target.bytes < count.value:
                raise ValueError(f"the output has {count.value} bytes, and out has {target.bytes}")
            memmove(target.address, address, count.value)
        return _part(out, count.value)

    def _start_stream(self, source, target):
        check(
            library.acc_start_stream(self._handle, source.address, source.bytes, target.address, target.bytes)
        )

    def _room(self, data):
        with Buffer(data) as source:
            count = c_uint64()
            check(library.acc_output_size(self._handle, source.bytes, byref(count)))
        return bytearray(count.value)

    def _written(self, out):
        return _part(out, self.status().output_bytes)


def _part(out, count):
    """What was written of a buffer."""
    if isinstance(out, bytearray) and len(out) == count:
        return out
    return memoryview(out).cast("B")[:count]
