"""A chat client of semantic-kernel behind the port.

The library is not among this project's packages. A small package of the same name with the same
modules, constructors and methods takes its place, in a process of its own.
"""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.patience import seconds

LIBRARY = {
    "__init__": "",
    "kernel_pydantic": """
        from pydantic import BaseModel, ConfigDict

        class KernelBaseModel(BaseModel):
            model_config = ConfigDict(populate_by_name=True, arbitrary_types_allowed=True)
    """,
    "contents.__init__": """
        from typing import Any
        from pydantic import Field
        from semantic_kernel.contents.utils.author_role import AuthorRole
        from semantic_kernel.kernel_pydantic import KernelBaseModel

        class TextContent(KernelBaseModel):
            text: str

        class StreamingTextContent(TextContent):
            choice_index: int

        class StreamingReasoningContent(KernelBaseModel):
            text: str

        class ImageContent(KernelBaseModel):
            data_uri: str

        class FunctionCallContent(KernelBaseModel):
            id: str | None = None
            index: int | None = None
            name: str | None = None
            arguments: str | dict[str, Any] | None = None

        class FunctionResultContent(KernelBaseModel):
            id: str
            name: str
            result: Any

        class ChatMessageContent(KernelBaseModel):
            role: AuthorRole
            items: list[Any] = Field(default_factory=list)
            finish_reason: Any = None
            metadata: dict[str, Any] = Field(default_factory=dict)

        class StreamingChatMessageContent(ChatMessageContent):
            choice_index: int
    """,
    "contents.chat_history": """
        class ChatHistory:
            def __init__(self):
                self.messages = []

            def add_message(self, message):
                self.messages.append(message)
    """,
    "contents.utils.__init__": "",
    "contents.utils.author_role": """
        from enum import Enum

        class AuthorRole(str, Enum):
            SYSTEM = "system"
            USER = "user"
            ASSISTANT = "assistant"
            TOOL = "tool"
    """,
    "connectors.__init__": "",
    "connectors.ai.__init__": "",
    "connectors.ai.chat_completion_client_base": """
        class ChatCompletionClientBase:
            pass
    """,
    "connectors.ai.prompt_execution_settings": """
        class PromptExecutionSettings:
            def __init__(self, service_id=None, **kwargs):
                self.extension_data = kwargs
                self.function_choice_behavior = None
    """,
    "connectors.ai.function_choice_behavior": """
        class FunctionChoiceBehavior:
            @classmethod
            def Auto(cls, auto_invoke=True, *, filters=None, **kwargs):
                behavior = cls()
                behavior.auto_invoke = auto_invoke
                return behavior
    """,
    "functions.__init__": "",
    "functions.kernel_function_decorator": """
        def kernel_function(func=None, name=None, description=None):
            def mark(function):
                function.__kernel_function__ = True
                function.__kernel_function_name__ = name
                function.__kernel_function_description__ = description
                return function
            return mark
    """,
    "functions.kernel_parameter_metadata": """
        from typing import Any
        from pydantic import Field
        from semantic_kernel.kernel_pydantic import KernelBaseModel

        class KernelParameterMetadata(KernelBaseModel):
            name: str | None = Field(..., pattern="^[0-9A-Za-z_]+$")
            description: str | None = None
            default_value: Any | None = None
            type_: str | None = Field(default="str", alias="type")
            is_required: bool | None = False
            type_object: Any | None = None
            schema_data: dict[str, Any] | None = None
            include_in_function_choices: bool = True
    """,
    "functions.kernel_function_from_method": """
        class KernelFunctionFromMethod:
            def __init__(self, method, plugin_name=None, stream_method=None, parameters=None):
                assert method.__kernel_function__
                self.name = method.__kernel_function_name__
                self.description = method.__kernel_function_description__
                self.parameters = parameters
    """,
    "kernel": """
        class Kernel:
            made = 0

            def __init__(self):
                Kernel.made += 1
                self.plugins = {}

            def add_functions(self, *, plugin_name, functions):
                self.plugins[plugin_name] = functions
    """,
}
# The file an operator would write; `SAYS` is what the test lets the client say.
FACTORY = """
import asyncio, json
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.contents import *
from semantic_kernel.contents.utils.author_role import AuthorRole
from ska_utils import AppConfig

from my_calls import asked


def piece(*items, **more):
    return [StreamingChatMessageContent(
        role=AuthorRole.ASSISTANT, choice_index=0, items=list(items), **more)]


def said(text):
    return piece(StreamingTextContent(choice_index=0, text=text))


class Refusal(Exception):
    def __init__(self, status):
        super().__init__("refused sk-secret")
        self.status_code = status


class Client(ChatCompletionClientBase):
    async def get_streaming_chat_message_contents(self, chat_history, settings, **kwargs):
        asked.append((chat_history, settings, kwargs))
        {body}


class Factory:
    def __init__(self, app_config: AppConfig):
        pass

    def get_chat_completion_for_model_name(
        self, model_name: str, service_id: str
    ) -> ChatCompletionClientBase:
        return Client()

    def model_supports_structured_output(self, model_name):
        return True
"""
MAIN = """
import asyncio, json, sys
from dataclasses import asdict
from sk_agents.config.settings import Settings
from sk_agents.engine.models import Message, Part, ToolCall
from sk_agents.engine.turns import Prompt, ToolSpec
from sk_agents.exceptions import ModelError
from sk_agents.llm.custom_factory import custom_models
from sk_agents.llm.failures import Timing, RetryPolicy

from my_calls import asked

settings = Settings(
    custom_chat_completion_factory_module="./my_models.py",
    custom_chat_completion_factory_class_name="Factory",
)
models = custom_models(settings, {{}}, retry=RetryPolicy(attempts=2, first_wait=0))
model = models.model("mine", "agent")
prompt = Prompt([Message(role="user", content="hello")])


async def pieces(prompt=prompt):
    found = []
    try:
        async for step in model.stream(prompt):
            for entry in step:
                data = asdict(entry) | {{"kind": type(entry).__name__}}
                found.append(data)
    except ModelError as error:
        found.append({{"kind": type(error).__name__, "text": str(error)}})
    return found


async def main():
    async with asyncio.timeout({bound}):
        {main}

print(json.dumps(asyncio.run(main())))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in LIBRARY.items():
        path = tmp_path / "semantic_kernel" / Path(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


def run(folder: Path, body: str, main: str = "return await pieces()") -> Any:
    """What `main` returns, with a client whose stream has this body."""
    lines = textwrap.dedent(body).strip("\n")
    # A body that is indented already goes on with another method.
    margin = 4 if lines.startswith(" ") else 8
    indented = textwrap.indent(lines, " " * margin).strip()
    (folder / "my_calls.py").write_text("asked = []\n")
    (folder / "my_models.py").write_text(FACTORY.replace("{body}", indented))
    script = textwrap.indent(textwrap.dedent(main).strip(), " " * 8).strip()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", MAIN.format(main=script, bound=seconds(20))],
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_streamed_text_reasoning_and_usage_arrive_as_they_come(folder: Path) -> None:
    found = run(
        folder,
        """
        class Usage:
            prompt_tokens, completion_tokens = 7, 3
        class Reason:
            value = "stop"
        yield piece(StreamingReasoningContent(text="hm"))
        yield said("he")
        yield said("llo")
        yield piece(finish_reason=Reason(), metadata={"usage": Usage()})
        """,
    )
    assert found == [
        {"kind": "ReasoningDelta", "content": "hm"},
        {"kind": "TextDelta", "content": "he"},
        {"kind": "TextDelta", "content": "llo"},
        {
            "kind": "TurnFinished",
            "finish_reason": "stop",
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "cost": None},
            "model": None,
        },
    ]


def test_calls_are_put_together_from_their_pieces(folder: Path) -> None:
    found = run(
        folder,
        """
        yield piece(FunctionCallContent(id="c1", index=0, name="Files-read", arguments='{"pa'))
        yield piece(FunctionCallContent(index=0, arguments='th":"a"}'))
        yield piece(FunctionCallContent(id="c2", name="tool-ask_user", arguments={"q": 1}))
        """,
    )
    assert found[:2] == [
        {
            "kind": "CallRequested",
            "provider_id": "c1",
            "name": "Files-read",
            "arguments": '{"path":"a"}',
        },
        {"kind": "CallRequested", "provider_id": "c2", "name": "ask_user", "arguments": '{"q":1}'},
    ]
    assert found[2]["finish_reason"] == "tool_calls"


def test_whole_conversation_is_told_in_the_librarys_words(folder: Path) -> None:
    found = run(
        folder,
        'yield said("ok")',
        """
        await pieces(Prompt([
            Message(role="system", content="be kind"),
            Message(role="user", parts=(
                Part(content="look"), Part(kind="image", content="data:image/png;base64,AA=="),
                Part(kind="file", name="a.txt", content="text"))),
            Message(role="assistant", content="I read", tool_calls=(
                ToolCall(id="c1", plugin_name="Files", function_name="read", arguments={"p": 1}),)),
            Message(role="tool", tool_call_id="c1", content="done"),
            Message(role="assistant", content=""),
        ], temperature=0.0, max_tokens=9, response_schema={"type": "object"}))
        history, settings, more = asked[0]
        return [
            [m.role.value, [i.model_dump() for i in m.items]] for m in history.messages
        ], settings.extension_data, sorted(more)
        """,
    )
    messages, settings, more = found
    assert messages == [
        ["system", [{"text": "be kind"}]],
        [
            "user",
            [
                {"text": "look"},
                {"data_uri": "data:image/png;base64,AA=="},
                {"text": "File a.txt:\ntext"},
            ],
        ],
        [
            "assistant",
            [
                {"text": "I read"},
                {"id": "c1", "index": None, "name": "Files-read", "arguments": '{"p":1}'},
            ],
        ],
        ["tool", [{"id": "c1", "name": "Files-read", "result": "done"}]],
        ["assistant", [{"text": ""}]],
    ]
    assert settings["temperature"] == 0.0
    assert settings["max_tokens"] == 9
    assert settings["response_format"]["type"] == "json_schema"
    assert more == []


def test_tools_are_shown_by_a_kernel_that_calls_none(folder: Path) -> None:
    found = run(
        folder,
        'yield said("ok")',
        """
        schema = {
            "type": "object",
            "properties": {
                "a-b": {"$ref": "#/$defs/T", "description": "x"}, "n": {"type": "integer"},
            },
            "required": ["n"],
            "$defs": {"T": {"type": "object", "properties": {"inner": {"$ref": "#/$defs/T"}}}},
        }
        tools = (ToolSpec("Files-read", "Reads", schema), ToolSpec("ask_user", "Asks", {}))
        await pieces(Prompt(prompt.messages, tools))
        await pieces(Prompt(prompt.messages, tools))
        kernel = asked[0][2]["kernel"]
        assert kernel is asked[1][2]["kernel"]
        return {
            "auto_invoke": asked[0][1].function_choice_behavior.auto_invoke,
            "made": type(kernel).made,
            "plugins": {
                plugin: [
                    [f.name, f.description, [
                        [p.name, p.is_required, p.schema_data] for p in f.parameters
                    ]]
                    for f in functions
                ]
                for plugin, functions in kernel.plugins.items()
            },
        }
        """,
    )
    assert (found["auto_invoke"], found["made"]) == (False, 1)
    assert found["plugins"]["tool"] == [["ask_user", "Asks", []]]
    ((name, description, parameters),) = found["plugins"]["Files"]
    assert (name, description) == ("read", "Reads")
    assert parameters[1] == ["n", True, {"type": "integer"}]
    assert parameters[0][:2] == ["a-b", False]
    assert "$ref" not in json.dumps(parameters[0][2])
    assert parameters[0][2]["description"] == "x"


@pytest.mark.parametrize("prefix", ["async def", "def"])
def test_client_that_cannot_stream_is_asked_for_the_whole_answer(folder: Path, prefix: str) -> None:
    body = f"""
        raise NotImplementedError
        yield

    {prefix} get_chat_message_contents(self, chat_history, settings, **kwargs):
        text = TextContent(text="whole")
        return [ChatMessageContent(role=AuthorRole.ASSISTANT, items=[text])]
    """
    found = run(folder, body)
    assert [entry["kind"] for entry in found] == ["TextDelta", "TurnFinished"]
    assert found[0]["content"] == "whole"


@pytest.mark.parametrize(
    ("status", "kind", "asked"),
    [
        (401, "ModelRefused", 1),
        (429, "ModelRateLimited", 2),
        (503, "ModelUnavailable", 2),
        (413, "ContextTooLong", 1),
    ],
)
def test_status_of_a_wrapped_error_decides_what_it_means(
    folder: Path, status: int, kind: str, asked: int
) -> None:
    found, times = run(
        folder,
        f"""
        try:
            raise Refusal({status})
        except Refusal as error:
            raise RuntimeError("service failed to complete the prompt", error)
        yield
        """,
        "return await pieces(), len(asked)",
    )
    assert [entry["kind"] for entry in found] == [kind]
    assert "sk-secret" not in found[0]["text"]
    assert times == asked


def test_failures_without_a_status(folder: Path) -> None:
    assert run(folder, 'raise ConnectionError("x")\nyield')[0]["kind"] == "ModelUnavailable"
    assert run(folder, 'raise KeyError("x")\nyield') == [
        {"kind": "ModelError", "text": "the model's client failed (KeyError)"}
    ]
    assert run(folder, "return\nyield")[0]["kind"] == "ModelProtocolError"


def test_break_after_the_first_piece_is_an_interruption(folder: Path) -> None:
    found = run(folder, 'yield said("half")\nraise ConnectionError')
    assert [entry["kind"] for entry in found] == ["TextDelta", "ModelInterrupted"]


def test_left_stream_closes_the_clients_own(folder: Path) -> None:
    body = """
    try:
        while True:
            yield said("again")
    finally:
        asked.append("closed")
    """
    main = """
    stream = model.stream(prompt)
    await anext(stream)
    await stream.aclose()
    return asked[-1]
    """
    assert run(folder, body, main) == "closed"
