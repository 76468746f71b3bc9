"""The primary is lost, and the application does not notice: PgBouncer is led to the standby."""

from tests.postgres import Server
from tests.torture import failover
from tests.torture.lanes import Figures
from tests.torture.stops import Stop


def campaign(seed: int, stop: Stop, server: Server) -> Figures:
    """`failover`, behind PgBouncer."""
    return failover.campaign(seed, stop, server, pooled=True)
