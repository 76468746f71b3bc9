import { Chat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";

export async function sessionChat(sessionId, csrfToken) {
  const api = `/api/sessions/${sessionId}/chat`;
  const headers = { "X-CSRFToken": csrfToken };
  const load = async () => (await (await fetch(api)).json()).items;

  const chat = new Chat({
    id: sessionId,
    messages: await load(),
    transport: new DefaultChatTransport({ api, headers }),
    sendAutomaticallyWhen: (now) =>
      lastAssistantMessageIsCompleteWithApprovalResponses(now) ||
      lastAssistantMessageIsCompleteWithToolCalls(now),
    onError: (error) => {
      if (error instanceof TypeError) setTimeout(reconnect, 1000); // the network is gone, not the answer
    },
  });

  async function reconnect() {
    try {
      const stored = await load();
      const sent = chat.messages.findLast((message) => message.role === "user");
      if (!sent || stored.some((message) => message.id === sent.id)) {
        chat.messages = stored;
        await chat.resumeStream();
      } else {
        chat.messages = [...stored, sent];
        await chat.sendMessage({ ...sent, messageId: sent.id }); // the same id: it is no second message
      }
    } catch {
      setTimeout(reconnect, 1000);
    }
  }

  const stop = () => fetch(`${api}/stop/`, { method: "POST", headers });
  return { chat, stop };
}
