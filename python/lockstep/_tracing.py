"""Whether a function is being traced on this thread, and what cannot be part of a trace."""

import threading


class _Depth(threading.local):
    value = 0


_depth = _Depth()


class Untraceable(Exception):
    """Something that is done anew whenever a function is called: data is read, a strategy runs its step, which it compiles itself. The
    function around it is called as it is written."""


class Tracing:
    """``with Tracing():`` a function of Python is traced."""

    def __enter__(self):
        _depth.value += 1

    def __exit__(self, *_):
        _depth.value -= 1


def refuse(what):
    """Ends the trace that is under way, if there is one."""
    if _depth.value:
        raise Untraceable(f"{what} in a function that is being traced is done once, not whenever it runs: do it outside, and hand over what comes "
                          "of it")
