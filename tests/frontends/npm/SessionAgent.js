import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";

export class SessionAgent extends HttpAgent {
  constructor({ sessionId, csrfToken }) {
    const url = `/api/sessions/${sessionId}/ag-ui/`;
    super({ url, threadId: sessionId, headers: { "X-CSRFToken": csrfToken } });
  }

  // The messages so far, and the answer under way: when the page is opened, or was cut off.
  follow(subscriber) {
    this.pendingInterrupts = [];
    return this.connectAgent({}, subscriber);
  }

  connect() {
    return transformHttpEventStream(runHttpRequest(() => fetch(this.url)));
  }

  // The last answer is taken back, and given again: follow it.
  async regenerate() {
    const body = JSON.stringify({ messages: [], trigger: "regenerate-message" });
    const headers = { ...this.headers, "Content-Type": "application/json" };
    const answer = await fetch(this.url.replace("/ag-ui/", "/chat/"), { method: "POST", headers, body });
    if (!answer.ok) throw new Error(await answer.text());
    await answer.body.cancel();
  }
}
