"""Wikipedia's public API. `WIKIPEDIA_API_URL` is another address of it, or another language's."""

import os
from typing import Annotated, Any

import aiohttp
from pydantic import Field
from semantic_kernel.functions.kernel_function_decorator import kernel_function
from semantic_kernel.kernel_pydantic import KernelBaseModel

from sk_agents.ska_types import BasePlugin
from sk_agents.tools import ToolError, tool

PUBLIC = "https://en.wikipedia.org/w/api.php"
# Wikipedia asks its callers to say who they are.
HEADERS = {"User-Agent": "teal-agents-demo/0.1"}
SECONDS = aiohttp.ClientTimeout(total=20)


class Found(KernelBaseModel):
    title: str
    words: int


class Article(KernelBaseModel):
    title: str
    text: str


class WikipediaPlugin(BasePlugin):
    @tool(effect="read_only")
    @kernel_function(description="Titles of the Wikipedia articles that fit a search best.")
    async def search(
        self,
        query: Annotated[str, "What to look for"],
        limit: Annotated[int, Field(ge=1, le=10, description="How many titles")] = 3,
    ) -> list[Found]:
        found = await _asked(list="search", srsearch=query, srlimit=str(limit))
        return [Found(title=hit["title"], words=hit["wordcount"]) for hit in found["search"]]

    @tool(effect="read_only")
    @kernel_function(description="The beginning of a Wikipedia article.")
    async def read(self, title: Annotated[str, "The article's title"]) -> Article:
        found = await _asked(
            prop="extracts", exintro="1", explaintext="1", redirects="1", titles=title
        )
        page = found["pages"][0]
        if "extract" not in page:
            raise ToolError(f"There is no article {title!r}: search for it.")
        self.extra_data_collector.add_extra_data("article", page["title"])
        return Article(title=page["title"], text=page["extract"])


async def _asked(**parameters: str) -> dict[str, Any]:
    """What the API says to a query.

    Raises:
        ToolError: it cannot be reached, or says no.
    """
    address = os.environ.get("WIKIPEDIA_API_URL", PUBLIC)
    query = {"action": "query", "format": "json", "formatversion": "2", **parameters}
    try:
        async with (
            aiohttp.ClientSession(timeout=SECONDS, headers=HEADERS) as session,
            session.get(address, params=query, raise_for_status=True) as response,
        ):
            reply: dict[str, Any] = await response.json()
    except (aiohttp.ClientError, TimeoutError):
        raise ToolError("Wikipedia cannot be reached now.") from None
    if "query" not in reply:
        raise ToolError("Wikipedia does not understand this query.")
    found: dict[str, Any] = reply["query"]
    return found
