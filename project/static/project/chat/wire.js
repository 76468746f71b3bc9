/* The AI SDK's UI message stream: server-sent events in, parts of one message out. */

export async function* chunks(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      buffer += value;
      const frames = buffer.split(/\r?\n\r?\n/);
      buffer = frames.pop();
      for (const frame of frames) {
        const data = frame.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim());
        if (!data.length) continue;
        if (data[0] === "[DONE]") return;
        yield JSON.parse(data.join("\n"));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function open(message, type, id) {
  const part = { type, id, text: "", streaming: true };
  message.parts.push(part);
  return part;
}

function said(message, type, id) {
  return message.parts.findLast((part) => part.type === type && part.id === id && part.streaming)
    ?? open(message, type, id);
}

export function toolPart(message, callId, name) {
  let part = message.parts.find((each) => each.type === "tool" && each.callId === callId);
  if (!part) {
    part = { type: "tool", callId, name, state: "calling", inputText: "" };
    message.parts.push(part);
  }
  if (name) part.name = name;
  return part;
}

/* Apply one chunk to a message. Chunks that say nothing about it are left alone. */
export function apply(message, chunk) {
  switch (chunk.type) {
    case "start":
      if (chunk.messageId) message.id = chunk.messageId;
      break;
    case "start-step": message.stepAt = message.parts.length; break;
    case "data-status": // what was said in a step that failed is void: it is said again
      if (chunk.data.state === "retrying" || chunk.data.state === "failed") message.parts.length = message.stepAt ?? 0;
      break;
    case "text-start": open(message, "text", chunk.id); break;
    case "text-delta": said(message, "text", chunk.id).text += chunk.delta; break;
    case "text-end": said(message, "text", chunk.id).streaming = false; break;
    case "reasoning-start": open(message, "reasoning", chunk.id); break;
    case "reasoning-delta": said(message, "reasoning", chunk.id).text += chunk.delta; break;
    case "reasoning-end": said(message, "reasoning", chunk.id).streaming = false; break;
    case "tool-input-start": toolPart(message, chunk.toolCallId, chunk.toolName); break;
    case "tool-input-delta": toolPart(message, chunk.toolCallId).inputText += chunk.inputTextDelta; break;
    case "tool-input-available":
      Object.assign(toolPart(message, chunk.toolCallId, chunk.toolName), { input: chunk.input, state: "running" });
      break;
    case "tool-approval-request":
      Object.assign(toolPart(message, chunk.toolCallId), { approvalId: chunk.approvalId, state: "asking" });
      break;
    case "tool-output-available":
      Object.assign(toolPart(message, chunk.toolCallId), { output: chunk.output, state: "done" });
      break;
    case "tool-input-error":
    case "tool-output-error":
      Object.assign(toolPart(message, chunk.toolCallId, chunk.toolName), { output: chunk.errorText, state: "failed" });
      break;
    case "tool-output-denied": toolPart(message, chunk.toolCallId).state = "denied"; break;
    case "error": message.error = chunk.errorText; break;
    case "abort": message.interrupted = true; break;
  }
}
