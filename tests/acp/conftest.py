"""One agent for the tests of a file: starting one takes seconds, most of them for the protocol's own models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from tests.acp.editor import AgentPool, environment
from tests.providers.model_stub import Stub


@pytest.fixture(scope="module")
def model() -> Iterator[Stub]:
    made = Stub()
    yield made
    made.close()


@pytest.fixture
def stub(model: Stub) -> Stub:
    """The model's server of the file, which has heard and has to say nothing yet."""
    model.script = []
    model.requests = []
    model.__dict__.pop("answer", None)
    return model


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home") / "surehand"


@pytest.fixture
def env(stub: Stub, shared_home: Path) -> dict[str, str]:
    """The environment of the agents of the file."""
    return environment(shared_home, OPENAI_BASE_URL=f"{stub.address}/v1", OPENAI_API_KEY="none")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agents() -> AsyncIterator[AgentPool]:
    async with AsyncExitStack() as stack:
        yield AgentPool(stack)
