"""Two small services for the agent to call: where places are, and how warm it is there.

python demos/04_remote_plugins/service.py --port 9100
"""

import argparse
import socket
from functools import partial
from typing import Any

from aiohttp import web

PLACES = {
    "Nairobi": {"latitude": -1.29, "longitude": 36.82},
    "Oslo": {"latitude": 59.91, "longitude": 10.75},
    "Rome": {"latitude": 41.89, "longitude": 12.48},
}
TEMPERATURES = {
    "Nairobi": {"low": 14.0, "high": 26.0},
    "Oslo": {"low": -7.0, "high": -4.0},
    "Rome": {"low": 6.5, "high": 17.5},
}


def coordinate(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": True, "schema": {"type": "number"}}


WEATHER = {
    "openapi": "3.1.0",
    "info": {"title": "Weather", "version": "1.0"},
    "paths": {
        "/forecast": {
            "get": {
                "operationId": "getForecast",
                "summary": "Today's lowest and highest temperature in degrees Celsius",
                "parameters": [coordinate("latitude"), coordinate("longitude")],
                "responses": {"200": {"description": "The temperatures"}},
            }
        }
    },
}


async def search(request: web.Request) -> web.Response:
    place = PLACES.get(request.query.get("name", ""))
    if place is None:
        return web.json_response({"error": f"known are {', '.join(PLACES)}"}, status=404)
    return web.json_response(place)


async def forecast(request: web.Request) -> web.Response:
    try:
        here = {name: float(request.query[name]) for name in ("latitude", "longitude")}
    except (KeyError, ValueError):
        return web.json_response({"error": "latitude and longitude are numbers"}, status=400)
    for name, place in PLACES.items():
        if place == here:
            return web.json_response(TEMPERATURES[name])
    return web.json_response({"error": "no station there"}, status=404)


async def describe_weather(request: web.Request) -> web.Response:
    return web.json_response(WEATHER)


def application() -> web.Application:
    app = web.Application()
    app.router.add_get("/places/search", search)
    app.router.add_get("/weather/forecast", forecast)
    app.router.add_get("/weather/openapi.json", describe_weather)
    return app


def main() -> None:
    options = argparse.ArgumentParser(description="Serve places and their weather.")
    options.add_argument("--port", type=int, default=9100, help="0 takes a free one")
    listener = socket.create_server(("127.0.0.1", options.parse_args().port))
    # Whoever waits for the address reads it from a pipe.
    web.run_app(application(), sock=listener, print=partial(print, flush=True))


if __name__ == "__main__":
    main()
