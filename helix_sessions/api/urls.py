"""Every address of the API, on one page. Mounted with `include("helix_sessions.api.urls")`.

An address is right with its last slash and without, and below `v1/`. `docs/reference/http.md` has the same
table for people.
"""

from typing import Any

from django.urls import URLPattern, path, register_converter
from django.urls.resolvers import RoutePattern

from helix_sessions.api.ids import IdConverter
from helix_sessions.api.views import (
    actions,
    ag_ui,
    answers,
    blobs,
    chat,
    checkpoints,
    commits,
    contexts,
    events,
    feedback,
    inbox,
    leases,
    live,
    memories,
    messages,
    runs,
    schedules,
    sessions,
    spend,
    staging,
    states,
    stream,
    sub_sessions,
    tool_results,
    tool_rules,
    turns,
    webhooks,
)
from helix_sessions.api.views.base import VERSION, VERSIONED, View
from helix_sessions.api.views.unknown import Unclaimed, UnknownView

register_converter(IdConverter, "helix_id")

app_name = "helix_sessions"

_SESSION = "sessions/<helix_id:session_id>"
_WEBHOOK = "webhooks/<helix_id:webhook_id>"
_SCHEDULE = "schedules/<helix_id:schedule_id>"

ROUTES: list[tuple[str, type[View], str]] = [
    ("sessions", sessions.SessionsView, "sessions"),
    (_SESSION, sessions.SessionView, "session"),
    (f"{_SESSION}/state", states.StateView, "state"),
    (f"{_SESSION}/status", states.StatusView, "status"),
    (f"{_SESSION}/counters", states.CountersView, "counters"),
    (f"{_SESSION}/counters/step", states.StepCounterView, "step-counter"),
    (f"{_SESSION}/counters/resume", states.ResumeCounterView, "resume-counter"),
    (f"{_SESSION}/metadata", sessions.MetadataView, "metadata"),
    (f"{_SESSION}/clone", sessions.CloneView, "clone"),
    (f"{_SESSION}/commit", commits.CommitView, "commit"),
    (f"{_SESSION}/messages", messages.MessagesView, "messages"),
    (f"{_SESSION}/messages/count", messages.MessageCountView, "message-count"),
    (f"{_SESSION}/messages/truncate", messages.TruncateView, "truncate-messages"),
    (f"{_SESSION}/messages/<int:position>/feedback", feedback.FeedbackView, "feedback"),
    (f"{_SESSION}/feedback", feedback.FeedbackListView, "feedback-list"),
    (f"{_SESSION}/context", contexts.ContextView, "context"),
    (f"{_SESSION}/compactions", contexts.CompactionsView, "compactions"),
    (f"{_SESSION}/runs", runs.RunsView, "runs"),
    (f"{_SESSION}/runs/<helix_id:run_id>", runs.RunView, "run"),
    (f"{_SESSION}/current-run", runs.CurrentRunView, "current-run"),
    (f"{_SESSION}/checkpoints", checkpoints.CheckpointsView, "checkpoints"),
    (f"{_SESSION}/checkpoints/<helix_id:checkpoint_id>", checkpoints.CheckpointView, "checkpoint"),
    (f"{_SESSION}/latest-checkpoint", checkpoints.LatestCheckpointView, "latest-checkpoint"),
    (f"{_SESSION}/staging", staging.StagingView, "staging"),
    (f"{_SESSION}/staging/promote", staging.PromoteView, "promote-staging"),
    (f"{_SESSION}/staging/discard", staging.DiscardView, "discard-staging"),
    (f"{_SESSION}/staging/cleanup", staging.SessionCleanupView, "cleanup-session-staging"),
    (
        f"{_SESSION}/staging/<helix_id:step_id>/<helix_id:tool_call_id>",
        staging.StagedChangeView,
        "staged-change",
    ),
    (f"{_SESSION}/inputs", inbox.InputsView, "inputs"),
    (f"{_SESSION}/inputs/<helix_id:input_id>", inbox.InputView, "input"),
    (f"{_SESSION}/run", inbox.RunView, "run-session"),
    (f"{_SESSION}/run/wake", inbox.WakeRunnerView, "wake-runner"),
    (f"{_SESSION}/run/retry", inbox.RetryView, "retry-run"),
    (f"{_SESSION}/run/interrupt", inbox.StopView, "interrupt-run"),
    (f"{_SESSION}/idle", inbox.IdleView, "idle"),
    (f"{_SESSION}/lease", leases.LeaseView, "lease"),
    (f"{_SESSION}/turns", turns.TurnsView, "turns"),
    (f"{_SESSION}/suspend", turns.SuspendView, "suspend"),
    (f"{_SESSION}/tool-results", tool_results.ToolResultsView, "tool-results"),
    (f"{_SESSION}/answer-links", answers.AnswerLinksView, "answer-links"),
    (f"{_SESSION}/resume", turns.ResumeView, "resume"),
    (f"{_SESSION}/rewind", turns.RewindView, "rewind"),
    (f"{_SESSION}/children/<helix_id:child_id>", turns.ChildView, "child"),
    (f"{_SESSION}/interrupt", states.InterruptView, "interrupt"),
    (f"{_SESSION}/interrupt/take", states.TakeInterruptView, "take-interrupt"),
    (f"{_SESSION}/sub-sessions", sub_sessions.SubSessionsView, "sub-sessions"),
    (f"{_SESSION}/sub-sessions/<helix_id:sub_session_id>", sub_sessions.SubSessionView, "sub-session"),
    (f"{_SESSION}/events", events.EventsView, "events"),
    (f"{_SESSION}/events/projection", events.ProjectionView, "event-projection"),
    (f"{_SESSION}/stream/tickets", stream.StreamTicketsView, "stream-tickets"),
    (f"{_SESSION}/blobs", blobs.BlobsView, "blobs"),
    (f"{_SESSION}/blobs/<helix_id:sha256>", blobs.BlobView, "blob"),
    (f"{_SESSION}/fragments", live.FragmentsView, "fragments"),
    (f"{_SESSION}/chat", chat.ChatView, "chat"),
    (f"{_SESSION}/chat/stop", chat.ChatStopView, "chat-stop"),
    (f"{_SESSION}/chat/<helix_id:chat_id>/stream", chat.ChatStreamView, "chat-stream"),
    (f"{_SESSION}/ag-ui", ag_ui.AGUIView, "ag-ui"),
    (f"{_SESSION}/actions", actions.ActionsView, "actions"),
    (f"{_SESSION}/wake", live.WakeView, "wake"),
    (f"{_SESSION}/attach", sessions.AttachView, "attach"),
    (f"{_SESSION}/detach", sessions.DetachView, "detach"),
    ("staging/cleanup", staging.CleanupView, "cleanup-staging"),
    ("tool-rules", tool_rules.ToolRulesView, "tool-rules"),
    ("tool-rules/<helix_id:rule_id>", tool_rules.ToolRuleView, "tool-rule"),
    ("memories", memories.MemoriesView, "memories"),
    ("spend", spend.SpendView, "spend"),
    ("spend/limits", spend.SpendLimitsView, "spend-limits"),
    ("spend/limits/<helix_id:limit_id>", spend.SpendLimitView, "spend-limit"),
    ("schedules", schedules.SchedulesView, "schedules"),
    (_SCHEDULE, schedules.ScheduleView, "schedule"),
    (f"{_SCHEDULE}/run", schedules.RunScheduleView, "run-schedule"),
    (f"{_SCHEDULE}/firings", schedules.FiringsView, "schedule-firings"),
    ("webhooks", webhooks.WebhooksView, "webhooks"),
    (_WEBHOOK, webhooks.WebhookView, "webhook"),
    (f"{_WEBHOOK}/deliveries", webhooks.DeliveriesView, "webhook-deliveries"),
    (f"{_WEBHOOK}/deliveries/<helix_id:message_id>/replay", webhooks.ReplayView, "replay-delivery"),
]

PUBLIC_ROUTES: list[tuple[str, type[View], str]] = [
    ("answers/<str:token>", answers.AnswerView, "answer"),
    ("blobs/<str:ticket>", blobs.BlobContentView, "blob-content"),
]
"""Open to the holder of the token."""

STREAM = f"{_SESSION}/events/stream"
"""A plain view beside the others, because it answers for hours."""

urlpatterns: list[URLPattern] = [
    path("", sessions.RootView.as_view(), name="root"),
    path(f"{VERSION}/", sessions.RootView.as_view(schema=None), name=f"{VERSIONED}root"),
]


def _add(route: str, view: Any, name: str, alias: Any) -> None:
    """An address with its last slash and without, and both below the version. Of those with one name Django
    reverses the last."""
    urlpatterns.extend(
        [
            path(route, alias),
            path(f"{route}/", view, name=name),
            path(f"{VERSION}/{route}", alias, name=f"{VERSIONED}{name}"),
            path(f"{VERSION}/{route}/", alias, name=f"{VERSIONED}{name}"),
        ]
    )


for _route, _view, _name in ROUTES + PUBLIC_ROUTES:
    _add(_route, _view.as_view(), _name, _view.as_view(schema=None))
_add(STREAM, stream.event_stream, "event-stream", stream.alias)
for _known in ("sessions", VERSION):
    urlpatterns.append(path(f"{_known}/<path:rest>", UnknownView.as_view(schema=None)))
urlpatterns.append(Unclaimed(RoutePattern("<path:rest>", is_endpoint=True), UnknownView.as_view(schema=None)))
