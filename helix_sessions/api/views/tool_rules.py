"""Tool rules, for operators."""

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import operator_examples
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.responses import json_response, no_content
from helix_sessions.api.schema import Query, operation
from helix_sessions.api.serializers.tool_rules import ToolRuleInput, ToolRulesQuery
from helix_sessions.api.views.base import View
from helix_sessions.conf import conf
from helix_sessions.exceptions import ToolRuleNotFound
from helix_sessions.store import SessionStore
from helix_sessions.types import TOOL_DECISIONS, Page, ToolRule


class ToolRulesView(View):
    @operation(
        "list_tool_rules",
        tag="tool rules",
        response=Page[ToolRule],
        example={"items": [operator_examples.TOOL_RULE], "next_cursor": None},
        query=(
            Query("tool", "Only rules of this name or pattern."),
            Query("decision", "Only rules that decide so.", enum=TOOL_DECISIONS),
            Query("agent_type", "Only rules of this agent type."),
            Query("session_id", "Only rules of this session."),
            Query("owner", "Only rules of this user."),
        ),
        etag=False,
    )
    def get(self, request: Request) -> HttpResponse:
        """List tool rules, the oldest first."""
        rules = SessionStore(conf.API_DATABASE).list_tool_rules(**self.query(ToolRulesQuery))
        return json_response(Page(items=rules, next_cursor=None))

    @operation(
        "set_tool_rule",
        tag="tool rules",
        request=ToolRuleInput,
        sent={"tool": "refund", "decision": "ask", "agent_type": "support"},
        response=ToolRule,
        status=201,
        example=operator_examples.TOOL_RULE,
        etag=False,
    )
    @idempotent
    def post(self, request: Request) -> HttpResponse:
        """Say what becomes of calls of a tool. A rule with the same selectors replaces the one before."""
        given = self.input(ToolRuleInput)
        rule = SessionStore(conf.API_DATABASE).set_tool_rule(
            given.pop("tool"), given.pop("decision"), **given
        )
        return json_response(rule, status=201)


class ToolRuleView(View):
    @operation(
        "get_tool_rule", tag="tool rules", response=ToolRule, example=operator_examples.TOOL_RULE, etag=False
    )
    def get(self, request: Request, rule_id: str) -> HttpResponse:
        """Read a tool rule."""
        self.query()
        for rule in SessionStore(conf.API_DATABASE).list_tool_rules():
            if rule.rule_id == rule_id:
                return json_response(rule)
        raise ToolRuleNotFound(f"There is no tool rule {rule_id!r:.100}.")

    @operation("delete_tool_rule", tag="tool rules", status=204, etag=False)
    def delete(self, request: Request, rule_id: str) -> HttpResponse:
        """Revoke a tool rule."""
        SessionStore(conf.API_DATABASE).delete_tool_rule(rule_id)
        return no_content()
