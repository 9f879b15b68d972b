import pytest

from adamab.testing import ProviderServer


@pytest.fixture
def server():
    with ProviderServer() as running:
        yield running
