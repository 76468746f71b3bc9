"""What we want to reach, and whether this run did."""

from dataclasses import dataclass

from bench.adapters import DUELS
from bench.adapters import SECTION as ADAPTERS
from bench.contestants.one_statement import OneStatement
from bench.contestants.ours import Ours, OursOnTwo
from bench.context import AFTER
from bench.operations import APPEND_TO_1000
from bench.results import Results
from bench.scale import Scale
from bench.streams.measure import MISSING, STREAMS, frame
from bench.streams.tokens import KEPT, WRITERS
from bench.streams.tokens import SECTION as KEPT_TOKENS
from bench.streams.tokens import STREAMS as TOKEN_STREAMS

STEP = "step commit"
MISSED = "NOT REACHED"

PYTHON = "checks, documents and events in Python come on top of the one statement; a quick disk shows it"
ALONE_TAKES = "the one statement alone takes {:.2f} here; checks, documents and events in Python come on top"
TWO_CONNECTIONS = "a row that another connection wrote is read first: two statements for one"
CREATED = (
    "the row of a session goes into the indexes that lists by status, type, owner and user are read from"
)
PROCESSORS = "the writers and the server share the processors, so the time in Python counts in full"
FILE = "no server does a part of the work meanwhile, so the time in Python counts in full"
READS = "the page is read from the database and written as JSON, which the empty view has nothing of"
WAITS = "a commit reads permissions and the row, and waits for the disk; the empty view reads the token only"
CONTENTS = "four fifths are what the step stores, messages, state and log, and SQL by hand writes these too"
HELD = "each stream holds a task, the request and the response of Django, and buffers of the server"
ALONE = "it stores the messages alone: no state, no checkpoint, no log"
"""What stands in the way of a target."""


@dataclass(frozen=True)
class Target:
    """A number of a run and its limit, from above or from below."""

    what: str
    measured: float | None
    limit: float
    at_least: bool = False
    quiet: float | None = None
    why: str = ""
    """What stands in the way, where it is not reached."""

    @property
    def verdict(self) -> str:
        """What the medians say, unless the quiet calls say otherwise: then the run was disturbed."""
        if self.measured is None:
            return "not measured"
        reached = self._holds(self.measured)
        if self.quiet is not None and self._holds(self.quiet) != reached:
            return "unclear, disturbed"
        return "reached" if reached else MISSED

    def _holds(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        measured, quiet = ("" if value is None else f"{value:.2f}" for value in (self.measured, self.quiet))
        return f"{self.what:50}{measured:>8}{quiet:>8}  {sign} {self.limit:<5g} {self.verdict}"


def targets(results: Results, scale: Scale) -> list[Target]:
    """Every target, with what was measured."""

    def ratio(
        what: str,
        limit: float,
        section: str,
        operation: str,
        *,
        at_least: bool = False,
        contestant: str = Ours.name,
        why: str = "",
    ) -> Target:
        row = results.find(section, operation, contestant)
        if row is None or row.ratio is None:
            return Target(what, None, limit, at_least)
        return Target(what, row.ratio.middle, limit, at_least, row.quiet, why)

    def ahead(
        peer: str, limit: float, section: str = STEP, operation: str = "history 1,000", why: str = ""
    ) -> Target:
        """At the peer's own operation: the step, or for one that stores messages alone the append."""
        what = f"{peer} / ours, history 1,000"
        theirs = results.find(section, operation, peer)
        ours = results.find(section, operation, "ours")
        if not (theirs and theirs.ratio and theirs.quiet and ours and ours.ratio and ours.quiet):
            return Target(what, None, limit, True)
        measured, quiet = theirs.ratio.middle / ours.ratio.middle, theirs.quiet / ours.quiet
        return Target(what, measured, limit, True, quiet, why)

    def value(what: str, limit: float, section: str, operation: str, why: str = "") -> Target:
        row = results.find(section, operation, "ours")
        return Target(what, None if row is None else row.value.middle, limit, why=why)

    loud = results.find("live events", "writers: 16", "ours, with NOTIFY")
    notified = Target(
        "16 writers with NOTIFY / without", loud.ratio.middle if loud and loud.ratio else None, 0.9, True
    )
    kept = results.find(KEPT_TOKENS, f"writers: {WRITERS}", KEPT)
    streamed = Target(
        f"{WRITERS} writers beside {TOKEN_STREAMS} kept streams / alone",
        kept.ratio.middle if kept and kept.ratio else None,
        0.9,
        True,
    )
    stored = results.find("growth", "stored in 1,000 steps", "ours")
    least = results.find(STEP, "history 100", OneStatement.name)
    step_takes = ALONE_TAKES.format(least.ratio.middle) if least and least.ratio else PYTHON
    longest, large, small = max(scale.histories), scale.large_list, scale.small_list
    full = f"all {scale.long_history:,} messages"
    grown = f"{large:,} against {small:,}"
    return [
        ratio("step commit / SQL by hand, history 100", 0.55, STEP, "history 100", why=step_takes),
        ratio(
            "the same, two connections",
            0.85,
            STEP,
            "history 100",
            contestant=OursOnTwo.name,
            why=TWO_CONNECTIONS,
        ),
        ratio(f"step commit, {longest:,} / 0 messages", 1.10, STEP, f"{longest:,} against 0"),
        ratio(
            "16 writers, throughput / SQL by hand",
            1.8,
            "throughput",
            "writers: 16",
            at_least=True,
            why=PROCESSORS,
        ),
        ratio("step commit 1 ms away / SQL by hand", 0.6, "step commit, 1 ms away", "history 100"),
        ratio("WAL bytes per step / SQL by hand", 0.65, "resources per step", "WAL", why=CONTENTS),
        ratio("create / SQL by hand", 1.2, "operations", "create", why=CREATED),
        ratio("append / SQL by hand", 0.55, "operations", "append 2 messages", why=PYTHON),
        ratio("latest 50 / SQL by hand", 1.2, "operations", "latest 50 messages"),
        ratio(f"{full} / SQL by hand", 1.2, "operations", full),
        ratio(f"list 50 of {large:,} / of {small:,}", 1.3, "list", grown),
        ratio("context after 100,000 messages / without them", 1.05, "context", AFTER),
        ratio("SQLite step commit / sqlite3", 1.6, "SQLite", "step commit, history 100", why=FILE),
        ratio(
            "HTTP page of 50 messages / empty view",
            0.9,
            "HTTP",
            "page of 50 messages",
            at_least=True,
            why=READS,
        ),
        ratio("HTTP commit / empty view", 0.75, "HTTP", "commit", at_least=True, why=WAITS),
        ahead("OpenAI SQLAlchemySession", 3, "operations", APPEND_TO_1000, why=ALONE),
        ahead("Google ADK append_event", 8),
        ahead("LangGraph PostgresSaver", 25),
        *(
            ratio(
                f"{duel.what}: theirs / ours",
                duel.times_as_fast,
                ADAPTERS,
                duel.what,
                at_least=True,
                contestant=duel.theirs.name,
                why=duel.why,
            )
            for duel in DUELS
        ),
        value(f"commit to frame, {STREAMS} streams, p50, ms", 5, "live events", frame("p50", STREAMS)),
        value(f"commit to frame, {STREAMS} streams, p99, ms", 20, "live events", frame("p99", STREAMS)),
        value("events missing at 5,000 streams of one process", 0, "live events", MISSING),
        value("memory for 1,000 streams, MB", 60, "live events", "memory for 1,000 streams", HELD),
        value("connections that listen", 1, "live events", "connections that listen"),
        notified,
        streamed,
        value("events lost or doubled, PostgreSQL", 0, "live events", "events lost or doubled, default"),
        value("events lost or doubled, SQLite", 0, "live events", "events lost or doubled, sqlite"),
        value("commit to wake-up by NOTIFY, p50, ms", 20, "loop", "commit to wake-up by NOTIFY, p50"),
        value("statements of an idle worker in a second", 1, "loop", "statements of an idle worker"),
        ratio(f"claim among {large:,} / among 10 sessions", 1.5, "claims", f"claim among {large:,}"),
        ratio(f"the same, bounded, {large:,} / 10", 1.5, "claims", f"claim among {large:,}, bounded"),
        Target("MB stored, 1 MB state, 1,000 steps", stored.value.middle if stored else None, 20),
    ]
