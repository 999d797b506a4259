"""Runs accelerators on any board of a pool.

A job needs no board: ``open`` waits until the pool gives it a slot of some board, ``run`` and ``stream`` send its bytes
there and bring the output back. A slot that is lost, or that others need, is no error: the job waits for another one, and
only what is not done is done again.

    import fpga_acc

    with fpga_acc.open("sha-256", len(data), timeout=60) as job:
        digest = job.stream(data)

The environment says where the pool is (``FPGA_POOL``, ``FPGA_POOL_TOKEN_FILE``, ``FPGA_POOL_CA``,
``FPGA_NODE_NAME``), or ``configure``.
Data is anything with the buffer protocol: bytes, bytearray, memoryview, numpy arrays. Streams copy
nothing of it: they read and write arrays where they are.
"""

from ._errors import Closed, Error, Timeout
from ._fallback import OrElse
from ._group import Group, Statistics
from ._job import Job, Status, open, open_async, open_many, open_many_async
from ._library import configure

__all__ = [
    "Closed",
    "Error",
    "Group",
    "Job",
    "OrElse",
    "Statistics",
    "Status",
    "Timeout",
    "configure",
    "open",
    "open_async",
    "open_many",
    "open_many_async",
]
