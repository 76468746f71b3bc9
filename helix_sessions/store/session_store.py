from helix_sessions.store import outages, tracing
from helix_sessions.store.activities import Activities
from helix_sessions.store.audits import Audits
from helix_sessions.store.checkpoints import Checkpoints
from helix_sessions.store.children import Children
from helix_sessions.store.cleanup import Cleanup
from helix_sessions.store.commits import Commits
from helix_sessions.store.compactions import Compactions
from helix_sessions.store.contexts import Contexts
from helix_sessions.store.debris import Debris
from helix_sessions.store.ensured import Ensured
from helix_sessions.store.erasure import Erasure
from helix_sessions.store.exports import Exports
from helix_sessions.store.imports import Imports
from helix_sessions.store.inbox import Inbox
from helix_sessions.store.instructions import Instructions
from helix_sessions.store.interrupts import Interrupts
from helix_sessions.store.leases import Leases
from helix_sessions.store.links import Links
from helix_sessions.store.messages import Messages
from helix_sessions.store.notes import Notes
from helix_sessions.store.recoveries import Recoveries
from helix_sessions.store.resumes import Resumes
from helix_sessions.store.retention import Retention
from helix_sessions.store.rewinds import Rewinds
from helix_sessions.store.rotations import Rotations
from helix_sessions.store.runs import Runs
from helix_sessions.store.sub_sessions import SubSessions
from helix_sessions.store.subscriptions import Subscriptions
from helix_sessions.store.suspensions import Suspensions
from helix_sessions.store.turns import Turns


@tracing.follow
@outages.told
class SessionStore(
    Ensured,
    Subscriptions,
    Contexts,
    Compactions,
    Cleanup,
    Commits,
    Messages,
    Notes,
    Runs,
    Checkpoints,
    Debris,
    Interrupts,
    Inbox,
    Leases,
    SubSessions,
    Turns,
    Suspensions,
    Resumes,
    Activities,
    Recoveries,
    Children,
    Links,
    Rewinds,
    Instructions,
    Retention,
    Audits,
    Exports,
    Imports,
    Erasure,
    Rotations,
):
    """The durable memory of agents. Stateless and cheap to make; safe to share between threads."""
