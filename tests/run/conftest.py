"""Small runs against a provider on this machine."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from adamab.providers.registry import resolve_embedder, resolve_generator
from adamab.run.run_log import Journal
from adamab.task.recipe import Recipe
from adamab.task.spec import Task
from adamab.testing import HashEmbedder, ProviderServer
from tests.fitting import Order, fit_run

THREE = {
    "refund": ["give me my money back", "i want a refund of the fee", "refund the double charge"],
    "praise": ["what a lovely product", "i love your lovely team", "great work, lovely"],
    "outage": ["the site is down again", "nothing loads, site down", "down for an hour now"],
}  # of each class
GIVEN = {name: texts[:2] for name, texts in THREE.items()}
DESCRIPTIONS = {"refund": "wants money back", "praise": "is happy", "outage": "the site is down"}
RECIPES = {
    "default": Recipe(batch=2, rounds_per_class=2),
    "paper": Recipe.preset("paper").with_options(batch=2, rounds=8, augmentation_rounds=6),
}


class Died(Exception):  # noqa: N818
    """Raised in `on_round`, as a process that dies."""


@dataclass
class Runs:
    """Makes runs in one directory with one server, and looks at what they leave."""

    server: ProviderServer
    path: Path
    recipe: Recipe = RECIPES["default"]
    local: bool = True  # embedding needs no call

    def order(self, given=GIVEN, *, descriptions=None, **options):
        spec = f"openai:m?base_url={self.server.url}/v1"
        task = Task.from_mapping(given, descriptions=descriptions or DESCRIPTIONS)
        defaults = {
            "task": task,
            "embedder": HashEmbedder() if self.local else resolve_embedder(spec),
            "embedder_spec": "hash",
            "generator": resolve_generator(spec, seed=0),
            "recipe": self.recipe,
        }
        return Order(**(defaults | options))

    def fit(self, order=None, path=None, **options):
        return fit_run(order or self.order(), path or self.path, **options)

    def fit_until(self, round_, order=None, **options):
        """Fit, and die when the round has ended."""

        def die(record):
            if record.round == round_:
                raise Died

        with pytest.raises(Died):
            self.fit(order, on_round=die, **options)

    def left(self, path=None):
        """What a finished run left: decisions, samples and weights."""
        where = path or self.path
        lines = (where / "history.jsonl").read_text("utf-8").splitlines()
        return {
            "chosen": [json.loads(line)["chosen"] for line in lines],
            "rounds": [json.loads(line)["round"] for line in lines],
            "samples": sorted((where / "synthetic.jsonl").read_text("utf-8").splitlines()),
            "weights": (where / "model.safetensors").read_bytes(),
        }

    def texts(self, path=None):
        where = path or self.path
        return [
            json.loads(line)["text"] for line in (where / "synthetic.jsonl").read_text("utf-8").splitlines()
        ]

    def events(self, *kinds):
        with Journal(self.path) as journal:
            return list(journal.events(*kinds))

    def asked(self, ending=""):
        """The bodies that the server was sent, as texts."""
        return [json.dumps(s.body, sort_keys=True) for s in self.server.seen if s.path.endswith(ending)]


@pytest.fixture
def runs(server, tmp_path):
    return Runs(server, tmp_path / "run")


@pytest.fixture(params=["default", "paper"])
def both(request, runs):
    """Runs of each recipe."""
    return replace(runs, recipe=RECIPES[request.param])
