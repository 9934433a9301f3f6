"""Commands for money: what agents have used, as an estimate, and how much each may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from swarm_ui.cli import output, parameters

if TYPE_CHECKING:
    from swarm_core.ops.budget import Account

_STYLES = {"held": "red", "warned": "yellow"}


def budget(
    instance: parameters.One,
    usd: Annotated[
        float | None, typer.Argument(metavar="[USD]", help="Its new budget in US dollars.", show_default=False)
    ] = None,
    raise_by: Annotated[
        float | None, typer.Option("--raise", metavar="USD", help="Add so many dollars to its budget.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="No limit, also when the setting has one.")] = False,
    json: parameters.Json = False,
) -> None:
    """Show what an instance has used and may use, or change its budget.

    At 80 % of the budget it is marked, at 100 % it is held: its agent may use no tools until the budget is raised
    above the cost. The cost is an estimate from list prices.

    --json prints id, name, cost_usd, estimate, tokens_used, budget_usd, budget_is_default, budget_state, used,
    models and unknown_price.

    \b
    Example:
      swarm budget work-12-a1 5
      swarm budget work-12-a1 --raise 2.50
    """
    if (usd is not None) + (raise_by is not None) + none > 1:
        raise typer.BadParameter("give one of USD, --raise and --none", param_hint="USD")
    from swarm_ui import views
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        found = swarm.budget(instance, usd=usd, raise_by=raise_by, none=none)
    if json:
        output.write_json(views.account_json(found))
        return
    output.fields(
        (
            ("id", found.instance.id),
            ("cost", views.cost_label(found) or "nothing so far"),
            ("budget", views.budget_label(found) or "no limit"),
        )
    )
    if found.instance.budget_state == "held":
        output.note(f"it is held; `swarm budget {found.instance.id} --raise USD` lets it go on")


def cost(json: parameters.Json = False) -> None:
    """List what all instances have used, and the sum. Costs are estimates from list prices.

    --json prints {"instances": [...], "cost_usd", "tokens_used", "estimate"}, instances as `swarm budget` does.

    \b
    Example:
      swarm cost
    """
    from swarm_ui import views
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        found = swarm.costs()
    tokens = sum(a.instance.tokens_used for a in found)
    usd = sum(a.instance.cost_usd for a in found)
    if json:
        sums = {"cost_usd": usd, "tokens_used": tokens, "estimate": True}
        output.write_json({"instances": [views.account_json(a) for a in found]} | sums)
    elif found:
        _table(found, tokens, usd)
    else:
        output.write('no instances; `swarm work "..."` starts one')


def _table(found: list[Account], tokens: int, usd: float) -> None:
    rows, styles = [], []
    for one in found:
        instance = one.instance
        limit = f"{one.limit_usd:.2f}" if one.limit_usd is not None else ""
        unknown = f"unknown price: {', '.join(one.unknown_price)}" if one.unknown_price else ""
        used = (f"{instance.tokens_used:,}", f"{instance.cost_usd:.2f}")
        rows.append((instance.id, *used, limit, instance.budget_state, unknown))
        styles.append(("bold", "", "", "", _STYLES.get(instance.budget_state, ""), "yellow"))
    rows.append(("total", f"{tokens:,}", f"{usd:.2f}", "", "", ""))
    styles.append(("bold", "bold", "bold", "", "", ""))
    output.columns(("ID", "TOKENS", "USD (ESTIMATE)", "BUDGET", "STATE", "REMARK"), rows, styles)
