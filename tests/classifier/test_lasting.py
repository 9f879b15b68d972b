"""Models that earlier versions saved load, and say what they said then.

At a release, `python tests/classifier/make_fixtures.py` writes fixtures/VERSION; commit it, and never change
it again. `format-1` was written by the code of before 0.1.0, when model files had no confidence.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from adamab.classifier import load
from adamab.classifier.storage import VERSION
from adamab.version import __version__

FIXTURES = Path(__file__).parent / "fixtures"
CASES = sorted(path.parent for path in FIXTURES.glob("*/*/expected.json"))


def name_of(case: Path) -> str:
    return case.relative_to(FIXTURES).as_posix()


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_model_of_an_earlier_version_answers_as_it_did(case):
    told = json.loads((case / "expected.json").read_text("utf-8"))
    model = load(case)
    views = {view: np.array(rows, np.float32) for view, rows in told["views"].items()}
    texts = told["texts"]
    assert list(model.classes) == told["classes"]
    assert [model.embedder_spec, model.fingerprint, model.query_prompt] == told["embedder"]
    assert model.metadata == told["metadata"]
    np.testing.assert_allclose(model.predict_proba(views, texts), told["probabilities"], atol=1e-5)
    assert model.predict(views, texts) == told["predicted"]
    if "sets" not in told:
        return
    assert model.predict(views, texts, unknown=0.5) == told["with_unknown"]
    assert [list(names) for names in model.predict_sets(views, texts, coverage=0.5)] == told["sets"]
    found = model.predict_proba(views, texts, priors={"délai": 0.8})
    np.testing.assert_allclose(found, told["with_priors"], atol=1e-5)


def test_every_format_that_is_read_has_a_fixture():
    formats = {json.loads((case / "model.json").read_text("utf-8"))["version"] for case in CASES}
    assert formats == set(range(1, VERSION + 1))


def test_the_present_version_has_fixtures_with_every_part():
    mine = {case.name for case in CASES if case.parent.name == __version__}
    assert mine >= {"plain", "hidden", "words", "confidence"}, "run: python tests/classifier/make_fixtures.py"


def test_fixtures_are_made_as_described_and_never_changed(tmp_path):
    place = Path(__file__).with_name("make_fixtures.py")
    spec = importlib.util.spec_from_file_location("make_fixtures", place)
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    maker.main(tmp_path / "new")
    made = sorted(path.parent for path in tmp_path.glob("new/*/expected.json"))
    assert [path.name for path in made] == ["confidence", "hidden", "plain", "words"]
    for case in made:
        test_a_model_of_an_earlier_version_answers_as_it_did(case)
    with pytest.raises(FileExistsError):
        maker.main(tmp_path / "new")
