"""What the agents' terminals show, to whoever watches them.

tmux is the terminal: its output wakes us, and we ask it how the screen looks now. Watching changes nothing there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from swarm_core.config import Settings
from swarm_core.errors import NotFound, SwarmError
from swarm_core.models import Instance
from swarm_core.store import instances
from swarm_core.swarm import Swarm
from swarm_core.tmux import panes, screens
from swarm_core.tmux.control import Control, Output
from swarm_core.tmux.panes import Pane
from swarm_ui.web import ansi
from swarm_ui.web.hub import Client
from swarm_ui.web.pictures import LINES, Ended, Picture, exit_of, greyed, kept, series, shown, term_frames
from swarm_ui.web.tiles import Tiles, TilesViewer

LINES_MAX = 5000
_EVERY = 0.04
_BEAT = 1.0
_GRACE = 5.0

log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Terminals:
    """Only for the event loop, but for `look`."""

    def __init__(self, swarm: Swarm, settings: Settings) -> None:
        self._swarm = swarm
        self._socket = settings.tmux_socket
        self._config = settings.tmux_config
        self._control = Control(self._socket, self._config)
        self._watched: dict[str, Terminal] = {}
        self._tiles = Tiles()
        self._beat: asyncio.Task[None] | None = None
        # Coming and going waits for whoever starts a session, and must not keep the screens waiting.
        self._asking = ThreadPoolExecutor(max_workers=1, thread_name_prefix="screens")
        self._gating = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tmux-gate")

    def look(self, found: Instance, lines: int) -> dict[str, Any]:
        """The last lines of a terminal, once; of one that has ended what was kept. For any thread."""
        pane = panes.by_instance(panes.list_panes(self._socket)).get(found.id)
        screen = screens.capture_once(self._socket, pane.pane_id, lines=lines) if pane else None
        picture = kept(found.last_screen) if screen is None else shown(screen, ansi.Reader())
        told = {"id": found.id, "lines": [line.runs for line in picture.lines], **picture.facts()}
        if not picture.alive:
            told |= {"ended": True, "exit": exit_of(found.exit_code, found.exit_signal)}
            if pane is not None:
                told["exit"] = exit_of(pane.exit_code, pane.exit_signal)
        return told

    def watch(self, instance_id: str, ring: Callable[[], None]) -> Viewer:
        terminal = self._watched.get(instance_id)
        if terminal is None:
            terminal = self._watched[instance_id] = Terminal(instance_id, self)
            terminal.start()
        self._begin()
        viewer = Viewer(terminal, ring)
        terminal.viewers.add(viewer)
        return viewer

    def unwatch(self, viewer: Viewer) -> None:
        terminal = viewer.terminal
        terminal.viewers.discard(viewer)
        if not terminal.viewers:
            asyncio.get_running_loop().call_later(_GRACE, self._forget, terminal)

    def watch_tiles(self, ring: Callable[[], None]) -> TilesViewer:
        viewer = TilesViewer(self._tiles, ring)
        self._tiles.viewers.add(viewer)
        self._begin()
        return viewer

    def unwatch_tiles(self, viewer: TilesViewer) -> None:
        viewer.tiles.viewers.discard(viewer)
        if not self._tiles.viewers:
            self._tiles = Tiles()

    async def close(self) -> None:
        for terminal in list(self._watched.values()):
            await terminal.end()
        self._watched = {}
        if self._beat is not None:
            self._beat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beat
        await self.ask(self._control.close)
        for pool in (self._asking, self._gating):
            await asyncio.to_thread(pool.shutdown)

    # For terminals

    async def ask(self, question: Callable[..., _T], *args: Any) -> _T:
        """Ask tmux or the database, in the one thread for that."""
        return await asyncio.get_running_loop().run_in_executor(self._asking, question, *args)

    async def gated(self, work: Callable[..., _T], *args: Any) -> _T:
        """Do what waits for whoever starts a session. It is done, even if whoever wanted it is cancelled."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._gating, work, *args))

    def connect(self, pane: Pane) -> Output:
        return Output(self._socket, self._config, pane.session)

    def pane_of(self, instance_id: str) -> Pane | None:
        return panes.by_instance(self._control.list_panes()).get(instance_id)

    def capture(self, pane: Pane, reader: ansi.Reader) -> Picture | None:
        screen = screens.capture(self._control, pane.pane_id, lines=LINES)
        return None if screen is None else shown(screen, reader, series=series(pane))

    def last_known(self, instance_id: str) -> tuple[Picture, Ended]:
        """What the database has kept of a terminal whose session is gone."""
        try:
            found = instances.get(self._swarm.context.db, instance_id)
        except NotFound:
            return Picture([]), Ended(None)
        return kept(found.last_screen), Ended(exit_of(found.exit_code, found.exit_signal))

    def _begin(self) -> None:
        if self._beat is None or self._beat.done():
            self._beat = asyncio.create_task(self._run())

    def _forget(self, terminal: Terminal) -> None:
        if not terminal.viewers and self._watched.get(terminal.id) is terminal:
            del self._watched[terminal.id]
            terminal.ending = asyncio.create_task(terminal.end())

    async def _run(self) -> None:
        """Once a second: who is there, who has ended, who is back, and the tiles, while anybody wants to know."""
        while self._watched or self._tiles.viewers:
            try:
                await self._look_around()
            except SwarmError as error:
                log.warning("tmux cannot be asked: %s", error.message)
            await asyncio.sleep(_BEAT)
            if not (self._watched or self._tiles.viewers):
                # In the thread that asks: a question whose connection is closed under it would make a new one.
                await self.ask(self._control.close)

    async def _look_around(self) -> None:
        listed = await self.ask(self._control.list_panes)
        found = panes.by_instance(listed)
        for terminal in list(self._watched.values()):
            terminal.see(found.get(terminal.id))
        tiles = self._tiles
        if tiles.viewers:
            live = {i: p for i, p in found.items() if not p.dead}
            changed = await self.ask(tiles.capture, self._control, live)
            tiles.take(changed, live)


class Terminal:
    """One instance's terminal with its viewers, as long as there are any."""

    def __init__(self, instance_id: str, all_of_them: Terminals) -> None:
        self.id = instance_id
        self.viewers: set[Viewer] = set()
        self.picture: Picture | None = None
        self.ended: Ended | None = None
        self.ending: asyncio.Task[None] | None = None
        self._all = all_of_them
        self._reader = ansi.Reader()
        self._task: asyncio.Task[None] | None = None
        self._pane: Pane | None = None
        self._stirred = asyncio.Event()
        self._output: Output | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._disconnect()

    def see(self, pane: Pane | None) -> None:
        """What a look around has found; a change of it wakes us."""
        if _who(pane) != _who(self._pane) or (self.ended and self.ended.exit is None):
            self._pane = pane
            self._stirred.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._live()
            except Exception:  # one bug must not leave a screen as it is for ever
                log.exception("the terminal of %s could not be shown", self.id)
                await asyncio.sleep(_BEAT)

    async def _live(self) -> None:
        self._pane = await self._ask(self._all.pane_of, self.id)
        while True:
            self._stirred.clear()
            pane = self._pane
            if pane is None or not await self._show(pane):
                self._pane = None  # should it be there after all, the next look around finds it
                await self._show_last()
            elif not pane.dead:
                await self._follow(pane)
                continue
            await self._stirred.wait()

    async def _follow(self, pane: Pane) -> None:
        """Show every change until the program ends, the session is another one, or the connection breaks."""
        loop = asyncio.get_running_loop()
        try:
            await self._connect(pane)
            while _who(self._pane) == _who(pane):
                begun = loop.time()
                self._stirred.clear()
                if not await self._show(pane):
                    self._pane = await self._ask(self._all.pane_of, self.id)
                    return
                if self._output is None or self._output.closed:
                    await asyncio.sleep(_BEAT)
                    return
                await asyncio.sleep(max(0.0, begun + _EVERY - loop.time()))
                await self._stirred.wait()
        finally:
            await self._disconnect()

    async def _connect(self, pane: Pane) -> None:
        coming = asyncio.ensure_future(self._all.gated(self._all.connect, pane))
        try:
            self._output = await asyncio.shield(coming)
        except asyncio.CancelledError:
            self._output = await coming  # whoever cancels us must find what there is to be closed
            raise
        except SwarmError as error:
            log.warning("the terminal of %s cannot be watched: %s", self.id, error.message)
        if self._output is not None and (fd := self._output.fileno()) is not None:
            asyncio.get_running_loop().add_reader(fd, self._hear)

    def _hear(self) -> None:
        assert self._output is not None
        self._output.skip()
        if self._output.closed and (fd := self._output.fileno()) is not None:
            asyncio.get_running_loop().remove_reader(fd)
        self._stirred.set()

    async def _disconnect(self) -> None:
        output, self._output = self._output, None
        if output is not None:
            if (fd := output.fileno()) is not None:
                asyncio.get_running_loop().remove_reader(fd)
            await self._all.gated(output.close)

    async def _show(self, pane: Pane) -> bool:
        """Show the pane as it is; False when it is gone."""
        picture = await self._ask(self._all.capture, pane, self._reader)
        if picture is None:
            return False
        self._set(picture, None if picture.alive else Ended(exit_of(pane.exit_code, pane.exit_signal)))
        return True

    async def _show_last(self) -> None:
        found = await self._ask(self._all.last_known, self.id)
        if found is None:
            return
        picture, ended = found
        if self.picture is not None and self.picture.lines:
            picture = greyed(self.picture)
        self._set(picture, ended)

    async def _ask(self, question: Callable[..., _T], *args: Any) -> _T | None:
        try:
            return await self._all.ask(question, *args)
        except SwarmError as error:
            log.warning("the terminal of %s cannot be read: %s", self.id, error.message)
            return None

    def _set(self, picture: Picture, ended: Ended | None) -> None:
        if self.picture is not None and picture == self.picture and ended == self.ended:
            return
        self.picture, self.ended = picture, ended
        for viewer in self.viewers:
            viewer.ring()


class Viewer:
    """One who watches a terminal; `take` is what it has not seen yet, however much was missed meanwhile."""

    def __init__(self, terminal: Terminal, ring: Callable[[], None]) -> None:
        self.terminal = terminal
        self.ring = ring
        self._seen: Picture | None = None
        self._ended: Ended | None = None
        if terminal.picture is not None:
            ring()

    def take(self) -> bytes:
        picture, ended = self.terminal.picture, self.terminal.ended
        if picture is None or (picture is self._seen and ended == self._ended):
            return b""
        told = term_frames(self.terminal.id, self._seen, picture, ended)
        self._seen, self._ended = picture, ended
        return told


class Watching:
    """What one page watches besides rows, as long as it is entered."""

    def __init__(self, terminals: Terminals, client: Client, term: str | None, *, tiles: bool) -> None:
        self._terminals = terminals
        self._viewer = terminals.watch(term, client.ring) if term else None
        self._tiles = terminals.watch_tiles(client.ring) if tiles else None

    def take(self) -> bytes:
        return (self._viewer.take() if self._viewer else b"") + (self._tiles.take() if self._tiles else b"")

    def __enter__(self) -> Watching:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._viewer is not None:
            self._terminals.unwatch(self._viewer)
        if self._tiles is not None:
            self._terminals.unwatch_tiles(self._tiles)


def _who(pane: Pane | None) -> tuple[object, ...]:
    """Which program it is, and whether it runs."""
    return () if pane is None else (series(pane), pane.dead, pane.exit_code, pane.exit_signal)
