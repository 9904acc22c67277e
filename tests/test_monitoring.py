"""What a monitor learns of a server: that it lives, and whether its store can be written."""

from pathlib import Path

import httpx

from sk_agents.app import create_app
from sk_agents.config.settings import Settings
from tests.requirements import requirement


@requirement("S004-13-monitoring")
async def test_server_tells_that_it_lives_and_that_its_store_is_lost(
    tmp_path: Path,
) -> None:
    chats, aside = tmp_path / "chats", tmp_path / "aside"
    app = create_app(Settings(store=f"file://{chats}", service_config=None), [])
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):

        async def asked() -> tuple[int, int, str]:
            alive = await client.get("/health/live")
            ready = await client.get("/health/ready")
            store = ready.json()["dependencies"]["store"]
            return alive.status_code, ready.status_code, store["status"]

        assert await asked() == (200, 200, "up")
        chats.rename(aside)
        chats.touch()
        assert await asked() == (200, 503, "down")
        # What was taken away once may have missed something: only a new start trusts it again.
        chats.unlink()
        aside.rename(chats)
        assert await asked() == (200, 503, "down")
