"""What is sent for a value: the forms of the tables of the specification, as a service on loopback receives them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dagrun
from dagrun import ToolError
from dagrun.sources.openapi.wire_forms import MAX_TARGET, Parameter, filled_path, target_of
from loopback import always, answer, serving
from openapi_service import document, operation, parameter, run, step

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

COLOR = "blue"
COLORS = ["blue", "black", "brown"]
RGB = {"R": 100, "G": 200, "B": 150}

# Place, style, explode, value, and the text that the service must get: the table "Style Examples" of OpenAPI 3.1.1.
# After it, the same for what may not be taken for a delimiter, and for values that are no texts.
SHAPES: dict[str, tuple[str, str, bool | None, Any, str]] = {
    "matrix_empty": ("path", "matrix", False, "", ";color"),
    "matrix_text": ("path", "matrix", False, COLOR, ";color=blue"),
    "matrix_list": ("path", "matrix", False, COLORS, ";color=blue,black,brown"),
    "matrix_object": ("path", "matrix", False, RGB, ";color=R,100,G,200,B,150"),
    "matrix_explode_text": ("path", "matrix", True, COLOR, ";color=blue"),
    "matrix_explode_list": ("path", "matrix", True, COLORS, ";color=blue;color=black;color=brown"),
    "matrix_explode_object": ("path", "matrix", True, RGB, ";R=100;G=200;B=150"),
    "label_text": ("path", "label", False, COLOR, ".blue"),
    "label_list": ("path", "label", False, COLORS, ".blue,black,brown"),
    "label_object": ("path", "label", False, RGB, ".R,100,G,200,B,150"),
    "label_explode_text": ("path", "label", True, COLOR, ".blue"),
    "label_explode_list": ("path", "label", True, COLORS, ".blue.black.brown"),
    "label_explode_object": ("path", "label", True, RGB, ".R=100.G=200.B=150"),
    "simple_text": ("path", "simple", False, COLOR, "blue"),
    "simple_list": ("path", "simple", False, COLORS, "blue,black,brown"),
    "simple_object": ("path", "simple", False, RGB, "R,100,G,200,B,150"),
    "simple_explode_list": ("path", "simple", True, COLORS, "blue,black,brown"),
    "simple_explode_object": ("path", "simple", True, RGB, "R=100,G=200,B=150"),
    "form_empty": ("query", "form", False, "", "color="),
    "form_text": ("query", "form", False, COLOR, "color=blue"),
    "form_list": ("query", "form", False, COLORS, "color=blue,black,brown"),
    "form_object": ("query", "form", False, RGB, "color=R,100,G,200,B,150"),
    "form_explode_empty": ("query", "form", True, "", "color="),
    "form_explode_text": ("query", "form", True, COLOR, "color=blue"),
    "form_explode_list": ("query", "form", True, COLORS, "color=blue&color=black&color=brown"),
    "form_explode_object": ("query", "form", True, RGB, "R=100&G=200&B=150"),
    "form_is_exploded": ("query", "form", None, COLORS, "color=blue&color=black&color=brown"),
    "space_list": ("query", "spaceDelimited", False, COLORS, "color=blue%20black%20brown"),
    "space_object": ("query", "spaceDelimited", False, RGB, "color=R%20100%20G%20200%20B%20150"),
    "pipe_list": ("query", "pipeDelimited", False, COLORS, "color=blue%7Cblack%7Cbrown"),
    "pipe_object": ("query", "pipeDelimited", False, RGB, "color=R%7C100%7CG%7C200%7CB%7C150"),
    "deep_object": ("query", "deepObject", True, RGB, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
    "header_text": ("header", "simple", False, COLOR, "blue"),
    "header_list": ("header", "simple", False, COLORS, "blue,black,brown"),
    "header_object": ("header", "simple", False, RGB, "R,100,G,200,B,150"),
    "header_explode_object": ("header", "simple", True, RGB, "R=100,G=200,B=150"),
    # Delimiters and reserved characters in values.
    "path_slash": ("path", "simple", False, "src/main.py", "src%2Fmain.py"),
    "path_query": ("path", "simple", False, "a?b#c", "a%3Fb%23c"),
    "path_dots": ("path", "simple", False, "v1..v2", "v1..v2"),
    "path_percent": ("path", "simple", False, "%2e%2e", "%252e%252e"),
    "path_comma": ("path", "simple", False, ["a,b", "c"], "a%2Cb,c"),
    "path_semicolon": ("path", "matrix", True, "a;b=c", ";color=a%3Bb%3Dc"),
    "query_ampersand": ("query", "form", True, "a&admin=true", "color=a%26admin%3Dtrue"),
    "query_space": ("query", "form", True, "a b+c", "color=a%20b%2Bc"),
    "query_unicode": ("query", "form", True, "Grün", "color=Gr%C3%BCn"),
    "query_name": ("query", "form", True, {"a&b": "c=d"}, "a%26b=c%3Dd"),
    "query_pipe": ("query", "pipeDelimited", False, ["a|b", "c"], "color=a%7Cb%7Cc"),
    # Other types.
    "query_true": ("query", "form", True, True, "color=true"),
    "query_number": ("query", "form", True, 2.5, "color=2.5"),
    "query_whole": ("query", "form", True, 3.0, "color=3"),
    "query_null": ("query", "form", True, None, ""),
    "query_no_elements": ("query", "form", True, [], ""),
    "query_nulls": ("query", "form", True, ["a", None, "b"], "color=a&color=b"),
    "query_nested": ("query", "form", True, [{"a": 1}], "color=%7B%22a%22%3A1%7D"),
    "deep_nested": ("query", "deepObject", True, {"a": {"b": 1}, "c": [2, 3]},
                    "color%5Ba%5D%5Bb%5D=1&color%5Bc%5D%5B0%5D=2&color%5Bc%5D%5B1%5D=3"),
}  # fmt: skip


def shapes() -> dict[str, Any]:
    """One operation for each shape."""
    paths = {}
    for name, (place, style, explode, _value, _sent) in SHAPES.items():
        more = {"style": style} if explode is None else {"style": style, "explode": explode}
        path = f"/{name}/x{{color}}" if place == "path" else f"/{name}"
        paths[path] = {"get": operation(name, parameter("color", place, **more))}
    return document(paths)


async def test_every_shape_is_sent_as_the_tables_of_the_specification_say() -> None:
    """One service gets them all; what stands on the wire is compared, not what a decoder makes of it."""
    with serving(always(answer(b"{}", content_type="application/json"))) as server:
        tools = dagrun.openapi_tools(shapes(), base_url=server.url, include=["*"])
        result = await run(tools, *(step(name, name, color=shape[3]) for name, shape in SHAPES.items()))
    assert result.status == "succeeded", result
    sent: dict[str, str] = {}
    for request in server.requests:
        path, _, query = request.target.partition("?")
        name = path.split("/")[1]
        match SHAPES[name][0]:
            case "path":
                sent[name] = path.removeprefix(f"/{name}/x")
            case "query":
                sent[name] = query
            case _:
                sent[name] = request.headers["color"]
    assert sent == {name: shape[4] for name, shape in SHAPES.items()}


CONTENT = {"application/json": {"schema": {"type": "object"}}}
BODIES: dict[str, tuple[Any, Any, str, str]] = {  # content, value, media type, body as it is sent
    "json": ({"application/json": {}}, {"a": [1, None, "ü"]}, "application/json", '{"a":[1,null,"ü"]}'),
    "problem": ({"application/merge-patch+json": {}}, {"a": None}, "application/merge-patch+json", '{"a":null}'),
    "any": ({"*/*": {}}, [1], "application/json", "[1]"),
    "text": ({"text/csv": {}}, "a,b\n", "text/csv", "a,b\n"),
    "form": ({"application/x-www-form-urlencoded": {}}, {"a": "b c&d", "n": [1, 2], "o": {"p": 1}},
             "application/x-www-form-urlencoded", "a=b%20c%26d&n=1&n=2&o=%7B%22p%22%3A1%7D"),
    "deep_form": ({"application/x-www-form-urlencoded": {"encoding": {"o": {"style": "deepObject", "explode": True}}}},
                  {"o": {"p": {"q": 1}}}, "application/x-www-form-urlencoded", "o%5Bp%5D%5Bq%5D=1"),
}  # fmt: skip


async def test_bodies_are_sent_in_the_form_that_the_document_names() -> None:
    """JSON, whatever it is called; forms, with the encodings of fields; texts."""
    paths = {
        f"/{name}": {"put": operation(name, requestBody={"required": True, "content": content})}
        for name, (content, *_) in BODIES.items()
    }
    with serving(always(answer(b"{}", content_type="application/json"))) as server:
        tools = dagrun.openapi_tools(document(paths), base_url=server.url)
        result = await run(tools, *(step(name, name, body=body[1]) for name, body in BODIES.items()))
    assert result.status == "succeeded", result
    sent = {request.target[1:]: (request.headers["content-type"], request.body.decode()) for request in server.requests}
    assert sent == {name: body[2:] for name, body in BODIES.items()}


async def test_parameters_with_content_are_json_and_reserved_characters_stay_where_they_do_no_harm() -> None:
    """With ``allowReserved``, a value still cannot begin another parameter."""
    filters = {"name": "filter", "in": "query", "content": CONTENT}
    paths = {"/list": {"get": operation("list", filters, parameter("at", allowReserved=True))}}
    with serving(always(answer(b"{}", content_type="application/json"))) as server:
        tools = dagrun.openapi_tools(document(paths), base_url=server.url)
        await run(tools, step("a", "list", filter={"a": [1]}, at="a/b:c?d&e=f#g"))
    [request] = server.requests
    assert request.target == "/list?filter=%7B%22a%22%3A%5B1%5D%7D&at=a/b:c?d%26e%3Df%23g"


@pytest.mark.parametrize("value", ["..", ".", "../admin", "a/../../admin", "..\\x", "", None, [], {}])
def test_no_value_leads_to_another_path(value: Any) -> None:
    """Servers decode before they follow dots, so encoded dots are refused, too; and nothing is the path of the list."""
    with pytest.raises(ToolError):
        filled_path("/users/{id}", {"id": Parameter("id", "id", "path", "simple", explode=False)}, {"id": value})


def test_a_value_cannot_complete_the_dots_of_a_template() -> None:
    """``.{id}`` and the style ``label`` bring a dot of their own."""
    label = Parameter("id", "id", "path", "label", explode=False)
    for template, style in (("/a/{id}", label), ("/a/.{id}", Parameter("id", "id", "path", "simple", explode=False))):
        with pytest.raises(ToolError, match="another one"):
            filled_path(template, {"id": style}, {"id": "."})


async def test_what_cannot_be_sent_has_not_happened() -> None:
    """A line break in a header, and an address without end: refused before a connection is opened."""
    paths = {"/a": {"post": operation("send", parameter("note", "header"), parameter("q"))}}
    with serving(always(answer(b"{}"))) as server:
        tools = dagrun.openapi_tools(document(paths), base_url=server.url)
        bad = {"note": "a\r\nAuthorization: b"}, {"note": "ü"}, {"q": "x" * MAX_TARGET}
        result = await run(tools, *(step(f"s{number}", "send", **args) for number, args in enumerate(bad)))
    assert [each.state for each in result.steps.values()] == ["failed"] * 3, result
    assert server.requests == []
    with pytest.raises(ToolError, match="ceiling"):
        target_of("/" + "x" * MAX_TARGET, ["a=b"])


def test_the_shapes_are_all_those_of_the_table() -> None:
    """The table of the specification has four columns for seven rows, of which some are empty."""
    assert len(SHAPES) >= 30
    assert json.dumps(shapes())
