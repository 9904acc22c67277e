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
    """With `is_token` the key is a token of Entra ID; without `api_version` the address is one like
    OpenAI's."""

    def __init__(
        self,
        clients: ModelClients,
        endpoint: Endpoint,
        timing: Timing | None = None,
        *,
        api_version: str | None = None,
        is_token: bool = False,
    ) -> None:
        headers = {} if endpoint.key is None or is_token else {"api-key": endpoint.key}
        if is_token:
            headers["Authorization"] = f"Bearer {endpoint.key}"
        path = azure_path(endpoint.base_url, endpoint.model, api_version)
        super().__init__(clients, endpoint, timing, path=path, headers=headers)


def azure_path(base_url: str, deployment: str, api_version: str | None) -> str:
    if api_version is None:
        return PATH if base_url.endswith(V1) else f"{V1}{PATH}"
    prefix = "" if base_url.endswith("/openai") else "/openai"
    name, version = quote(deployment, safe=""), quote(api_version, safe="")
    return f"{prefix}/deployments/{name}{PATH}?api-version={version}"
