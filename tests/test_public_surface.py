"""What `import adamab` offers and what it must not pull in."""

import subprocess
import sys

import pytest

import adamab

PUBLIC = {
    "ADAMABClassifier",
    "AdamabError",
    "ClassSpec",
    "Classifier",
    "Embedder",
    "EmbeddingCalibrator",
    "FitResult",
    "Generator",
    "Prompts",
    "Recipe",
    "Sample",
    "Task",
    "__version__",
    "fit_task",
    "load",
    "load_task",
}


def imported_by(statement):
    script = f"{statement}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_public_names_are_these():
    assert set(adamab.__all__) == PUBLIC == set(dir(adamab))
    for name in PUBLIC:
        assert getattr(adamab, name) is not None


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'labels'"):
        _ = adamab.labels


def test_importing_the_package_imports_neither_torch_nor_a_provider():
    heavy = {
        "torch",
        "sklearn",
        "scipy",
        "pydantic",
        "httpx",
        "openai",
        "sentence_transformers",
        "numpy",
        "yaml",
    }
    assert not imported_by("import adamab") & heavy


def test_a_classifier_predicts_without_torch():
    statement = (
        "import numpy as np\n"
        "from adamab import Classifier\n"
        "from adamab.model import Head\n"
        "head = Head(view='pooled', linear=np.eye(2, dtype=np.float32))\n"
        "assert Classifier(classes=('a', 'b'), heads=(head,)).predict({'pooled': np.eye(2)}) == ['a', 'b']"
    )
    assert not imported_by(statement) & {"torch", "sklearn", "scipy", "pydantic"}


NO_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] == 'torch':
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, NoTorch())
"""
FITS = {
    "vectors": """
import numpy as np
from adamab import EmbeddingCalibrator
y = np.repeat([0, 1, 2], 10)
x = np.random.default_rng(0).normal(size=(30, 8)) + 9 * np.eye(3, 8)[y]
for recipe in ('default', 'paper', 'calibrator'):
    model = EmbeddingCalibrator(recipe=recipe, generator='noise', budget='6 samples', random_state=0)
    assert model.fit(x, y).score(x, y) > 0.9, recipe
""",
    "texts": """
from adamab import ADAMABClassifier
from adamab.testing import HashEmbedder
texts = ['a good day', 'a fine day', 'a bad night', 'a sad night'] * 2
model = ADAMABClassifier(embedder=HashEmbedder(width=16), policy='none', cache=False, random_state=0)
model.fit(texts, ['yes', 'yes', 'no', 'no'] * 2)
assert list(model.predict(['a good day'])) == ['yes']
""",
    "command": """
import json, pathlib, sys
import numpy as np
from adamab.cli import main
texts = [f'{word} {number}' for word in ('day', 'night') for number in range(4)]
keys = [*texts, 'day: light', 'night: dark']
rows = np.random.default_rng(0).normal(size=(10, 8)).astype(np.float32)
np.savez('vectors.npz', ids=np.array(keys), model=np.array('own'), **{'view/pooled': rows})
classes = [
    {'name': 'day', 'description': 'light', 'examples': texts[:4]},
    {'name': 'night', 'description': 'dark', 'examples': texts[4:]},
]
pathlib.Path('task.yaml').write_text(json.dumps({'classes': classes}))
sys.argv = ['adamab', 'fit', 'task.yaml', '--embedder', 'npz:vectors.npz', '--run', 'run', '-q']
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
assert pathlib.Path('run/fit.json').exists()
""",
}


@pytest.mark.parametrize("script", FITS.values(), ids=FITS)
def test_fits_need_no_torch(script, tmp_path):
    command = [sys.executable, "-c", NO_TORCH + script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
