"""Programs that are ended with all they started, and locks that die with their last holder."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from swarm_core import locks, proc
from swarm_core.errors import CommandFailed, Conflict, ExternalFailure, InvalidInput, TimedOut
from tests.support import wait_until


def is_gone(pid: int) -> bool:
    """Ended, or ended and not yet collected by whoever inherited it."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def pids_in(path: Path, count: int) -> list[int]:
    wait_until(lambda: path.exists() and len(path.read_text().split()) >= count, what=f"{count} pids")
    return [int(pid) for pid in path.read_text().split()]


def test_programs_have_one_deadline_together_when_they_are_given_one() -> None:
    began = time.monotonic()
    with proc.within(0.5), proc.within(60):
        assert proc.run(["echo", "in time"]).text == "in time\n"
        with pytest.raises(TimedOut):
            proc.run(["sleep", "600"])
        with pytest.raises(TimedOut):
            proc.run_cut(["echo", "too late"], most=100)
    assert time.monotonic() - began < 10
    assert proc.run(["echo", "again"]).text == "again\n"


def test_a_thread_that_others_wait_for_starts_no_program() -> None:
    with ThreadPoolExecutor(1) as elsewhere, proc.refused("others wait"):
        with pytest.raises(AssertionError):
            proc.run(["true"])
        with pytest.raises(AssertionError):
            proc.start_pipes(["true"])
        assert elsewhere.submit(proc.run, ["true"]).result(10).returncode == 0
    assert proc.run(["true"]).returncode == 0


def test_a_program_that_takes_too_long_is_ended_with_its_grandchildren(tmp_path: Path) -> None:
    script = f"""
        echo $$ >> {tmp_path}/pids
        (echo $(exec sh -c 'echo $PPID') >> {tmp_path}/pids; trap '' TERM HUP; sleep 600) &
        sleep 600
    """
    began = time.monotonic()
    with pytest.raises(TimedOut) as failed:
        proc.run(["sh", "-c", script], timeout=1.0)
    assert time.monotonic() - began < 10
    assert failed.value.code == "TIMED_OUT"
    assert failed.value.details["timeout_s"] == 1.0
    for pid in pids_in(tmp_path / "pids", 2):
        wait_until(lambda pid=pid: is_gone(pid), what=f"{pid} to end")


def test_a_program_that_closes_its_output_and_goes_on_is_ended_too(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pids; exec >&- 2>&-; exec sleep 600"
    with pytest.raises(TimedOut):
        proc.run(["sh", "-c", script], timeout=0.5)
    [pid] = pids_in(tmp_path / "pids", 1)
    wait_until(lambda: is_gone(pid), what="the program to end")


def test_an_interrupted_wait_ends_the_program(tmp_path: Path) -> None:
    def interrupt() -> None:
        pids_in(tmp_path / "pids", 1)
        os.kill(os.getpid(), signal.SIGUSR1)

    class Interrupted(BaseException):
        pass

    def raise_interrupted(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, raise_interrupted)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(Interrupted):
            proc.run(["sh", "-c", f"echo $$ > {tmp_path}/pids; sleep 600"], timeout=60)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    [pid] = pids_in(tmp_path / "pids", 1)
    wait_until(lambda: is_gone(pid), what="the program to end")


def test_output_input_and_environment_are_exactly_what_was_given() -> None:
    done = proc.run(["sh", "-c", "cat; echo err >&2; env | grep -c ."], stdin=b"\0\xff", env={"ONLY": "1"})
    assert done.stdout.startswith(b"\0\xff")
    assert done.stderr == b"err\n"
    assert proc.run(["printenv"], env={"ONLY": "1"}).text == "ONLY=1\n"
    assert proc.run(["cat"]).stdout == b""


def test_much_output_on_both_streams_does_not_block() -> None:
    script = "import sys\nfor _ in range(64): sys.stdout.write('o' * 65536); sys.stderr.write('e' * 65536)"
    done = proc.run([sys.executable, "-c", script], timeout=30)
    assert (len(done.stdout), len(done.stderr)) == (64 * 65536, 64 * 65536)


def test_a_failing_program_is_an_error_with_its_code_and_the_end_of_what_it_said() -> None:
    script = "echo first; seq 100000 >&2; echo the end >&2; exit 7"
    with pytest.raises(CommandFailed) as failed:
        proc.run(["sh", "-c", script])
    assert failed.value.details["exit_code"] == 7
    assert "the end" in failed.value.message
    assert len(failed.value.message) < 3000
    assert proc.run(["sh", "-c", script], check=False).returncode == 7


def test_a_program_that_is_killed_is_told_by_its_signal() -> None:
    assert proc.run(["sh", "-c", "kill -9 $$"], check=False).returncode == -signal.SIGKILL


@pytest.mark.parametrize("argv", [["no-such-program-here"], ["/etc"], ["/dev/null"]])
def test_a_program_that_cannot_be_run_is_an_error_of_ours(argv: list[str]) -> None:
    with pytest.raises(ExternalFailure):
        proc.run(argv)


@pytest.mark.parametrize("argv", [["echo", "a\0b"], ["ec\0ho"]])
def test_an_argument_with_a_nul_character_is_an_error_of_ours(argv: list[str]) -> None:
    with pytest.raises(InvalidInput):
        proc.run(argv)


def test_an_argument_too_long_for_the_system_is_an_error_of_ours() -> None:
    with pytest.raises(ExternalFailure):
        proc.run(["echo", "x" * (4 << 20)])


def test_a_missing_folder_is_named_and_not_the_program() -> None:
    with pytest.raises(ExternalFailure) as failed:
        proc.run(["echo"], cwd="/no/such/folder")
    assert "/no/such/folder" in failed.value.message


def test_a_detached_program_outlives_us_in_a_session_of_its_own(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from pathlib import Path\nfrom swarm_core import proc\n"
        "print(proc.start_detached(['sh', '-c', 'echo started; sleep 600'], log=Path(sys.argv[1])))"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "log")]
    pid = int(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout)
    try:
        wait_until(lambda: (tmp_path / "log").read_text() == "started\n", what="its output in the log")
        assert os.getsid(pid) == pid
        assert proc.is_alive(pid)
    finally:
        proc.end_group(pid)
    wait_until(lambda: is_gone(pid), what="it to end")


def test_ending_a_group_that_is_gone_is_fine() -> None:
    process = proc.start_pipes(["true"])
    process.communicate(timeout=10)
    proc.end_group(process.pid)
    assert not proc.is_alive(process.pid)
    assert proc.is_alive(os.getpid())
    assert proc.is_alive(1)


def test_a_lock_is_held_by_one_and_says_by_whom(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "x.lock"
    assert locks.holder(path) is None
    with locks.hold(path, holder="the first one"):
        assert locks.holder(path) == "the first one"
        with pytest.raises(Conflict) as refused, locks.hold(path, timeout=0, holder="the second"):
            pass
        assert refused.value.code == "INSTANCE_BUSY"
        assert refused.value.details["holder"] == "the first one"
        assert refused.value.hint
    assert locks.holder(path) is None
    with locks.hold(path, timeout=0, holder="short"):
        assert locks.holder(path) == "short"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_lock_is_waited_for_within_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with locks.hold(path):
        began = time.monotonic()
        with pytest.raises(Conflict), locks.hold(path, timeout=0.3):
            pass
        assert 0.25 < time.monotonic() - began < 5
    release = threading.Event()
    held = threading.Event()

    def hold() -> None:
        with locks.hold(path):
            held.set()
            release.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    threading.Timer(0.2, release.set).start()
    with locks.hold(path, timeout=10):
        assert release.is_set()
    thread.join()


def test_a_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from pathlib import Path\nfrom swarm_core import locks\n"
        "with locks.hold(Path(sys.argv[1]), holder='child'):\n    print('held', flush=True); sys.stdin.read()"
    )
    path = tmp_path / "x.lock"
    argv = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        assert locks.holder(path) == "child"
        child.kill()
    with locks.hold(path, timeout=0):
        pass


def test_a_lock_that_a_running_program_inherited_is_kept_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from pathlib import Path\nfrom swarm_core import locks, proc\n"
        "with locks.hold(Path(sys.argv[1]), holder='parent') as fd:\n"
        "    proc.run(['sh', '-c', f'echo $$ > {sys.argv[2]}; exec sleep 600'], keep_open=(fd,))"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path), str(tmp_path / "pids")]) as parent:
        [pid] = pids_in(tmp_path / "pids", 1)
        parent.kill()
    try:
        assert locks.holder(path) == "parent"
        with pytest.raises(Conflict), locks.hold(path, timeout=0):
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
    with locks.hold(path, timeout=10):
        pass


def test_a_lock_is_not_inherited_unless_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with locks.hold(path):
        pid = proc.start_detached(["sleep", "600"], log=tmp_path / "log")
    try:
        with locks.hold(path, timeout=0):
            pass
    finally:
        proc.end_group(pid)


def test_of_sixteen_threads_one_at_a_time_holds_the_lock(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def enter(number: int) -> None:
        with locks.hold(tmp_path / "x.lock", timeout=30):
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)

    threads = [threading.Thread(target=enter, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 16


def test_a_lock_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ExternalFailure) as failed, locks.hold(tmp_path / "file" / "x.lock"):
        pass
    assert failed.value.hint
    assert isinstance(failed.value.__cause__, OSError)
    assert failed.value.__cause__.errno in (errno.ENOTDIR, errno.EEXIST)
