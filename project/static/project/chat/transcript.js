/* The transcript: one element for each message, made again only when its message has changed. */

import { approvalCard, childCard, toolCard } from "./cards.js";
import { h } from "./dom.js";
import { markdown } from "./markdown.js";

export class Transcript {
  constructor(element, announcer) {
    this.#element = element;
    this.#announcer = announcer;
  }

  #element;
  #announcer;
  #shown = new Map();
  #open = new Map();
  #announced = "";

  clear() {
    this.#element.replaceChildren();
    this.#shown.clear();
    this.#announced = "";
  }

  render(conversation, actions) {
    const messages = shownMessages(conversation);
    const isAtEnd = this.isAtEnd;
    const wanted = messages.map((message) => this.#elementOf(message, conversation, actions));
    if (conversation.earlier > 0) wanted.unshift(this.#more(conversation, actions));
    place(this.#element, wanted);
    const keys = new Set(messages.map((message) => message.key));
    for (const key of this.#shown.keys()) if (!keys.has(key)) this.#shown.delete(key);
    if (isAtEnd) this.toEnd();
    this.#announce(conversation);
  }

  get isAtEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.#element.parentElement;
    return scrollHeight - scrollTop - clientHeight < 80;
  }

  toEnd() {
    const scroller = this.#element.parentElement;
    scroller.scrollTop = scroller.scrollHeight;
  }

  #elementOf(message, conversation, actions) {
    const made = JSON.stringify([message, facts(message, conversation), actions.branchesAt(message)]);
    const known = this.#shown.get(message.key);
    if (known?.made === made) return known.element;
    const element = message.role === "user"
      ? this.#prompt(message, actions)
      : this.#answer(message, conversation, actions, known?.element);
    this.#shown.set(message.key, { made, element });
    return element;
  }

  #more(conversation, actions) {
    return h("button", { type: "button", class: "earlier", onclick: actions.readEarlier }, `${conversation.earlier} earlier messages`);
  }

  #prompt(message, actions) {
    const branches = actions.branchesAt(message);
    const tools = h("div", { class: "prompt-tools" });
    if (branches && branches.all.length > 1) tools.append(switcher(branches, actions));
    if (message.position !== undefined)
      tools.append(h("button", { type: "button", class: "quiet", onclick: () => this.#edit(element, message, actions) }, "Edit and branch"));
    const element = h("article", { class: "message prompt", "aria-label": "You", data: { position: message.position ?? "" } },
      h("div", { class: "bubble" }, message.text), tools);
    return element;
  }

  #edit(element, message, actions) {
    const area = h("textarea", { "aria-label": "Your message, changed", rows: "3" });
    area.value = message.text;
    const cancel = () => { form.replaceWith(bubble); };
    const form = h("form", { class: "bubble editor" }, area,
      h("div", { class: "buttons" },
        h("button", { type: "submit", class: "primary" }, "Send on a new branch"),
        h("button", { type: "button", onclick: cancel }, "Cancel")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (area.value.trim()) actions.branch(message, area.value.trim());
    });
    form.addEventListener("keydown", (event) => { if (event.key === "Escape") cancel(); });
    const bubble = element.querySelector(".bubble");
    bubble.replaceWith(form);
    area.focus();
  }

  #answer(message, conversation, actions, before) {
    const element = before ?? h("article", { class: "message answer", "aria-label": actions.agentName });
    element.classList.toggle("live", Boolean(message.isLive));
    place(element, message.parts.map((part, index) => this.#part(part, `${message.key}/${index}`, element.children[index], conversation, actions)));
    if (message.interrupted) element.append(h("p", { class: "note" }, "Stopped here."));
    if (message.error) element.append(h("p", { class: "note trouble" }, message.error));
    if (!message.isLive && message.answeredAt !== undefined) element.append(thumbs(message, actions));
    return element;
  }

  #part(part, key, before, conversation, actions) {
    const isOpen = { open: this.#open.get(key) ?? false, onToggle: (open) => this.#open.set(key, open) };
    const child = part.type === "tool" ? conversation.log.children.get(part.callId) : undefined;
    const took = conversation.log.durations.get(part.callId);
    const made = JSON.stringify([part, child, took]);
    if (before?.made === made) return before;
    let element;
    if (part.type === "text") element = h("div", { class: "said" }, ...markdown(part.text));
    else if (part.type === "reasoning") element = h("details", { class: "reasoning" }, h("summary", {}, "Thinking"), h("p", {}, part.text));
    else if (part.state === "asking") element = approvalCard(part, actions);
    else if (child) element = childCard(part, child, { took, ...isOpen });
    else element = toolCard(part, { took, ...isOpen });
    element.made = made;
    return element;
  }

  /* A screen reader hears whole answers and decisions to make, not single words. */
  #announce(conversation) {
    const last = conversation.messages.at(-1);
    if (conversation.live || !last || last.role !== "assistant") return;
    const asks = last.parts.filter((part) => part.state === "asking").map((part) => `${part.name} needs your approval.`);
    const text = [...last.parts.filter((part) => part.type === "text").map((part) => part.text), ...asks].join(" ");
    if (text === this.#announced) return;
    if (this.#announced !== "" || conversation.wasLive) this.#announcer.textContent = text;
    this.#announced = text;
  }
}

/* While an answer is under way, it stands for what is stored of it already. */
export function shownMessages({ messages, live }) {
  if (!live || !live.parts.length) return messages;
  const kept = messages.at(-1)?.role === "assistant" ? messages.slice(0, -1) : messages;
  return [...kept, live];
}

function facts(message, { log }) {
  return message.parts.filter((part) => part.type === "tool").map((part) => [log.durations.get(part.callId), log.children.get(part.callId)]);
}

function thumbs(message, actions) {
  const thumb = (rating, label) => h("button", {
    type: "button", class: `quiet thumb ${rating}`, title: label, "aria-label": label, "aria-pressed": String(message.rating === rating),
    onclick: () => actions.judge(message, rating),
  });
  return h("div", { class: "thumbs" }, thumb("up", "A good answer"), thumb("down", "A bad answer"));
}

function switcher({ all, at }, actions) {
  const go = (step) => actions.switchTo(all[at + step]);
  return h("span", { class: "switcher", role: "group", "aria-label": "Branches" },
    h("button", { type: "button", class: "quiet", "aria-label": "Previous branch", disabled: at === 0, onclick: () => go(-1) }, "‹"),
    h("span", {}, `${at + 1} / ${all.length}`),
    h("button", { type: "button", class: "quiet", "aria-label": "Next branch", disabled: at === all.length - 1, onclick: () => go(1) }, "›"));
}

/* Make these the children of an element, and touch only those that differ: focus and selection stay. */
function place(element, wanted) {
  wanted.forEach((child, index) => {
    if (element.children[index] !== child) element.insertBefore(child, element.children[index] ?? null);
  });
  while (element.children.length > wanted.length) element.lastElementChild.remove();
}
