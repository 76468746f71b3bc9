/* One conversation: what is stored of it, the message under way, and what a person does to it.

   The database is the truth. The stream only shows what is being said; when it ends, for any reason, the
   transcript is read again. */

import { json, request, segment, sessionUrl } from "./api.js";
import { markDecisions, messagesOf } from "./history.js";
import { Log } from "./log.js";
import { statusOf } from "./status.js";
import { apply, chunks } from "./wire.js";

const PAGE = 100;

export class Conversation {
  constructor(id, agentType, onChange) {
    this.id = id;
    this.agentType = agentType;
    this.messages = [];
    this.live = null;
    this.earlier = 0;
    this.status = { kind: "loading", text: "Opening…" };
    this.#onChange = onChange;
    this.log = new Log(id, {
      onEvent: (event) => this.#heard(event),
      onOpen: () => this.#connected(),
      onLost: (isOver) => this.#say({ kind: "lost", text: isOver ? "Closed. Reload the page to try again." : "Connection lost, trying again…" }),
    });
  }

  #onChange;
  #following = null;
  #isClosed = false;
  #wasLost = false;
  #again = false;
  #isWatching = false;
  #limit = PAGE;

  async open() {
    const session = await json(sessionUrl(this.id));
    this.agentType = session.agent_type;
    this.metadata = session.metadata ?? {};
    await this.log.open(session.head_seq ?? 0);
    await this.read();
    this.#watchChildren();
    this.follow();
  }

  close() {
    this.#isClosed = true;
    this.log.close();
    this.#following?.abort();
    this.#following = null;
  }

  get isBusy() {
    return this.#following !== null;
  }

  /* The stored transcript, from its end; and what the session waits for. */
  async read() {
    const parameters = new URLSearchParams({ newest_first: true, limit: this.#limit });
    const [page, state, feedback] = await Promise.all([
      json(sessionUrl(this.id, `messages/?${parameters}`)),
      json(sessionUrl(this.id, "state/")),
      json(sessionUrl(this.id, "feedback/")),
    ]);
    this.earlier = page.total - page.items.length;
    this.messages = messagesOf(page.items.toReversed(), this.earlier);
    const thumbs = new Map(feedback.items.map((given) => [given.position, given.rating]));
    for (const message of this.messages) message.rating = thumbs.get(message.answeredAt) ?? null;
    markDecisions(this.messages, state.pending_client_tool_calls ?? {}, this.log);
    this.state = state;
    this.#change();
  }

  /* A thumb on an answer; the same one again takes it back. */
  async judge(message, rating) {
    const address = sessionUrl(this.id, `messages/${message.answeredAt}/feedback/`);
    if (message.rating === rating) await request(address, { method: "DELETE" });
    else await request(address, { body: { rating } });
    message.rating = message.rating === rating ? null : rating;
    this.#change();
  }

  async readEarlier() {
    this.#limit += 4 * PAGE;
    await this.read();
  }

  async send(text) {
    const id = crypto.randomUUID();
    const prompt = { id, role: "user", parts: [{ type: "text", text }] };
    this.messages.push({ key: `sent-${id}`, role: "user", text, parts: [], isSent: true });
    this.#say({ kind: "busy", text: "Sent. Waiting for a worker…" });
    await this.#stream({ body: { id: this.id, messages: [prompt], trigger: "submit-message" } }, "chat/");
  }

  /* Follow what is under way, if anything is. */
  async follow() {
    if (this.isBusy || this.#isClosed) return;
    await this.#stream({}, `chat/${segment(this.id)}/stream`);
  }

  async answer(part, { approved, edited }) {
    const answer = { tool_call_id: part.callId, approved };
    if (part.approvalId) answer.approval_id = part.approvalId;
    if (edited) answer.arguments = edited;
    if (!approved) answer.reason = "Denied in the chat.";
    part.state = approved ? "running" : "denied";
    if (edited) part.edited = edited;
    this.#say({ kind: "busy", text: approved ? "Approved. A worker takes it up…" : "Denied. The agent is told…" });
    try {
      await request(sessionUrl(this.id, "tool-results/"), { body: answer });
    } finally {
      await this.read();
    }
    this.follow();
  }

  async stop() {
    this.#say({ kind: "busy", text: "Stopping…" });
    await request(sessionUrl(this.id, "chat/stop/"), { method: "POST" });
  }

  async retry() {
    await request(sessionUrl(this.id, "run/retry/"), { method: "POST" });
    this.follow();
  }

  async #stream(options, path) {
    const aborter = new AbortController();
    this.#following?.abort();
    this.#following = aborter;
    this.live = null;
    try {
      const response = await request(sessionUrl(this.id, path), { ...options, signal: aborter.signal });
      if (response.status === 204) return;
      const kept = this.messages.at(-1)?.role === "assistant" ? this.messages.at(-1) : null;
      for await (const chunk of chunks(response)) {
        if (aborter.signal.aborted) return;
        this.wasLive = true;
        this.live ??= { key: kept?.key ?? `live-${Date.now()}`, role: "assistant", parts: [], isLive: true };
        apply(this.live, chunk);
        const isNews = this.status.kind !== "writing" && !this.status.lasts; // what a dead worker said last may come late
        if (chunk.type === "text-delta" && isNews) this.#say({ kind: "writing", text: "Writing…" });
        this.#change();
      }
    } catch (error) {
      if (aborter.signal.aborted && !this.#again) return;
      if (error.status) this.#say({ kind: "failed", text: error.message });
      else this.#wasLost = true;
    } finally {
      if (this.#following === aborter) await this.#over();
    }
  }

  async #over() {
    this.#following = null;
    if (!this.#isClosed) await this.#settle();
    if (!this.#again) return;
    this.#again = false;
    this.follow();
  }

  /* Another worker says the message from its beginning: so does the stream. */
  #startOver() {
    this.#again = this.isBusy;
    this.#following?.abort();
  }

  async #settle() {
    try {
      await this.read();
      this.live = null;
      if (!this.#again) this.#rest();
    } catch {
      this.#wasLost = true;
    }
  }

  /* What the conversation is when nothing is under way. */
  #rest() {
    const isAsking = this.messages.some((message) => message.parts.some((part) => part.state === "asking"));
    if (isAsking) this.status = { kind: "waiting", text: "Waiting for your decision." };
    else if (this.state?.status === "failed") this.status = { kind: "failed", text: "The run failed." };
    else if (this.state?.status === "interrupted") this.status = { kind: "rest", text: "Stopped. Write on, or retry." };
    else this.status = { kind: "rest", text: "Ready." };
    this.#change();
  }

  #heard(event) {
    const status = statusOf(event);
    if (status) this.#say(status);
    if (event.type === "session_woken") this.#startOver();
    if (["run_started", "run_requested", "input_admitted"].includes(event.type)) this.follow();
    if (event.type === "run_finished" && !this.isBusy) this.#settle();
    if (event.type === "subagent_spawned") this.#watchChildren();
    if (event.type.startsWith("subagent_") || event.type.startsWith("tool_")) this.#change();
  }

  /* Sub-agents have sessions of their own; their steps are looked at now and then until they are done. */
  async #watchChildren() {
    if (this.#isWatching) return;
    this.#isWatching = true;
    for (let open; !this.#isClosed && (open = [...this.log.children.values()].filter((child) => !child.isRead)).length; ) {
      for (const child of open) {
        const isOver = Boolean(child.ended);
        const page = await json(sessionUrl(child.id, "messages/?limit=100")).catch(() => null);
        if (page) child.steps = messagesOf(page.items).flatMap((message) => message.parts).filter((part) => part.type === "tool");
        child.isRead = isOver;
      }
      this.#change();
      await new Promise((resolve) => { setTimeout(resolve, 800); });
    }
    this.#isWatching = false;
  }

  #connected() {
    if (!this.#wasLost) return;
    this.#wasLost = false;
    this.#settle().then(() => this.follow());
  }

  #say(status) {
    if (status.kind === "lost") this.#wasLost = true;
    this.status = status;
    this.#change();
  }

  #change() {
    if (!this.#isClosed) this.#onChange(this);
  }
}
