"""The API, one module a page. A new page: a module here with `ENDPOINTS`, a line below, a module in `static/pages`."""

from __future__ import annotations

from surehand.console import access
from surehand.console.api import audit, changes, figures, live, openapi, policy, questions, tools, work, workspaces
from surehand.console.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *access.ENDPOINTS,
    *live.ENDPOINTS,
    *questions.ENDPOINTS,
    *changes.ENDPOINTS,
    *workspaces.ENDPOINTS,
    *policy.ENDPOINTS,
    *tools.ENDPOINTS,
    *work.ENDPOINTS,
    *figures.ENDPOINTS,
    *audit.ENDPOINTS,
    *openapi.ENDPOINTS,
)
