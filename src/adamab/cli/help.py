"""What `--help` shows: options in groups, and a plain word for what a user types."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

# Options by the names of their parameters, in the order of the groups. Others stand under "Options".
_GROUPS = {
    "Data": "text_column label_column id_column delimiter encoding kind holdout reject out_of_scope "
    "skip_unknown strict",
    "Model": "embedder generator policy recipe settings long_texts seed methods against all_scores",
    "Answers": "top_k prior unknown coverage",
    "Search": "trials folds search sampler",
    "Calls and cost": "budget price dry_run prefetch no_cache",
    "Processes": "jobs engine address workers part_rows",
    "Output": "run output out overwrite as_json quiet help",
}
_GROUP_OF = {name: group for group, names in _GROUPS.items() for name in names.split()}
_FEW = 10  # options that need no groups


def _place(param: Any) -> int:
    """Where a parameter stands: outside the groups first, then in their order."""
    return 1 + list(_GROUPS).index(param.rich_help_panel) if param.rich_help_panel in _GROUPS else 0


class _Readable:
    """Around a command or a group of typer."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; a flag shows no type, and a bounded number is N."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        options = [param for param in params if param.param_type_name == "option"]
        for option in options:
            if option.is_flag:
                option.metavar = ""
            elif option.metavar is None and option.type_descriptor.is_ranged:
                option.metavar = "N"
            if len(options) > _FEW and option.rich_help_panel is None:
                option.rich_help_panel = _GROUP_OF.get(option.name)
        return sorted(params, key=_place)

    def get_usage(self, ctx: Any) -> str:
        """The usage: RUN where an argument is needed, [TASK] where it is not."""
        usage: str = super().get_usage(ctx)  # type: ignore[misc]
        return usage.replace("{", "").replace("}", "")


class Command(_Readable, TyperCommand):
    """A command whose help is readable."""


class Group(_Readable, TyperGroup):
    """A group whose help is readable."""
