"""Options that several commands share, and what they say: a fit's settings, priors, caps, an engine."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from adamab.cli.console import counted, percent
from adamab.errors import RecipeError, TaskError, place, short, suggestion

if TYPE_CHECKING:
    from adamab.engines import Engine
    from adamab.model import Confidence, PredictOptions
    from adamab.providers.metering import Budget, Price
    from adamab.run.settings import FitSettings
    from adamab.task import Sample
    from adamab.task.table_files import TableOptions


Task = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="A task file (YAML), a data file with text and label (CSV, TSV, JSONL, Parquet, XLSX), or a "
        "folder with a folder of images for each class.",
    ),
]
Embedder = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="local, st:PATH-or-id, npz:FILE, openai:MODEL or another service, such as ollama:MODEL; "
        "for images clip:PATH-or-id, onnx:FILE, timm:NAME or voyage:voyage-multimodal-3. "
        "auto: local, or for images the CLIP model that the Hugging Face cache has.",
    ),
]
Generator = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="Synthetic samples: openai:MODEL or another service, such as anthropic:MODEL, replay:FILE, "
        "pool:FILE, noise or none; images: openai-image:MODEL, diffusers:PATH-or-id, pool:DIR or transform.",
    ),
]
RecipeName = Annotated[
    str,
    typer.Option("--recipe", metavar="NAME", help="default, paper, calibrator, paper:SET or calibrator:SET."),
]
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
        help="Your price in usd per million tokens, input and output, or MODEL=USD/image; repeat for others.",
    ),
]
LongTexts = Annotated[
    str | None,
    typer.Option(metavar="WAY", help="Texts longer than the embedder takes: cut, or average of the pieces."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of everything random.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the planned calls, tokens and cost; send nothing.")
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Use no vectors and answers of other runs, and leave none.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]


TextColumn = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Column of texts, or of paths of images; else text, or an obvious one."
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column of the classes; else label, class, or an obvious one."),
]
IdColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column of ids; else id, if there is one.")
]
Delimiter = Annotated[
    str | None,
    typer.Option(metavar="CHAR", help="Between cells of CSV and TSV; else what divides the rows."),
]
Encoding = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of data files, such as cp1252 or utf-16; else UTF-8.")
]

TABLE_OPTIONS = ("text_column", "label_column", "id_column", "delimiter", "encoding")


def table_options(options: Mapping[str, Any]) -> TableOptions:
    """How data files are written, by the names of a command's parameters; what is recognised is said once."""
    from adamab.cli.console import say
    from adamab.task.table_files import TableOptions

    said: set[str] = set()

    def note(line: str) -> None:
        if line not in said and not options.get("quiet"):
            say(line)
        said.add(line)

    return TableOptions(**{name: options.get(name) for name in TABLE_OPTIONS}, note=note)


def settings_of(options: Mapping[str, Any], before: FitSettings | None = None, **others: Any) -> FitSettings:
    """What the options of a command say about its fits.

    Args:
        options: by the names of the command's parameters.
        before: what holds where an option is not among them; defaults if None.
        others: settings that are no options.

    Returns:
        Everything about a fit but its task.
    """
    from adamab.run.settings import FitSettings
    from adamab.task.recipe import Recipe
    from adamab.task.spec import join_spec, split_spec

    plain = ("generator", "policy", "seed", "prefetch", "holdout", "all_scores", "overwrite")
    before, budget = before or FitSettings(), options.get("budget")
    recipe = Recipe.preset(options["recipe"]) if "recipe" in options else before.recipe
    embedder, generator = (
        str(options.get(name, getattr(before, name))) for name in ("embedder", "generator")
    )
    if options.get("long_texts") is not None:
        bare, written = split_spec(embedder)
        embedder = join_spec(bare, written | {"long_texts": options["long_texts"]})
    return FitSettings(
        **{
            **dict(before),
            "embedder": embedder,
            "recipe": recipe.with_options(**dict(map(_option, options.get("settings") or ()))),
            "budget": None if budget is None else budget_of(budget, generator),
            "prices": {**before.prices, **prices_of(options.get("price"))},
            "cache": not options.get("no_cache"),
            **{name: options[name] for name in plain if name in options},
            **others,
        }
    )


def budget_of(text: str, generator: str) -> Budget:
    """The caps; those of samples need a generator."""
    from adamab.providers.metering import Budget

    budget = Budget.parse(text)
    if generator == "none" and budget.samples is not None:
        raise RecipeError(
            "a budget of samples is for synthetic ones; name what writes them, such as --generator noise"
        )
    return budget


def prices_of(texts: Iterable[str] | None) -> dict[str, Price]:
    """By model."""
    from adamab.providers.metering import Price

    return dict(Price.parse(text) for text in texts or ())


def _option(setting: str) -> tuple[str, object]:
    """`views=pooled,max` and the like, for the recipe to check."""
    from adamab.task.recipe import Recipe

    key, equals, value = (part.strip() for part in setting.partition("="))
    if not equals or not key:
        raise RecipeError(f"--set {short(setting)} is not KEY=VALUE; write for example: --set dropout=0.3")
    if key not in Recipe.model_fields:
        raise RecipeError(
            f"--set: the recipe has no option {short(key)}; {suggestion(key, Recipe.model_fields)}"
        )
    return key, None if value.lower() in ("none", "null") else value


def command_line(context: typer.Context, *words: str, options: Collection[str]) -> list[str]:
    """A command as a person would write it, with those of `options` that have other values than usual."""
    parts = ["adamab", *words]
    for parameter in context.command.params:
        value = context.params[parameter.name or ""]
        if parameter.name in options and value != parameter.default:
            for one in value if isinstance(value, list | tuple) else [value]:
                parts += [parameter.opts[0], str(one)]
    return parts


Model = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a saved model's.")]
OtherEmbedder = Annotated[
    str | None, typer.Option(metavar="SPEC", help="Instead of the one that the model names.")
]
NoVectors = Annotated[bool, typer.Option("--no-cache", help="Neither read nor store vectors.")]
AllJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


Prior: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SHARE",
        help="Share of a class where the model is used, or a JSON file of them; others share the rest.",
    ),
]
Unknown = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Answer unknown where an input is stranger than this share of known ones, such as 0.95.",
    ),
]
Coverage = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="A set of classes that holds the right one this often, such as 0.9."),
]


def predict_options(
    k: int, priors: Sequence[str] | None, unknown: float | None, coverage: float | None
) -> PredictOptions:
    """What the options ask for; priors are `NAME=SHARE`, or files of them."""
    from adamab.model import PredictOptions

    shares: dict[str, float] = {}
    for value in priors or ():
        name, equals, share = value.rpartition("=")
        if not equals:
            pairs = _of_file(Path(value))
        else:
            try:
                pairs = [(name, float(share))]
            except ValueError:
                problem = f"{short(share)} is no number; write NAME=SHARE, such as refund=0.2"
                raise TaskError(f"--prior: {problem}") from None
        for name, share_of_class in pairs:
            if name in shares:
                raise TaskError(f"--prior: class {short(name)} stands there twice; name it once")
            shares[name] = share_of_class
    return PredictOptions(k, shares if priors else None, unknown, coverage)


def _of_file(path: Path) -> Sequence[tuple[str, float]]:
    try:
        # Objects as tuples of pairs, so that a class that stands there twice is seen.
        shares = json.loads(path.read_bytes(), object_pairs_hook=tuple)
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise TaskError(f"--prior: {place(path)}: {reason}; write NAME=SHARE or name a JSON file") from None
    except (ValueError, RecursionError):
        shares = None
    if not isinstance(shares, tuple):
        raise TaskError(f'--prior: {place(path)}: is no JSON object of shares, such as {{"refund": 0.2}}')
    return shares


NOTHING_HELD_OUT = (
    "note: no sample was held out when the model was fitted (one example per class, or a recipe without "
    "refit), so it has no temperature"
)


def notes(confidence: Confidence | None, options: PredictOptions) -> Iterator[str]:
    """Where too few samples were held out for what is asked; none at all are an error elsewhere."""
    from adamab.model.classifier import too_few  # NumPy comes with it

    if confidence is None or not confidence.n:
        return
    for share, result in too_few(confidence, options):
        few = counted(confidence.n, "held-out sample")
        yield f"note: {few} cannot vouch for {percent(share)}, so {result}; add examples"


def known_samples(
    data: str, samples: Sequence[Sample], classes: Sequence[str], skip_unknown: bool
) -> list[Sample]:
    """The samples of classes that are known; others are an error, unless they are to be skipped."""
    names = set(classes)
    known = [sample for sample in samples if sample.class_name in names]
    unknown = Counter(sample.class_name for sample in samples if sample.class_name not in names)
    if unknown and not (skip_unknown and known):
        named = ", ".join(f"{short(name)} ({count})" for name, count in unknown.most_common(3))
        remedy = "leave them out with --skip-unknown" if known else "is this the right file?"
        raise TaskError(
            f"{place(data)}: {unknown.total()} of {len(samples)} rows are of unknown classes: {named}"
            f"{', …' if len(unknown) > 3 else ''}; {remedy}"
        )
    return known


EngineName = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="local (processes of this machine) or ray (Ray tasks)."),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDR",
        help="HOST:PORT of a Ray cluster that is there, or RAY_ADDRESS says it; else one is started here.",
    ),
]
Jobs = Annotated[
    int,
    typer.Option(min=0, max=64, metavar="N", help="Processes, or processors of a local Ray; 0 is this one."),
]


def engine_of(name: str, address: str | None, jobs: int) -> Engine:
    """What the three options say together; refuses what does not go together."""
    from adamab.engines import Engine

    cluster = ray_address(name, address)
    if name == "ray" and jobs == 0:
        raise RecipeError("--jobs 0 is this process, and Ray has its own; leave out --jobs or --engine ray")
    return Engine("ray" if name == "ray" else "local", jobs, cluster)


def ray_address(engine: str, address: str | None) -> str | None:
    """Where Ray is; None if it has to be started, or if nobody asks for it."""
    if engine not in ("local", "ray"):
        raise RecipeError(f"--engine {short(engine)} is unknown; choose local or ray")
    if engine == "ray":
        return address or os.environ.get("RAY_ADDRESS") or None
    if address is not None:
        raise RecipeError("--address is that of a Ray cluster; add --engine ray or leave it out")
    return None
