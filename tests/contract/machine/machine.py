"""Random calls of the whole contract, on the store and on the model; after each, all that can be read."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.contract.machine.bad_calls import Mistakes
from tests.contract.machine.commits import Commits
from tests.contract.machine.harness import OPERATIONS
from tests.contract.machine.lifecycle import Lifecycle
from tests.contract.machine.messages import MessagesAndEvents
from tests.contract.machine.runs import RunsAndFlags
from tests.contract.machine.staging import Staging
from tests.contract.machine.states import States

# The first is what the simplest run is made of, so it had better be cheap.
STEPS = st.sampled_from(
    ["read_staging", *(name for name, (weight, _) in OPERATIONS.items() for _ in range(weight))]
).flatmap(lambda name: st.tuples(st.just(name), st.fixed_dictionaries(OPERATIONS[name][1])))


class StoreMachine(Lifecycle, States, Commits, Staging, MessagesAndEvents, RunsAndFlags, Mistakes):
    """Every call of the contract but those that wait."""

    @rule(step=STEPS)
    def step(self, step: tuple[str, dict[str, Any]]) -> None:
        """Make a call. One rule, so that each run mixes all of them."""
        name, arguments = step
        self.sound = False
        getattr(self, name)(**arguments)
        self.sound = True
