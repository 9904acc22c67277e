"""The public kit for tests: of agents, of surfaces and of stores written elsewhere.

Names are loaded when they are first asked for: a server that runs with `HeaderAuthorizer` needs
neither pytest nor Hypothesis.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sk_agents.testing.header_authorizer import HeaderAuthorizer as HeaderAuthorizer
    from sk_agents.testing.predictable import SequentialIds as SequentialIds
    from sk_agents.testing.predictable import SettableClock as SettableClock
    from sk_agents.testing.recording import Recording as Recording
    from sk_agents.testing.recording import replay as replay
    from sk_agents.testing.scripted_model import ScriptedModel as ScriptedModel
    from sk_agents.testing.scripted_server import ScriptedModelServer as ScriptedModelServer
    from sk_agents.testing.store_contract import DurableStoreContract as DurableStoreContract
    from sk_agents.testing.store_contract import SharedStoreContract as SharedStoreContract
    from sk_agents.testing.store_contract import StoreContract as StoreContract

_MODULES = {
    "DurableStoreContract": "store_contract",
    "HeaderAuthorizer": "header_authorizer",
    "Recording": "recording",
    "ScriptedModel": "scripted_model",
    "ScriptedModelServer": "scripted_server",
    "SequentialIds": "predictable",
    "SettableClock": "predictable",
    "SharedStoreContract": "store_contract",
    "StoreContract": "store_contract",
    "replay": "recording",
}
__all__ = list(_MODULES)

# Under pytest a failing case of the contract shows its values, as a test of one's own would.
if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite("sk_agents.testing.store_contract")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
