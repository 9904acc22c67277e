"""The modules that are mutated, and the tests that each of them has."""

from __future__ import annotations

# One set for all of the engine: to learn which lines its tests execute takes the longest.
ENGINE = (
    "tests/engine",
    "tests/stores/test_memory_store.py",
    "tests/telemetry/test_observer.py",
)
ENCODING = (
    "tests/engine/test_record.py",
    "tests/engine/test_head.py",
    "tests/engine/test_damage.py",
    "tests/stores/test_sqlite_store.py",
    "tests/stores/test_encrypting.py",
)
SQLITE = (
    "tests/engine/test_damage.py",
    "tests/stores/test_encrypting.py",
    "tests/stores/test_sqlite_broken.py",
    "tests/stores/test_group_writer.py",
    "tests/stores/test_sqlite_store.py",
    "tests/stores/test_sqlite_faults.py",
)
FILES = (
    "tests/engine/test_damage.py",
    "tests/stores/test_encrypting.py",
    "tests/stores/test_encryption.py",
    "tests/stores/test_file_broken.py",
    "tests/stores/test_file_counters.py",
    "tests/stores/test_file_lines.py",
    "tests/stores/test_file_projection.py",
    "tests/stores/test_file_store.py",
    "tests/stores/test_file_store_contract.py",
    "tests/stores/test_file_faults.py",
)
POLICY = (
    "tests/hitl/test_policy.py",
    "tests/hitl/test_reviews.py",
    "tests/hitl/test_rules.py",
)
KEYS = (
    "tests/test_encryption_keys.py",
    "tests/stores/test_encryption.py",
    "tests/stores/test_encrypting.py",
)
SPENDING = (
    "tests/engine/test_engine_budget.py",
    "tests/spending",
    "tests/surfaces/test_user_limits.py",
)
TOKENS = (
    "tests/authorization/test_account.py",
    "tests/authorization/test_entra.py",
    "tests/authorization/test_issuer_keys.py",
    "tests/authorization/test_oidc.py",
)
CALLERS = (
    "tests/authorization/test_roles.py",
    "tests/test_caller.py",
    "tests/test_authorization.py",
    "tests/chats/test_auth.py",
    "tests/chats/test_users.py",
)
TEAL = (
    "tests/test_tealagents_handler.py",
    "tests/surfaces/test_teal_state.py",
    "tests/surfaces/test_teal_errors.py",
    "tests/surfaces/test_teal_decisions.py",
    "tests/surfaces/test_teal_approvals.py",
    "tests/surfaces/test_teal_auth.py",
    "tests/chats/test_reviews.py",
)

TESTS_OF: dict[str, tuple[str, ...]] = {
    "engine.log.commits": ENGINE,
    "engine.calls.call": ENGINE,
    "engine.run.context_window": ENGINE,
    "engine.calls.decisions": ENGINE,
    "engine.calls.reviews": ENGINE,
    "engine.run.driver": ENGINE,
    "engine.run.drivers": ENGINE,
    "engine.run.conversation": ENGINE,
    "engine.run.lease_keeper": ENGINE,
    "engine.reading.live": ENGINE,
    "engine.reading.live_relay": ENGINE,
    "engine.run.recovery": ENGINE,
    "engine.run.rounds": ENGINE,
    "engine.services": ENGINE,
    "engine.run.lifecycle": ENGINE,
    "engine.log.state": ENGINE,
    "engine.threads.known": ENGINE,
    "engine.calls.runner": ENGINE,
    "engine.calls.steps": ENGINE,
    "engine.reading.watch": ENGINE,
    "persistence.encoding": ENCODING,
    "persistence.sqlite.group_writer": SQLITE,
    "persistence.sqlite.rows": SQLITE,
    "persistence.sqlite.store": SQLITE,
    "persistence.file.lines": FILES,
    "persistence.file.log": FILES,
    "persistence.file.tree": FILES,
    "hitl.approval_manager": ("tests/hitl/test_approval_manager.py",),
    "hitl.hitl_manager": ("tests/hitl/test_hitl_manager.py",),
    "hitl.policy": POLICY,
    "hitl.rules": POLICY,
    "http.caller": CALLERS,
    "http.hosts": ("tests/http/test_hosts.py",),
    "http.limits": (
        "tests/http/test_quota_counts.py",
        "tests/chats/test_quotas.py",
        "tests/surfaces/test_user_limits.py",
    ),
    "tealagents.v1alpha1.access": TEAL,
    "tools.addresses": ("tests/tools/test_addresses.py",),
    "llm.tokens": ("tests/llm/test_tokens.py",),
    "engine.threads.retention": ENGINE,
    "persistence.encryption": KEYS,
    "spending.budgets": SPENDING,
    "spending.advances": SPENDING,
    "spending.limits": SPENDING,
    "spending.allowances": SPENDING,
    "authorization.access_keys": ("tests/authorization/test_keys.py",),
    "authorization.roles": ("tests/authorization/test_roles.py",),
    "authorization.token_authorizer": TOKENS,
    "audit.verification": ("tests/audit/test_verification.py",),
    "private_files": ("tests/test_private_files.py",),
}
