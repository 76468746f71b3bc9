/* Follows one session. Everything that comes from it is shown as text, never as markup. */
"use strict";

const page = document.querySelector("[data-stream]");
const log = document.querySelector("#log");
const state = document.querySelector("#state");
const live = document.querySelector("#live");
let lastMessage = 0;

function show(name, text) {
  state.dataset.state = name;
  state.textContent = text;
}

function asText(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

function add(event) {
  const isMessage = event.type.endsWith("_message");
  const item = element("li", isMessage ? "message" : "event", "");
  item.dataset.seq = event.seq;
  item.dataset.type = event.type;
  item.append(element("span", "seq", `${event.seq}`), element("span", "type", event.type));
  const shown = isMessage && event.data ? event.data.content : event.data;
  item.append(element("pre", "data", asText(shown)));
  if (isMessage) {
    lastMessage = event.seq;
    live.textContent = "";
  }
  const atEnd = innerHeight + scrollY >= document.body.scrollHeight - 40;
  log.append(item);
  if (atEnd) item.scrollIntoView({ block: "end" });
}

const source = new EventSource(page.dataset.stream);

source.onopen = () => show("live", "Live");
source.onmessage = (frame) => add(JSON.parse(frame.data));
source.onerror = () => {
  if (source.readyState === EventSource.CLOSED) show("closed", "Closed: reload to try again");
  else show("reconnecting", "Connection lost, trying again…");
};
source.addEventListener("fragment", (frame) => {
  const fragment = JSON.parse(frame.data);
  if (fragment.after_seq < lastMessage) return;
  const data = fragment.data;
  live.textContent += asText(data && typeof data === "object" && "text" in data ? data.text : data);
});
source.addEventListener("stream_closed", (frame) => {
  source.close();
  show("closed", `Closed: ${JSON.parse(frame.data).reason.replace("_", " ")}`);
});
