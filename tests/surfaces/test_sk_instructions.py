"""Instructions are templates in a sandbox: what they can do, and what they cannot."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from sk_agents.exceptions import ConfigurationError, InvalidInput
from sk_agents.skagents.v1.config import MAX_CHARACTERS, Instructions


class Order(BaseModel):
    items: list[str]


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("{{ order.items | join(', ') }}", {"order": Order(items=["a", "b"])}, "a, b"),
        ("{% for k, v in c.items() %}{{ k }}={{ v }};{% endfor %}", {"c": {"a": "1"}}, "a=1;"),
        ("{% if more %}yes{% else %}no{% endif %}{{ missing }}", {}, "no"),
        ("{{ '-' * 3 }}{{ 2 ** 10 }}", {}, "---1024"),
        ("<{{ text }}>", {"text": "<b>&"}, "<<b>&>"),
    ],
)
def test_template_is_filled_in(template: str, values: dict[str, Any], text: str) -> None:
    assert Instructions(template).rendered(values) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ order.__init__.__globals__ }}",
        "{{ order.model_dump.__globals__['__builtins__'] }}",
        "{{ order.model_dump.__func__.__code__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ '{0.__class__.__mro__}'.format(order) }}",
        "{{ lipsum.__globals__['os'] }}",
        "{% for x in range(1000000000) %}x{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{{ 10 ** 100000000 }}",
        "{{ 'x' * n }}",
    ],
)
def test_template_cannot_leave_the_sandbox_or_use_up_memory(template: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be filled in"):
        Instructions(template).rendered({"order": Order(items=[]), "n": 10**12})


@pytest.mark.parametrize("chain", ["attr('__class__')", "attr('__class__')|attr('__mro__')"])
def test_filter_for_attributes_finds_nothing_forbidden(chain: str) -> None:
    assert Instructions(f"{{{{ ''|{chain} }}}}").rendered({}) == ""


def test_text_is_bounded() -> None:
    template = "{% for x in range(50000) %}{{ piece }}{% endfor %}"
    with pytest.raises(InvalidInput, match="too long"):
        Instructions(template).rendered({"piece": "x" * (MAX_CHARACTERS // 1000)})


def test_files_cannot_be_included() -> None:
    with pytest.raises((InvalidInput, ConfigurationError)):
        Instructions("{% include '/etc/hostname' %}").rendered({})


@pytest.mark.parametrize("template", ["{{ a", "{% for %}", "{% unknown %}"])
def test_what_is_no_template_stops_start_up_with_its_line(template: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a template: .* \(line 2\)"):
        Instructions(f"fine\n{template}")
