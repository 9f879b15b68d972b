"""Which texts are taken for English, and what is said of others."""

import csv
import json
import os
import random
from pathlib import Path

import pytest

from adamab import Task
from adamab.run.settings import FitSettings, set_up
from adamab.task.languages import other_language

TEXTS = {
    "German": ["Wo ist mein Paket?", "Die Rechnung ist falsch", "Ich möchte kündigen", "Passwort vergessen"],
    "French": ["Où est mon colis ?", "je veux un remboursement", "la facture est fausse", "mot de passe"],
    "Spanish": ["dónde está mi pedido", "quiero el dinero de vuelta", "la factura es falsa", "contraseña"],
    "Dutch": ["waar is mijn pakket", "ik wil mijn geld terug", "de rekening klopt niet", "wachtwoord"],
    "Polish": ["gdzie jest moja paczka", "proszę o zwrot", "to nie działa", "hasło"],
    "another script": ["我要退款", "где мой заказ", "كيف أسترد أموالي", "iPhone 坏了"],
    "another language": ["Hol van a csomagom?", "kérem vissza a pénzem", "tôi muốn trả lại", "nem működik"],
}
ENGLISH = [
    ["Siamese", "pug"],
    ["café", "the Zeitgeist", "naïve résumé of my fiancé", "das Auto is my car"],
    ["O'Reilly", "de facto", "par for the course", "se la vie", "can you come"],
    ["\U0001f600", "12345", "?", ""],
    [*TEXTS["German"][:2], "where is my parcel", "I want my money back", "the invoice is wrong"],
]


@pytest.mark.parametrize("language", TEXTS)
def test_texts_of_another_language_are_told(language):
    assert other_language(TEXTS[language]) == language


@pytest.mark.parametrize("texts", ENGLISH)
def test_english_and_what_tells_nothing_is_let_pass(texts):
    assert other_language(texts) is None


def data_sets():
    folder = Path(os.environ.get("ADAMAB_DATA", "data"))
    for file in ("banking77/train.csv", "multiwd/train_data.csv"):
        if (folder / file).exists():
            with open(folder / file, encoding="utf-8") as rows:
                yield [row["text"] for row in csv.DictReader(rows)]
    if (file := folder / "trec" / "train_5500.label").exists():
        yield [line.partition(" ")[2] for line in file.read_text("latin-1").splitlines()]
    if (file := folder / "clinc150" / "data_full.json").exists():
        yield [text for text, _ in json.loads(file.read_text())["train"]]


def test_no_draw_from_english_data_sets_is_taken_for_another_language():
    rng, sets = random.Random(0), list(data_sets())
    if not sets:
        pytest.skip("no data sets here")
    draws = [rng.sample(texts, size) for texts in sets for size in (2, 3, 10) for _ in range(200)]
    assert [draw for draw in draws if other_language(draw)] == []


@pytest.mark.parametrize("embedder", ["auto", "local?long_texts=average"])
def test_a_fit_with_the_built_in_embedder_warns(embedder):
    task = Task.from_mapping({"paket": TEXTS["German"][:2], "sonst": TEXTS["German"][2:]})
    with pytest.warns(
        UserWarning, match=r"^most texts seem to be in German, .*st:paraphrase-multilingual"
    ) as told:
        set_up(task, FitSettings(embedder=embedder))
    assert (len(told), "\n" in str(told[0].message)) == (1, False)
    set_up(task, FitSettings(embedder="openai:m"))  # no warning, which would be an error here
    set_up(Task.from_mapping({"a": ["where is my parcel"], "b": ["cancel my plan"]}), FitSettings())
