"""`adamab compare`: the method and what it has to beat, on one task and one set of test data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adamab.cli.console import echo, print_json, print_table, progress, say
from adamab.cli.fit import BudgetText, Embedder, Generator, LongTexts, Prices, RecipeName, Settings, Task

if TYPE_CHECKING:
    from adamab.providers.budget import Budget
    from adamab.providers.http import ApiClient
    from adamab.run.fit_run import Order
    from adamab.run.outside import Outside
    from adamab.study.comparison import Comparison
    from adamab.study.comparison_methods import Method
    from adamab.task import Sample

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Test data: JSONL, CSV or TSV with text and label; of pictures image and label, or folders.",
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…",
        help="zero-shot, centred, class-mean, linear-probe, linear-svm, knn, cache-adapter, calibrator, "
        "setfit, chat:MODEL, rerank:SERVICE:MODEL, cross-encoder:PATH; +POLICY adds synthetic samples, "
        "as in calibrator+adamab.",
    ),
]

_USUAL = {"--embedder": "local", "--generator": "none", "--recipe": "default", "--seed": "0"}


def compare(
    task: Task,
    data: Data,
    methods: Methods = None,
    against: Annotated[
        str | None, typer.Option(metavar="METHOD", help="What the others are compared with.")
    ] = None,
    embedder: Embedder = "local",
    generator: Generator = "none",
    recipe: RecipeName = "default",
    settings: Settings = None,
    budget: BudgetText = None,
    price: Prices = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the planned calls, tokens and cost; send nothing.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of everything random.")] = 0,
    long_texts: LongTexts = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out rows of classes that the task does not have.")
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Use no vectors and answers of other runs, and leave none.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also as .md, .csv or .json.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Fit several methods on TASK's samples and judge them on DATA, in one table.

    Test samples that are also given ones are left out. A method that cannot be fitted is named below the
    table; only where none can is that an error. --budget caps samples of each policy, and money and calls
    of all methods together.
    """
    from adamab.cli.extras import need_torch_for
    from adamab.cli.recipe_options import recipe_of
    from adamab.providers.prices import Price
    from adamab.study.comparison_methods import chosen_methods, reference_of
    from adamab.study.comparison_report import check_output

    chosen = chosen_methods(methods, generator=generator != "none")
    reference_of(chosen, against)
    if output is not None:
        check_output(output)
    need_torch_for(embedder)
    order_recipe, caps = recipe_of(recipe, settings or ()), _budget(budget, generator)
    prices = dict(Price.parse(text) for text in price or ())
    with _cache(not no_cache) as folder:
        order = _order(task, embedder, generator, long_texts, folder, seed)
        order = _with(order, recipe=order_recipe, budget=caps, prices=prices)
        test = _test(data, order, skip_unknown)
        if dry_run:
            _dry_run(order, test, chosen, as_json=as_json)
            return
        found, outside = _compare(order, test, chosen, against, cache=not no_cache)
    options = {
        "--methods": methods,
        "--against": against,
        "--embedder": embedder,
        "--generator": generator,
        "--recipe": recipe,
        "--budget": budget,
        "--seed": str(seed),
        "--long-texts": long_texts,
    }
    command = _command(task, data, options, settings or ())
    _report(found, outside, command, output, embedder=order.embedder_spec, as_json=as_json)


def _order(
    task: str, embedder: str, generator: str, long_texts: str | None, folder: Path | None, seed: int
) -> Order:
    from adamab.run.fit_run import Order
    from adamab.run.resolve import embedder_name, open_embedder, open_generator
    from adamab.task import load_task

    spec = embedder_name(embedder, long_texts)
    opened = open_embedder(spec, cache=folder is None)
    if folder is not None and opened.cacheable:
        from adamab.providers.cache import CachedEmbedder, VectorCache

        opened = CachedEmbedder(opened, VectorCache(folder / "vectors.sqlite"))  # fits share vectors
    return Order(
        task=load_task(task),
        embedder=opened,
        embedder_spec=spec,
        generator=open_generator(generator, seed=seed),
        generator_spec=generator,
        seed=seed,
    )


def _with(order: Order, **changes: Any) -> Order:
    from dataclasses import replace

    return replace(order, **changes)


@contextmanager
def _cache(shared: bool) -> Iterator[Path | None]:
    """A folder for this comparison's own vectors where the cache of all runs is off."""
    from tempfile import TemporaryDirectory

    if shared:
        yield None
        return
    with TemporaryDirectory(prefix="adamab-") as folder:
        yield Path(folder)


def _budget(text: str | None, generator: str) -> Budget:
    from adamab.errors import RecipeError
    from adamab.providers.budget import Budget

    budget = Budget.parse(text)
    if generator == "none" and budget.samples is not None:
        raise RecipeError(
            "a budget of samples is for synthetic ones; name what writes them, such as --generator noise"
        )
    return budget


def _test(data: str, order: Order, skip_unknown: bool) -> Sequence[Sample]:
    from adamab.errors import TaskError
    from adamab.task import read_image_samples, read_samples
    from adamab.task.messages import place, short

    samples = read_image_samples(data) if order.task.modality == "image" else read_samples(data)
    names = set(order.task.class_names)
    known = [sample for sample in samples if sample.class_name in names]
    unknown = Counter(sample.class_name for sample in samples if sample.class_name not in names)
    if not unknown or (skip_unknown and known):
        return known
    first, count = unknown.most_common(1)[0]
    remedy = "leave them out with --skip-unknown" if known else "is this the right file?"
    raise TaskError(
        f"{place(data)}: {unknown.total()} of {len(samples)} rows are of classes that the task lacks, "
        f"such as {short(first)} ({count}); {remedy}"
    )


def _dry_run(order: Order, test: Sequence[Sample], methods: Sequence[Method], *, as_json: bool) -> None:
    from adamab.cli.plan_summary import print_plan
    from adamab.study.comparison_plan import plan_comparison

    plan = plan_comparison(order, test, methods)
    if as_json:
        print_json(plan.to_json())
    else:
        print_plan(plan)


def _compare(
    order: Order, test: Sequence[Sample], methods: Sequence[Method], against: str | None, *, cache: bool
) -> tuple[Comparison, Outside]:
    from adamab.cli.stopping import stop_gently
    from adamab.providers.replies import MemoryReplies
    from adamab.run.outside import Outside
    from adamab.run.resolve import open_generator, shared_images, shared_replies
    from adamab.study.comparison import compare as run
    from adamab.study.comparison_bench import Setup

    apis: list[ApiClient | None] = [order.embedder.api]  # grows as methods are fitted

    def new_generator() -> Any:
        generator = open_generator(order.generator_spec, seed=order.seed)
        apis.append(None if generator is None else generator.api)
        return generator

    with progress("embedding") as bar, stop_gently(apis) as stop:
        replies = shared_replies() if cache else MemoryReplies()
        outside = Outside(order.caps, order.prices, replies=replies, stop=stop)
        setup = Setup(
            task=order.task,
            embedder=order.embedder,
            test=test,
            recipe=order.recipe,
            seed=order.seed,
            new_generator=new_generator,
            outside=outside,
            on_api=apis.append,
            shared_images=shared_images() if cache else None,
        )
        found = run(setup, methods, against=against, on_method=lambda m: bar.phase(f"fitting {m}"))
    return found, outside


def _report(
    found: Comparison, outside: Outside, command: str, output: Path | None, *, embedder: str, as_json: bool
) -> None:
    from adamab.cli.fit_summary import long_text_warning
    from adamab.run.directory import spending
    from adamab.study import comparison_report as report
    from adamab.task.messages import one_line

    if output is not None:
        report.write_output(found, output, command=command)
    spent = spending(outside.spent())
    if as_json:
        print_json({**report.as_json(found, command), "spent": spent})
    else:
        columns = [report.HEADER[0], *(f"{name}#" for name in report.HEADER[1:])]
        print_table(columns, report.cells(found))
        for line in report.caption(found):
            echo(fill(one_line(line), 88, initial_indent="- ", subsequent_indent="  "))
        _spending(spent)
    for warning in filter(None, (report.leak_warning(found), long_text_warning(found.overlong, embedder))):
        say(warning)


def _spending(spent: dict[str, Any]) -> None:
    from adamab.cli.spending import spending_lines

    if spent["calls"]:
        for line in spending_lines({"spent": spent}):
            echo(line)


def _command(task: str, data: str, options: Mapping[str, str | None], settings: Sequence[str]) -> str:
    """What makes the same table again, as a person would write it."""
    import shlex

    parts = ["adamab", "compare", task, data]
    for option, value in options.items():
        if value is not None and value != _USUAL.get(option):
            parts += [option, value]
    for setting in settings:
        parts += ["--set", setting]
    return shlex.join(parts)
