/* The session's event log, live: what the status line, the durations and the sub-agents are made of. The
   browser reconnects by itself and misses nothing, because the log is numbered. */

import { json, sessionUrl } from "./api.js";

const TYPES = [
  "run_started", "run_finished", "run_requested", "turn_started", "model_call_failed", "session_woken",
  "tool_called", "tool_retried", "tool_responded", "tool_error", "tool_calls_waiting", "tool_result_submitted",
  "subagent_spawned", "subagent_result", "input_admitted", "interrupt_requested", "session_rewound",
];
const LOOK_BACK = 1500;

function query(more) {
  const parameters = new URLSearchParams(more);
  for (const type of TYPES) parameters.append("types", type);
  return parameters;
}

export class Log {
  constructor(id, { onEvent, onOpen, onLost }) {
    this.durations = new Map();
    this.children = new Map();
    this.denied = new Set();
    this.edited = new Map();
    this.#id = id;
    this.#onEvent = onEvent;
    this.#onOpen = onOpen;
    this.#onLost = onLost;
  }

  #id;
  #onEvent;
  #onOpen;
  #onLost;
  #source;

  async open(head) {
    const parameters = query({ from_seq: Math.max(0, head - LOOK_BACK), limit: 500 });
    const { items } = await json(sessionUrl(this.#id, `events/?${parameters}`));
    items.forEach((event) => this.#note(event));
    this.#source = new EventSource(sessionUrl(this.#id, `events/stream/?${query({ after: head, named: false })}`));
    this.#source.onopen = () => this.#onOpen();
    this.#source.onerror = () => this.#onLost(this.#source.readyState === EventSource.CLOSED);
    this.#source.onmessage = (frame) => {
      const event = JSON.parse(frame.data);
      this.#note(event);
      this.#onEvent(event);
    };
    return items;
  }

  close() {
    this.#source?.close();
  }

  #note({ type, data, created_at: at }) {
    if (type === "tool_responded" || type === "tool_error") this.durations.set(data.tool_call_id, data.duration_ms);
    if (type === "tool_result_submitted" && data.answer === "denied") this.denied.add(data.tool_call_id);
    if (type === "tool_result_submitted" && data.edited) this.edited.set(data.tool_call_id, data.arguments);
    if (type === "subagent_spawned" && data.parent_tool_call_id)
      this.children.set(data.parent_tool_call_id, { id: data.sub_session_id, agent: data.agent_type, since: at });
    if (type === "subagent_result" && this.children.has(data.parent_tool_call_id)) {
      const child = this.children.get(data.parent_tool_call_id);
      child.ended = at;
      this.durations.set(data.parent_tool_call_id, new Date(at) - new Date(child.since));
    }
  }
}
