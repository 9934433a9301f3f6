"""The one page: who needs a person, and every instance. Plain HTML; all text that is not ours is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from html import escape

from swarm_core.errors import SwarmError
from swarm_core.models import Instance
from swarm_ui import views

_REFRESH_S = 2

STYLE = """\
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; vertical-align: top; }
th { font-weight: 600; border-bottom: 1px solid #8886; }
td { border-bottom: 1px solid #8883; }
code, .id { font-family: ui-monospace, monospace; font-size: .92em; }
.note { opacity: .75; }
.needs { border-left: .3rem solid #d97706; padding-left: .8rem; }
"""


def now(instances: list[Instance], at: datetime, *, coordinator: bool, home: str) -> str:
    waiting = [i for i in instances if views.needs_you(i)]
    title = f"({len(waiting)}) swarm" if waiting else "swarm"
    parts = [f"<h1>swarm <span class=note>{escape(home)}</span></h1>"]
    if not coordinator:
        parts.append(
            "<p class=needs role=status>The coordinator is not running, so what you see may be old. "
            "<code>swarm up</code> starts it; agents keep running meanwhile.</p>"
        )
    parts.append(f"<h2>Needs you ({len(waiting)})</h2>")
    parts.append(_waiting(waiting) if waiting else "<p class=note>Nothing waits for you.</p>")
    parts.append(f"<h2>Instances ({len(instances)})</h2>")
    parts.append(
        _table(instances, at)
        if instances
        else "<p class=note>There are none yet. <code>swarm work</code> starts one.</p>"
    )
    return _document(title, "\n".join(parts))


def failure(error: SwarmError) -> str:
    hint = f"<p class=note>{escape(error.hint)}</p>" if error.hint else ""
    return _document(
        "swarm: error", f"<h1>The database cannot be read</h1><p class=needs>{escape(error.message)}</p>{hint}"
    )


def _waiting(instances: Iterable[Instance]) -> str:
    items = (
        f"<li><span class=id>{escape(i.id)}</span> {escape(i.name or '')} "
        f"<strong>{escape(views.needs_you(i))}</strong></li>"
        for i in instances
    )
    return f"<ul class=needs>{''.join(items)}</ul>"


def _table(instances: Iterable[Instance], at: datetime) -> str:
    heads = ("id", "name", "kind", "status", "activity", "branch", "changes", "needs you")
    rows = "\n".join(_row(views.row(i, at)) for i in instances)
    head = "".join(f"<th scope=col>{h}</th>" for h in heads)
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>"


def _row(row: views.Row) -> str:
    cells = (row.name, row.kind, row.status, row.activity, row.branch, row.changes, row.needs_you)
    rest = "".join(f"<td>{escape(c)}</td>" for c in cells)
    return f"<tr><th scope=row class=id>{escape(row.id)}</th>{rest}</tr>"


def _document(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{_REFRESH_S}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="stylesheet" href="/style.css"></head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body></html>\n"
    )
