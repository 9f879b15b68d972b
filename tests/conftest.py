"""Shared by all tests: one thread a process, so that two workers on two cores do not fight."""

import os

import pytest

# Before torch or a BLAS is imported, here and in every subprocess that a test starts.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"


@pytest.fixture(autouse=True)
def _private_cache(tmp_path, monkeypatch):
    """No test reads or fills the user's own vector cache."""
    monkeypatch.setenv("ADAMAB_CACHE", str(tmp_path / "cache" / "vectors.sqlite"))
