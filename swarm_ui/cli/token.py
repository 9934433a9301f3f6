"""`swarm token`: who may call the coordinator besides the agents that swarm starts."""

from typing import TYPE_CHECKING, Annotated

import typer

from swarm_ui.cli import light, output, parameters

if TYPE_CHECKING:
    from swarm_core.ops.tokens import Issued

app = typer.Typer(
    cls=light.Group,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
Whose = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Automation, instance or `operator`.",
        show_default=False,
        autocompletion=parameters.complete_instance,
    ),
]


@app.callback()
def token() -> None:
    """Make, list, replace and revoke tokens for the coordinator.

    An automation's token is for a script or a CI job and opens what its scopes name. The operator's token is
    in SWARM_HOME/operator.token. Agents get theirs from swarm.

    \b
    Example:
      swarm token create ci --scope read --scope metrics
      swarm token list --json
    """


@app.command(cls=light.Command)
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="1 to 64 of a-z, 0-9, dot, underscore, dash.", show_default=False)
    ],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE", help="What it may do; repeatable.", autocompletion=parameters.complete_scope
        ),
    ] = None,
    json: parameters.Json = False,
) -> None:
    """Make a token for an automation and print it, once.

    Scopes: read (query and search), review, feedback, pulls (open), merge, status, spawn, metrics (GET /metrics).

    --json prints {"kind", "name", "token"}.

    \b
    Example:
      swarm token create ci --scope read --scope metrics > ci.token
    """
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        issued = swarm.create_token(name, scope or [])
    _print(issued, json=json)


@app.command("list", cls=light.Command)
def list_(
    every: Annotated[bool, typer.Option("--all", help="Revoked ones too.")] = False,
    json: parameters.Json = False,
) -> None:
    """List who has a token. The tokens themselves are stored nowhere.

    --json prints an array of {"kind", "name", "scopes", "created_at", "revoked_at"}.

    \b
    Example:
      swarm token list --all
    """
    from swarm_core.models import as_json
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        found = swarm.list_tokens(include_revoked=every)
    if json:
        output.write_json([as_json(row) for row in found])
        return
    if not found:
        output.write("there is no token; `swarm token create NAME --scope read` makes one")
        return
    rows = [(r.kind, r.name, " ".join(r.scopes), r.created_at, r.revoked_at or "") for r in found]
    styles = [("", "bold", "", "dim", "red")] * len(rows)
    output.columns(("KIND", "NAME", "SCOPES", "CREATED", "REVOKED"), rows, styles)


@app.command(cls=light.Command)
def revoke(name: Whose, json: parameters.Json = False) -> None:
    """End the token of an automation or an instance.

    A running agent then works on without the coordinator's tools until it is restarted.

    --json prints {"kind", "name", "revoked": true}.

    \b
    Example:
      swarm token revoke ci
    """
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        whose = swarm.revoke_token(name)
    if json:
        output.write_json({"kind": whose.kind, "name": whose.name, "revoked": True})
    else:
        output.write(f"the token of {whose.name} is revoked")


@app.command(cls=light.Command)
def rotate(name: Whose, json: parameters.Json = False) -> None:
    """Replace a token and print the new one, once. The old one ends at once.

    A running agent keeps the old one in its environment and loses access until it is restarted. For `operator`
    the file SWARM_HOME/operator.token is written anew.

    --json prints {"kind", "name", "token"}.

    \b
    Example:
      swarm token rotate operator
    """
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        issued = swarm.rotate_token(name)
        path = swarm.context.settings.operator_token
    _print(issued, json=json)
    if issued.kind == "instance":
        output.note(
            f"the agent of {issued.name} still has the old token and no access; "
            f"`swarm restart {issued.name}` starts it with one of its own"
        )
    elif issued.kind == "operator":
        output.note(f"it is in {path}")


def _print(issued: "Issued", *, json: bool) -> None:
    if json:
        output.write_json({"kind": issued.kind, "name": issued.name, "token": issued.token})
    else:
        output.write(issued.token)
    output.flush()
    output.note("the token is shown this once; only its hash is stored")
