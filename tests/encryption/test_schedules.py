"""The prompts of schedules at rest."""

import pytest
from django.db import connection

from helix_sessions.models import Schedule

pytestmark = pytest.mark.django_db(transaction=True)

FIELDS = {"cron": "0 9 * * *", "timezone": "UTC", "agent_type": "writer", "prompt": "a secret plan"}


def stored() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute('SELECT "prompt" FROM helix_sessions_schedule')
        return [row[0] for row in cursor.fetchall()]


def test_a_prompt_is_sealed_whoever_saves_it_and_rotated(store, encrypted):
    made = store.create_schedule("one", **FIELDS)
    plain = Schedule.objects.create(name="two", **FIELDS)
    store.update_schedule(made.schedule_id, name="renamed")
    Schedule.objects.get(pk=plain.pk).save()
    assert all(text.startswith(' "1.old.') and "plan" not in text for text in stored())
    assert {found.prompt for found in store.list_schedules().items} == {"a secret plan"}
    store.run_schedule(made.schedule_id)
    [session] = store.list_sessions().items
    assert [given.prompt for given in store.list_inputs(session.session_id)] == ["a secret plan"]
    encrypted("old", "new", active="new")
    store.rotate_encryption()
    assert all(text.startswith(' "1.new.') for text in stored())
    assert store.get_schedule(plain.pk).prompt == "a secret plan"
