"""Which model the demo's agents ask: a provider's, if its key is in the environment, else a script."""

import logging

from pydantic_ai.models import Model, infer_model

from project.agents import model_name
from project.agents.script import Play, scripted

_log = logging.getLogger(__name__)


def model_or(play: Play) -> Model:
    """The provider's model, or one that follows this script."""
    name = model_name()
    if name is None:
        return scripted(play)
    try:
        return infer_model(name)
    except ImportError as error:
        _log.warning("The model %r cannot be used, a script stands in for it: %s", name, error)
        return scripted(play)
