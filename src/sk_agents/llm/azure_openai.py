"""Azure OpenAI, which speaks chat completions at addresses of its own.

Classic: each deployment has its own path, and every request names a version of the API. Since 2025
there is also a path like OpenAI's (`/openai/v1`), where the deployment is the model.
"""

from __future__ import annotations

from urllib.parse import quote

from sk_agents.llm.failures import Timing
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import PATH, OpenAIChat
from sk_agents.llm.streamed_chat import Endpoint

V1 = "/openai/v1"


class AzureOpenAI(OpenAIChat):
    """`token` is one of Entra ID's and is sent instead of a key; without `api_version` the address
    is one like OpenAI's."""

    def __init__(
        self,
        clients: ModelClients,
        endpoint: Endpoint,
        timing: Timing | None = None,
        *,
        api_version: str | None = None,
        token: str | None = None,
    ) -> None:
        headers = {}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        elif endpoint.key is not None:
            headers["api-key"] = endpoint.key
        path = azure_path(endpoint.base_url, endpoint.model, api_version)
        super().__init__(clients, endpoint, timing, path=path, headers=headers)


def azure_path(base_url: str, deployment: str, api_version: str | None) -> str:
    if api_version is None:
        return PATH if base_url.endswith(V1) else f"{V1}{PATH}"
    prefix = "" if base_url.endswith("/openai") else "/openai"
    name, version = quote(deployment, safe=""), quote(api_version, safe="")
    return f"{prefix}/deployments/{name}{PATH}?api-version={version}"
