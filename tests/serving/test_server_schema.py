"""Whatever follows the OpenAPI document, or nearly does, is answered as the document says."""

from collections import Counter

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from adamab.testing import PixelEmbedder

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 25
BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def examined(server):
    """How many answers of each path and status came to `EXAMPLES` questions of each kind."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    seen = Counter()
    for operation in (result.ok() for result in schema.get_all_operations()):
        for mode in GenerationMode:
            ask_all(operation, mode, server, seen)
    return seen


def ask_all(operation, mode, server, seen):
    @BOUNDED
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        answer = case.call(base_url=server.url)
        seen[operation.path, answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)

    try:
        ask()
    except schemathesis.errors.InvalidSchema:
        raise
    except Exception as error:
        if type(error).__name__ not in ("Unsatisfiable", "SkipTest"):  # nothing can be wrong with a bare GET
            raise


def test_texts(standing):
    seen = examined(standing)
    assert seen["/v1/classify", 200] > 0
    assert seen["/v1/classify", 422] > 0
    assert seen["/v1/classes", 200] > 0
    assert standing.log == []


def test_images(live, image_model):
    server = live(image_model, PixelEmbedder())
    seen = examined(server)
    assert seen["/v1/classify", 422] > 0
    assert server.log == []
