"""The table of operations: every public method of the store, and the function behind it."""

from helix_sessions.messages.projection import project_messages
from helix_sessions.store.calls import (
    answer_links,
    children,
    decisions,
    resume,
    sub_sessions,
    submissions,
    suspend,
    tool_rules,
)
from helix_sessions.store.context import compactions, contexts, instructions, truncate
from helix_sessions.store.engine.operation import operation
from helix_sessions.store.engine.store import Store
from helix_sessions.store.inbox import inbox
from helix_sessions.store.keyed import audits, blobs, feedback, idempotency, notes
from helix_sessions.store.limits import spend_limits
from helix_sessions.store.maintenance import (
    archives,
    doctor,
    erasure,
    expiry,
    exports,
    imports,
    moves,
    reaper,
    retention,
    rotations,
)
from helix_sessions.store.outbox import deliveries, sending, webhooks
from helix_sessions.store.runs import (
    interrupts,
    leases,
    requests,
    rescue,
    runs,
    statuses,
    usages,
)
from helix_sessions.store.schedules import firing, schedules
from helix_sessions.store.sessions import (
    branch,
    create,
    delete,
    listing,
    metadata,
    recover,
    regenerate,
    rewind,
    steps,
    turns,
)
from helix_sessions.store.state import checkpoints, commits, staging, states
from helix_sessions.store.transcript import events, messages, subscriptions


class SessionStore(Store):
    """The durable memory of agents. Stateless and cheap to make; safe to share between threads."""

    # sessions
    ensure_session = operation(create.ensure_session)
    recover_run = operation(recover.recover_run)
    rewind = operation(rewind.rewind)
    regenerate = operation(regenerate.regenerate)
    create_session = operation(create.create_session)
    session_exists = operation(create.session_exists)
    get_session_head = operation(metadata.get_session_head)
    check_session_version = operation(metadata.check_session_version)
    get_metadata = operation(metadata.get_metadata)
    delete_session = operation(delete.delete_session)
    clone_session = operation(branch.clone_session)
    query_sessions = operation(listing.query_sessions, traced=False)
    page_of_sessions = operation(listing.page_of_sessions)
    list_sessions = operation(listing.list_sessions)
    patch_metadata = operation(metadata.patch_metadata)
    update_session = operation(metadata.update_session)
    set_expiry = operation(metadata.set_expiry)
    open_step = operation(steps.open_step)
    end_run = operation(steps.end_run)
    begin_turn = operation(turns.begin_turn)

    # state
    create_checkpoint = operation(checkpoints.create_checkpoint)
    get_latest_checkpoint = operation(checkpoints.get_latest_checkpoint)
    get_checkpoint = operation(checkpoints.get_checkpoint)
    list_checkpoints = operation(checkpoints.list_checkpoints)
    save_state_and_promote_staging = operation(commits.save_state_and_promote_staging)
    stage_changes = operation(staging.stage_changes)
    get_staged_changes = operation(staging.get_staged_changes)
    list_staged_changes = operation(staging.list_staged_changes)
    has_staged_changes = operation(staging.has_staged_changes)
    promote_staging = operation(staging.promote_staging)
    discard_staging = operation(staging.discard_staging)
    cleanup_orphaned_staging = operation(staging.cleanup_orphaned_staging)
    load_state = operation(states.load_state)
    save_state = operation(states.save_state)
    merge_custom_state = operation(states.merge_custom_state)

    # transcript
    attach = operation(create.attach)
    emit_event = operation(events.emit_event)
    get_events = operation(events.get_events)
    get_event_texts = operation(events.get_event_texts)
    project_messages = staticmethod(project_messages)
    append_messages = operation(messages.append_messages)
    get_messages = operation(messages.get_messages)
    get_message_texts = operation(messages.get_message_texts)
    get_message_count = operation(messages.get_message_count)
    truncate_messages = operation(truncate.truncate_messages)
    subscribe = operation(subscriptions.subscribe, traced=False)
    detach = operation(subscriptions.detach, traced=False)
    publish_fragment = operation(subscriptions.publish_fragment)

    # runs
    set_interrupt_flag = operation(interrupts.set_interrupt_flag)
    check_interrupt_flag = operation(interrupts.check_interrupt_flag)
    peek_interrupt_flag = operation(interrupts.peek_interrupt_flag)
    clear_interrupt_flag = operation(interrupts.clear_interrupt_flag)
    acquire_lease = operation(leases.acquire_lease)
    renew_lease = operation(leases.renew_lease)
    release_lease = operation(leases.release_lease)
    get_lease = operation(leases.get_lease)
    is_lease_live = operation(leases.is_lease_live)
    get_occupancy = operation(leases.get_occupancy)
    list_abandoned = operation(leases.list_abandoned)
    fenced = operation(leases.fenced)
    wake = operation(rescue.wake)
    create_run = operation(runs.create_run)
    update_run_status = operation(runs.update_run_status)
    get_current_run = operation(runs.get_current_run)
    get_run = operation(runs.get_run)
    list_runs = operation(runs.list_runs)
    query_runs = operation(runs.query_runs, traced=False)
    page_of_runs = operation(runs.page_of_runs)
    request_run = operation(requests.request_run)
    retry_run = operation(requests.retry_run)
    list_runnable = operation(requests.list_runnable)
    get_usage = operation(usages.get_usage)
    increment_step_count = operation(statuses.increment_step_count)
    increment_resume_count = operation(statuses.increment_resume_count)

    # calls
    update_status = operation(decisions.update_status)
    compare_and_set_status = operation(decisions.compare_and_set_status)
    create_answer_link = operation(answer_links.create_answer_link)
    read_answer_link = operation(answer_links.read_answer_link)
    submit_by_answer_link = operation(answer_links.submit_by_answer_link)
    settle_child = operation(children.settle_child)
    resume = operation(resume.resume)
    add_sub_session_refs = operation(sub_sessions.add_sub_session_refs)
    update_sub_session_ref = operation(sub_sessions.update_sub_session_ref)
    list_sub_session_refs = operation(sub_sessions.list_sub_session_refs)
    get_sub_session_refs = operation(sub_sessions.get_sub_session_refs)
    submit_tool_result = operation(submissions.submit_tool_result)
    settle_expired_calls = operation(submissions.settle_expired_calls)
    suspend = operation(suspend.suspend)
    set_tool_rule = operation(tool_rules.set_tool_rule)
    list_tool_rules = operation(tool_rules.list_tool_rules)
    delete_tool_rule = operation(tool_rules.delete_tool_rule)

    # inbox
    admit_input = operation(inbox.admit_input)
    list_inputs = operation(inbox.list_inputs)
    page_of_inputs = operation(inbox.page_of_inputs)
    count_inputs = operation(inbox.count_inputs)
    list_unattended = operation(inbox.list_unattended)
    cancel_input = operation(inbox.cancel_input)
    set_delivery = operation(inbox.set_delivery)
    promote_inputs = operation(inbox.promote_inputs)

    # limits
    set_spend_limit = operation(spend_limits.set_spend_limit)
    list_spend_limits = operation(spend_limits.list_spend_limits)
    delete_spend_limit = operation(spend_limits.delete_spend_limit)
    spend_status = operation(spend_limits.spend_status)

    # context
    compact = operation(compactions.compact)
    list_compactions = operation(compactions.list_compactions)
    reconcile_context = operation(contexts.reconcile_context)
    get_context = operation(contexts.get_context)
    get_context_epoch = operation(contexts.get_context_epoch)
    move_session = operation(contexts.move_session)
    get_instructions = operation(instructions.get_instructions)
    set_instructions = operation(instructions.set_instructions)
    list_instructions_revisions = operation(instructions.list_instructions_revisions)

    # keyed
    put_blob = operation(blobs.put_blob)
    open_blob = operation(blobs.open_blob)
    attach_blob = operation(blobs.attach_blob)
    get_blob = operation(blobs.get_blob)
    give_feedback = operation(feedback.give_feedback)
    list_feedback = operation(feedback.list_feedback)
    prune_audit_trail = operation(audits.prune_audit_trail)
    answer_once = operation(idempotency.answer_once)
    prune_idempotency_keys = operation(idempotency.prune_idempotency_keys)
    put_notes = operation(notes.put_notes)
    get_notes = operation(notes.get_notes)
    remove_notes = operation(notes.remove_notes)
    find_notes = operation(notes.find_notes)

    # outbox
    create_webhook = operation(webhooks.create_webhook)
    get_webhook = operation(webhooks.get_webhook)
    list_webhooks = operation(webhooks.list_webhooks)
    update_webhook = operation(webhooks.update_webhook)
    delete_webhook = operation(webhooks.delete_webhook)
    list_webhook_deliveries = operation(deliveries.list_webhook_deliveries)
    replay_webhook_delivery = operation(deliveries.replay_webhook_delivery)
    send_webhooks = operation(sending.send_webhooks)

    # schedules
    create_schedule = operation(schedules.create_schedule)
    get_schedule = operation(schedules.get_schedule)
    list_schedules = operation(schedules.list_schedules)
    update_schedule = operation(schedules.update_schedule)
    delete_schedule = operation(schedules.delete_schedule)
    list_schedule_firings = operation(schedules.list_schedule_firings)
    run_schedule = operation(firing.run_schedule)
    fire_schedules = operation(firing.fire_schedules)

    # maintenance
    archive_events = operation(archives.archive_events)
    examine_sessions = operation(doctor.examine_sessions)
    erase_user = operation(erasure.erase_user)
    expired_session_cleanup = operation(expiry.expired_session_cleanup)
    export_sessions = operation(exports.export_sessions)
    import_sessions = operation(imports.import_sessions)
    move_owner = operation(moves.move_owner)
    cleanup_debris = operation(reaper.cleanup_debris)
    prune_sessions = operation(retention.prune_sessions)
    archive_long_logs = operation(retention.archive_long_logs)
    rotate_encryption = operation(rotations.rotate_encryption)
