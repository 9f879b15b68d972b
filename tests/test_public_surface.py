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
    "EmbeddingCalibrator",
    "FitResult",
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


def test_a_missing_torch_names_its_pip_line():
    script = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'torch':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "import adamab\n"
        "try:\n    adamab.fit_task\n"
        "except adamab.AdamabError as error:\n    print(error)\n"
        "try:\n    adamab.EmbeddingCalibrator().fit([[1.0], [2.0]], [0, 1])\n"
        "except adamab.AdamabError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("pip install 'adamab[train]'" in line for line in lines)
