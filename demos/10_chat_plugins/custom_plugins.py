"""The weather of three cities, out of a table: nothing here asks the network."""

from typing import Annotated, Literal

from semantic_kernel.functions.kernel_function_decorator import kernel_function
from semantic_kernel.kernel_pydantic import KernelBaseModel

from sk_agents.ska_types import BasePlugin

CELSIUS = {"Nairobi": 26.0, "Oslo": -4.0, "Rome": 17.5}


class Reading(KernelBaseModel):
    place: str
    temperature: float
    unit: str


class WeatherPlugin(BasePlugin):
    @kernel_function(name="temperature", description="How warm it is somewhere.")
    async def get_temperature(
        self,
        place: Annotated[str, "A city's name"],
        unit: Annotated[Literal["celsius", "fahrenheit"], "The scale"] = "celsius",
    ) -> Reading:
        if place not in CELSIUS:
            raise ValueError(f"unknown place: {place}")
        degrees = CELSIUS[place]
        self.extra_data_collector.add_extra_data("signed in", str(self.authorization is not None))
        if unit == "fahrenheit":
            degrees = round(degrees * 9 / 5 + 32, 1)
        return Reading(place=place, temperature=degrees, unit=unit)
