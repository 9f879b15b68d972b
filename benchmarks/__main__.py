"""`python -m benchmarks [GROUP ...]`: measure all groups, or those named.

`python -m benchmarks size` and `walk [--list]` count the code; that is printed and not kept in results/.
"""

from __future__ import annotations

import importlib
import sys
import time

from benchmarks.report import figures_table, write

GROUPS = (
    "against_torch",
    "bulk",
    "choosing",
    "embedding",
    "growth",
    "image_memory",
    "install",
    "long_run",
    "many_classes",
    "paper_run",
    "prediction",
    "serving",
    "startup",
    "training",
    "waiting",
)  # modules of this package, each with run() -> Group

COUNTS = ("size", "walk")  # the same, but of the code: on every machine alike


def main(arguments: list[str]) -> int:
    options = {"list_all": True} if "--list" in arguments else {}
    names = [argument for argument in arguments if argument != "--list"]
    unknown = [name for name in names if name not in GROUPS + COUNTS]
    if unknown:
        print(f"unknown group {unknown[0]!r}; choose from: {', '.join(GROUPS + COUNTS)}", file=sys.stderr)
        return 2
    if options and names != ["walk"]:
        print("--list is for walk alone", file=sys.stderr)
        return 2
    held = True
    for name in names or GROUPS:
        start = time.perf_counter()
        group = importlib.import_module(f"benchmarks.{name}").run(**options)
        if name in GROUPS:
            write(name, group)
        print(f"\n## {name} ({time.perf_counter() - start:.0f} s)\n", figures_table(group.figures), sep="\n")
        for table in group.tables:
            print("", table.markdown(), sep="\n")
        held &= all(figure.holds for figure in group.figures)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
