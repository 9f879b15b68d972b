"""Images from an API and to an API: what was bought once is found by the next run and comparison."""

import pytest

from adamab.testing import ProviderServer

SETTINGS = ("--set", "augmentation_rounds=6", "--set", "batch=2", "--set", "near_duplicate=none")
DRAW = "images/generations"


def command(server, *more):
    embedder = f"voyage:voyage-multimodal-3?base_url={server.url}/voyage/v1"
    generator = f"openai-image:gpt-image-1-mini?base_url={server.url}/v1"
    parts = ("fit", "photos", "--run", "run", "--embedder", embedder, "--generator", generator, *more)
    return tuple(str(part) for part in parts)


@pytest.fixture
def place(tmp_path, monkeypatch, paint):
    paint(tmp_path / "photos", {"red": 3, "green": 3, "blue": 3})
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
