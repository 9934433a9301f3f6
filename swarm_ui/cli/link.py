"""`swarm link`: links that open the dashboard, who is in, and how to send them away."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarm_ui.cli import output, parameters

if TYPE_CHECKING:
    from swarm_core.store.links import Link
    from swarm_core.store.visits import Visit
    from swarm_core.swarm import Swarm


def link(
    read_only: Annotated[
        bool, typer.Option("--read-only", help="For somebody who may look and not act; good more than once.")
    ] = False,
    hours: Annotated[
        int | None, typer.Option(metavar="N", help="How long a read-only link is good (default 24).")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who it is for: events then say operator:NAME.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show links that are good, and who is in.")] = False,
    revoke: Annotated[
        str | None, typer.Option(metavar="NAME|ID", help="End links and visits with this name or id.")
    ] = None,
    json: parameters.Json = False,
) -> None:
    """Print a link that opens the dashboard, once.

    It is good for one browser, within 15 minutes; that browser then stays signed in until nobody has used it for
    30 days. With --read-only it is good for any number of browsers that look and do not act, until it ends.
    Revoking a link signs out whoever came in with it.

    --json prints {"id", "url", "name", "may_write", "expires_at"}; with --list an array of {"id", "kind", "name",
    "may_write", "created_at", "seen_at", "expires_at"}; with --revoke {"links", "visits"}, the ids that ended.

    \b
    Example:
      swarm link --name anna
      swarm link --read-only --hours 8
      swarm link --revoke anna
    """
    from swarm_ui.cli.session import opened

    if revoke is not None and (list_ or read_only or hours is not None or name is not None):
        raise typer.BadParameter("--revoke goes alone")
    if list_ and (read_only or hours is not None or name is not None):
        raise typer.BadParameter("--list goes alone")
    with opened() as swarm:
        if revoke is not None:
            _revoke(swarm, revoke, json=json)
        elif list_:
            _list(swarm, json=json)
        else:
            _make(swarm, read_only=read_only, hours=hours, name=name or "", json=json)


@dataclass(frozen=True, slots=True)
class New:
    link: "Link"
    url: str = field(repr=False)


def new(swarm: "Swarm", *, may_write: bool, name: str = "", hours: int | None = None) -> New:
    """A link to the dashboard that runs now; raises NotFound when none does."""
    from swarm_core import process
    from swarm_core.errors import NotFound
    from swarm_core.ops import links

    card = process.running(swarm.context.settings, process.DASHBOARD)
    if card is None or card.port == 0:
        raise NotFound(
            "the dashboard is not running", code="DASHBOARD_NOT_RUNNING", hint="`swarm up --detach` starts it"
        )
    made = links.make(swarm.context, may_write=may_write, name=name, hours=hours)
    return New(made.link, f"{card.url}/?token={made.token}")


def _make(swarm: "Swarm", *, read_only: bool, hours: int | None, name: str, json: bool) -> None:
    made = new(swarm, may_write=not read_only, name=name, hours=hours)
    told = made.link
    if json:
        shown = {"id": told.id, "url": made.url, "name": told.name, "may_write": told.may_write}
        output.write_json(shown | {"expires_at": told.expires_at})
    else:
        output.write(made.url)
    output.flush()
    if told.may_write:
        output.note("good once, within 15 minutes; whoever opens it may do everything that you may")
    else:
        output.note(f"good until {told.expires_at}, for looking; `swarm link --revoke {told.id}` ends it")


def _list(swarm: "Swarm", *, json: bool) -> None:
    from swarm_core.ops import links

    good, inside = links.listed(swarm.context)
    found = [*(_link_row(one) for one in good), *(_visit_row(one) for one in inside)]
    if json:
        output.write_json(found)
        return
    if not found:
        output.write("nobody is in, and no link is good; `swarm link` prints one")
        return
    rows = [
        (
            r["id"],
            r["kind"],
            r["name"],
            "acts" if r["may_write"] else "looks",
            r["created_at"],
            r["seen_at"] or "",
            r["expires_at"] or "",
        )
        for r in found
    ]
    styles = [("bold", "", "", "", "dim", "dim", "dim")] * len(rows)
    output.columns(("ID", "KIND", "NAME", "MAY", "CREATED", "SEEN", "ENDS"), rows, styles)


def _revoke(swarm: "Swarm", id_or_name: str, *, json: bool) -> None:
    from swarm_core.ops import links

    ended, over = links.revoke(swarm.context, id_or_name)
    if json:
        output.write_json({"links": [one.id for one in ended], "visits": [one.id for one in over]})
    else:
        output.write(f"ended: {_count(len(ended), 'link')}, {_count(len(over), 'visit')}")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _link_row(one: "Link") -> dict[str, Any]:
    return _row(one, kind="link", seen_at=one.used_at)


def _visit_row(one: "Visit") -> dict[str, Any]:
    return _row(one, kind="visit", seen_at=one.seen_at)


def _row(one: "Link | Visit", *, kind: str, seen_at: str | None) -> dict[str, Any]:
    return {
        "id": one.id,
        "kind": kind,
        "name": one.name,
        "may_write": one.may_write,
        "created_at": one.created_at,
        "seen_at": seen_at,
        "expires_at": one.expires_at,
    }
