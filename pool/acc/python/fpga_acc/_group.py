"""Groups with goals."""

from ctypes import byref, c_void_p
from dataclasses import dataclass

from ._errors import DONE, TIMEOUT
from ._library import Arguments, Buffer, Done, Goal, StatisticsValues, check, error, library, view

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
        handle = c_void_p()
        self._handle, self._next_tag = None, 0
        with Arguments(arguments) as given:
            check(
                library.acc_group_open(
                    accelerator.encode(), given.array, given.count, byref(goal), *slots, byref(handle)
                )
            )
        self._handle = handle

    def submit(self, data):
        """Puts an action into the queue, and returns its number. Waits while more than 256 MiB of input are not done."""
        tag = self._next_tag
        with Buffer(data) as source:
            while (code := library.acc_group_submit(self._handle, tag, source.address, source.bytes, _SLICE_MS)) == TIMEOUT:
                pass
        check(code)
        self._next_tag += 1
        return tag

    def ended(self):
        """Yields the number and the output of each action as it ends, until all that were submitted have ended. Raises
        the error of an action that fails; the others can be asked for again."""
        done = Done()
        while True:
            code = library.acc_group_next(self._handle, byref(done), _SLICE_MS)
            if code == TIMEOUT:
                continue
            if code == DONE:
                return
            check(code)
            if done.code < 0:
                raise error(done.code)
            yield done.tag, bytes(view(done.output, done.bytes))

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
        handle, self._handle = self._handle, None
        if handle is not None:
            check(library.acc_group_close(handle, -1))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()
        else:
            self._give_up()

    def __del__(self):
        self._give_up()

    def _give_up(self):
        handle, self._handle = self._handle, None
        if handle is not None:
            library.acc_group_close(handle, 0)
