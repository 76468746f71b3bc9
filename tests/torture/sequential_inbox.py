"""The inbox as a sequential machine.

`promote_inputs` is not one step and does not promise to be: it looks at what is pending, and then promotes
each input in a transaction of its own, unless that is not to be promoted any more. So a call of it is taken
apart into a look, the promotions it told of, and an end, of which each has a moment of its own. What it
passed over in between it must have found promoted, cancelled or delivered otherwise at a moment of its turn.
"""

from collections.abc import Iterator
from dataclasses import replace

from tests.torture.linearizability import Operation
from tests.torture.rows import IMPOSSIBLE, Answer, Given, Input, Promotion, Row

LIMIT = 5
"""`INBOX_LIMIT` while histories are recorded."""


def parts(operation: Operation) -> Iterator[Operation]:
    """The steps of a call, each of which takes effect at one moment."""
    if operation.call != "promote_inputs":
        yield operation
        return
    fenced = operation.result == "Fenced"
    receipts = () if fenced else operation.result
    call = {"call": (operation.process, operation.start)}
    given = {
        "mode": operation.arguments["mode"],
        "driven_under": operation.arguments.get("lease"),
        "promotes": tuple(receipt[0] for receipt in receipts),
        "fenced": fenced,
    }
    yield replace(operation, call="look", arguments=call | given, result=None)
    for receipt in receipts:
        yield replace(operation, call="promote", arguments=call | {"input_id": receipt[0]}, result=receipt)
    yield replace(operation, call="end", arguments=call, result="Fenced" if fenced else "ok")


def looked_on(row: Row) -> Row:
    """Let each promotion under way pass over what is not to be promoted at this moment, as soon as it may."""
    if not row.promotions:
        return row
    return replace(row, promotions=frozenset(_passed_over(row, it) for it in row.promotions))


def _passed_over(row: Row, promotion: Promotion) -> Promotion:
    if promotion.fenced or row.fences(promotion.lease):
        return promotion
    plan = promotion.plan
    while plan and plan[0][0] not in promotion.promotes and not _is_due(row, *plan[0]):
        plan = plan[1:]
    return replace(promotion, plan=plan)


def _is_due(row: Row, input_id: str, delivery: str) -> bool:
    found = _find(row, input_id)
    return found is not None and found.pending and found.delivery == delivery


def _look(row: Row, given: Given) -> Answer:
    queued = [it for it in row.pending if it.delivery == "queue"] if given["mode"] == "queue" else []
    steers = [it for it in row.pending if it.delivery == "steer"]
    promotion = Promotion(
        call=given["call"],
        promotes=given["promotes"],
        fenced=given["fenced"],
        lease=given["driven_under"],
        plan=tuple((it.input_id, it.delivery) for it in (*queued, *steers)),
    )
    return replace(row, promotions=row.promotions | {promotion}), None


def _promote(row: Row, given: Given) -> Answer:
    promotion = _under_way(row, given)
    found = _find(row, given["input_id"])
    if promotion is None or found is None or row.fences(promotion.lease):
        return row, IMPOSSIBLE
    turn = (found.input_id, found.delivery)
    if not found.pending or promotion.plan[:1] != (turn,):
        return row, IMPOSSIBLE
    left = promotion.plan[1:]
    if found.delivery == "queue":
        left = tuple(it for it in left if it[1] != "queue")
    promoted = replace(found, promoted_seq=row.seq + 1)
    after = row.written(
        1,
        messages=row.messages + 1,
        inputs=_with(row, promoted),
        promotions=row.promotions - {promotion} | {replace(promotion, plan=left)},
    )
    return after, promoted.receipt


def _end(row: Row, given: Given) -> Answer:
    promotion = _under_way(row, given)
    if promotion is None:
        return row, IMPOSSIBLE
    after = replace(row, promotions=row.promotions - {promotion})
    if promotion.fenced:
        refused = promotion.plan and row.fences(promotion.lease)
        return after, "Fenced" if refused else IMPOSSIBLE
    return after, IMPOSSIBLE if promotion.plan else "ok"


def _under_way(row: Row, given: Given) -> Promotion | None:
    return next((it for it in row.promotions if it.call == given["call"]), None)


def _admit(row: Row, given: Given) -> Answer:
    found = _find(row, given["input_id"])
    if found is not None:
        same = (found.prompt, found.admitted_as) == (given["prompt"], given["delivery"])
        if found.cancelled or not same:
            return row, "InputConflict"
        return row, replace(found, delivery=found.admitted_as).receipt
    if len(row.pending) >= LIMIT:
        return row, "InboxFull"
    how = given["delivery"]
    new = Input(given["input_id"], given["prompt"], how, admitted_as=how, admitted_seq=row.seq + 1)
    return row.written(1, inputs=(*row.inputs, new)), new.receipt


def _find_pending(row: Row, input_id: str) -> Input | str:
    """The input, or the name of the error that there is none that waits."""
    found = _find(row, input_id)
    if found is None:
        return "InputNotFound"
    return found if found.pending else "InputConflict"


def _cancel(row: Row, given: Given) -> Answer:
    found = _find_pending(row, given["input_id"])
    if isinstance(found, str):
        return row, found
    return row.written(1, inputs=_with(row, replace(found, cancelled=True))), found.receipt


def _set_delivery(row: Row, given: Given) -> Answer:
    found = _find_pending(row, given["input_id"])
    if isinstance(found, str):
        return row, found
    changed = replace(found, delivery=given["delivery"])
    return row if changed == found else row.written(1, inputs=_with(row, changed)), changed.receipt


def _list(row: Row, given: Given) -> Answer:
    return row, tuple(it.receipt for it in (row.pending if given["pending"] else row.inputs))


def _count(row: Row, given: Given) -> Answer:
    deliveries = [it.delivery for it in row.pending]
    return row, (deliveries.count("steer"), deliveries.count("queue"))


def _find(row: Row, input_id: str) -> Input | None:
    return next((it for it in row.inputs if it.input_id == input_id), None)


def _with(row: Row, changed: Input) -> tuple[Input, ...]:
    return tuple(changed if it.input_id == changed.input_id else it for it in row.inputs)


INBOX_CALLS = {
    *("admit_input", "cancel_input", "set_delivery"),
    *("list_inputs", "count_inputs", "promote_inputs"),
}
MEANINGS = {
    "admit_input": _admit,
    "cancel_input": _cancel,
    "set_delivery": _set_delivery,
    "list_inputs": _list,
    "count_inputs": _count,
    "look": _look,
    "promote": _promote,
    "end": _end,
}
