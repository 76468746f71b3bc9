/* Cards of what an agent does beside talking: tools, approvals, sub-agents. */

import { adminUrl, settings } from "./api.js";
import { asText, duration, h } from "./dom.js";
import { toolTitle } from "./status.js";

const STATES = {
  calling: "is being called", running: "is running", done: "done", failed: "failed",
  asking: "needs your approval", denied: "denied",
};

function summary(input) {
  if (!input || typeof input !== "object") return asText(input);
  return Object.entries(input).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
}

function block(label, value) {
  const text = asText(value);
  return text ? h("section", {}, h("h4", {}, label), h("pre", { tabindex: "0" }, text)) : null;
}

export function toolCard(part, { took, open, onToggle }) {
  const card = h("details", { class: "card tool", data: { state: part.state, call: part.callId }, open },
    h("summary", {},
      h("span", { class: "mark", "aria-hidden": "true" }),
      h("span", { class: "name" }, toolTitle(part.name)),
      h("span", { class: "arguments" }, summary(part.edited ?? part.input ?? part.inputText)),
      h("span", { class: "state" }, part.state === "done" ? duration(took) : STATES[part.state] ?? part.state)),
    block("Input", part.edited ?? part.input ?? part.inputText),
    block(part.state === "failed" ? "Error" : "Output", part.output),
    part.state === "denied" ? h("p", { class: "note" }, "You denied this call. It was not executed.") : null,
    part.edited ? h("p", { class: "note" }, "You changed the arguments before it ran.") : null);
  card.addEventListener("toggle", () => onToggle(card.open));
  return card;
}

/* An approval is a form: the arguments can be changed where the API takes changed ones. */
export function approvalCard(part, { answer }) {
  const fields = Object.entries(part.input ?? {}).map(([name, value]) => field(name, value));
  const problem = h("p", { class: "note", role: "alert", hidden: true });
  const buttons = [
    h("button", { type: "submit", class: "primary" }, "Approve"),
    settings.edits ? h("button", { type: "button", class: "edit" }, "Edit") : null,
    h("button", { type: "button", class: "deny" }, "Deny"),
  ].filter(Boolean);
  const form = h("form", { class: "card approval", data: { state: "asking", call: part.callId }, "aria-label": `${toolTitle(part.name)}: approval` },
    h("h3", {}, h("span", { class: "mark", "aria-hidden": "true" }), `${toolTitle(part.name)} needs your approval`),
    part.deadline ? h("p", { class: "note" }, `Answer before ${new Date(part.deadline).toLocaleString()}.`) : null,
    h("div", { class: "fields" }, ...fields.map((each) => each.row)),
    problem,
    h("div", { class: "buttons" }, ...buttons));
  const decide = async (decision) => {
    buttons.forEach((button) => { button.disabled = true; });
    try {
      await answer(part, decision);
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      buttons.forEach((button) => { button.disabled = false; });
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    try {
      const given = Object.fromEntries(fields.map((each) => [each.name, each.read()]));
      const isEdited = JSON.stringify(given) !== JSON.stringify(part.input ?? {});
      decide({ approved: true, edited: isEdited ? given : undefined });
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  });
  form.querySelector(".deny").addEventListener("click", () => decide({ approved: false }));
  form.querySelector(".edit")?.addEventListener("click", (event) => {
    fields.forEach((each) => { each.input.readOnly = false; });
    form.classList.add("editing");
    event.target.hidden = true;
    fields[0]?.input.focus();
    fields[0]?.input.select();
  });
  return form;
}

function field(name, value) {
  const id = `field-${crypto.randomUUID()}`;
  const isText = typeof value === "string";
  const input = h("input", { id, value: isText ? value : JSON.stringify(value), readonly: true, spellcheck: "false" });
  const read = () => {
    if (isText) return input.value;
    try {
      return JSON.parse(input.value);
    } catch {
      throw new Error(`${name} is not valid.`);
    }
  };
  return { name, input, read, row: h("div", { class: "field" }, h("label", { for: id }, name.replaceAll("_", " ")), input) };
}

/* A sub-agent, with the steps it has taken in its own session. */
export function childCard(part, child, { took, open, onToggle }) {
  const steps = (child.steps ?? []).map((each) =>
    h("li", { data: { state: each.state } }, h("span", { class: "mark", "aria-hidden": "true" }), toolTitle(each.name), h("span", { class: "arguments" }, summary(each.input))));
  const isOver = part.state === "done" || part.state === "failed";
  const card = h("details", { class: "card child", data: { state: isOver ? part.state : "running", call: part.callId }, open },
    h("summary", {},
      h("span", { class: "mark", "aria-hidden": "true" }),
      h("span", { class: "name" }, toolTitle(child.agent.replaceAll("-", " "))),
      h("span", { class: "arguments" }, part.input?.prompt ?? ""),
      h("span", { class: "state" }, isOver ? duration(took) : steps.length ? `${child.steps.at(-1).name.replaceAll("_", " ")}, step ${steps.length}` : "is starting")),
    h("p", { class: "note" }, part.input?.prompt ?? ""),
    h("ol", { class: "steps" }, ...steps),
    part.output ? block(part.state === "failed" ? "Error" : "Answer", part.output) : null,
    h("p", { class: "note" }, h("a", { href: adminUrl(child.id) }, "Its session in the admin")));
  card.addEventListener("toggle", () => onToggle(card.open));
  return card;
}
