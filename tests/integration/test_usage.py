"""What agents use is counted from their own logs: every answer once, whoever reads, and nothing else."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm_core.errors import ExternalFailure
from swarm_core.models import Activity, Instance, Source
from swarm_core.ops import ledger
from swarm_core.ops.budget import Bookkeeper
from swarm_core.ops.courier import Courier
from swarm_core.store import instances, messages, usage
from swarm_core.store.usage import Totals
from swarm_core.swarm import Swarm
from tests.integration.transcript_fixture import Transcript, add_claude, answer, claude_config
from tests.rows import add_message
from tests.support import wait_until
from tests.world import World

__all__ = ["claude_config"]


@pytest.fixture
def swarm(world: World, claude_config: Path) -> Iterator[Swarm]:
    with world.open() as opened:
        yield opened


@pytest.fixture
def work(swarm: Swarm) -> Instance:
    return add_claude(swarm)


@pytest.fixture
def log(claude_config: Path, work: Instance) -> Transcript:
    return Transcript.of(claude_config, work)


def counted(swarm: Swarm, instance: Instance) -> Totals:
    """The sums after a reading; those of the instance's own row are the same."""
    ledger.take_in(swarm.context, instance)
    return sums(swarm, instance)


def sums(swarm: Swarm, instance: Instance) -> Totals:
    found, row = usage.totals(swarm.context.db, instance.id), swarm.find(instance.id)
    tokens = (found.input_tokens, found.output_tokens, found.cache_read_tokens, found.cache_write_tokens)
    assert row.tokens_used == sum(tokens)
    assert row.cost_usd == pytest.approx(found.cost_usd)
    return found


def test_every_kind_of_token_is_counted_and_priced(swarm: Swarm, work: Instance, log: Transcript) -> None:
    log.answer("msg_1", took=1000, gave=200, read=30_000, wrote=4000)
    log.answer("msg_2", took=10, gave=20)
    found = counted(swarm, work)
    assert found == Totals("", 2, 1010, 220, 30_000, 4000, pytest.approx(0.03033))


def test_several_lines_of_one_answer_count_once_with_the_most(
    swarm: Swarm, work: Instance, log: Transcript
) -> None:
    log.answer("msg_1", took=100, gave=1)
    log.answer("msg_1", took=100, gave=50)
    log.answer("msg_1", took=100, gave=50)
    assert counted(swarm, work) == Totals("", 1, 100, 50, 0, 0, pytest.approx(0.00105))
    log.answer("msg_1", took=100, gave=80)
    log.answer("msg_1", took=100, gave=2)
    assert counted(swarm, work) == Totals("", 1, 100, 80, 0, 0, pytest.approx(0.0015))


def test_the_larger_of_two_readings_stays(swarm: Swarm, work: Instance, log: Transcript) -> None:
    log.answer("msg_1", took=100, gave=80)
    counted(swarm, work)
    log.answer("msg_1", took=100, gave=2)
    assert counted(swarm, work).output_tokens == 80


def test_a_line_that_is_torn_counts_when_it_is_whole(swarm: Swarm, work: Instance, log: Transcript) -> None:
    line = answer("msg_2", took=5)
    log.answer("msg_1", took=10)
    log.write(line[:200])
    assert counted(swarm, work).input_tokens == 10
    log.write(line[200:-1])
    assert counted(swarm, work).input_tokens == 10
    log.write("\n")
    assert counted(swarm, work).input_tokens == 15


def test_a_log_that_is_cut_or_replaced_counts_nothing_twice(swarm: Swarm, work: Instance, log: Transcript) -> None:
    log.answer("msg_1", took=10)
    log.answer("msg_2", took=20)
    counted(swarm, work)
    log.path.write_text(answer("msg_3", took=1))
    assert counted(swarm, work).input_tokens == 31
    fresh = log.path.with_suffix(".new")
    fresh.write_text("".join(answer(f"msg_{n}", took=t) for n, t in ((4, 2), (1, 10), (2, 20), (3, 1))))
    fresh.replace(log.path)
    assert counted(swarm, work) == Totals("", 4, 33, 0, 0, 0, pytest.approx(33 * 3e-6))


def test_what_was_read_of_a_long_log_is_not_read_again(swarm: Swarm, work: Instance, log: Transcript) -> None:
    filling = "x" * 10_000
    log.write("".join(answer(f"msg_a_{n:04}", took=1, text=filling) for n in range(1000)))
    size = log.path.stat().st_size
    assert size > 10_000_000
    assert counted(swarm, work).input_tokens == 1000
    host = swarm.context.host(work)
    assert host._speech._logs[work.id].offset == size  # type: ignore[attr-defined]
    # The same file with other answers where it was read: whoever reads there again, counts them.
    with log.path.open("r+") as file:
        file.write("".join(answer(f"msg_b_{n:04}", took=1, text=filling) for n in range(1000)))
    assert log.path.stat().st_size == size
    log.answer("msg_c", took=7)
    assert counted(swarm, work) == Totals("", 1001, 1007, 0, 0, 0, pytest.approx(1007 * 3e-6))


def test_errors_of_the_service_and_what_the_program_says_itself_cost_nothing(
    swarm: Swarm, work: Instance, log: Transcript
) -> None:
    log.answer("msg_e", model="<synthetic>", isApiErrorMessage=True, apiErrorStatus=529)
    log.answer("msg_s", model="<synthetic>", took=1000)
    log.answer("msg_0")
    log.write('{"type":"user","message":{"content":"what is \\"usage\\"?"},"usage":{"input_tokens":5}}\n')
    log.write('{"type":"assistant","message":{"usage":"none"}}\n')
    log.write('{"type":"assistant","message":{"usage"\n\n[]\n"usage"\n')
    assert counted(swarm, work) == Totals("", 0, 0, 0, 0, 0, 0)


def test_odd_values_in_a_log_keep_nothing_else_from_being_counted(
    swarm: Swarm, work: Instance, log: Transcript
) -> None:
    log.answer("msg_1", took=1 << 80, gave=-5)
    log.answer("msg_\ud800", took=1, model="claude-\ud800")
    log.answer("m" * 5000, took=1)
    log.answer("msg_2", took=1, timestamp="yesterday")
    assert counted(swarm, work).answers == 4
    assert counted(swarm, work).input_tokens == 1_000_000_003


def test_a_model_without_a_price_counts_tokens_and_is_named(swarm: Swarm, work: Instance, log: Transcript) -> None:
    log.answer("msg_1", took=1_000_000)
    log.answer("msg_2", took=5_000_000, model="claude-next-9")
    account = swarm.budget(work.id)
    assert account.instance.cost_usd == pytest.approx(3)
    assert account.instance.tokens_used == 6_000_000
    assert account.unknown_price == ["claude-next-9"]
    assert [(m.model, m.input_tokens) for m in account.models][1] == ("claude-next-9", 5_000_000)


def test_a_price_that_becomes_known_counts_from_the_next_reading_of_the_whole(
    world: World, claude_config: Path
) -> None:
    with world.open() as swarm:
        work = add_claude(swarm)
        Transcript.of(claude_config, work).answer("msg_1", took=1_000_000, model="claude-next-9")
        assert counted(swarm, work).cost_usd == 0
    world.settings.prices_path.write_text('["claude-next-*"]\ninput = 2\noutput = 4\n')
    with world.open() as swarm:
        assert counted(swarm, work).cost_usd == 2
        assert swarm.budget(work.id).unknown_price == []
    world.settings.prices_path.write_text('["claude-next-*"]\ninput = 200\noutput = 4\n')
    with world.open() as swarm:
        assert counted(swarm, work).cost_usd == 2


def test_another_process_reads_all_of_it_and_counts_nothing_twice(world: World, claude_config: Path) -> None:
    with world.open() as swarm:
        work = add_claude(swarm)
        log = Transcript.of(claude_config, work)
        log.answer("msg_1", took=100, gave=1)
        log.answer("msg_1", took=100, gave=10)
        before = counted(swarm, work)
    with world.open() as swarm:
        assert counted(swarm, work) == before
        log.answer("msg_2", took=1)
        assert counted(swarm, work).input_tokens == 101
    with world.open() as first, world.open() as second:
        log.answer("msg_3", took=2)
        assert counted(first, work).input_tokens == 103
        assert counted(second, work).input_tokens == 103


def test_instances_have_accounts_of_their_own(swarm: Swarm, claude_config: Path) -> None:
    first, second = add_claude(swarm, "work-1-a1"), add_claude(swarm, "work-1-a2")
    Transcript.of(claude_config, first).answer("msg_1", took=1)
    Transcript.of(claude_config, second).answer("msg_1", took=20)
    assert counted(swarm, first).input_tokens == 1
    assert counted(swarm, second).input_tokens == 20
    assert sums(swarm, first).input_tokens == 1


def test_eight_readers_at_once_count_everything_once(swarm: Swarm, work: Instance, log: Transcript) -> None:
    written, failures = threading.Event(), []

    def read() -> None:
        try:
            while not written.is_set():
                ledger.take_in(swarm.context, work)
        except BaseException as error:
            failures.append(error)
            raise

    readers = [threading.Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    with eager_threads():
        for n in range(300):
            log.answer(f"msg_{n}", took=1)
        written.set()
        for reader in readers:
            reader.join(60)
    assert failures == []
    assert counted(swarm, work).input_tokens == 300


@contextlib.contextmanager
def eager_threads() -> Iterator[None]:
    """Threads take turns thousands of times more often, so that what can come between two steps does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


# One log, two who want to know


def test_what_is_read_for_the_costs_is_a_receipt_too(swarm: Swarm, work: Instance, log: Transcript) -> None:
    message = injected(swarm, work)
    log.receive(message)
    log.answer("msg_1", took=3)
    Bookkeeper(swarm.context).keep()
    assert messages.get(swarm.context.db, message).state == "seen"
    assert sums(swarm, work).input_tokens == 3
    Courier(swarm.context).deliver(work.id)
    assert messages.get(swarm.context.db, message).state == "seen"


def test_what_the_courier_reads_is_counted_too(swarm: Swarm, work: Instance, log: Transcript) -> None:
    message = injected(swarm, work)
    log.receive(message)
    log.answer("msg_1", took=3)
    Courier(swarm.context).deliver(work.id)
    assert messages.get(swarm.context.db, message).state == "seen"
    assert sums(swarm, work).input_tokens == 3


def injected(swarm: Swarm, work: Instance) -> str:
    message = add_message(swarm.context.db, "hello", to=work.id)
    with swarm.context.db.write():
        assert messages.inject(swarm.context.db, [message.id], how=f"paste start {work.epoch}")
    return message.id


def test_what_could_not_be_written_is_written_the_next_time(world: World, claude_config: Path) -> None:
    world.home.mkdir(parents=True)
    (world.home / "config.toml").write_text("busy_timeout = 0.05\n")
    with world.open() as swarm:
        work = add_claude(swarm)
        log, message = Transcript.of(claude_config, work), injected(swarm, work)
        log.receive(message)
        log.answer("msg_1", took=3)
        other = sqlite3.connect(world.settings.database_path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ExternalFailure) as locked:
            ledger.take_in(swarm.context, work)
        assert locked.value.code == "DATABASE_LOCKED"
        other.execute("ROLLBACK")
        other.close()
        assert counted(swarm, work).input_tokens == 3
        assert messages.get(swarm.context.db, message).state == "seen"


def test_nobody_finds_nothing_new_while_another_has_read_and_not_written(
    world: World, claude_config: Path
) -> None:
    found: list[str] = []
    with world.open() as swarm:
        work = add_claude(swarm)
        log, message = Transcript.of(claude_config, work), injected(swarm, work)
        log.receive(message)
        other = sqlite3.connect(world.settings.database_path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        first = threading.Thread(target=ledger.take_in, args=(swarm.context, work))

        def look() -> None:
            ledger.take_in(swarm.context, work)
            found.append(messages.get(swarm.context.db, message).state)

        second = threading.Thread(target=look)
        first.start()
        read = swarm.context.host(work)._speech._logs  # type: ignore[attr-defined]
        wait_until(lambda: work.id in read and read[work.id].offset > 0, what="the first has read")
        second.start()
        second.join(0.5)  # one that does not wait for the first is done by then
        other.execute("ROLLBACK")
        other.close()
        first.join(30)
        second.join(30)
    assert found == ["seen"]


def test_prices_that_cannot_be_read_keep_no_receipt_and_no_tokens(world: World, claude_config: Path) -> None:
    with world.open() as swarm:
        work = add_claude(swarm)
        world.settings.prices_path.write_text("not toml")
        log, message = Transcript.of(claude_config, work), injected(swarm, work)
        log.receive(message)
        log.answer("msg_1", took=1_000_000)
        Bookkeeper(swarm.context).keep()
        assert messages.get(swarm.context.db, message).state == "seen"
        assert sums(swarm, work).cost_usd == pytest.approx(3)


# The bookkeeper


def test_an_agent_that_has_ended_is_read_once_more(
    swarm: Swarm, work: Instance, log: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swarm_core.ops.budget._EVERY", 0.0)
    bookkeeper = Bookkeeper(swarm.context)
    log.answer("msg_1", took=1)
    bookkeeper.keep()
    assert sums(swarm, work).input_tokens == 1
    log.answer("msg_2", took=2)
    observe(swarm, work, Activity.EXITED)
    bookkeeper.keep()
    assert sums(swarm, work).input_tokens == 3
    log.answer("msg_3", took=4)
    bookkeeper.keep()
    assert sums(swarm, work).input_tokens == 3
    observe(swarm, work, Activity.BUSY)
    bookkeeper.keep()
    assert sums(swarm, work).input_tokens == 7


def test_a_log_is_not_read_more_often_than_every_few_seconds(
    swarm: Swarm, work: Instance, log: Transcript
) -> None:
    bookkeeper = Bookkeeper(swarm.context)
    bookkeeper.keep()
    log.answer("msg_1", took=1)
    bookkeeper.keep()
    assert sums(swarm, work).input_tokens == 0
    Bookkeeper(swarm.context).keep()
    assert sums(swarm, work).input_tokens == 1


def test_many_logs_are_first_read_a_few_at_a_time(swarm: Swarm, claude_config: Path) -> None:
    made = [add_claude(swarm, f"work-1-a{n}") for n in range(1, 21)]
    for one in made:
        Transcript.of(claude_config, one).answer("msg_1", took=1)
    bookkeeper = Bookkeeper(swarm.context)
    read = []
    for _ in range(4):
        bookkeeper.keep()
        read.append(sum(swarm.find(i.id).tokens_used for i in made))
    assert read == [8, 16, 20, 20]


def test_an_instance_that_cannot_be_counted_keeps_none_of_the_others(swarm: Swarm, claude_config: Path) -> None:
    add_claude(swarm, "work-1-a1", host="local")
    with swarm.context.db.write():
        instances.set_fields(swarm.context.db, "work-1-a1", agent="an-agent-of-a-newer-swarm")
    second = add_claude(swarm, "work-1-a2")
    Transcript.of(claude_config, second).answer("msg_1", took=1)
    Bookkeeper(swarm.context).keep()
    assert sums(swarm, second).input_tokens == 1


def observe(swarm: Swarm, instance: Instance, activity: Activity) -> None:
    with swarm.context.db.write():
        instances.observe(swarm.context.db, instance.id, activity, source=Source.PROCESS)


def test_what_subagents_use_is_counted_too_and_their_logs_are_no_receipts(
    swarm: Swarm, work: Instance, log: Transcript
) -> None:
    message = swarm.message(work.id, "hello")
    log.answer("msg_1", took=10)
    assert counted(swarm, work).input_tokens == 10
    beside = Transcript(log.path.with_suffix("") / "subagents" / "agent-1.jsonl")
    beside.path.parent.mkdir(parents=True)
    beside.answer("msg_2", took=5)
    beside.receive(message.id)
    assert counted(swarm, work).input_tokens == 15
    assert counted(swarm, work).input_tokens == 15
    assert messages.get(swarm.context.db, message.id).seen_at is None
    log.receive(message.id)
    counted(swarm, work)
    assert messages.get(swarm.context.db, message.id).seen_at is not None
