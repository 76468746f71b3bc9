/* The stored transcript as messages of the page: what an agent did for one prompt is one message. */

import { toolPart } from "./wire.js";

function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return content === null || content === undefined ? "" : JSON.stringify(content);
  return content.map((part) => (typeof part === "string" ? part : part?.text ?? part?.content ?? "")).join("");
}

/* `first` is the position of the first of these messages in the transcript. */
export function messagesOf(stored, first = 0) {
  const shown = [];
  stored.forEach((message, index) => {
    const position = first + index;
    if (message.role === "user") {
      shown.push({ key: `at-${position}`, role: "user", position, text: textOf(message.content), parts: [] });
      return;
    }
    if (message.role !== "assistant" && message.role !== "tool") return;
    let answer = shown.at(-1);
    if (answer?.role !== "assistant") {
      answer = { key: `at-${position}`, role: "assistant", position, parts: [] };
      shown.push(answer);
    }
    if (message.role === "tool") addResult(answer, message);
    else {
      answer.answeredAt = position;
      addSaid(answer, message);
    }
  });
  return shown;
}

function addSaid(answer, message) {
  const text = textOf(message.content);
  if (text) answer.parts.push({ type: "text", text });
  if (message.interrupted) answer.interrupted = true;
  for (const call of message.tool_calls ?? [])
    Object.assign(toolPart(answer, call.id, call.name), { input: call.arguments, state: "running" });
}

function addResult(answer, message) {
  const part = toolPart(answer, message.tool_call_id, message.tool_name);
  part.output = message.content;
  part.state = message.is_error ? "failed" : "done";
}

/* Mark the calls that wait for a person, as the session's state knows them, and those a person has denied or
   changed, as its log does. */
export function markDecisions(messages, pending, { denied, edited }) {
  for (const message of messages)
    for (const part of message.parts) {
      const call = part.type === "tool" ? pending[part.callId] : undefined;
      if (part.type === "tool" && edited.has(part.callId)) part.edited = edited.get(part.callId);
      if (part.state === "failed" && denied.has(part.callId)) part.state = "denied";
      if (call && !call.submitted_at && part.state === "running")
        Object.assign(part, { state: "asking", approvalId: call.approval_id, deadline: call.deadline });
    }
}
