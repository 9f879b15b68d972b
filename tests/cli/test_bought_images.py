"""Images from an API and to an API: whatever the provider does, the right result or one clear line."""

import hashlib
import json

import pytest
from typer.testing import CliRunner

from adamab.cli.app import app
from adamab.testing import Fault, ProviderServer

SETTINGS = ("--set", "augmentation_rounds=6", "--set", "batch=2", "--set", "near_duplicate=none")
QUICK = (*SETTINGS, "--no-cache")
LIMITS = "retries=3&first_wait=0.01"
EMBED, DRAW = "multimodalembeddings", "images/generations"


def command(server, *more, limits=LIMITS):
    embedder = f"voyage:voyage-multimodal-3?base_url={server.url}/voyage/v1&{limits}"
    generator = f"openai-image:gpt-image-1-mini?base_url={server.url}/v1&{limits}"
    parts = ("fit", "photos", "--run", "run", "--embedder", embedder, "--generator", generator, *more)
    return tuple(str(part) for part in parts)


def weights(folder):
    return hashlib.sha256((folder / "run" / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture
def place(tmp_path, monkeypatch, paint):
    paint(tmp_path / "photos", {"red": 3, "green": 3, "blue": 3})
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def undisturbed(place, tmp_path_factory, paint):
    """The weights of a fit that nothing happens to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    paint(folder / "photos", {"red": 3, "green": 3, "blue": 3})
    with pytest.MonkeyPatch.context() as patch, ProviderServer() as server:
        patch.chdir(folder)
        result = CliRunner().invoke(app, command(server, *QUICK))
        assert result.exit_code == 0, result.output
    return weights(folder)


LASTING = [
    ("status", {"status": 429}, DRAW, "no answer after 4 attempts (last: 429 "),
    ("status", {"status": 401}, DRAW, "wants a key (401 invalid_api_key); set OPENAI_API_KEY"),
    ("reset", {}, DRAW, "no answer after 4 attempts (last: the connection broke)"),
    ("truncate", {}, DRAW, "no answer after 4 attempts (last: an answer that is no JSON)"),
    ("nan", {}, EMBED, "no usable answer after 3 attempts (last: a vector that is not finite)"),
]


@pytest.mark.parametrize(("kind", "options", "path", "message"), LASTING)
def test_a_fault_that_lasts_is_one_line_and_the_run_goes_on_later(
    adamab, refused, place, undisturbed, kind, options, path, message
):
    with ProviderServer() as server:
        server.add_fault(Fault(kind, path=path, times=None, after=3, **options))
        assert message in refused(*command(server, *QUICK))
        bought = {seen.idempotency_key for seen in server.seen if seen.fault is None and seen.status == 200}
        assert len(bought) >= 3
        server.clear_faults()
        before = server.count()
        result = adamab(*command(server, *QUICK, "--quiet"))
        assert (result.exit_code, result.stderr) == (0, "")
        assert not bought & {seen.idempotency_key for seen in server.seen[before:]}
    assert weights(place) == undisturbed


def test_a_budget_of_money_is_kept_and_told(adamab, place):
    with ProviderServer() as server:
        price = ("--price", "gpt-image-1-mini=0.01/image", "--price", "voyage-multimodal-3=0.12")
        result = adamab(*command(server, *QUICK, *price, "--budget", "0.09 usd", "--json"))
        assert result.exit_code == 0, result.output
        sample_images = sum(seen.body["n"] for seen in server.seen if DRAW in seen.path)
    summary = json.loads(result.stdout)
    assert 0 < sample_images <= 8
    assert summary["spent"]["usd"] <= 0.09
    assert "0.09" in summary["ended"]


def test_a_second_run_finds_the_images_of_the_first(adamab, place):
    shared = (*SETTINGS, "--prefetch", "0")
    with ProviderServer() as server:
        assert adamab(*command(server, *shared)).exit_code == 0
        (place / "run").rename(place / "first")
        before = server.count()
        result = adamab(*command(server, *shared))
        assert result.exit_code == 0, result.output
        assert server.count() == before  # neither an image nor a vector is bought again
        first, second = ((place / run / "synthetic.jsonl").read_text() for run in ("first", "run"))
        assert first == second
        listed = adamab("cache", "list").stdout
        assert "generated images: 12" in listed
        assert adamab("cache", "purge", "--yes").exit_code == 0
        assert "generated images" not in adamab("cache", "list").stdout


def test_a_comparison_finds_the_images_of_the_last_one(place, adamab, paint):
    paint(place / "judged", {"red": 2, "green": 2, "blue": 2})
    with ProviderServer() as server:
        fit = command(server, *SETTINGS)
        compare = ("compare", "photos", "judged", *fit[4:], "--methods", "class-mean,calibrator+round-robin")
        assert adamab(*compare).exit_code == 0
        bought = server.count(DRAW)
        result = adamab(*compare)
        assert result.exit_code == 0, result.output
        assert server.count(DRAW) == bought > 0
