"""Models that earlier versions saved load, and say what they said then.

At a release, `python tests/model/make_fixtures.py` writes fixtures/VERSION; commit it, and never change
it again.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from adamab.model import load
from tests.model import make_fixtures

FIXTURES = Path(__file__).parent / "fixtures"
CASES = sorted(path.parent for path in FIXTURES.glob("*/*/expected.json"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.relative_to(FIXTURES).as_posix())
def test_a_model_of_an_earlier_version_answers_as_it_did(case):
    expected = json.loads((case / "expected.json").read_text("utf-8"))
    model = load(case)
    views = {view: np.array(rows, np.float32) for view, rows in expected["views"].items()}
    texts = expected["texts"]
    assert list(model.classes) == expected["classes"]
    assert [model.embedder_spec, model.fingerprint, model.query_prompt] == expected["embedder"]
    assert model.metadata == expected["metadata"]
    np.testing.assert_allclose(model.predict_proba(views, texts), expected["probabilities"], atol=1e-5)
    assert model.predict(views, texts) == expected["predicted"]
    if "sets" not in expected:
        return
    assert model.predict(views, texts, unknown=0.5) == expected["with_unknown"]
    assert [list(names) for names in model.predict_sets(views, texts, coverage=0.5)] == expected["sets"]
    with_priors = model.predict_proba(views, texts, priors={"délai": 0.8})
    np.testing.assert_allclose(with_priors, expected["with_priors"], atol=1e-5)


def test_fixtures_are_made_as_described_and_never_changed(tmp_path):
    make_fixtures.main(tmp_path / "new")
    made = sorted(path.parent for path in tmp_path.glob("new/*/expected.json"))
    assert [path.name for path in made] == ["confidence", "hidden", "plain", "words"]
    for case in made:
        test_a_model_of_an_earlier_version_answers_as_it_did(case)
    with pytest.raises(FileExistsError):
        make_fixtures.main(tmp_path / "new")
