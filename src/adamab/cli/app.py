"""The commands by name; each one's module is imported when it is asked for."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command

from adamab.cli.console import echo, show_help
from adamab.cli.errors import exit_code
from adamab.cli.help import Command, Group
from adamab.version import __version__

COMMANDS = {
    "demo": "adamab.cli.demo:demo",
    "init": "adamab.cli.init:init",
    "fit": "adamab.cli.fit:fit",
    "classes": "adamab.cli.classes:app",
    "add-class": "adamab.cli.classes:add_class",
    "evaluate": "adamab.cli.evaluate:evaluate",
    "predict": "adamab.cli.predict:predict",
    "serve": "adamab.cli.serve:serve",
    "compare": "adamab.cli.compare:compare",
    "sweep": "adamab.cli.sweep:sweep",
    "report": "adamab.cli.report:report",
    "export": "adamab.cli.export:export",
    "doctor": "adamab.cli.doctor:doctor",
    "cache": "adamab.cli.cache:app",
}


class LazyGroup(Group):
    """A group that loads its commands when they are named, and reports every error in one line."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; an unknown name loads all, so that the nearest can be suggested."""
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            if name in self.commands:
                continue
            module, _, attribute = COMMANDS[name].partition(":")
            command = getattr(import_module(module), attribute)
            if not isinstance(command, typer.Typer):
                group = typer.Typer(add_completion=False)
                group.command(name, cls=Command)(command)
                command = group
            self.commands[name] = get_command(command)
            self.commands[name].name = name
        return self.commands.get(cmd_name)

    def main(self, *args: Any, **options: Any) -> Any:
        """Run and exit; `standalone_mode` is off inside, so that exceptions arrive here."""
        run = super().main
        sys.exit(exit_code(lambda: run(*args, **{**options, "standalone_mode": False})))


app = typer.Typer(
    cls=LazyGroup, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]}
)


@app.callback(invoke_without_command=True)
def adamab(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Classifiers of texts and images from a few examples per class, on embeddings that stay as they are.

    Start with: adamab demo, or adamab fit TEXTS.csv, or adamab init DIR and adamab fit DIR/task.yaml
    """
    if version:
        echo(f"adamab {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        show_help(context)
