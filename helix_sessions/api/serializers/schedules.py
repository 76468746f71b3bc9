"""Schedules."""

from rest_framework import serializers

from helix_sessions.api.serializers.fields import ChoiceText, FlagField, IdField, Input, TextField, WholeField
from helix_sessions.api.serializers.pages import PageQuery
from helix_sessions.api.serializers.sessions import OwnerField, PriorityField
from helix_sessions.cron import MAX_CRON, MAX_ZONE
from helix_sessions.models.schedules import MAX_NAME, MAX_PROMPT
from helix_sessions.types import MAX_CATCH_UP, OVERLAPS, SCHEDULE_SESSIONS

_CRON = "Five fields: minute, hour, day of the month, month, day of the week."


class SchedulePatch(Input):
    name = TextField(required=False, max_length=MAX_NAME)
    cron = TextField(required=False, max_length=MAX_CRON, help_text=_CRON)
    timezone = TextField(required=False, max_length=MAX_ZONE, help_text="Whose wall clock `cron` goes by.")
    agent_type = IdField(required=False)
    prompt = TextField(required=False, max_length=MAX_PROMPT)
    owner = OwnerField(required=False, help_text="The key of the user whose sessions it makes.")
    session = ChoiceText(SCHEDULE_SESSIONS, required=False)
    overlap = ChoiceText(OVERLAPS, required=False)
    catch_up = WholeField(
        required=False,
        min_value=0,
        max_value=MAX_CATCH_UP,
        help_text="How many missed firings are made good.",
    )
    priority = PriorityField(required=False)
    enabled = FlagField(required=False)


class ScheduleInput(SchedulePatch):
    name = TextField(max_length=MAX_NAME)
    cron = TextField(max_length=MAX_CRON, help_text=_CRON)
    agent_type = IdField()
    prompt = TextField(max_length=MAX_PROMPT)


class SchedulesQuery(PageQuery):
    enabled = serializers.BooleanField(required=False)
