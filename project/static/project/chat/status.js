/* Events of the log as a sentence about what is going on. */

export function toolTitle(name) {
  const words = (name ?? "a tool").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export function statusOf({ type, data }) {
  switch (type) {
    case "run_requested": return { kind: "busy", text: "A run is asked for…" };
    case "run_started": return { kind: "busy", text: data.turn > 1 ? "A worker has taken it up." : "A worker has started." };
    case "session_woken": return { kind: "busy", text: "Another worker goes on where the last one stopped." };
    case "turn_started": return { kind: "busy", text: "Thinking…" };
    case "model_call_failed": return modelFailed(data);
    case "tool_called": return { kind: "busy", text: `${toolTitle(data.tool_name)}…` };
    case "tool_retried": return { kind: "busy", text: `${toolTitle(data.tool_name)}, attempt ${data.attempt}…` };
    case "tool_error": return { kind: "busy", text: `${toolTitle(data.tool_name)} failed; the agent is told.` };
    case "subagent_spawned": return { kind: "busy", text: "Sub-agents are at work…" };
    case "tool_calls_waiting": return { kind: "waiting", text: "Waiting for your decision." };
    case "interrupt_requested": return { kind: "busy", text: "Stopping…" };
    default: return null;
  }
}

function modelFailed({ attempt, error, retry_at: at }) {
  const code = /status_code: (\d+)/.exec(error?.message ?? "")?.[1];
  const cause = code ? `The model's provider answered ${code}.` : (error?.message ?? "The model failed.").split("\n")[0].slice(0, 120);
  if (!at) return { kind: "failed", text: cause };
  const seconds = Math.max(0, (new Date(at) - Date.now()) / 1000).toFixed(1);
  return { kind: "trouble", text: `${cause} Attempt ${attempt + 1} in ${seconds} s.` };
}
