"""`adamab fit`: from a task file to a run directory; started again, it goes on where it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adamab.cli.console import counted, print_json, progress, say, say_missing

if TYPE_CHECKING:
    from adamab.run.fit_run import Order
    from adamab.run.started import Started
    from adamab.task.spec import Task as TaskRead

Task = Annotated[
    str,
    typer.Argument(
        metavar="TASK", help="The task file (YAML), or a folder with a folder of pictures for each class."
    ),
]
TaskOfNewRun = Annotated[
    str | None,
    typer.Argument(
        metavar="[TASK]",
        help="The task file (YAML), or a folder with a folder of pictures for each class; "
        "without it a run that is there goes on as it was started.",
        show_default=False,
    ),
]
Run = Annotated[
    Path, typer.Option("--run", metavar="DIR", help="The run's directory; one that is there is taken up.")
]
Embedder = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="local, st:PATH-or-id, npz:FILE, openai:MODEL, voyage:MODEL or cohere:MODEL; "
        "for pictures clip:PATH-or-id, onnx:FILE, timm:NAME or voyage:voyage-multimodal-3.",
    ),
]
Generator = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="Synthetic samples: openai:MODEL, replay:FILE, pool:FILE, noise or none; "
        "pictures: openai-image:MODEL, diffusers:PATH-or-id, pool:DIR or transform.",
    ),
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
BudgetText = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="TEXT",
        help="Caps, such as '200 samples, 1.50 usd, 500 calls', or none; a run that goes on keeps its own.",
    ),
]
Prices = Annotated[
    list[str] | None,
    typer.Option(
        "--price",
        metavar="MODEL=IN/OUT",
        help="Your price in usd a million tokens, input and output, or MODEL=USD/image; repeat for others.",
    ),
]
Prefetch = Annotated[
    int,
    typer.Option(min=0, max=64, help="Batches to fetch from an API before the policy asks for them."),
]
Device = Annotated[
    str,
    typer.Option(metavar="NAME", help="Where torch trains and scores: auto, cpu, cuda or mps."),
]
HoldoutFile = Annotated[
    str | None,
    typer.Option("--holdout", metavar="FILE", help="Texts, or a folder of pictures, not to be trained on."),
]
RejectFile = Annotated[
    Path | None,
    typer.Option("--reject", metavar="FILE", help="Synthetic samples of this run to train without."),
]
LongTexts = Annotated[
    str | None,
    typer.Option(metavar="WAY", help="Texts longer than the embedder takes: cut, or average of the pieces."),
]


# What a run was started with, and goes on with where nobody names the task.
_FIXED = (
    "embedder",
    "generator",
    "policy",
    "recipe",
    "settings",
    "seed",
    "holdout",
    "long_texts",
    "all_scores",
    "overwrite",
)


def fit(
    context: typer.Context,
    run: Run,
    task: TaskOfNewRun = None,
    embedder: Embedder = "local",
    generator: Generator = "none",
    policy: Policy = "adamab",
    recipe: RecipeName = "default",
    settings: Settings = None,
    budget: BudgetText = None,
    price: Prices = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the planned calls, tokens and cost; send nothing.")
    ] = False,
    prefetch: Prefetch = 4,
    device: Device = "auto",
    holdout: HoldoutFile = None,
    reject: RejectFile = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of everything random.")] = 0,
    long_texts: LongTexts = None,
    all_scores: Annotated[
        bool, typer.Option("--all-scores", help="Record the exact score of every class in every round.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Begin anew instead of taking up the run that is there.")
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Use no vectors and answers of other runs, and leave none.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Train a classifier for TASK and write it, with its history, into a run directory.

    Started again on the same directory it goes on where it was stopped; nothing is bought twice.
    """
    from adamab.cli.extras import need_torch_for
    from adamab.cli.recipe_options import recipe_of
    from adamab.method.policies import make_policy
    from adamab.providers.prices import Price
    from adamab.run.directory import check_place

    check_place(run, overwrite=overwrite)
    chosen = recipe_of(recipe, settings or ())
    if task is None:
        as_then = _as_then(run, context)
        embedder, generator, policy = as_then.embedder, as_then.generator, as_then.policy
        chosen, seed = as_then.recipe, as_then.seed
        holdout, all_scores = as_then.holdout, as_then.all_scores
        price = [*(f"{model}={text}" for model, text in as_then.prices.items()), *(price or ())]
    else:
        _check_apart(run, task)
    make_policy(policy, alpha=chosen.alpha, relative=chosen.relative_shift)
    need_torch_for(embedder)
    order = _order(
        _read_task(task, run),
        embedder,
        generator,
        long_texts=long_texts,
        cache=not no_cache,
        policy=policy,
        recipe=chosen,
        budget=_budget(budget, generator),
        seed=seed,
        all_scores=all_scores,
        prefetch=prefetch,
        device=device,
        holdout=holdout,
        prices=dict(Price.parse(text) for text in price or ()),
        reject=reject,
    )
    if dry_run:
        _dry_run(order, as_json=as_json)
        return
    if not overwrite:
        order = order.taken_up(run)
    summary = _fit(order, run, overwrite=overwrite, cache=not no_cache, quiet=quiet)
    _report(run, summary, as_json=as_json, quiet=quiet)


def _check_apart(run: Path, task: str) -> None:
    """A run in the folder of the pictures would be taken for a class by whatever reads that folder."""
    import os

    from adamab.errors import RunError
    from adamab.task.messages import place

    if os.path.isdir(task) and Path(task).resolve() in (run.resolve(), *run.resolve().parents):
        raise RunError(f"{place(run)}: lies in the folder of the pictures; name a directory beside it")


def _as_then(run: Path, context: typer.Context) -> Started:
    """How the run was started; nothing of that may be named anew beside it."""
    from adamab.errors import RunError
    from adamab.run.directory import has_journal
    from adamab.run.started import started
    from adamab.task.messages import place

    named = [p for p in context.command.params if p.name in _FIXED and _is_named(context, p.name)]
    if named:
        option = named[0].opts[0]
        raise RunError(f"without TASK a run goes on as it was started; leave out {option}, or name TASK")
    if not has_journal(run):
        raise RunError(f"{place(run)}: there is no run to go on with; name TASK")
    return started(run)


def _is_named(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _read_task(task: str | None, run: Path) -> TaskRead:
    from adamab.run.started import task_to_go_on
    from adamab.task import load_task

    if task is None:
        return task_to_go_on(run)
    read = load_task(task)
    if read.modality == "image":
        say_missing(task)
    return read


def _order(
    task: TaskRead,
    embedder: str,
    generator: str,
    *,
    long_texts: str | None,
    cache: bool,
    seed: int,
    holdout: str | None,
    reject: Path | None,
    **options: Any,
) -> Order:
    from adamab.run.fit_run import Order, rejected_texts
    from adamab.run.holdout import Holdout
    from adamab.run.resolve import embedder_name, open_embedder, open_generator, shared_images

    spec = embedder_name(embedder, long_texts)
    return Order(
        task=task,
        embedder=open_embedder(spec, cache=cache),
        embedder_spec=spec,
        generator=open_generator(generator, seed=seed),
        generator_spec=generator,
        seed=seed,
        holdout=None if holdout is None else Holdout.read(holdout, task.modality),
        holdout_path=holdout,
        shared_images=shared_images() if cache else None,
        reject=() if reject is None else tuple(rejected_texts(reject, task.modality)),
        **options,
    )


def _budget(text: str | None, generator: str) -> Any:
    from adamab.errors import RecipeError
    from adamab.providers.budget import Budget

    if text is None:
        return None
    budget = Budget.parse(text)
    if generator == "none" and budget.samples is not None:
        raise RecipeError(
            "a budget of samples is for synthetic ones; name what writes them, such as --generator noise"
        )
    return budget


def _dry_run(order: Order, *, as_json: bool) -> None:
    from adamab.cli.plan_summary import print_plan
    from adamab.run.plan import plan_fit

    plan = plan_fit(order)
    if as_json:
        print_json(plan.to_json())
    else:
        print_plan(plan)


def _fit(order: Order, run: Path, *, overwrite: bool, cache: bool, quiet: bool) -> dict[str, Any]:
    from adamab.cli.stopping import stop_gently
    from adamab.run.fit_run import fit_run
    from adamab.run.progress import round_counter
    from adamab.run.resolve import shared_replies

    apis = [order.embedder.api, None if order.generator is None else order.generator.api]
    with progress("embedding the samples", quiet=quiet) as bar, stop_gently(apis) as stop:
        return fit_run(
            order,
            run,
            overwrite=overwrite,
            shared=shared_replies() if cache else None,
            stop=stop,
            on_start=lambda session: _taken_up(session, quiet),
            on_round=round_counter(bar, order.rounds()),
        )


def _taken_up(session: Any, quiet: bool) -> None:
    if quiet or session.complete:
        return
    for change in session.changes:
        say(f"new segment: {change}")
    if session.replayed:
        say(f"taking up the run after {counted(session.replayed, 'round')}; nothing is bought again")


def _report(run: Path, summary: dict[str, Any], *, as_json: bool, quiet: bool) -> None:
    from adamab.cli.fit_summary import print_summary

    with _written(run):
        if as_json:
            print_json({"run": str(run), **summary})
        elif not quiet:
            if summary["complete"]:
                say("the run is complete and nothing has changed, so there was nothing to do")
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
