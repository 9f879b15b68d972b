import json

import pytest

from adamab.study.documents import as_document


def test_it_is_the_same_data_with_an_object_a_line():
    told = {
        "command": "adamab reproduce α",
        "rows": [{"seed": 0, "counts": [1, 2]}, {"seed": 1, "counts": []}],
        "notes": ["one", "two"],
        "empty": [],
        "experiment": {"sets": ["a", "b"], "options": {}},
    }
    text = as_document(told)
    assert json.loads(text) == told
    assert '  {"seed": 0, "counts": [1, 2]},\n' in text
    assert "α" in text
    assert text.endswith("}\n")


def test_no_number_that_json_lacks():
    with pytest.raises(ValueError, match="JSON compliant"):
        as_document({"rows": [{"accuracy": float("nan")}]})
