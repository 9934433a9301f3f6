"""`swarm search`: what was said and done, by its words."""

from typing import Annotated

import typer

from swarm_ui.cli import output, parameters


def search(
    query: Annotated[
        list[str], typer.Argument(metavar="QUERY", help="Words; all must occur.", show_default=False)
    ],
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="event, feedback or message; may be repeated.",
            autocompletion=parameters.complete_kind,
        ),
    ] = None,
    instance: parameters.Only = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only from then on.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only up to then.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="At most so many.")] = 20,
    json: parameters.Json = False,
) -> None:
    """Search events, feedback and messages, best first.

    The last word may end with `*` to match as a beginning. A TIME is a date or time (UTC), or how long ago:
    30m, 2h, 3d, 1w.

    --json prints an array of {"kind", "id", "instance_id", "at", "title", "excerpt"}.

    \b
    Example:
      swarm search "database locked" --kind event --since 2d
      swarm search 'migrat*' --instance work-12-a1
    """
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        hits = swarm.search(
            " ".join(query), kinds=kind or (), instance=instance, since=since, until=until, limit=limit
        )
        missing = swarm.unsearched()
    if missing:
        output.note(f"about {missing} newer rows are not indexed yet; the coordinator goes on with them")
    if json:
        output.write_json([hit.as_json() for hit in hits])
        return
    if not hits:
        output.write("nothing was found")
        return
    rows = [(hit.at, hit.kind, hit.ref, hit.instance_id or "-", f"{hit.title}: {hit.excerpt}") for hit in hits]
    output.columns(("AT", "KIND", "ID", "INSTANCE", "WHAT"), rows, [("dim", "", "", "bold", "")] * len(rows))
