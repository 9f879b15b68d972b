"""A model card: Markdown with the Hub's metadata header, from what a run knows about itself.

Nothing in it is made up: what is not known is left out or said to be unknown. It shows no sample. Names
come from data, so whatever could be markup in them is escaped.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.errors import RecipeError, RunError, one_line, place
from adamab.run.directory import SUMMARY, has_journal, read_summary, read_task
from adamab.run.run_log import SEGMENT, Journal
from adamab.task.recipe import Recipe
from adamab.task.spec import join_spec, split_spec

if TYPE_CHECKING:
    from adamab.model import Classifier
    from adamab.task.spec import Sample

CARD = "README.md"
_TITLE, _LIBRARY = "A classifier made with ADAMAB", "adamab"
# What changes how a name is shown: the beginnings of links, emphasis only where it could begin or end, …
_MARKUP = re.compile(
    r"[\\`*\[\]<|~$]|(?<![^\W_])_|_(?![^\W_])|^#|#(?=#*$)|&(?=#?\w+;)"
    r"|:(?=//)|(?<!\w):(?=[\w+-]+:)|(?<=\w)@(?=\w)|(?<=www)\.",
    re.IGNORECASE,
)
_MOST_CLASSES, _MOST_NAMED, _WIDEST = 200, 8, 80

# Names of embedders and generators.
_FILES = ("npz", "onnx", "replay", "pool")  # what follows the colon is a file or a folder of this machine
_FOLDERS_OR_IDS = ("st", "clip", "timm", "diffusers", "cross-encoder")  # a folder, or an id such as org/name
_MODELS = ("openai", "openai-image", "voyage", "cohere", "chat", "rerank")  # the name of a model, any text
_PATH = re.compile(r"~|\.{1,2}([/\\]|$)|[/\\]|[A-Za-z]:[/\\]|file:")  # how a path of this machine begins
_ADDRESS = re.compile(r"://|@|^\[?[\w.:-]+\]?:\d+(/|$)")
_PRIVATE = re.compile(r"(^|_)(url|uri|host|server|endpoint|proxy|key|token|secret|password|user|env)(_|$)")
_PLACE = re.compile(r"[/\\@]|^~|^file:|:\d+$")  # in the value of an option
# In fingerprints, MODEL@SERVER; after the @ of other schemes a revision may stand as well.
_SERVED = re.compile(rf"((?:{'|'.join(_MODELS)}):@?[^@]*)@.*", re.DOTALL)
_SERVER = re.compile(r"[@:]?\w*://.*|@(localhost|\[|[\w-]+\.|[\w-]+:\d+(/|$)).*", re.DOTALL)


@dataclass(frozen=True)
class Facts:
    """What is known about a fit besides its classifier; the summary is laid out like `fit.json`."""

    summary: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, int] | None = None  # samples by class


def facts_of(run: Path) -> Facts:
    """Those of a run, or none of a saved model's directory."""
    if not (run / SUMMARY).is_file():
        return Facts()
    summary = read_summary(run)
    if not has_journal(run):
        return Facts(summary)
    with Journal(run) as journal:
        segments: Sequence[Any] = list(journal.events(SEGMENT))
    try:
        given = {name: len(hashes) for name, hashes in segments[-1].data["inputs"]["given"].items()}
    except (IndexError, KeyError, TypeError, AttributeError):
        raise RunError(f"{place(run)}: its journal is damaged; export a copy of the model alone") from None
    if added := summary.get("added", ()):
        with suppress(RunError):  # the card then says that their number is unknown
            task = read_task(run)
            given |= {name: len(task.samples_of(name)) for name in task.class_names if name in added}
    return Facts(summary, given)


def fit_facts(
    generator: object, synthetic: Sequence[Sample], spent: Mapping[str, Any], added: Sequence[str] = ()
) -> Facts:
    """Those of a fit that left no run behind."""
    name = generator if isinstance(generator, str) else type(generator).__name__
    by_class = Counter(sample.class_name for sample in synthetic)
    return Facts(
        {
            "generator": "none" if generator is None else name,
            "synthetic_by_class": dict(by_class),
            "spent": spent,
            "added": list(added),
        }
    )


def model_card(
    classifier: Classifier,
    facts: Facts | None = None,
    *,
    licence: str | None = None,
    source: str = "",
    use: str = "",
) -> str:
    """The card's text; `source` is where the model is loaded from, a Hub id or a folder.

    `use` is Markdown that says how files other than the model's own are used.
    """
    facts = facts or Facts()
    what = "images" if classifier.metadata.get("modality") == "image" else "texts"
    try:
        sections = [
            _header(classifier, facts, licence),
            f"# {escaped(_name(facts))}\n",
            f"Sorts {what} into {len(classifier.classes)} classes, one class each. Made with ADAMAB: a small "
            "network on the vectors of an embedder that stays as it is.\n",
            "## How to use it\n",
            *([f"{use}\n"] if use else _use(classifier, source)),
            *_data(classifier, facts),
            *_making(classifier, facts),
            *_results(classifier, facts),
            "## Limits\n",
            *_limits(classifier, facts),
            *_costs(facts),
        ]
    except (KeyError, TypeError, ValueError, AttributeError):  # numbers and texts where others were expected
        raise RunError(f"{SUMMARY} is damaged or was edited, so there is no model card; fit again") from None
    return "\n".join(sections) + "\n"


def escaped(text: object, width: int = _WIDEST) -> str:
    """`text` on one line, such that Markdown shows it as it is, in a table as well.

    Example:
        >>> print(escaped("a|b <i>"))
        a\\|b \\<i>
    """
    shown = str(text)
    shown = shown if len(shown) <= width else shown[: width - 1] + "…"
    return _MARKUP.sub(r"\\\g<0>", one_line(shown))


def is_ours(card: Path) -> bool:
    """Whether a card says of itself that it was made here, so that a new one may replace it."""
    import yaml

    try:
        begin, head, *_ = re.split(r"^---\s*$", card.read_text("utf-8"), maxsplit=2, flags=re.MULTILINE)
        known = yaml.safe_load(head)
    except (OSError, ValueError, yaml.YAMLError):  # nothing there, no text, no header
        return False
    return not begin.strip() and isinstance(known, dict) and known.get("library_name") == _LIBRARY


def _header(classifier: Classifier, facts: Facts, licence: str | None) -> str:
    import yaml

    modality = classifier.metadata.get("modality", "text")
    head: dict[str, Any] = {
        "library_name": _LIBRARY,
        "pipeline_tag": f"{modality}-classification",
        "tags": ["adamab", "few-shot", f"{modality}-classification"],
    }
    if licence:
        head["license"] = licence
    if (estimate := _estimate(classifier, facts)) is not None:
        of = " of the classes that were fitted" if _added(classifier, facts) else ""
        metric = {
            "type": "accuracy",
            "value": round(float(estimate["accuracy"]), 4),
            "name": f"Accuracy (out-of-fold estimate on {int(estimate['n'])} given samples{of})",
        }
        result = {
            "task": {"type": head["pipeline_tag"]},
            "dataset": {"name": "given samples of the task, out of fold", "type": "given-samples"},
            "metrics": [metric],
        }
        head["model-index"] = [{"name": _name(facts), "results": [result]}]
    return f"---\n{yaml.safe_dump(head, allow_unicode=True, sort_keys=False, width=100)}---\n"


def _use(classifier: Classifier, source: str) -> Iterator[str]:
    words = repr(source or "FOLDER-OR-HUB-ID")
    spec = classifier.embedder_spec
    more = ', embedder="SPEC"' if classifier.views and is_of_this_machine(spec) else ""
    asked = '["photo.jpg"]' if classifier.metadata.get("modality") == "image" else '["a text"]'
    yield "```python\nfrom adamab import ADAMABClassifier\n"
    yield f"model = ADAMABClassifier.from_pretrained({one_line(words)}{more})"
    yield f"print(model.predict({asked}), model.predict_proba({asked}))\n```\n"
    if more:
        yield (
            "`SPEC` is the embedder of the fit under the name that it has on your machine. Another embedder "
            "is refused, by its fingerprint.\n"
        )


def _data(classifier: Classifier, facts: Facts) -> Iterator[str]:
    synthetic = facts.summary.get("synthetic_by_class")
    total = None if synthetic is None else sum(synthetic.values())
    yield "## Data\n"
    yield f"{_count(facts.summary.get('given'), 'given')}, {_count(total, 'synthetic')}.\n"
    added = _added(classifier, facts)
    if added:
        yield f"These are of the fit; {_classes(added)} added later and not trained yet.\n"
    yield "| class | given samples | synthetic samples |\n| --- | ---: | ---: |"
    for name in classifier.classes[:_MOST_CLASSES]:
        later = " (added later, not trained yet)" if name in added else ""
        given = _cell(facts.given, name, None if later else 0)
        yield f"| {escaped(name)}{later} | {given} | {_cell(synthetic, name)} |"
    if (more := len(classifier.classes) - _MOST_CLASSES) > 0:
        yield f"\nand {more} more."
    if kept_out := sum(sum(reasons.values()) for reasons in facts.summary.get("rejected", {}).values()):
        yield f"\nThe quality gate kept {kept_out} more synthetic samples out."
    yield "\nThis card shows no sample."
    if classifier.vocabulary is not None:
        yield (
            f"The model's files hold {len(classifier.vocabulary.terms)} words and pairs of words of the "
            "training texts, as its vocabulary."
        )
    yield ""


def _making(classifier: Classifier, facts: Facts) -> Iterator[str]:
    known = {**classifier.metadata, **facts.summary}
    yield "## How it was made\n"
    spec = classifier.embedder_spec
    fingerprint = escaped(public_fingerprint(classifier.fingerprint) or "unknown", 200)
    embedder = escaped(without_place(spec), 200) if spec else "one that has no name outside its program"
    yield f"- embedder: {embedder}, fingerprint {fingerprint}"
    yield f"- views that count: {', '.join(dict.fromkeys(escaped(head.view) for head in classifier.heads))}"
    if (generator := known.get("generator")) is not None:
        yield f"- generator: {escaped(without_place(generator), 200)}"
    yield f"- recipe: {_recipe(known.get('recipe'))}"
    for what in ("policy", "budget", "rounds", "seed"):
        if known.get(what) is not None:
            yield f"- {what}: {escaped(known[what])}"
    made_by = {"adamab": known.get("adamab"), **known.get("packages", {})}
    yield f"- versions: {', '.join(f'{escaped(k)} {escaped(v)}' for k, v in made_by.items() if v)}\n"


def _recipe(recipe: Any) -> str:
    if not isinstance(recipe, Mapping):
        return "unknown"
    other = ", ".join(f"{option}={recipe[option]}" for option in set_otherwise(recipe))
    return escaped(recipe.get("name")) + (f"; set otherwise: {escaped(other, 500)}" if other else "")


def set_otherwise(recipe: Mapping[str, Any]) -> list[str]:
    """The options of a recipe that differ from the preset of its name."""
    try:
        usual = Recipe.preset(str(recipe.get("name"))).model_dump(mode="json")
    except RecipeError:
        return []
    return [option for option, value in recipe.items() if usual.get(option, value) != value]


def _results(classifier: Classifier, facts: Facts) -> Iterator[str]:
    estimate = _estimate(classifier, facts)
    yield "## Results\n"
    if estimate is None:
        yield "No accuracy is known: nothing was held out when the model was fitted.\n"
        return
    figures = {key: f"{100 * float(estimate[key]):.1f} %" for key in ("accuracy", "low", "high")}
    yield (
        f"Out-of-fold accuracy **{figures['accuracy']}** (95 % interval {figures['low']} to "
        f"{figures['high']}) on {int(estimate['n'])} given samples.\n"
    )
    yield (
        "This estimates how often the method is right on new samples that are like the given ones, when it "
        "is fitted on given samples alone. Each was judged by a model that had not seen it, and no synthetic "
        "sample took part. The model in these files was fitted on all samples; it was not judged on a test "
        "set, unless somebody adds one here.\n"
    )
    if added := _added(classifier, facts):
        yield f"It is an estimate of the classes that were fitted: {_classes(added)} added later.\n"


def _limits(classifier: Classifier, facts: Facts) -> Iterator[str]:
    """What the model cannot do, one list item each."""
    is_image = classifier.metadata.get("modality") == "image"
    held_out = 0 if classifier.confidence is None else classifier.confidence.n
    yield f"- {'An image' if is_image else 'A text'} has one class here, not several."
    yield "- An input of no class gets one all the same" + (
        f", unless you ask for `unknown` (`predict(..., unknown=0.95)`). The threshold comes from "
        f"{held_out} held-out given samples, not from samples of no class."
        if held_out
        else ": nothing was held out, so it cannot answer `unknown`."
    )
    if not is_image:
        yield (
            "- It understands the languages that its embedder understands, and was judged on the languages "
            "of the given samples only."
        )
    yield "- It was fitted on few samples. Where inputs differ from these, expect it to be worse."
    if added := len(_added(classifier, facts)):
        yield (
            f"- {added} of {len(classifier.classes)} classes {'was' if added == 1 else 'were'} added after "
            "the fit, without training. Expect such a class to be recognised less well, and fit again."
        )
    if synthetic := sum(facts.summary.get("synthetic_by_class", {}).values()):
        given = facts.summary.get("given")
        share = f"{synthetic}" if given is None else f"{synthetic} of {synthetic + given}"
        yield (
            f"- {share} training samples are synthetic. What their generator gets wrong, or leaves out, the "
            "model may have learnt."
        )
    if overlong := facts.summary.get("overlong"):
        yield f"- {int(overlong)} of the texts in training were longer than the embedder takes."
    yield (
        f"- Its probabilities were calibrated on {held_out} held-out samples, at the classes' shares in "
        "training; state other shares with `priors`."
        if held_out
        else "- Its probabilities were not calibrated on held-out samples."
    )


def _costs(facts: Facts) -> Iterator[str]:
    spent, seconds = facts.summary.get("spent"), facts.summary.get("seconds")
    if spent is None:
        return
    yield "\n## Costs\n"
    tokens = f"{int(spent['input_tokens'])} tokens in and {int(spent['output_tokens'])} out"
    yield f"{int(spent['calls'])} paid calls, {tokens}, {float(spent['usd']):.4f} USD." + (
        "" if seconds is None else f" The last fit took {float(seconds):.1f} seconds."
    )


def _estimate(classifier: Classifier, facts: Facts) -> Mapping[str, Any] | None:
    known: Any = facts.summary.get("estimate", classifier.metadata.get("out_of_fold"))
    return known if isinstance(known, Mapping) else None


def _name(facts: Facts) -> str:
    return one_line(str(facts.summary.get("task", {}).get("name") or _TITLE))


def _count(count: int | None, kind: str) -> str:
    noun = "sample" if count == 1 else "samples"
    return f"an unknown number of {kind} samples" if count is None else f"{int(count)} {kind} {noun}"


def _cell(by_class: Mapping[str, int] | None, name: str, without: int | None = 0) -> str:
    count = None if by_class is None else by_class.get(name, without)
    return "unknown" if count is None else str(int(count))


def _added(classifier: Classifier, facts: Facts) -> list[str]:
    """Classes that came after the fit; one that is noted and not in the model was never finished."""
    noted = facts.summary.get("added", ())
    return [name for name in classifier.classes if name in noted]


def _classes(names: Sequence[str]) -> str:
    shown = ", ".join(escaped(name) for name in names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{shown}{more} {'was' if len(names) == 1 else 'were'}"


def without_place(spec: str) -> str:
    """A spec without folders, servers and variables of this machine: cards are made to be published.

    Example:
        >>> without_place("st:/home/me/models/mini"), without_place("local?long_texts=average")
        ('st:mini', 'local?long_texts=average')
        >>> without_place("openai:m?base_url=http://10.0.0.5/v1&key_env=ACME_KEY&dimensions=256")
        'openai:m?dimensions=256'
    """
    bare, options = split_spec(spec)
    scheme, colon, rest = bare.partition(":")
    if not colon:
        scheme, rest = "", bare
    public = {k: v for k, v in options.items() if not _PRIVATE.search(k) and not _PLACE.search(v)}
    named = _named(scheme, rest)
    return join_spec(f"{scheme}:{named}" if colon and named else scheme or named, public)


def public_fingerprint(fingerprint: str) -> str:
    """A fingerprint without the server that the vectors came from, and without folders.

    Example:
        >>> public_fingerprint("openai:m:256@127.0.0.1:8490/v1"), public_fingerprint("hash:64")
        ('openai:m:256', 'hash:64')
    """
    whole = _SERVER.sub("", _SERVED.sub(r"\1", fingerprint))
    scheme, colon, rest = whole.partition(":")
    is_path = _PATH.match(rest) or (scheme in _FILES[:1] and rest.count("/") > 1)
    return f"{scheme}:{_last_part(rest)}" if colon and is_path else whole


def is_of_this_machine(spec: str) -> bool:
    """Whether a spec names something that other people cannot open under that name."""
    scheme, _, rest = split_spec(spec)[0].partition(":")
    local = scheme in _FILES or (scheme in _FOLDERS_OR_IDS and _is_here(rest))
    return not spec or local or without_place(spec) != spec


def _named(scheme: str, rest: str) -> str:
    """What may follow the colon."""
    if scheme in _FILES or _PATH.match(rest):
        return _last_part(rest)
    if "://" in rest or (scheme not in (*_FOLDERS_OR_IDS, *_MODELS) and _ADDRESS.search(rest)):
        return ""  # a server, of a scheme that we do not know or written where none belongs
    if scheme in _MODELS:
        return rest
    # An id of the Hub has one slash at most.
    return _last_part(rest) if "\\" in rest or rest.count("/") > 1 or _is_here(rest) else rest


def _is_here(path: str) -> bool:
    try:
        return os.path.exists(path)
    except ValueError:  # a NUL
        return False


def _last_part(path: str) -> str:
    parts = re.split(r"[/\\]", path.rstrip("/\\"))
    return re.sub(r"^(file|[A-Za-z]):(?=[/\\]?)", "", parts[-1]) or "…"
