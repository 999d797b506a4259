"""Groups with goals."""

import asyncio
import itertools
from ctypes import byref, c_void_p, string_at
from dataclasses import dataclass

from ._errors import DONE, TIMEOUT, Closed
from ._library import Arguments, Buffer, Done, Goal, StatisticsValues, check, error, library

_SLICE_MS = 200


@dataclass(frozen=True)
class Statistics:
    """How far a group is. ``forecast_s`` (deadline) or ``forecast_actions_per_hour`` (throughput) is what it will reach;
    ``reaches_goal`` is None without a forecast."""

    elapsed_s: float
    waiting: int
    under_way: int
    done: int
    failed: int
    repeated: int
    lost_slots: int
    input_bytes: int
    output_bytes: int
    slots: int
    reaches_goal: bool | None
    forecast_s: float
    forecast_actions_per_hour: int
    reason: str


class _Handle(c_void_p):
    """A handle of the library, which lives until no call of any thread uses it any more."""

    close_ms = 0

    def __del__(self):
        if self:
            library.acc_group_close(self, self.close_ms)


class Group:
    """Many independent actions with one accelerator on as many slots as their goal needs; a context manager.

    ``deadline=(actions, seconds)`` or ``actions_per_hour=number`` is the goal, ``slots=(least, most)`` are the slots that
    the group may have. The accelerator's arguments are further keywords.
    """

    def __init__(self, accelerator, *, deadline=None, actions_per_hour=None, slots=(0, 1), **arguments):
        if (deadline is None) == (actions_per_hour is None):
            raise ValueError("a group has a deadline or a number of actions per hour")
        if deadline is not None:
            goal = Goal(deadline[0], int(deadline[1] * 1000), 0)
        else:
            goal = Goal(0, 0, actions_per_hour)
        self._open, self._tags = _Handle(), itertools.count()
        with Arguments(arguments) as given:
            check(
                library.acc_group_open(
                    accelerator.encode(), given.array, given.count, byref(goal), *slots, byref(self._open)
                )
            )

    @property
    def _handle(self):
        if not self._open:
            raise Closed("the group is closed")
        return self._open

    def submit(self, data):
        """Puts an action into the queue, and returns its number. Waits while more than 256 MiB of input are not done."""
        tag, handle = next(self._tags), self._handle
        with Buffer(data) as source:
            while (code := library.acc_group_submit(handle, tag, source.address, source.bytes, _SLICE_MS)) == TIMEOUT:
                pass
        check(code)
        return tag

    async def submit_async(self, data):
        """Like ``submit``, for asyncio: waits in another thread."""
        return await asyncio.to_thread(self.submit, data)

    def ended(self):
        """Yields the number and the output of each action as it ends, until all that were submitted have ended. Raises
        the error of an action that fails, with its number as ``action``; the others can be asked for again."""
        while True:
            code, action = self._next(_SLICE_MS)
            if code == DONE:
                return
            if code != TIMEOUT:
                yield action

    async def ended_async(self):
        """Like ``ended``, for asyncio."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        descriptor = check(library.acc_group_descriptor(self._handle))
        loop.add_reader(descriptor, ready.set)
        try:
            while True:
                code, action = self._next(0)
                if code == DONE:
                    return
                if code == TIMEOUT:
                    await ready.wait()
                    ready.clear()
                else:
                    yield action
        finally:
            loop.remove_reader(descriptor)

    def map(self, inputs):
        """Submits all inputs, and returns their outputs in order."""
        tags = [self.submit(data) for data in inputs]
        outputs = dict(self.ended())
        return [outputs[tag] for tag in tags]

    def statistics(self):
        """How far the group is, and what it will reach."""
        values = StatisticsValues()
        check(library.acc_group_statistics(self._handle, byref(values)))
        return Statistics(
            elapsed_s=values.elapsed_ms / 1000,
            waiting=values.waiting,
            under_way=values.under_way,
            done=values.done,
            failed=values.failed,
            repeated=values.repeated,
            lost_slots=values.lost_slots,
            input_bytes=values.input_bytes,
            output_bytes=values.output_bytes,
            slots=values.slots,
            reaches_goal=bool(values.reaches_goal) if values.has_forecast else None,
            forecast_s=values.forecast_ms / 1000,
            forecast_actions_per_hour=values.forecast_actions_per_hour,
            reason=values.reason.decode("utf-8", "replace"),
        )

    def close(self):
        """Waits until all actions have ended, and gives the slots up."""
        handle = self._handle
        while (code := library.acc_group_wait(handle, _SLICE_MS)) == TIMEOUT:
            pass
        check(code)
        handle.close_ms = 1000
        self._open = _Handle()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()
        else:
            # Gives the group up.
            self._open = _Handle()

    def _next(self, timeout_ms):
        """Waits for an action. Returns a code, and after 0 the action's number and output."""
        handle, done = self._handle, Done()
        code = library.acc_group_next(handle, byref(done), timeout_ms)
        if code in (TIMEOUT, DONE):
            return code, None
        check(code)
        if done.code < 0:
            failed = error(done.code)
            failed.action = done.tag
            raise failed
        return code, (done.tag, string_at(done.output, done.bytes))
