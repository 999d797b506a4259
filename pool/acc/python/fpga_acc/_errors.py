"""What goes wrong."""

INVALID = -1
TIMEOUT = -9
DONE = -11
PENDING = 1


class Error(Exception):
    """A call failed; ``code`` is the ``ACC_E_...`` of acc.h."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Timeout(Error, TimeoutError):
    """The time is over."""


class Closed(Error):
    """The job or the group is closed."""

    def __init__(self, text):
        super().__init__(INVALID, text)
