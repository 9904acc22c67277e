"""Remote plugins at start-up: catalogs, documents and schemas, and what stops the start."""

import asyncio
import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from sk_agents.config.settings import Settings
from sk_agents.engine.turns import ToolSpec
from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.tools.openapi.clients import RemoteClients
from sk_agents.tools.openapi.services import load_remote_tools
from tests.patience import seconds
from tests.tools.calls import call, result
from tests.tools.remote_service import PETS, Service, catalog, load, written_catalog

SERVER = "http://pets.example"


def spec_of(folder: Path, operation: dict[str, Any], **document: Any) -> ToolSpec:
    """The tool that a document with one operation, POST /things, becomes."""
    content = {"openapi": "3.1.0", "paths": {"/things": {"post": operation}}, **document}
    (folder / "one.json").write_text(json.dumps(content))
    settings = catalog(folder, openapi_json_path="one.json", server_url=SERVER)
    (spec,) = load(folder, settings, RemoteClients()).specs()
    return spec


def body(schema: Any, *, required: bool = True, media: str = "application/json") -> dict[str, Any]:
    return {
        "operationId": "make",
        "requestBody": {"required": required, "content": {media: {"schema": schema}}},
    }


def refusal(folder: Path, settings: Settings, *names: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(folder, settings, RemoteClients(), *names)
    return str(caught.value)


def test_operations_become_tools_with_descriptions_and_schemas(tmp_path: Path) -> None:
    box = load(tmp_path, catalog(tmp_path, server_url=SERVER), RemoteClients())
    spec = box.spec("Pets-list_pets")
    assert spec is not None
    assert spec.description == "List pets\nAll of them."
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "minimum": 1, "default": 10, "description": "How many"},
            "tag": {"type": "array", "items": {"enum": ["a", "b"]}},
            "X_Trace": {"type": "string"},
        },
        "required": [],
        "additionalProperties": False,
    }
    nameless = box.spec("Pets-get_pets_petId")
    assert nameless is not None
    assert nameless.parameters["required"] == ["petId"]


def test_references_are_written_out_and_circles_end(tmp_path: Path) -> None:
    box = load(tmp_path, catalog(tmp_path, server_url=SERVER), RemoteClients())
    spec = box.spec("Pets-addPet")
    assert spec is not None
    assert "$ref" not in json.dumps(spec.parameters)
    assert spec.parameters["required"] == ["name"]
    properties = spec.parameters["properties"]
    assert "id" not in properties
    assert properties["name"]["description"] == "What it is called"
    assert properties["nickname"] == {"type": ["string", "null"], "default": "none"}
    again = properties["owner"]["properties"]["pets"]["items"]
    assert again == {"type": "object", "description": "As above, once more inside itself."}


def test_body_that_is_no_plain_object_is_one_argument(tmp_path: Path) -> None:
    listed = spec_of(tmp_path, body({"type": "array", "items": {"type": "string"}}))
    assert listed.parameters["required"] == ["payload"]
    assert listed.parameters["properties"]["payload"]["type"] == "array"
    composed = spec_of(tmp_path, body({"oneOf": [{"type": "object"}, {"type": "string"}]}))
    assert composed.parameters["required"] == ["payload"]
    text = spec_of(tmp_path, body({"type": "string"}, media="text/plain"))
    assert text.parameters["properties"] == {"payload": {"type": "string"}}


def test_body_whose_fields_clash_with_a_parameter_is_one_argument(tmp_path: Path) -> None:
    operation = body({"type": "object", "properties": {"id": {"type": "string"}}})
    operation["parameters"] = [
        {"name": "id", "in": "query", "schema": {"type": "integer"}},
        {"name": "id", "in": "header", "schema": {"type": "string"}},
    ]
    spec = spec_of(tmp_path, operation)
    assert list(spec.parameters["properties"]) == ["id", "header_id", "payload"]


def test_optional_body_with_required_fields_stays_whole(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
    spec = spec_of(tmp_path, body(schema, required=False))
    assert spec.parameters["required"] == []
    assert list(spec.parameters["properties"]) == ["payload"]


def test_words_of_openapi_3_0_become_those_of_json_schema(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "age": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "example": 3},
            "kind": {"type": "string", "enum": ["a"], "nullable": True},
            "other": {"allOf": [{"type": "string"}], "nullable": True, "description": "x"},
        },
    }
    spec = spec_of(tmp_path, body(schema), openapi="3.0.0")
    assert spec.parameters["properties"] == {
        "age": {"type": "integer", "exclusiveMinimum": 0},
        "kind": {"type": ["string", "null"], "enum": ["a", None]},
        "other": {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}], "description": "x"},
    }


def test_words_beside_a_reference_count_too(tmp_path: Path) -> None:
    reference = {"$ref": "#/components/schemas/Id", "description": "Whose", "maxLength": 3}
    schemas = {"schemas": {"Id": {"type": "string"}}}
    spec = spec_of(
        tmp_path, body({"type": "object", "properties": {"id": reference}}), components=schemas
    )
    assert spec.parameters["properties"]["id"] == {
        "allOf": [{"type": "string"}, {"maxLength": 3}],
        "description": "Whose",
    }


def test_names_no_provider_takes_are_cleaned_and_long_ones_stay_apart(tmp_path: Path) -> None:
    operation = {
        "operationId": "make thing!",
        "parameters": [{"name": "filter[name]", "in": "query", "schema": {"type": "string"}}],
    }
    spec = spec_of(tmp_path, operation)
    assert spec.name == "Pets-make_thing"
    assert list(spec.parameters["properties"]) == ["filter_name_"]
    one = spec_of(tmp_path, {"operationId": "x" * 80 + "1"}).name
    two = spec_of(tmp_path, {"operationId": "x" * 80 + "2"}).name
    assert len(one) == len(two) == 64
    assert one != two


async def test_styles_of_query_parameters(tmp_path: Path) -> None:
    def parameter(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "in": "query", "schema": {}, **more}

    operation = {
        "operationId": "make",
        "parameters": [
            parameter("a", explode=False),
            parameter("b", style="pipeDelimited", explode=False),
            parameter("c", style="deepObject"),
            parameter("d"),
            parameter("e", schema=None, content={"application/json": {"schema": {}}}),
            parameter("f[]"),
        ],
    }
    async with Service() as service, RemoteClients() as clients:
        content = {"openapi": "3.1.0", "paths": {"/things": {"get": operation}}}
        (tmp_path / "one.json").write_text(json.dumps(content))
        settings = catalog(tmp_path, openapi_json_path="one.json", server_url=f"{service.url}/v1/")
        box = load(tmp_path, settings, clients)
        arguments = {
            "a": [1, True],
            "b": ["x", "y"],
            "c": {"k": "v&w"},
            "d": {"m": 1, "n": "2"},
            "e": {"z": [None]},
            "f_": ["p", "q"],
        }
        await result(box, "Pets-make", arguments)
        assert service.requests[0][1] == (
            "/v1/things?a=1%2Ctrue&b=x%7Cy&c%5Bk%5D=v%26w&m=1&n=2"
            "&e=%7B%22z%22%3A%5Bnull%5D%7D&f%5B%5D=p&f%5B%5D=q"
        )


@pytest.mark.parametrize(
    ("schema", "media", "required", "arguments", "sent"),
    [
        ({"type": "array"}, "application/json", True, {"payload": [1, "ä"]}, '[1,"\\u00e4"]'),
        ({"type": "string"}, "text/plain", True, {"payload": "plain ä"}, "plain ä"),
        ({"type": "object"}, "application/merge-patch+json", True, {"payload": {}}, "{}"),
        ({"type": "string"}, "application/json", False, {}, ""),
        ({"type": "object", "properties": {"a": {}}}, "application/json", False, {}, ""),
        ({"type": "object", "properties": {"a": {}}}, "application/json", True, {}, "{}"),
        (
            {"type": "object", "properties": {"a b": {}}},
            "application/json",
            True,
            {"a_b": None},
            '{"a b":null}',
        ),
    ],
)
async def test_body_is_sent_as_its_media_type_says(
    tmp_path: Path, schema: Any, media: str, required: bool, arguments: dict[str, Any], sent: str
) -> None:
    operation = body(schema, required=required, media=media)
    content = {"openapi": "3.1.0", "paths": {"/things": {"patch": operation}}}
    (tmp_path / "one.json").write_text(json.dumps(content))
    async with asyncio.timeout(seconds(20)), Service() as service, RemoteClients() as clients:
        settings = catalog(tmp_path, openapi_json_path="one.json", server_url=service.url)
        await result(load(tmp_path, settings, clients), "Pets-make", arguments)
        assert service.requests[0][3] == sent
        assert service.requests[0][2].get("Content-Type") == (media if sent else None)


async def test_lists_and_objects_in_paths_and_headers_are_joined(tmp_path: Path) -> None:
    operation = {
        "operationId": "make",
        "parameters": [
            {"name": "ids", "in": "path", "required": True, "schema": {"type": "array"}},
            {"name": "X-Map", "in": "header", "schema": {"type": "object"}},
            {"name": "X-On", "in": "header", "schema": {"type": "boolean"}},
        ],
    }
    content = {"openapi": "3.1.0", "paths": {"/things/{ids}": {"get": operation}, "x-more": 1}}
    (tmp_path / "one.json").write_text(json.dumps(content))
    async with asyncio.timeout(seconds(20)), Service() as service, RemoteClients() as clients:
        settings = catalog(tmp_path, openapi_json_path="one.json", server_url=service.url)
        arguments = {"ids": [1, "b"], "X_Map": {"a": 1, "b": "c"}, "X_On": True}
        await result(load(tmp_path, settings, clients), "Pets-make", arguments)
        _, path, headers, _ = service.requests[0]
        assert path == "/things/1%2Cb"
        assert (headers["X-Map"], headers["X-On"]) == ("a,1,b,c", "true")


def test_yaml_documents_are_read(tmp_path: Path) -> None:
    (tmp_path / "pets.yaml").write_text(yaml.safe_dump(PETS))
    settings = catalog(tmp_path, openapi_json_path="pets.yaml", server_url=SERVER)
    assert len(load(tmp_path, settings, RemoteClients()).specs()) == 4


async def test_document_behind_a_url_is_fetched_and_says_where_the_service_is(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(seconds(20)), Service() as service, RemoteClients() as clients:
        service.document = {
            **PETS,
            "servers": [{"url": "/{v}", "variables": {"v": {"default": "v2"}}}],
        }
        settings = catalog(tmp_path, openapi_json_path=f"{service.url}/openapi")
        box = await asyncio.to_thread(load, tmp_path, settings, clients)
        await result(box, "Pets-list_pets")
        assert [path for _, path, _, _ in service.requests] == ["/openapi", "/v2/pets?limit=10"]
        # A second agent's tools cost no second fetch.
        await asyncio.to_thread(load, tmp_path, settings, clients)
        assert len(service.requests) == 2


async def test_yaml_behind_a_url_is_read_and_its_faults_are_named_after_the_url(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(seconds(20)), Service(yaml.safe_dump(PETS)) as service:
        settings = catalog(tmp_path, openapi_json_path=f"{service.url}/openapi")
        box = await asyncio.to_thread(load, tmp_path, settings, RemoteClients())
        assert len(box.specs()) == 4
        service.document = "a: [\n"
        reason = await asyncio.to_thread(refusal, tmp_path, settings)
        assert f"{service.url}/openapi, line " in reason


@pytest.mark.parametrize(
    ("document", "status", "reason"),
    [
        ("<!doctype html><html>Sign in</html>", 200, "is a web page, not an OpenAPI document"),
        (json.dumps(PETS), 500, "cannot be fetched: it answers 500"),
        ('{"swagger": "2.0"}', 200, "openapi must be 3.0 or 3.1, and is '2.0'"),
        ("hello", 200, "is not an OpenAPI document"),
    ],
)
async def test_bad_document_behind_a_url_stops_the_start(
    tmp_path: Path, document: str, status: int, reason: str
) -> None:
    async with asyncio.timeout(seconds(20)), Service(document) as service:
        service.status = status
        settings = catalog(tmp_path, openapi_json_path=f"{service.url}/openapi?key=s3cret")
        found = await asyncio.to_thread(refusal, tmp_path, settings)
        assert reason in found
        assert f"{service.url}/openapi" in found
        assert "s3cret" not in found


async def test_unreachable_and_silent_documents_stop_the_start(tmp_path: Path) -> None:
    async with asyncio.timeout(seconds(20)), Service() as service:
        service.is_stuck = True
        settings = catalog(tmp_path, openapi_json_path=f"{service.url}/stuck", timeout=0.2)
        reason = await asyncio.to_thread(refusal, tmp_path, settings)
        assert "/stuck cannot be fetched: The service did not answer within 0.2 seconds" in reason
    reason = await asyncio.to_thread(refusal, tmp_path, settings)
    assert "cannot be fetched: The service cannot be reached" in reason


async def test_fetched_document_cannot_name_another_host(tmp_path: Path) -> None:
    async with asyncio.timeout(seconds(20)), Service() as service:
        service.document = {**PETS, "servers": [{"url": "http://169.254.169.254/latest"}]}
        settings = catalog(tmp_path, openapi_json_path=f"{service.url}/openapi")
        reason = await asyncio.to_thread(refusal, tmp_path, settings)
        assert "servers leads to another host, http://169.254.169.254/latest" in reason
        settings = catalog(
            tmp_path,
            openapi_json_path=f"{service.url}/openapi",
            redirect_hosts=["169.254.169.254"],
        )
        await asyncio.to_thread(load, tmp_path, settings, RemoteClients())


async def test_key_for_the_service_is_not_given_to_the_keeper_of_its_document(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(seconds(20)), Service() as service:
        url = f"{service.url}/openapi"
        headers = {"X-Api-Key": "secret"}
        settings = catalog(tmp_path, openapi_json_path=url, server_url=SERVER, headers=headers)
        await asyncio.to_thread(load, tmp_path, settings, RemoteClients())
        settings = catalog(tmp_path, openapi_json_path=url, headers=headers)
        await asyncio.to_thread(load, tmp_path, settings, RemoteClients())
        given = [sent.get("X-Api-Key") for _, _, sent, _ in service.requests]
        assert given == [None, "secret"]


def test_agent_without_remote_plugins_needs_no_catalog(tmp_path: Path) -> None:
    tools = load_remote_tools(
        [], settings=Settings(), agent_file=tmp_path / "config.yaml", clients=RemoteClients()
    )
    assert tools == []


def test_remote_plugins_without_a_catalog_stop_the_start(tmp_path: Path) -> None:
    reason = refusal(tmp_path, Settings())
    assert reason == f"{tmp_path}/config.yaml: remote_plugins needs TA_REMOTE_PLUGIN_PATH"


def test_broken_catalog_stops_the_start_even_if_no_agent_uses_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"TA_REMOTE_PLUGIN_PATH: .*No such file"):
        load_remote_tools(
            [],
            settings=Settings(remote_plugin_path=tmp_path / "gone.yaml"),
            agent_file=tmp_path / "config.yaml",
            clients=RemoteClients(),
        )


def test_unknown_plugin_stops_the_start(tmp_path: Path) -> None:
    reason = refusal(tmp_path, catalog(tmp_path), "Petz")
    assert reason.startswith(f"{tmp_path}/config.yaml: remote_plugins: 'Petz' is not in ")
    assert reason.endswith("there are: Pets")


ENTRY = "{plugin_name: Pets, openapi_json_path: pets.json"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "document: "),
        ("remote_plugins: [", "line "),
        ("plugins: []", "remote_plugins: Field required"),
        ("remote_plugins: [{plugin_name: A}]", "remote_plugins[0].openapi_json_path: Field"),
        ("remote_plugins: [{plugin_name: A-B, openapi_json_path: x}]", "[0].plugin_name: "),
        (f"remote_plugins: [{ENTRY}, url: x}}]", "remote_plugins[0].url: Extra inputs"),
        (f"remote_plugins: [{ENTRY}, server_url: 'ftp://x'}}]", "[0].server_url: must be an http"),
        (f"remote_plugins: [{ENTRY}, server_url: 'http://a:b@x'}}]", "[0].server_url: must be"),
        (f"remote_plugins: [{ENTRY}, server_url: 'http://x/?a=b'}}]", "[0].server_url: must be"),
        (f"remote_plugins: [{ENTRY}, timeout: 0}}]", "remote_plugins[0].timeout: "),
        (f"remote_plugins: [{ENTRY}, requires_approval: 'no'}}]", "[0].requires_approval: "),
        (f"remote_plugins: [{ENTRY}, headers: {{'a b': x}}}}]", "headers: has a name"),
        (f"remote_plugins: [{ENTRY}}}, {ENTRY}}}]", "[1].plugin_name: 'Pets' appears twice"),
    ],
)
def test_fault_in_the_catalog_is_named_with_file_and_field(
    tmp_path: Path, text: str, reason: str
) -> None:
    found = refusal(tmp_path, written_catalog(tmp_path, text))
    assert found.startswith("TA_REMOTE_PLUGIN_PATH: ")
    assert "remote.yaml" in found
    assert reason in found


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"X-Key": "${NOT_SET_ANYWHERE}"}, "headers.X-Key: the environment variable NOT_SET_ANYW"),
        ({"X-Key": "a\nb"}, "headers.X-Key: its value is no header text"),
    ],
)
def test_header_that_cannot_be_sent_stops_the_start(
    tmp_path: Path, headers: dict[str, str], reason: str
) -> None:
    assert reason in refusal(tmp_path, catalog(tmp_path, headers=headers))


def changed(path: list[str], value: Any) -> dict[str, Any]:
    document = {**deepcopy(PETS), "servers": [{"url": SERVER}]}
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return document


LIST = ["paths", "/pets", "get"]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("", "is not an OpenAPI document"),
        ("{", "line 1: not JSON"),
        ('{"openapi": "3.0.0", "openapi": "3.0.0"}', "appears twice in one object"),
        ('{"openapi": NaN}', "NaN is not a JSON value"),
        ('{"a":' * 100_000, "not usable JSON"),
        ("a: &a [*a]", "an alias contains itself"),
        ({}, "openapi must be 3.0 or 3.1, and is nothing"),
        ({"openapi": "4.0.0"}, "openapi must be 3.0 or 3.1, and is '4.0.0'"),
        ({"openapi": "3.1.0", "paths": []}, "paths must be a mapping"),
        ({"openapi": "3.1.0"}, "has no operation to offer"),
        (changed(["paths"], {"pets": {"get": {}}}), "paths.pets must be a path that starts"),
        (changed([*LIST, "parameters"], {}), "paths./pets.get: parameters must be a list"),
        (changed([*LIST, "parameters"], [{"in": "query"}]), "needs 'name' and 'in'"),
        (
            changed([*LIST, "parameters"], [{"$ref": "other.yaml#/x"}]),
            "$ref 'other.yaml#/x' leads out of the document",
        ),
        (
            changed([*LIST, "parameters"], [{"$ref": "http://evil.example/x"}]),
            "leads out of the document",
        ),
        (changed([*LIST, "parameters"], [{"$ref": "#/nowhere"}]), "'#/nowhere' leads nowhere"),
        (
            changed(["components", "schemas", "Owner"], {"$ref": "file:///etc/passwd"}),
            "leads out of the document",
        ),
        (
            changed([*LIST, "parameters"], [{"name": "q", "in": "query", "schema": {"type": "?"}}]),
            "'?' is not valid",
        ),
        (
            changed(["paths", "/pets/{petId}", "parameters"], []),
            "the path's parameters are not those in its braces",
        ),
        (
            changed([*LIST, "operationId"], "addPet"),
            "POST /pets and",
        ),
        (changed([*LIST, "operationId"], "!!!"), "operationId has no letter"),
        (PETS, "does not say where the service is; set server_url"),
        ({**PETS, "servers": [{"url": "http://u:p@x.example/"}]}, "servers: http://x.example/ is"),
    ],
)
def test_broken_document_stops_the_start_with_file_and_place(
    tmp_path: Path, document: Any, reason: str
) -> None:
    settings = catalog(tmp_path, openapi_json_path="broken.json")
    text = document if isinstance(document, str) else json.dumps(document)
    (tmp_path / "broken.json").write_text(text)
    found = refusal(tmp_path, settings)
    assert found.startswith("TA_REMOTE_PLUGIN_PATH: ")
    assert "plugin 'Pets': " in found
    assert "broken.json" in found
    assert reason in found


def written(folder: Path, operation: str) -> None:
    folder.mkdir(exist_ok=True)
    paths = {"/things": {"get": {"operationId": operation}}}
    (folder / "one.json").write_text(json.dumps({"openapi": "3.1.0", "paths": paths}))


def test_relative_path_of_a_document_is_looked_up_beside_the_catalog_then_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, here = tmp_path / "catalog", tmp_path / "here"
    beside.mkdir()
    written(here, "here")
    monkeypatch.chdir(here)
    settings = catalog(beside, openapi_json_path="one.json", server_url=SERVER)

    def names() -> list[str]:
        return [spec.name for spec in load(beside, settings, RemoteClients()).specs()]

    assert names() == ["Pets-here"]
    written(beside, "beside")
    assert names() == ["Pets-beside"]


def test_document_that_is_in_neither_place_stops_the_start_naming_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, here = tmp_path / "catalog", tmp_path / "here"
    for folder in (beside, here):
        folder.mkdir()
    monkeypatch.chdir(here)
    found = refusal(beside, catalog(beside, openapi_json_path="one.json", server_url=SERVER))
    assert f"openapi_json_path: there is neither {beside / 'one.json'} nor" in found
    assert str(here / "one.json") in found


def test_two_operations_of_one_name_are_both_named(tmp_path: Path) -> None:
    settings = catalog(tmp_path, openapi_json_path="two.json", server_url=SERVER)
    (tmp_path / "two.json").write_text(json.dumps(changed([*LIST, "operationId"], "addPet")))
    found = refusal(tmp_path, settings)
    assert "POST /pets" in found
    assert "GET /pets" in found
    assert "'Pets-addPet'" in found


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (body({}, media="multipart/form-data"), "neither JSON nor text"),
        (body({}, media="multipart/form-data", required=False), "neither JSON nor text"),
        (
            {"parameters": [{"name": "s", "in": "cookie", "required": True}]},
            "it needs the cookie parameter 's'",
        ),
        (
            {"parameters": [{"name": "Host", "in": "header", "required": True}]},
            "it needs the header parameter 'Host'",
        ),
        (
            {"parameters": [{"name": "m", "in": "query", "style": "matrix"}]},
            "has the style 'matrix'",
        ),
        (body({"anyOf": [{"type": "string"}] * 6000}), "too large"),
    ],
)
def test_operation_that_cannot_be_called_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, operation: dict[str, Any], reason: str
) -> None:
    document = deepcopy(PETS)
    document["paths"]["/other"] = {"put": operation}
    (tmp_path / "one.json").write_text(json.dumps(document))
    settings = catalog(tmp_path, openapi_json_path="one.json", server_url=SERVER)
    box = load(tmp_path, settings, RemoteClients())
    assert len(box.specs()) == 4
    assert "PUT /other is left out" in caplog.text
    assert reason in caplog.text


def test_schema_that_grows_without_end_is_bounded(tmp_path: Path) -> None:
    # Each level doubles: written out in full it would have 2^30 parts.
    schemas = {
        f"L{n}": {
            "type": "object",
            "properties": {s: {"$ref": f"#/components/schemas/L{n + 1}"} for s in "ab"},
        }
        for n in range(30)
    }
    schemas["L30"] = {"type": "object"}
    document = deepcopy(PETS)
    document["components"]["schemas"].update(schemas)
    document["paths"]["/deep"] = {"post": body({"$ref": "#/components/schemas/L0"})}
    (tmp_path / "one.json").write_text(json.dumps(document))
    settings = catalog(tmp_path, openapi_json_path="one.json", server_url=SERVER)
    assert len(load(tmp_path, settings, RemoteClients()).specs()) == 4


async def test_hostile_pattern_does_not_hold_up_the_check(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
    spec = spec_of(tmp_path, body(schema))
    assert spec.parameters["properties"]["x"]["pattern"] == "^(a+)+$"
    settings = catalog(tmp_path, openapi_json_path="one.json", server_url=SERVER)
    box = load(tmp_path, settings, RemoteClients())
    arguments = {"x": "a" * 40 + "!"}
    assert box.check(call("Pets-make", arguments)) == arguments


def test_argument_that_is_no_json_is_refused(tmp_path: Path) -> None:
    box = load(tmp_path, catalog(tmp_path, server_url=SERVER), RemoteClients())
    with pytest.raises(ToolError, match="nothing was run"):
        box.check(call("Pets-addPet", {"name": "x", "owner": {"name": float("nan")}}))


def test_servers_without_remote_plugins_import_neither_http_client_nor_validator() -> None:
    code = (
        "import sys, sk_agents.tools.openapi.services\n"
        "assert not {'aiohttp', 'jsonschema'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=seconds(60))
