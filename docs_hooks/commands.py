"""A hook of mkdocs: the reference of the command line, read from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from adamab.cli.app import app

MARK = "<!-- every command -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the reference where a page asks for it."""
    return markdown.replace(MARK, reference()) if MARK in markdown else markdown


def reference() -> str:
    """Markdown: a section per command, with its usage, its arguments and its options."""
    group = get_command(app)
    return "\n\n".join(_section(command, path) for command, path in _commands(group, "adamab"))


def _commands(group: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Commands that do something, with what one types to call them, in the order of the help."""
    context = typer.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield command, f"{path} {name}"


def _section(command: Any, path: str) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    usage = " ".join([path, *(_name(one) if one.required else f"[{_name(one)}]" for one in arguments)])
    usage += " [OPTIONS]" if options else ""
    parts = [f"## {path}", _prose(command.help or ""), f"```text\n{usage}\n```"]
    if arguments:
        parts.append(_table("argument", [(f"`{_name(one)}`", one.help or "") for one in arguments]))
    parts.append(_table("option", [(_option(one), _help(one)) for one in options]))
    return "\n\n".join(part for part in parts if part)


def _prose(text: str) -> str:
    """The command's docstring; typer marks paragraphs that keep their lines with \\b."""
    return text.replace("\b", "").strip()


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper()).strip("[]")


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    if option.is_flag:
        return names
    return f"{names} `{option.metavar or option.opts[0].lstrip('-').replace('-', '_').upper()}`"


def _help(option: Any) -> str:
    text = option.help or ""
    shown = option.default not in (None, (), [], False) and not callable(option.default)
    default = str(getattr(option.default, "value", option.default))
    return f"{text} Default: `{default}`." if shown and default else text


def _table(head: str, rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    lines = [f"| {head} | meaning |", "| --- | --- |"]
    return "\n".join(lines + [f"| {left} | {_cell(right)} |" for left, right in rows])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
