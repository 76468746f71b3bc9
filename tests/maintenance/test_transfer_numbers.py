"""Numbers and times of an import that no session can have: refused, before anybody counts on from them."""

import json
import re
from dataclasses import replace

import pytest
from django.db.models import IntegerField

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidExport, InvalidInput
from helix_sessions.store import SessionStore
from helix_sessions.store.maintenance.export_rows import tables
from tests.invariants import assert_healthy, dump
from tests.maintenance.test_transfer import exported, imported, wipe

pytestmark = pytest.mark.django_db

MOST = 2**63 - 1


def test_a_number_that_could_not_be_counted_on_from(store: SessionStore):
    """Of every column that holds one, whether or not the doctor looks."""
    store.create_session("s", agent_type="a", custom_state={"a": 1})
    run = store.begin_turn("s", message="hello").run
    store.update_run_status("s", run.run_id, "completed")
    store.create_checkpoint("s")
    store.admit_input("s", "more")
    store.stage_changes("s", "step", "call", [])
    store.add_sub_session_refs("s", [{"sub_session_id": "sub", "agent_type": "a"}])
    lines = exported(store).splitlines()
    wipe()
    for at, line in enumerate(lines[2:-2], 2):
        record = json.loads(line)
        fields = tables()[record["kind"]]._meta.local_concrete_fields
        for name in [field.attname for field in fields if isinstance(field, IntegerField)]:
            for number in (MOST, MOST + 1):
                if name not in record or (name == "step_count" and number == MOST):
                    continue
                broken = documents.write({**record, name: number})
                changed = [*lines[:at], broken, *lines[at + 1 :]]
                with pytest.raises(InvalidExport, match=f"The {name} of"):
                    imported(store, "\n".join(changed), check=False)
                assert not any(dump().values()), (record["kind"], name)
    imported(store, "\n".join(lines))


def test_the_largest_step_count_is_one_that_a_caller_may_save(store: SessionStore):
    state = store.create_session("s", agent_type="a")
    store.save_state("s", replace(state, step_count=MOST))
    text = exported(store)
    wipe()
    imported(store, text)
    assert store.load_state("s").step_count == MOST
    with pytest.raises(InvalidInput):
        store.increment_step_count("s")
    assert_healthy("s")


def test_a_time_that_no_clock_shows(store: SessionStore):
    """PostgreSQL stores it, and then nobody can list sessions any more."""
    store.create_session("s", agent_type="a")
    text = exported(store)
    wipe()
    for time in ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2026-01-01T00:00:00"):
        for name in ("created_at", "updated_at"):
            changed = re.sub(rf'"{name}":"[^"]*"', f'"{name}":"{time}"', text, count=1)
            with pytest.raises(InvalidExport, match=f"The {name} of"):
                imported(store, changed)
    assert not any(dump().values())
