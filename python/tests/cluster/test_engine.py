"""The engine with a driver that completes tasks in any order, and lets some fail."""

import random

import pytest

pytest.importorskip(
    "ringsum.cluster",
    reason="dask.distributed is not installed: pip install 'ringsum[cluster]'",
    exc_type=ImportError,
)

import ringsum
from ringsum.cluster.engine import Engine
from ringsum.cluster.objects import Failure, FailureKind, Object, Version
from ringsum.cluster.plan import ANY_VERSION, GroupTask, Item, Limits, RangeTask, parse_size
from ringsum.cluster.worker import Outcome

KIB = 1 << 10
MIB = 1 << 20


def item(index, size, known=None, seen=True):
    name = f"o{index}"
    return Item(
        index, name, Object(name, size, 0, Version("etag", f'"{index}"')) if seen else None, known
    )


class Driver:
    """Runs the tasks on bytes in memory."""

    def __init__(self, contents, seed=0, fails=lambda task, attempt: None):
        self.contents, self.random, self.fails = contents, random.Random(seed), fails
        self.tasks, self.outstanding_max = [], 0

    def reply(self, started):
        task = started.task
        failure = self.fails(task, started.attempt)
        if failure is not None:
            return failure
        if isinstance(task, RangeTask):
            data = self.contents[task.object.name]
            return ringsum.hash_range(
                data[task.offset : task.offset + task.length], task.offset, total=len(data)
            )
        return [self.outcome(task, item) for item in task.items]

    def outcome(self, group, item):
        data = self.contents[item.name]
        found = Object(item.name, len(data), 0, Version("etag", f'"{item.index}"'))
        if len(data) > group.small_bytes:
            return Outcome(found)
        return Outcome(found, ringsum.merge([ringsum.hash_range(data, total=len(data))]))

    def run(self, engine):
        outstanding, results, now = [], [], 0.0
        while not engine.is_done:
            outstanding += engine.next_tasks(now)
            self.outstanding_max = max(self.outstanding_max, len(outstanding))
            results += engine.take_results()
            if outstanding:
                started = outstanding.pop(self.random.randrange(len(outstanding)))
                self.tasks.append(started.task)
                engine.finish(started.number, self.reply(started), now)
                obsolete = set(engine.take_obsolete())
                outstanding = [other for other in outstanding if other.number not in obsolete]
            elif engine.retry_due() is not None:
                now = engine.retry_due()
        return results


def engine_of(items, ordered=True, threads=2, **limits):
    return Engine(iter(items), Limits(**limits), threads, ringsum.merge, ordered)


@pytest.mark.parametrize("part_bytes", [KIB, 3 * KIB, 7 * KIB, 16 * KIB, 100 * KIB, MIB])
@pytest.mark.parametrize("ordered", [True, False])
def test_any_order_of_completion_gives_the_digest(part_bytes, ordered, data, digest_of):
    sizes = [
        0,
        1,
        KIB - 1,
        KIB,
        KIB + 1,
        2 * KIB,
        8 * KIB + 1,
        16 * KIB,
        31 * KIB,
        64 * KIB - 1,
        64 * KIB + 1,
        100 * KIB,
    ]
    contents = {f"o{index}": data(size, index) for index, size in enumerate(sizes)}
    for seed in range(10):
        items = [item(index, size, seen=seed % 2 == 0) for index, size in enumerate(sizes)]
        driver = Driver(contents, seed)
        results = driver.run(
            engine_of(
                items, ordered, part_bytes=part_bytes, small_bytes=4 * KIB, outstanding_tasks=5
            )
        )
        assert {result.index: result.digest.hexdigest() for result in results} == {
            index: digest_of(contents[f"o{index}"]) for index in range(len(sizes))
        }
        assert not ordered or [result.index for result in results] == list(range(len(sizes)))
        assert driver.outstanding_max <= 5


def test_many_small_objects_make_few_tasks():
    count = 100_000
    items = (item(index, 100) for index in range(count))
    engine = Engine(items, Limits(), 64, lambda parts: parts, True)
    tasks, done, outstanding_max = 0, 0, 0
    while not engine.is_done:
        started = engine.next_tasks(0.0)
        outstanding_max = max(outstanding_max, engine.outstanding)
        for one in started:
            tasks += 1
            engine.finish(
                one.number, [Outcome(item.object, "digest") for item in one.task.items], 0.0
            )
        done += sum(1 for _ in engine.take_results())
    assert done == count
    assert tasks <= 2000
    assert outstanding_max <= Limits().outstanding_tasks


def test_results_that_wait_for_an_older_object_are_bounded():
    taken = 0

    def items():
        nonlocal taken
        yield item(0, 10 * MIB)
        for index in range(1, 10_000):
            taken = index
            yield item(index, 10)

    engine = engine_of(
        items(), part_bytes=MIB, small_bytes=KIB, ahead_objects=100, outstanding_tasks=20
    )
    held = []
    for _ in range(50):
        for one in engine.next_tasks(0.0):
            if isinstance(one.task, RangeTask):
                held.append(one)
            else:
                engine.finish(
                    one.number, [Outcome(member.object, "digest") for member in one.task.items], 0.0
                )
        assert not list(engine.take_results())
    assert len(held) == 10
    assert taken <= 100


def test_a_failed_part_is_repeated_and_reported(data, digest_of):
    contents = {"o0": data(64 * KIB)}

    def fails(task, attempt):
        if task.offset == 16 * KIB and attempt < 2:
            return Failure(FailureKind.UNREADABLE, "connection reset").at(task.offset, task.length)
        return None

    driver = Driver(contents, fails=fails)
    engine = engine_of([item(0, 64 * KIB)], part_bytes=16 * KIB, small_bytes=0)
    messages = []
    (result,) = driver.run(engine)
    messages = engine.take_messages()
    assert result.digest.hexdigest() == digest_of(contents["o0"])
    assert result.retries == 2
    assert [(message.name, message.number, message.failure.offset) for message in messages] == [
        ("o0", 1, 16 * KIB),
        ("o0", 2, 16 * KIB),
    ]
    # Only that part was repeated.
    assert sorted(task.offset for task in driver.tasks) == [
        0,
        16 * KIB,
        16 * KIB,
        16 * KIB,
        32 * KIB,
        48 * KIB,
    ]


def test_retries_are_bounded_and_the_others_go_on(data):
    contents = {"o0": data(64 * KIB), "o1": data(64 * KIB, 1)}

    def fails(task, attempt):
        is_bad = task.object.name == "o0" and task.offset == 32 * KIB
        return (
            Failure(FailureKind.UNREADABLE, "I/O error").at(task.offset, task.length)
            if is_bad
            else None
        )

    engine = engine_of(
        [item(0, 64 * KIB), item(1, 64 * KIB)], part_bytes=16 * KIB, small_bytes=0, retries=3
    )
    bad, good = Driver(contents, fails=fails).run(engine)
    assert (bad.status, bad.retries, good.status) == ("error", 3, "ok")
    assert str(bad.error) == "o0: bytes 32768 to 49151: I/O error"
    assert (bad.error.url, bad.error.offset, bad.error.length) == ("o0", 32 * KIB, 16 * KIB)


def test_a_changed_object_is_not_repeated(data):
    def fails(task, attempt):
        return Failure(FailureKind.CHANGED, "another version").at(task.offset, task.length)

    driver = Driver({"o0": data(64 * KIB)}, fails=fails)
    (result,) = driver.run(engine_of([item(0, 64 * KIB)], part_bytes=16 * KIB, small_bytes=0))
    assert (result.status, result.retries, len(driver.tasks)) == ("changed", 0, 1)
    with pytest.raises(OSError, match="o0: .*changed"):
        result.raise_for_error()


def test_a_group_that_kills_workers_is_halved_until_the_cause_is_alone():
    def fails(group, attempt):
        is_bad = any(member.index == 37 for member in group.items)
        return Failure(FailureKind.LOST, "4 workers died") if is_bad else None

    contents = {f"o{index}": b"x" for index in range(100)}
    results = Driver(contents, fails=fails).run(engine_of([item(index, 1) for index in range(100)]))
    assert [result.index for result in results if result.status != "ok"] == [37]
    assert len(results) == 100


def test_known_versions_are_not_read():
    items = [
        item(0, 10, known='etag:"0"'),
        item(1, 10, known='etag:"other"'),
        item(2, 10, known=ANY_VERSION, seen=False),
    ]
    driver = Driver({f"o{index}": b"0123456789" for index in range(3)})
    results = driver.run(engine_of(items))
    assert [result.status for result in results] == ["unchanged", "ok", "unchanged"]
    assert [[member.index for member in task.items] for task in driver.tasks] == [[1]]


def test_too_many_parts_are_refused_with_a_size_that_fits():
    (result,) = Driver({}).run(
        engine_of([item(0, 10 * MIB)], part_bytes=KIB, small_bytes=0, parts_per_object=1000)
    )
    assert "use a part size of 16384 or more" in str(result.failure)


def test_small_groups_first_so_that_all_workers_have_some():
    engine = Engine(
        (item(index, 1) for index in range(10_000)), Limits(), 8, lambda parts: parts, True
    )
    sizes = [
        len(one.task.items) for one in engine.next_tasks(0.0) if isinstance(one.task, GroupTask)
    ]
    assert sizes[:8] == [16] * 8
    assert sizes[8:16] == [64] * 8
    assert sizes[16] == 256


@pytest.mark.parametrize(
    ("text", "size"),
    [("1KiB", KIB), ("64M", 64 * MIB), ("1.5MiB", 3 * MIB // 2), ("10MB", 10**7), ("512", 512)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "1Q", "1.0001KiB", "-1"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError):
        parse_size(text)


@pytest.mark.parametrize("part_bytes", [0, 1, 1023, 1025, -1024])
def test_part_sizes_that_are_refused(part_bytes):
    with pytest.raises(ValueError, match="multiple of 1 KiB"):
        Limits(part_bytes=part_bytes)
