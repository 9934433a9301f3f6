"""The last lines of every running agent, for a wall of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from swarm_core.tmux import screens
from swarm_core.tmux.control import Control
from swarm_core.tmux.panes import Pane
from swarm_ui.web import ansi
from swarm_ui.web.ansi import Line
from swarm_ui.web.frames import frame
from swarm_ui.web.pictures import series

LINES = 8


class Tiles:
    """`capture` is for the one thread that asks tmux, the rest for the event loop."""

    def __init__(self) -> None:
        self.viewers: set[TilesViewer] = set()
        self.shown: dict[str, list[Line]] = {}
        self._readers: dict[str, ansi.Reader] = {}
        self._captured: dict[str, tuple[str, int]] = {}

    def capture(self, control: Control, live: Mapping[str, Pane]) -> dict[str, list[Line]]:
        """The tiles of those that may have written since they were captured; tmux tells that to the second."""
        stale = {i: p for i, p in live.items() if not self._is_fresh(i, p)}
        now = int(time.time())
        texts = screens.visible(control, [pane.pane_id for pane in stale.values()])
        found = {}
        for instance_id, pane in stale.items():
            if (text := texts.get(pane.pane_id)) is not None:
                self._captured[instance_id] = (series(pane), now)
                reader = self._readers.setdefault(instance_id, ansi.Reader())
                found[instance_id] = [line for line in reader.lines(text) if line.runs][-LINES:]
        for gone in self._readers.keys() - live.keys():
            del self._readers[gone]
            self._captured.pop(gone, None)
        return found

    def take(self, changed: Mapping[str, list[Line]], live: Mapping[str, Pane]) -> None:
        self.shown = {i: lines for i, lines in {**self.shown, **changed}.items() if i in live}
        for viewer in self.viewers:
            viewer.ring()

    def _is_fresh(self, instance_id: str, pane: Pane) -> bool:
        known = self._captured.get(instance_id)
        return known is not None and known[0] == series(pane) and pane.activity_at < known[1]


class TilesViewer:
    """One who watches the tiles; `take` are those that it has not seen so yet."""

    def __init__(self, tiles: Tiles, ring: Callable[[], None]) -> None:
        self.ring = ring
        self.tiles = tiles
        self._seen: dict[str, list[Line]] = {}
        if tiles.shown:
            ring()

    def take(self) -> bytes:
        shown = self.tiles.shown
        news = [(i, lines) for i, lines in shown.items() if lines is not self._seen.get(i)]
        told = [
            {"id": i, "lines": [line.runs for line in lines]} for i, lines in news if lines != self._seen.get(i)
        ]
        self._seen = dict(shown)
        return frame("tiles", told) if told else b""
