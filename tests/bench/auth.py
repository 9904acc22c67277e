"""What it costs to know who is calling: a token verified, and one that was verified before."""

from __future__ import annotations

import asyncio
import time
from statistics import median

from sk_agents.authorization.entra_authorizer import EntraAuthorizer
from sk_agents.config.settings import Settings
from tests.authorization.issuer import CLIENT, TENANT, running_issuer
from tests.bench.report import Ratio, Report

TOKENS = 500
ROUNDS = 7
VERIFIED_BAR_MS = 0.2
REMEMBERED_BAR_MS = 0.02


def measure(tokens: int = TOKENS, rounds: int = ROUNDS) -> Report:
    verified, remembered = asyncio.run(_measured(tokens, rounds))
    return Report(
        "a caller's token",
        [f"  verified {verified:.3f} ms of CPU, remembered {remembered:.4f} ms"],
        [
            Ratio("ms of CPU, verified", verified, VERIFIED_BAR_MS, at_least=False),
            Ratio("ms of CPU, remembered", remembered, REMEMBERED_BAR_MS, at_least=False),
        ],
    )


async def _measured(tokens: int, rounds: int) -> tuple[float, float]:
    async with running_issuer() as issuer:
        settings = Settings(
            authorizer="entra",
            entra_tenant_id=(TENANT,),
            entra_client_id=CLIENT,
            entra_authority=issuer.url,
        )
        headers = [f"Bearer {issuer.token(sub=f'user {n}')}" for n in range(tokens)]
        verified, remembered = [], []
        for _ in range(rounds):
            authorizer = EntraAuthorizer(settings)
            # The keys are fetched with the first one.
            await authorizer.authorize_request(f"Bearer {issuer.token()}")
            verified.append(await _cpu_ms(authorizer, headers))
            remembered.append(await _cpu_ms(authorizer, headers))
    return median(verified), median(remembered)


async def _cpu_ms(authorizer: EntraAuthorizer, headers: list[str]) -> float:
    began = time.process_time()
    for header in headers:
        await authorizer.authorize_request(header)
    return (time.process_time() - began) * 1000 / len(headers)
