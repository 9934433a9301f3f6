"""Live terminals, on a real tmux: what a page is told is what the terminal shows."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from swarm_core.errors import TimedOut
from swarm_core.tmux import command, conf
from swarm_core.tmux.sessions import Tmux
from swarm_ui.web import terminals
from tests.integration.stream_fixture import Listener, Streams, streams, streams_of
from tests.integration.tmux_fixture import Server
from tests.rows import add_instance
from tests.support import wait_until
from tests.world import World

__all__ = ["streams"]

NAME = "work-1-a1"
# A program that writes what it is told to, one Python literal a line.
ECHO = """
import ast, sys, tty
tty.setraw(0)
sys.stdout.write('ready\\r\\n'); sys.stdout.flush()
for line in open(0, 'rb', buffering=0):
    sys.stdout.buffer.write(ast.literal_eval(line.decode())); sys.stdout.buffer.flush()
"""


class Screen:
    """What a page shows after the frames so far."""

    def __init__(self, page: Listener) -> None:
        self._page = page

    def __call__(self) -> dict[str, Any]:
        lines: list[list[Any]] = []
        facts: dict[str, Any] = {"ended": False, "frames": 0}
        for frame in self._page.named("term"):
            facts["frames"] += 1
            if frame.get("ended"):
                facts |= {"ended": True, "exit": frame["exit"]}
                continue
            if frame.get("full"):
                lines = []
            lines = lines[frame["drop"] :][: frame["len"]]
            lines += [[] for _ in range(frame["len"] - len(lines))]
            for at, runs in frame["set"]:
                lines[at] = runs
            facts |= {k: frame[k] for k in ("cols", "rows", "alive", "cursor", "history")} | {"ended": False}
        return facts | {"lines": lines, "text": "\n".join("".join(r[0] for r in line) for line in lines).rstrip()}

    def until(self, text: str) -> dict[str, Any]:
        wait_until(lambda: text in self()["text"], what=f"{text!r} on the page, which shows {self()['text']!r}")
        return self()


@pytest.fixture
def tmux(streams: Streams) -> Iterator[Server]:
    settings = streams.settings
    conf.write_config(settings.tmux_config, history_limit=1000)
    made = Tmux(settings.tmux_socket, settings.tmux_config)
    yield Server(made, settings.tmux_socket, settings.tmux_config, settings.home)
    made.kill_server()


@pytest.fixture
def page(streams: Streams, tmux: Server) -> Iterator[Listener]:
    tmux.python(NAME, ECHO)
    tmux.until_shows(NAME, "ready")
    with streams.listen(term=NAME) as listener:
        yield listener


def write(tmux: Server, data: bytes) -> None:
    """Have the program write these bytes."""
    tmux.tmux.paste(NAME, repr(data) + "\n", submit=False)


def truth(tmux: Server) -> str:
    """What a person sees who attaches and scrolls back."""
    return tmux.tmux.capture(NAME, lines=1000)


def clients(tmux: Server) -> list[str]:
    done = command.run(tmux.socket, ["list-clients", "-F", "#{session_name}"], check=False)
    return done.text.split()


def test_output_reaches_the_page_in_colour(page: Listener, tmux: Server) -> None:
    screen = Screen(page)
    screen.until("ready")
    write(tmux, "\x1b[31mred \x1b[38;2;1;2;3mtrue\x1b[0m 漢字 ok\r\n".encode())
    shown = screen.until("ok")
    [line] = [runs for runs in shown["lines"] if runs and runs[0][0].startswith("red")]
    assert line == [["red ", {"f": 1}], ["true", {"f": "#010203"}], [" "], ["漢字", {}, 4], [" ok"]]
    assert (shown["cols"], shown["rows"], shown["alive"]) == (200, 50, True)


def test_scrolling_is_told_as_dropped_lines_and_the_page_stays_true(page: Listener, tmux: Server) -> None:
    screen = Screen(page)
    screen.until("ready")
    for first in range(0, 1000, 100):
        write(tmux, b"".join(b"line %d\r\n" % n for n in range(first, first + 100)))
        screen.until(f"line {first + 99}")
    wait_until(lambda: truth(tmux).endswith(screen()["text"]), what="the page shows what the terminal does")
    assert any(f.get("drop") for f in page.named("term"))
    assert len(screen()["lines"]) == 200


def test_the_cursor_is_where_the_program_has_put_it(page: Listener, tmux: Server) -> None:
    screen = Screen(page)
    write(tmux, b"\x1b[10;20Hx")
    screen.until("x")
    wait_until(lambda: screen()["cursor"] == [20, 9], what="the cursor has moved")
    write(tmux, b"\x1b[?25l")
    wait_until(lambda: screen()["cursor"] is None, what="the cursor is hidden")


def test_the_alternate_screen_hides_the_history_until_it_is_left(page: Listener, tmux: Server) -> None:
    screen = Screen(page)
    write(tmux, b"".join(b"old %d\r\n" % n for n in range(120)))
    screen.until("old 119")
    write(tmux, b"\x1b[?1049h\x1b[2J\x1b[Hfull screen")
    shown = screen.until("full screen")
    wait_until(lambda: "old" not in screen()["text"], what="only the alternate screen is shown")
    write(tmux, b"\x1b[?1049l")
    screen.until("old 119")
    assert "full screen" not in screen()["text"]
    assert shown["rows"] == 50


def test_watching_changes_nothing_in_the_terminal(page: Listener, tmux: Server) -> None:
    Screen(page).until("ready")
    pane = tmux.pane(NAME)
    assert (pane.width, pane.height, pane.attached) == (200, 50, 0)
    command.run(tmux.socket, ["resize-window", "-t", f"={NAME}:", "-x", "90", "-y", "30"])
    wait_until(lambda: Screen(page)()["cols"] == 90, what="the page follows the new size")
    assert tmux.pane(NAME).width == 90


def test_sequences_that_are_not_colours_never_reach_the_page(page: Listener, tmux: Server) -> None:
    screen = Screen(page)
    screen.until("ready")
    write(
        tmux, b"\x1b]0;title\x07\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\\x1b[6n\x1bPq\x1b\\ <b>text</b> end\r\n"
    )
    shown = screen.until("<b>text</b> end")
    raw = "".join(run[0] for line in shown["lines"] for run in line)
    assert raw.isprintable()


def test_an_ended_program_keeps_its_screen_and_tells_its_exit(page: Listener, tmux: Server) -> None:
    screen = Screen(page)
    write(tmux, b"last words\r\n")
    screen.until("last words")
    os.kill(tmux.pane(NAME).pid, signal.SIGKILL)
    wait_until(lambda: screen()["ended"] and screen()["exit"] == -9, what="the page is told")
    assert "last words" in screen()["text"]
    assert screen()["alive"] is False


def test_a_program_that_is_started_again_is_shown_again(page: Listener, tmux: Server) -> None:
    screen = Screen(page)
    screen.until("ready")
    tmux.tmux.kill_session(NAME)
    wait_until(lambda: screen()["ended"], what="it has ended")
    tmux.start(NAME, "sh", "-c", "echo second life; sleep 60", epoch=2)
    shown = screen.until("second life")
    assert shown["ended"] is False
    assert "ready" not in shown["text"]
    assert len([f for f in page.named("term") if f.get("full")]) == 2


def test_a_tmux_server_that_dies_ends_its_terminals(page: Listener, tmux: Server) -> None:
    screen = Screen(page)
    screen.until("ready")
    os.kill(tmux.pane(NAME).server_pid, signal.SIGKILL)
    wait_until(lambda: screen()["ended"], what="it has ended")
    assert "ready" in screen()["text"]


def test_all_viewers_of_a_terminal_share_one_connection_that_goes_with_the_last(
    page: Listener, streams: Streams, tmux: Server
) -> None:
    Screen(page).until("ready")
    wait_until(lambda: len(clients(tmux)) == 2, what="one connection for output, one for questions")
    with streams.listen(term=NAME) as second, streams.listen(term=NAME) as third:
        Screen(second).until("ready")
        Screen(third).until("ready")
        write(tmux, b"for all\r\n")
        for one in (page, second, third):
            Screen(one).until("for all")
        assert len(clients(tmux)) == 2
    page.close()
    wait_until(lambda: clients(tmux) == [], what="nobody is connected")
    wait_until(lambda: streams.hub.viewers == 0, what="nobody watches")


def test_tmux_survives_viewers_who_come_and_go_while_sessions_do(
    streams: Streams, tmux: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "_GRACE", 0.0)
    tmux.start("work-9-a9", "sh", "-c", "echo kept; sleep 600")
    server = tmux.pane("work-9-a9").server_pid

    def make_and_end() -> None:
        for _ in range(15):
            tmux.start(NAME, "sh", "-c", "echo ready; sleep 60")
            tmux.tmux.kill_session(NAME)

    with ThreadPoolExecutor(max_workers=1) as pool:
        run = pool.submit(make_and_end)
        while not run.done():
            with streams.listen(term=NAME) as one, streams.listen(term="work-9-a9") as other:
                one.first("term")
                other.first("term")
        run.result()
    assert tmux.pane("work-9-a9").server_pid == server
    wait_until(lambda: clients(tmux) == [], what="nobody is connected")


def test_a_late_viewer_of_something_over_gets_its_kept_screen(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm, "say kept for later")
        world.wait_idle(swarm, instance.id)
        swarm.stop(instance.id)
    with streams_of(world.home) as streams, streams.listen(term=instance.id) as page:
        shown = Screen(page).until("kept for later")
        wait_until(lambda: Screen(page)()["ended"], what="it is told to be over")
        assert shown["alive"] is False


def test_a_flood_is_shown_at_a_bounded_pace_and_ends_true(streams: Streams, tmux: Server) -> None:
    tmux.start(NAME, "sh", "-c", "echo ready; read x; seq 1 300000; echo finished; sleep 60")
    with streams.listen(term=NAME) as page:
        screen = Screen(page)
        screen.until("ready")
        tmux.tmux.enter(NAME)
        screen.until("finished")
        assert truth(tmux).endswith(screen()["text"])
        assert screen()["frames"] < 3000


def test_tiles_show_the_last_lines_of_all_and_only_what_changed(streams: Streams, tmux: Server) -> None:
    tmux.python(NAME, ECHO)
    tmux.start("work-2-a2", "sh", "-c", "seq 1 20; sleep 60")
    tmux.until_shows("work-2-a2", "20")
    tmux.until_shows(NAME, "ready")
    with streams.listen(tiles=1) as page:

        def tile(name: str) -> list[str]:
            found = [t for tiles in page.named("tiles") for t in tiles if t["id"] == name]
            return ["".join(run[0] for run in line) for line in found[-1]["lines"]] if found else []

        page.until(lambda: tile("work-2-a2") == [str(n) for n in range(13, 21)])
        write(tmux, b"news\r\n")
        page.until(lambda: "news" in tile(NAME))
        quiet = [t for tiles in page.named("tiles") for t in tiles if t["id"] == "work-2-a2"]
        assert len(quiet) == 1


def test_more_scrollback_is_there_when_asked_for(page: Listener, streams: Streams, tmux: Server) -> None:
    Screen(page).until("ready")
    write(tmux, b"".join(b"line %d\r\n" % n for n in range(900)))
    Screen(page).until("line 899")
    add_instance(streams.site.swarm.context.db, NAME)
    address = f"http://127.0.0.1:{streams.port}/api/v1/instances/{NAME}/terminal?lines=5000"
    with urllib.request.urlopen(address) as answer:
        told = json.load(answer)["result"]
    texts = ["".join(run[0] for run in line) for line in told["lines"]]
    assert [t for t in texts if t.startswith("line")] == [f"line {n}" for n in range(900)]
    assert told["alive"]


def test_a_screen_that_could_not_be_read_once_is_shown_as_soon_as_it_can(
    streams: Streams, tmux: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmux.python(NAME, ECHO)
    tmux.until_shows(NAME, "ready")
    shown, capture = streams.site.terminals, streams.site.terminals.capture
    failures = [TimedOut("tmux did not answer")]

    def failing(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return capture(*args)

    monkeypatch.setattr(shown, "capture", failing)
    with streams.listen(term=NAME) as listener:
        assert Screen(listener).until("ready")["alive"]
