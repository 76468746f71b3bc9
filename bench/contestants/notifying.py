"""Ours as it is, and ours without telling other processes: what NOTIFY costs."""

from bench.contestants.ours import Ours


class _Switched(Ours):
    """One process is both in turn, so each session is begun by saying which."""

    notifies: bool

    def create(self, session_id: str) -> None:
        from django.conf import settings

        settings.HELIX_SESSIONS = {"STREAM_NOTIFY": self.notifies}
        super().create(session_id)


class OursNotifying(_Switched):
    name = "ours, with NOTIFY"
    notifies = True


class OursSilent(_Switched):
    name = "ours, without NOTIFY"
    notifies = False
