import { useChat } from "@ai-sdk/react";
import { useState } from "react";
import { createRoot } from "react-dom/client";
import { sessionChat } from "./sessionChat.js";

const { session, csrf } = document.body.dataset;

function Part({ part, chat }) {
  if (part.type === "text") return <span data-text>{part.text}</span>;
  if (!part.type.startsWith("tool-")) return null;
  const tool = part.type.slice("tool-".length);
  const answer = (approved, options) =>
    chat.addToolApprovalResponse({ id: part.approval.id, approved, reason: approved ? undefined : "No.", options });
  const edited = { body: { arguments: { [part.toolCallId]: { ...part.input, cents: 1 } } } };
  const output = { city: "Kyiv" };
  return (
    <div data-tool={tool} data-state={part.state}>
      {JSON.stringify(part.output ?? part.errorText ?? null)}
      {part.state === "approval-requested" && (
        <>
          <button onClick={() => answer(true)}>Approve</button>
          <button onClick={() => answer(false)}>Deny</button>
          <button onClick={() => answer(true, edited)}>Edit</button>
        </>
      )}
      {part.state === "input-available" && tool === "locate" && (
        <button onClick={() => chat.addToolOutput({ tool, toolCallId: part.toolCallId, output })}>Locate</button>
      )}
    </div>
  );
}

function Page({ chat: ours, stop }) {
  const chat = useChat({ chat: ours, resume: true });
  const [text, setText] = useState("");
  return (
    <main data-status={chat.status}>
      {chat.messages.map((message) => (
        <article key={message.id} id={message.id} data-role={message.role}>
          {message.parts.map((part, index) => (
            <Part key={index} part={part} chat={chat} />
          ))}
        </article>
      ))}
      {chat.error && <p role="alert">{chat.error.message}</p>}
      <input value={text} onChange={(event) => setText(event.target.value)} />
      <button onClick={() => chat.sendMessage({ text })}>Send</button>
      <button onClick={() => stop()}>Stop</button>
      <button onClick={() => chat.regenerate()}>Again</button>
    </main>
  );
}

createRoot(document.getElementById("root")).render(<Page {...await sessionChat(session, csrf)} />);
