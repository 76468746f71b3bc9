"""What the models of the sample cost and how fast they are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """A model as its provider lists it: US dollars for a million tokens, and tokens a second."""

    name: str
    input: float
    cached: float
    output: float
    speed: float

    def cost(self, read: int, cached: int, written: int) -> float:
        """US dollars for one call; of the tokens read so many came from the provider's cache."""
        fresh = read - cached
        return round((fresh * self.input + cached * self.cached + written * self.output) / 1_000_000, 6)


LARGE = Model("openai:gpt-5", 1.25, 0.125, 10.0, 70)
SMALL = Model("openai:gpt-5-mini", 0.25, 0.025, 2.0, 120)
CAREFUL = Model("anthropic:claude-sonnet-4-5", 3.0, 0.30, 15.0, 60)
QUICK = Model("anthropic:claude-haiku-4-5", 1.0, 0.10, 5.0, 140)
