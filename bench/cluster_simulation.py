"""A large cluster, simulated: the engine of ringsum.cluster itself decides which task comes next.

Client and scheduler are one server that handles one part at a time and takes the measured time for it, so that their
work is on the critical path. A reply reaches the client, and the next task the worker, after the measured round trip.
Workers hash at a fixed rate; each part takes up to a tenth longer, at random.
"""

import heapq
import random

from ringsum.cluster import Limits, engine, objects, plan

GIB = 1 << 30


def efficiency(
    part_s, round_trip_s, total=10 << 40, workers=100, bytes_per_s=1e9, part_bytes=GIB, seed=1
):
    """Return the part of linear speed-up that is reached, and what it was computed from."""
    chance = random.Random(seed)
    limits = Limits(part_bytes=part_bytes, outstanding_tasks=max(256, 4 * workers))
    target = objects.Object("huge", total, 0, None)
    run = engine.Engine(iter([plan.Item(0, "huge", target)]), limits, workers, len, True)
    # (time, order, what): a task that reaches the cluster, a worker that finishes, a reply that reaches the client.
    events, order, waiting = [], 0, []
    idle, now, server_free, busy_s = workers, 0.0, 0.0, 0.0

    def push(when, what, value):
        nonlocal order
        order += 1
        heapq.heappush(events, (when, order, what, value))

    def serve(when):
        """Return when client and scheduler are done with one more part."""
        nonlocal server_free
        server_free = max(server_free, when) + part_s
        return server_free

    def start(when):
        nonlocal idle, busy_s
        while idle and waiting:
            one = waiting.pop(0)
            idle -= 1
            seconds = one.task.length / bytes_per_s * (1 + 0.1 * chance.random())
            busy_s += seconds
            push(when + seconds, "finished", one)

    def submit(when):
        for one in run.next_tasks(when):
            push(serve(when) + round_trip_s / 2, "arrived", one)

    submit(0.0)
    while not run.is_done:
        now, _, what, one = heapq.heappop(events)
        if what == "arrived":
            waiting.append(one)
        elif what == "finished":
            idle += 1
            push(now + round_trip_s / 2, "replied", one)
        else:
            run.finish(one.number, one.task.offset, now)
            submit(now)
            list(run.take_results())
        start(now)
    linear_s = busy_s / workers
    return {
        "efficiency": linear_s / now,
        "simulated_s": now,
        "linear_s": linear_s,
        "part_s": part_s,
        "round_trip_s": round_trip_s,
    }
