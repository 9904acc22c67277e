"""The weather of three cities, out of a table: nothing here asks the network."""

from pydantic import BaseModel
from semantic_kernel.functions.kernel_function_decorator import kernel_function

from sk_agents.ska_types import BasePlugin


class Location(BaseModel):
    latitude: float
    longitude: float
    timezone: str


class Temperature(BaseModel):
    low: float
    high: float


PLACES = {
    "Nairobi": Location(latitude=-1.29, longitude=36.82, timezone="Africa/Nairobi"),
    "Oslo": Location(latitude=59.91, longitude=10.75, timezone="Europe/Oslo"),
    "Rome": Location(latitude=41.89, longitude=12.48, timezone="Europe/Rome"),
}
TEMPERATURES = {
    "Nairobi": Temperature(low=14.0, high=26.0),
    "Oslo": Temperature(low=-7.0, high=-4.0),
    "Rome": Temperature(low=6.5, high=17.5),
}


class WeatherPlugin(BasePlugin):
    @kernel_function(description="Where a place is: its coordinates and time zone.")
    def get_lat_lng_for_location(self, location: str) -> Location:
        if location not in PLACES:
            raise ValueError(f"unknown place: {location}")
        return PLACES[location]

    @kernel_function(description="Today's lowest and highest temperature in degrees Celsius.")
    def get_temperature(self, latitude: float, longitude: float, timezone: str) -> Temperature:
        here = Location(latitude=latitude, longitude=longitude, timezone=timezone)
        for name, place in PLACES.items():
            if place == here:
                self.extra_data_collector.add_extra_data("station", name)
                return TEMPERATURES[name]
        raise ValueError("no station there")
