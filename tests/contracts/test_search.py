"""`swarm search`, the tool `search` and the index agree: every argument of the tool is one flag of the command."""

from __future__ import annotations

import inspect
import typing

import typer

from swarm_core.store import search
from swarm_core.swarm import Swarm
from swarm_mcp.tools.find import SearchArguments, SearchKind
from swarm_ui.cli.main import app

# A flag that may be repeated has the name of one value.
_FLAGS = {"kinds": "kind"}


def _parameters():
    command = typer.main.get_command(app).commands["search"]
    return {p.name: p for p in command.params if p.name not in ("json", "help")}


def test_every_argument_of_the_tool_is_a_flag_and_nothing_else_is():
    assert list(_parameters()) == [_FLAGS.get(name, name) for name in SearchArguments.model_fields]
    options = {name: p.opts for name, p in _parameters().items() if p.param_type_name == "option"}
    assert [name for name, spelled in options.items() if f"--{name}" not in spelled] == []


def test_flags_and_arguments_are_equally_required_and_repeatable_and_have_the_same_default():
    for name, field in SearchArguments.model_fields.items():
        parameter = _parameters()[_FLAGS.get(name, name)]
        assert parameter.required == field.is_required(), name
        assert parameter.multiple == ("list" in str(field.annotation)), name
        if not field.is_required():
            assert (parameter.default or None) == (field.default or None), name


def test_the_core_takes_the_same_arguments():
    taken = [p for p in inspect.signature(Swarm.search).parameters if p != "self"]
    assert taken == list(SearchArguments.model_fields)


def test_the_kinds_are_the_same_everywhere():
    assert set(typing.get_args(SearchKind)) == set(search.SOURCES)
    assert all(kind in _parameters()["kind"].help for kind in search.SOURCES)


def test_the_limits_are_the_same():
    schema = SearchArguments.model_json_schema()["properties"]
    assert schema["query"]["maxLength"] == search.QUERY_MAX
    assert schema["limit"]["maximum"] == search.LIMIT_MAX
