"""A tiny randomly initialised Stable Diffusion on disk, in the real format, through the real loader."""

import asyncio
import json
import pickle
import shutil
from dataclasses import replace

import pytest

from adamab.errors import GeneratorError, MissingExtraError
from adamab.providers.generators.base import Request, Settings
from adamab.providers.generators.diffusers import DiffusersGenerator
from adamab.task.images import decoded
from adamab.task.prompts import Prompts
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec
from adamab.testing import check_generator
from tests.providers.conftest import cached_at

ROSE = Request(ClassSpec("rose", "A thorny shrub."), 0, 2, (), ())
SIDE = 16  # of the tiny model's own images


def _parts():
    torch = pytest.importorskip("torch")
    diffusers = pytest.importorskip("diffusers")
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(0)
    letters = "abcdefghijklmnopqrstuvwxyz,.0123456789"
    marks = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    blocks = {"block_out_channels": (4, 8), "norm_num_groups": 2}
    return {
        "tokenizer": CLIPTokenizer(
            vocab={mark: place for place, mark in enumerate(marks)}, merges=[], model_max_length=77
        ),
        "text_encoder": CLIPTextModel(
            CLIPTextConfig(
                vocab_size=len(marks), hidden_size=8, intermediate_size=16, num_attention_heads=2,
                num_hidden_layers=1, bos_token_id=0, eos_token_id=1, pad_token_id=1,
            )
        ),
        "unet": diffusers.UNet2DConditionModel(
            sample_size=SIDE // 2, layers_per_block=1, cross_attention_dim=8, attention_head_dim=2,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), **blocks,
        ),
        "vae": diffusers.AutoencoderKL(
            down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2, **blocks
        ),
        "scheduler": diffusers.DDIMScheduler(clip_sample=False, steps_offset=1),
    }  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("diffusion") / "model"
    diffusers = pytest.importorskip("diffusers")
    pipeline = diffusers.StableDiffusionPipeline(
        **_parts(), safety_checker=None, feature_extractor=None, requires_safety_checker=False
    )
    pipeline.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def prudish(tmp_path_factory):
    """The same with a safety checker that flags everything."""
    directory = tmp_path_factory.mktemp("prudish") / "model"
    diffusers = pytest.importorskip("diffusers")
    from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker
    from transformers import CLIPConfig, CLIPImageProcessorPil

    tower = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    vision = {**tower, "image_size": 8, "patch_size": 4}
    checker = StableDiffusionSafetyChecker(
        CLIPConfig(text_config=tower, vision_config=vision, projection_dim=8)
    )
    checker.concept_embeds_weights.data.fill_(-2.0)  # a threshold that every cosine exceeds
    pipeline = diffusers.StableDiffusionPipeline(
        **_parts(),
        safety_checker=checker,
        feature_extractor=CLIPImageProcessorPil(size={"shortest_edge": 8}, crop_size=8),
    )
    pipeline.save_pretrained(directory)
    return directory


@pytest.fixture
def made(store):
    def made(model, *, run_seed=0, image_size="1024x1024", **options):
        generator = DiffusersGenerator(str(model), **{"steps": 2, **options})
        recipe = Recipe().with_options(image_size=image_size)
        generator.configure(Settings(Prompts(), run_seed, recipe, store))
        return generator

    return made


def draw(generator, request=ROSE):
    return asyncio.run(generator.generate(request))


def test_images_belong_to_seed_class_number_and_position(made, model, store, capfd):
    batch = draw(made(model))
    assert (len(set(batch.texts)), batch.closed, batch.refused, batch.rejected) == (2, None, False, {})
    assert all(decoded(store.find(text)).size == (SIDE, SIDE) for text in batch.texts)
    assert capfd.readouterr() == ("", "")
    generator = made(model)
    second = draw(generator, replace(ROSE, number=1))  # in whatever order they are asked for
    assert draw(generator).texts == batch.texts
    assert draw(generator, replace(ROSE, count=1, class_index=4)).texts == batch.texts[:1]
    other = draw(generator, replace(ROSE, spec=ClassSpec("tulip")))
    reseeded = draw(made(model, run_seed=1))
    assert not set(batch.texts) & {*second.texts, *other.texts, *reseeded.texts}
    assert draw(made(model, run_seed=1, seed=0)).texts == batch.texts  # its own seed counts
    assert draw(pickle.loads(pickle.dumps(generator))).texts == batch.texts  # a copy loads the model itself
    check_generator(lambda: made(model, steps=1), ROSE, calls=3)


def test_the_caption_and_the_options_reach_the_model(made, model):
    one = replace(ROSE, count=1)
    plain = draw(made(model), one).texts
    for options in ({"steps": 3}, {"guidance": 2.0}, {"prompt": "a drawing of {name}"}):
        assert draw(made(model, **options), one).texts != plain
    # The name seeds the noise and stands in the caption; the description is in the caption alone.
    assert draw(made(model), replace(one, spec=ClassSpec("rose", "red"))).texts != plain


@pytest.mark.parametrize(
    ("image_size", "options", "size"),
    [
        ("1024x1024", {}, (SIDE, SIDE)),  # the model was made for no more
        ("16x10", {}, (16, 8)),
        ("auto", {}, (SIDE, SIDE)),
        ("1024x1024", {"width": 32, "height": 24}, (32, 24)),
    ],
)
def test_sizes(made, model, store, image_size, options, size):
    batch = draw(made(model, image_size=image_size, **options), replace(ROSE, count=1))
    assert decoded(store.find(batch.texts[0])).size == size


def test_flagged_images_are_refusals(made, prudish, store):
    batch = draw(made(prudish))
    assert (batch.texts, batch.refused, batch.rejected) == ((), True, {"refusal": 2})
    assert not store.directory.exists()


def test_what_the_class_has_already_is_drawn_again_or_left_out(made, model):
    generator, request, seen = made(model, steps=1), replace(ROSE, count=1), set[str]()
    for _ in range(3):  # the same batch, while its images exist
        batch = draw(generator, request)
        assert not seen & set(batch.texts)
        seen |= set(batch.texts)
        request = replace(request, existing=tuple(seen))
    batch = draw(generator, request)
    assert (len(seen), batch.texts, batch.rejected) == (3, (), {"repeat": 1})
    assert batch.closed == f"diffusers:{model} drew nothing of use (repeat)"


def test_fingerprints_tell_models_and_options_apart(made, model, tmp_path):
    first = made(model)
    shutil.copytree(model, tmp_path / "copy")
    assert made(tmp_path / "copy").fingerprint == first.fingerprint
    scheduler = tmp_path / "copy" / "scheduler" / "scheduler_config.json"
    scheduler.write_text(scheduler.read_text().replace("0.02", "0.03"))
    options = [
        {"steps": 3}, {"guidance": 1.0}, {"width": 16, "height": 16}, {"image_size": "16x16"},
        {"prompt": "{name}"}, {"run_seed": 1}, {"dtype": "bfloat16"},
    ]  # fmt: skip
    others = [made(tmp_path / "copy"), *(made(model, **option) for option in options)]
    assert len({first.fingerprint, *(other.fingerprint for other in others)}) == 9


def test_broken_models_are_one_line(made, model, tmp_path):
    def damaged(name, damage):
        copy = tmp_path / name
        shutil.copytree(model, copy)
        damage(copy)
        with pytest.raises(GeneratorError) as caught:
            draw(made(copy))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def weights(copy):
        return copy / "unet" / "diffusion_pytorch_model.safetensors"

    def pickled(copy):
        weights(copy).rename(weights(copy).with_suffix(".bin"))

    def foreign(copy):
        index = json.loads((copy / "model_index.json").read_text())
        (copy / "model_index.json").write_text(json.dumps({**index, "unet": ["my_code", "UNet"]}))
        (copy / "unet" / "my_code.py").write_text("raise SystemExit('code of the model was run')")

    cut = damaged("cut", lambda copy: weights(copy).write_bytes(weights(copy).read_bytes()[:100]))
    assert "the pipeline cannot be loaded" in cut
    assert "the pipeline cannot be loaded" in damaged("pickled", pickled)
    assert "'unet' is not part of diffusers or transformers" in damaged("foreign", foreign)
    index = damaged("index", lambda copy: (copy / "model_index.json").write_text("[]"))
    assert index.endswith("not the index of a pipeline; the model is damaged")


def test_an_option_that_the_pipeline_refuses_is_one_line(made, model):
    with pytest.raises(GeneratorError, match=r"cannot draw .*divisible by 8"):
        draw(made(model, width=17, height=17))
    with pytest.raises(GeneratorError, match="there is no device"):
        draw(made(model, device="nowhere"))


def test_a_pipeline_without_a_prompt_is_refused(made, model, tmp_path):
    index = json.loads((model / "model_index.json").read_text())
    shutil.copytree(model, tmp_path / "unconditional")
    wanted = {**index, "_class_name": "DDIMPipeline"}
    wanted = {key: wanted[key] for key in ("_class_name", "_diffusers_version", "unet", "scheduler")}
    (tmp_path / "unconditional" / "model_index.json").write_text(json.dumps(wanted))
    with pytest.raises(GeneratorError, match="a DDIMPipeline does not make images from a text alone"):
        draw(made(tmp_path / "unconditional"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "option steps=0; use a number from 1"),
        ({"guidance": float("nan")}, "option guidance=nan"),
        ({"width": 64}, "width and height belong together"),
        ({"width": 64, "height": 10**6}, "option height=1000000"),
        ({"dtype": "int8"}, "option dtype=int8; use one of auto, float32"),
        ({"seed": -1}, "option seed=-1"),
        ({"prompt": "a rose"}, r"lacks \{name\} or \{description\}"),
        ({"prompt": "{name} {colour}"}, r"has '\{colour\}'; known: \{name\}"),
    ],
)
def test_bad_options(model, options, message):
    with pytest.raises(GeneratorError, match=message):
        DiffusersGenerator(str(model), **options)


def test_bad_names(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(GeneratorError, match=r"not the directory of a pipeline: it has no model_index\.json"):
        DiffusersGenerator(str(tmp_path / "empty"))
    for name in (str(tmp_path / "none"), "./none", "none", "a/b/c", ""):
        with pytest.raises(GeneratorError, match="no such pipeline; give a directory or a hub id"):
            DiffusersGenerator(name)


def test_an_id_is_loaded_offline_from_the_local_cache(monkeypatch, made, model, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(GeneratorError, match="diffusers:nobody/nothing: cannot be fetched from the hub"):
        _ = made("nobody/nothing").fingerprint
    snapshot = cached_at(tmp_path, "tiny/diffusion", model)
    generator = made("tiny/diffusion")
    assert generator.fingerprint.startswith(f"diffusers:tiny/diffusion@{snapshot.name}:steps=2:")
    assert draw(generator).texts == draw(made(model)).texts


def test_a_missing_extra(monkeypatch, model):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'adamab\[diffusers\]'"):
        DiffusersGenerator(str(model))
