/* The page: conversations on the left, one of them on the right, a line to write on below. */

import { adminUrl, enter, idOf, json, request, segment, settings } from "./api.js";
import { Conversation } from "./conversation.js";
import { ago, h } from "./dom.js";
import { Transcript } from "./transcript.js";

const $ = (selector) => document.querySelector(selector);
const page = $("#chat");
const composer = $("#composer");
const input = $("#input");
const transcript = new Transcript($("#transcript"), $("#announcer"));

let conversation = null;
let conversations = [];
let agent = settings.agents[0];
let isDrawing = false;

const agentOf = (type) => settings.agents.find((each) => each.type === type) ?? { type, name: type, about: "", asks: [] };
const addressOf = (id) => `${settings.home}chat/${segment(id)}/`;
const idInAddress = () => {
  const found = /\/chat\/([^/]+)\/$/.exec(location.pathname);
  return found ? idOf(found[1]) : undefined;
};

/* Conversations */

async function readConversations() {
  conversations = (await json(settings.conversations)).items;
  drawConversations();
}

function drawConversations() {
  const roots = conversations.filter((each) => !each.metadata.branch_of);
  $("#conversations").replaceChildren(...roots.map((each) => {
    const family = [each, ...branchesOf(each.session_id)];
    const isHere = family.some((one) => one.session_id === conversation?.id);
    const newest = family.reduce((a, b) => (a.updated_at > b.updated_at ? a : b));
    return h("li", {}, h("a", { href: addressOf(newest.session_id), "aria-current": isHere ? "page" : null, onclick: navigate },
      h("span", { class: "title" }, each.metadata.title ?? "Conversation"),
      h("span", { class: "about" }, `${agentOf(each.agent_type).name} · ${ago(newest.updated_at)}${family.length > 1 ? ` · ${family.length} branches` : ""}`)));
  }));
}

function branchesOf(id) {
  const direct = conversations.filter((each) => each.metadata.branch_of === id);
  return direct.flatMap((each) => [each, ...branchesOf(each.session_id)]);
}

/* The sessions that differ from the message at a position on; `at` is the one that is shown. */
function branchesAt({ role, position }) {
  if (role !== "user" || position === undefined || !conversation) return null;
  let id = conversation.id;
  for (let own = byId(id); own?.metadata.branch_of && own.metadata.branch_at >= position; own = byId(id)) {
    if (own.metadata.branch_at === position) {
      return group(own.metadata.branch_of, position, id);
    }
    id = own.metadata.branch_of;
  }
  return group(id, position, id);
}

function group(origin, position, shown) {
  const branches = conversations
    .filter((each) => each.metadata.branch_of === origin && each.metadata.branch_at === position)
    .map((each) => each.session_id).reverse();
  const all = [origin, ...branches];
  return { all, at: Math.max(0, all.indexOf(shown)) };
}

const byId = (id) => conversations.find((each) => each.session_id === id);

/* The conversation that is shown */

async function show(id) {
  conversation?.close();
  conversation = null;
  transcript.clear();
  $("#error").hidden = true;
  if (id) {
    page.dataset.view = "conversation";
    conversation = new Conversation(id, byId(id)?.agent_type ?? agent.type, draw);
    try {
      await conversation.open();
      agent = agentOf(conversation.agentType);
      transcript.toEnd();
    } catch (error) {
      problem(error);
    }
  } else {
    page.dataset.view = "welcome";
  }
  drawAll();
  drawConversations();
}

function navigate(event) {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", event.currentTarget.getAttribute("href"));
  closeSidebar();
  show(idInAddress());
}

function open(id) {
  history.pushState(null, "", addressOf(id));
  return show(id);
}

async function send(text) {
  try {
    if (!conversation) {
      const title = text.length > 60 ? `${text.slice(0, 57)}…` : text;
      const made = await json(`${settings.api}sessions/`, { body: { agent_type: agent.type, metadata: { title } } });
      await open(made.session_id);
    }
    const sending = conversation.send(text);
    readConversations().catch(problem);
    await sending;
    await readConversations();
  } catch (error) {
    problem(error);
  }
}

const actions = {
  branchesAt,
  get agentName() { return agent.name; },
  answer: (part, decision) => conversation.answer(part, decision),
  judge: (message, rating) => conversation.judge(message, rating).catch(problem),
  readEarlier: () => conversation.readEarlier().catch(problem),
  switchTo: (id) => open(id),
  async branch(message, text) {
    try {
      const address = `${addressOf(conversation.id)}branch/`;
      const made = await json(address, { form: { position: message.position } });
      await readConversations();
      await open(made.session_id);
      await send(text);
    } catch (error) {
      problem(error);
    }
  },
};

/* Drawing: at most once in a frame */

function draw() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    drawAll();
  });
}

function drawAll() {
  const isBusy = Boolean(conversation?.isBusy);
  page.dataset.busy = isBusy;
  $("#agent-name").textContent = conversation ? agent.name : "New conversation";
  document.title = conversation ? `${conversation.metadata?.title ?? agent.name} · helix_sessions` : "helix_sessions";
  $("#in-admin").hidden = !conversation;
  if (conversation) {
    $("#in-admin").href = adminUrl(conversation.id);
    transcript.render(conversation, actions);
  }
  const status = conversation?.status ?? { kind: "rest", text: "Ready." };
  $("#status").dataset.kind = status.kind;
  if ($("#status-text").textContent !== status.text) $("#status-text").textContent = status.text;
  $("#stop").hidden = !isBusy;
  $("#send").hidden = isBusy;
  $("#retry").hidden = !conversation || isBusy || !["failed", "interrupted"].includes(conversation.state?.status);
  for (const choice of document.querySelectorAll("#agents button"))
    choice.setAttribute("aria-pressed", choice.dataset.type === agent.type);
}

function problem(error) {
  $("#error").textContent = error.message;
  $("#error").hidden = false;
}

/* What a person does */

composer.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = input.value.trim();
  if (!text) return;
  input.value = "";
  grow();
  $("#error").hidden = true;
  send(text);
});

input.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    composer.requestSubmit();
  }
});

function grow() {
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight, 200)}px`;
}
input.addEventListener("input", grow);

$("#stop").addEventListener("click", () => conversation?.stop().catch(problem));
$("#retry").addEventListener("click", () => conversation?.retry().catch(problem));
$("#new").addEventListener("click", navigate);
$("#kill")?.addEventListener("click", async () => {
  try {
    await request(settings.kill, { method: "POST" });
    const text = "The worker was killed. When its lease runs out, another goes on from the last committed step.";
    if (conversation?.isBusy) conversation.status = { kind: "trouble", text, lasts: true };
    else $("#status-text").textContent = "The worker was killed; another one is starting.";
    draw();
  } catch (error) {
    problem(error);
  }
});

for (const choice of document.querySelectorAll("#agents button"))
  choice.addEventListener("click", () => {
    agent = agentOf(choice.dataset.type);
    drawAll();
    input.focus();
  });

for (const suggestion of document.querySelectorAll("[data-ask]"))
  suggestion.addEventListener("click", () => {
    agent = agentOf(suggestion.dataset.agent);
    send(suggestion.dataset.ask);
  });

function closeSidebar() {
  page.classList.remove("with-sidebar");
  $("#menu").setAttribute("aria-expanded", "false");
}
$("#menu").addEventListener("click", () => {
  const isOpen = page.classList.toggle("with-sidebar");
  $("#menu").setAttribute("aria-expanded", isOpen);
  if (isOpen) $("#new").focus();
});
$("#shade").addEventListener("click", closeSidebar);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") closeSidebar(); });
window.addEventListener("popstate", () => show(idInAddress()));

try {
  await enter();
  await readConversations();
  await show(idInAddress());
} catch (error) {
  problem(error);
}
