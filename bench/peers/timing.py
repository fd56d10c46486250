"""How peers time a run: a function of the number of steps to make, which returns when they are done."""

import gc
import time


def granularity(run):
    """Steps that a run takes at once."""
    return getattr(run, "granularity", 1)


def clock(run, iterations):
    """Seconds per step."""
    start = time.perf_counter()
    run(iterations)
    return (time.perf_counter() - start) / iterations


def fastest_of(builders):
    """The quickest of several ways to write the same step, warmed up: a peer is measured at its best. Each way is built and
    let go of by itself, for two steps of a large network may not fit into memory."""

    def warmed(build):
        run = build()
        run(max(3, granularity(run)))
        return run

    if len(builders) == 1:
        return warmed(builders[0])

    def seconds(build):
        run = warmed(build)
        return min(clock(run, granularity(run)) for _ in range(5))

    times = []
    for build in builders:
        times.append(seconds(build))
        gc.collect()
    return warmed(builders[times.index(min(times))])
