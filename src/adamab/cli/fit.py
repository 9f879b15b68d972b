"""`adamab fit`: from a task file to a run directory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adamab.cli.console import Bar, print_json, progress

if TYPE_CHECKING:
    from adamab.run.core import OnRound
    from adamab.task.recipe import Recipe

Task = Annotated[Path, typer.Argument(metavar="TASK", help="The task file (YAML).")]
Run = Annotated[Path, typer.Option("--run", metavar="DIR", help="Where to write the run.")]
Embedder = Annotated[str, typer.Option(metavar="SPEC", help="local, st:PATH-or-id or npz:FILE.")]
Generator = Annotated[
    str, typer.Option(metavar="SPEC", help="Synthetic samples: replay:FILE, pool:FILE, noise or none.")
]
Policy = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Which class gets the next ones: adamab, tight, greedy, random, round-robin or none.",
    ),
]
RecipeName = Annotated[str, typer.Option("--recipe", metavar="NAME", help="default, paper or paper:SET.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the recipe, such as dropout=0.3; repeat."),
]
Budget = Annotated[
    str | None, typer.Option(metavar="TEXT", help="At most so many synthetic samples, such as '120 samples'.")
]
LongTexts = Annotated[
    str | None,
    typer.Option(metavar="WAY", help="Texts longer than the embedder takes: cut, or average of the pieces."),
]


def fit(
    task: Task,
    run: Run,
    embedder: Embedder = "local",
    generator: Generator = "none",
    policy: Policy = "adamab",
    recipe: RecipeName = "default",
    settings: Settings = None,
    budget: Budget = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of everything random.")] = 0,
    long_texts: LongTexts = None,
    all_scores: Annotated[
        bool, typer.Option("--all-scores", help="Record the exact score of every class in every round.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that is there.")] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Neither read nor store vectors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Train a classifier for TASK and write it, with its history, into a run directory."""
    from adamab.cli.extras import need_torch_for
    from adamab.cli.fit_summary import print_summary
    from adamab.cli.recipe_options import recipe_of
    from adamab.run.directory import check_free, summarise, write_run
    from adamab.run.resolve import embedder_name
    from adamab.task import load_task

    started = time.perf_counter()
    check_free(run, overwrite=overwrite)
    loaded, samples = load_task(task), _samples(budget, generator)
    need_torch_for(embedder)
    chosen = _budgeted(recipe_of(recipe, settings or ()), policy, samples)
    with progress("embedding the samples", quiet=quiet) as bar:
        result = _fit(
            loaded,
            embedder_name(embedder, long_texts),
            generator,
            cache=not no_cache,
            policy=policy,
            recipe=chosen,
            budget=samples,
            seed=seed,
            all_scores=all_scores,
            on_round=_round_counter(bar, chosen.n_rounds(len(loaded.classes))),
        )
    summary = summarise(
        loaded,
        result,
        chosen,
        policy=policy,
        generator=generator,
        budget=samples,
        seed=seed,
        seconds=time.perf_counter() - started,
    )
    write_run(run, result, summary, overwrite=overwrite)
    with _written(run):
        if as_json:
            print_json({"run": str(run), **summary})
        elif not quiet:
            print_summary(run, summary)


@contextmanager
def _written(run: Path) -> Iterator[None]:
    """Around what is printed at the end: the run is there whatever becomes of it."""
    from adamab.errors import RunError
    from adamab.task.messages import place

    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunError(
            f"{place(run)} was written, but its summary could not be printed: "
            f"{error.filename}: {error.strerror or error}"
        ) from None


def _samples(budget: str | None, generator: str) -> int | None:
    from adamab.errors import RecipeError
    from adamab.run.resolve import parse_budget

    if budget is None:
        return None
    samples = parse_budget(budget)
    if generator == "none":
        raise RecipeError(
            "a budget is for synthetic samples; name what writes them, such as --generator noise"
        )
    return samples


def _budgeted(recipe: Recipe, policy: str, budget: int | None) -> Recipe:
    """The recipe as the fit will use it; a wrong policy is told before anything is embedded."""
    from adamab.method.policies import make_policy
    from adamab.run.fit import within_budget

    make_policy(policy, alpha=recipe.alpha, relative=recipe.relative_shift)
    return within_budget(recipe, budget)


def _fit(task: Any, embedder: str, generator: str, *, cache: bool, seed: int, **options: Any) -> Any:
    from adamab.run.fit import fit_task
    from adamab.run.resolve import open_embedder, open_generator

    source = open_generator(generator, seed=seed)
    return fit_task(
        task,
        open_embedder(embedder, cache=cache),
        embedder_spec=embedder,
        generator=source,
        seed=seed,
        **options,
    )


def _round_counter(bar: Bar, total: int) -> OnRound:
    def on_round(record: Any) -> None:
        if record.round == 1:
            bar.phase("rounds", total)
        bar.step()
        if record.round == total:
            bar.phase("training the classifier")

    return on_round
