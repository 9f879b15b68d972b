"""A model card: Markdown with the Hub's metadata header, from what a run knows about itself.

Nothing in it is made up: what is not known is left out or said to be unknown. It shows no sample. Names
come from data, so whatever could be markup in them is escaped.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
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
_MOST_CLASSES, _WIDEST = 200, 80
_SETTINGS = ("policy", "budget", "rounds", "seed")

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
    """Those of a fit that left no run behind.

    Args:
        generator: The generator's name, or the generator itself.
        synthetic: The samples that it made.
        spent: Calls, tokens and money.
        added: Classes that were added after the fit.

    Returns:
        What a card says of them.
    """
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
    """The card's text, in Markdown.

    Args:
        classifier: The model that it describes.
        facts: What is known about the fit.
        licence: The identifier of a licence, for the header.
        source: Where the model is loaded from, a Hub id or a folder.
        use: How files other than the model's own are used, in Markdown.

    Returns:
        The card, with the Hub's header.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError

    environment = Environment(  # Markdown: names are escaped by the filter `md`
        loader=PackageLoader("adamab.publish"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "md": escaped,
        "number": "{:d}".format,
        "percent": lambda share: f"{100 * share:.1f} %",
    }
    try:
        content = _content(classifier, facts or Facts(), licence)
        template = environment.get_template("model_card.md.j2")
        return template.render(content, use=use, source=one_line(repr(source or "FOLDER-OR-HUB-ID")))
    except (LookupError, TypeError, ValueError, AttributeError, TemplateError):
        raise RunError(f"{SUMMARY} is damaged or was edited, so there is no model card; fit again") from None


def _content(classifier: Classifier, facts: Facts, licence: str | None) -> dict[str, Any]:
    """By the names that the template uses."""
    summary, known = facts.summary, {**classifier.metadata, **facts.summary}
    noun, spec = str(classifier.metadata.get("modality", "text")), classifier.embedder_spec
    recipe, generator = known.get("recipe") or {}, known.get("generator")
    estimate = summary.get("estimate", classifier.metadata.get("out_of_fold"))
    by_class = summary.get("synthetic_by_class")
    # A class that is noted and not in the model was never finished.
    added = [name for name in classifier.classes if name in summary.get("added", ())]
    name = one_line(summary.get("task", {}).get("name") or _TITLE)
    versions = {"adamab": known.get("adamab"), **known.get("packages", {})}
    return {
        "header": _header(name, noun, licence, estimate, bool(added)),
        "name": name,
        "noun": noun,
        "example": "photo.jpg" if noun == "image" else "a text",
        "names_embedder": bool(classifier.views) and is_of_this_machine(spec),
        "n_classes": len(classifier.classes),
        "classes": classifier.classes[:_MOST_CLASSES],
        "given_by_class": facts.given,
        "synthetic_by_class": by_class,
        "added": added,
        "given": summary.get("given"),
        "synthetic": None if by_class is None else sum(by_class.values()),
        "kept_out": sum(sum(reasons.values()) for reasons in summary.get("rejected", {}).values()),
        "n_words": 0 if classifier.vocabulary is None else len(classifier.vocabulary.terms),
        "embedder": without_place(spec) if spec else "one that has no name outside its program",
        "fingerprint": public_fingerprint(classifier.fingerprint) or "unknown",
        "views": list(dict.fromkeys(head.view for head in classifier.heads)),
        "generator": None if generator is None else without_place(generator),
        "recipe": recipe.get("name", "unknown"),
        "options": ", ".join(f"{option}={recipe[option]}" for option in changed_options(recipe)),
        "settings": {key: known[key] for key in _SETTINGS if known.get(key) is not None},
        "versions": {package: version for package, version in versions.items() if version},
        "estimate": estimate,
        "held_out": 0 if classifier.confidence is None else classifier.confidence.n,
        "overlong": summary.get("overlong"),
        "spent": summary.get("spent"),
        "seconds": summary.get("seconds"),
    }


def escaped(text: object, width: int = _WIDEST) -> str:
    """`text` on one line, such that Markdown shows it as it is, in a table as well.

    Args:
        text: A name that comes from data.
        width: The most characters that are shown.

    Returns:
        The text with whatever could be markup escaped.

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


def _header(
    name: str, modality: str, licence: str | None, estimate: Mapping[str, Any] | None, has_added: bool
) -> str:
    """The metadata that the Hub reads, in YAML."""
    import yaml

    kind = f"{modality}-classification"
    head: dict[str, Any] = {
        "library_name": _LIBRARY,
        "pipeline_tag": kind,
        "tags": ["adamab", "few-shot", kind],
    }
    if licence:
        head["license"] = licence
    if estimate is not None:
        of = " of the classes that were fitted" if has_added else ""
        metric = {
            "type": "accuracy",
            "value": round(float(estimate["accuracy"]), 4),
            "name": f"Accuracy (out-of-fold estimate on {int(estimate['n'])} given samples{of})",
        }
        result = {
            "task": {"type": kind},
            "dataset": {"name": "given samples of the task, out of fold", "type": "given-samples"},
            "metrics": [metric],
        }
        head["model-index"] = [{"name": name, "results": [result]}]
    return yaml.safe_dump(head, allow_unicode=True, sort_keys=False, width=100)


def changed_options(recipe: Mapping[str, Any]) -> list[str]:
    """The options of a recipe that differ from the preset of its name."""
    try:
        preset = Recipe.preset(str(recipe.get("name"))).model_dump(mode="json")
    except RecipeError:
        return []
    return [option for option, value in recipe.items() if preset.get(option, value) != value]


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
