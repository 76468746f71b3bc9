from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class HelixSessionsConfig(AppConfig):
    """The app; its system checks are registered when it is ready."""

    name = "helix_sessions"
    verbose_name = _("Agent sessions")

    def ready(self) -> None:
        from helix_sessions import checks, deploy_checks, setting_checks  # noqa: F401
