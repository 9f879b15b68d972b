"""What is published names no server, no variable and no folder of the machine that it comes from."""

from __future__ import annotations

import pytest

from adamab.publish.model_card import is_of_this_machine, public_fingerprint, without_place


@pytest.mark.parametrize(
    ("spec", "public"),
    [
        ("openai:m?base_url=http://u:pw@10.0.0.5:8080/v1&key_env=ACME_KEY", "openai:m"),
        (
            "openai:m?base_url=http://h/v1?x=1&Key=SECRET_NAME",
            "openai",
        ),  # no valid option, so no option at all
        ("openai:/srv/acme/models/llama?dimensions=8", "openai:llama?dimensions=8"),
        ("npz:clients/acme/v.npz", "npz:v.npz"),
        ("npz:/home/me/v.npz", "npz:v.npz"),
        ("npz:C:\\data\\v.npz", "npz:v.npz"),
        ("npz:file:v.npz", "npz:v.npz"),
        ("onnx:../acme/net.onnx?size=224&output=pool", "onnx:net.onnx?size=224&output=pool"),
        ("replay:acme/r.jsonl", "replay:r.jsonl"),
        ("pool:acme/pictures/", "pool:pictures"),
        ("st:../models/secret-project/mini", "st:mini"),
        ("st:./mini", "st:mini"),
        ("st:~/models/mini", "st:mini"),
        ("st:file:///home/me/x", "st:x"),
        ("st:secret-project/models/mini", "st:mini"),
        ("clip:\\\\server\\share\\mini", "clip:mini"),
        ("timm:resnet50?checkpoint=acme/w.safetensors", "timm:resnet50"),
        ("diffusers:/srv/sd?steps=4", "diffusers:sd?steps=4"),
        ("mine:http://10.0.0.5:8080", "mine"),
        ("mine:10.0.0.5:8080", "mine"),
        ("mine:m?endpoint=10.0.0.5&api_key=x&max_tokens=9", "mine:m?max_tokens=9"),
    ],
)
def test_places_are_left_out(spec, public):
    assert without_place(spec) == public
    assert is_of_this_machine(spec)


@pytest.mark.parametrize(
    "spec",
    [
        "local",
        "none",
        "local?long_texts=average",
        "st:BAAI/bge-small",
        "openai:m?dimensions=256",
        "openai:@cf/baai/bge-m3",
        "openai:accounts/fireworks/models/m",
        "hash",
    ],
)
def test_names_that_others_can_use_stay(spec):
    assert without_place(spec) == spec
    assert not is_of_this_machine(spec)


def test_a_folder_that_is_here_is_no_id_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert without_place("st:acme/mini") == "st:acme/mini"
    (tmp_path / "acme" / "mini").mkdir(parents=True)
    assert without_place("st:acme/mini") == "st:mini"
    monkeypatch.chdir(tmp_path / "acme")
    assert is_of_this_machine("st:mini")


@pytest.mark.parametrize(
    ("fingerprint", "public"),
    [
        ("openai:m:256@127.0.0.1:8490/v1", "openai:m:256"),
        ("openai:@cf/m@u:pw@10.0.0.5/v1", "openai:@cf/m"),
        ("mine:m@host.acme.example", "mine:m"),
        ("mine:m@https://acme/v1", "mine:m"),
        ("npz:/home/me/mini", "npz:mini"),
        ("npz:clients/acme/mini", "npz:mini"),
    ],
)
def test_fingerprints_lose_their_server(fingerprint, public):
    assert public_fingerprint(fingerprint) == public


@pytest.mark.parametrize(
    "fingerprint",
    ["st:sha256:01ab:cut:v1", f"st:org/name@{'0a' * 20}:cut:v1", "hash:64:pooled:None", "npz:org/mini", ""],
)
def test_other_fingerprints_stay(fingerprint):
    assert public_fingerprint(fingerprint) == fingerprint
