import { SessionAgent } from "./SessionAgent.js";

const { session, csrf } = document.body.dataset;
const agent = new SessionAgent({ sessionId: session, csrfToken: csrf });
const root = document.getElementById("root");
root.innerHTML = `<main data-status="loading"><section></section><input><button>Send</button><button>Stop</button><button>Again</button></main>`;
const [main, list, input] = ["main", "section", "input"].map((name) => root.querySelector(name));

function node(name, dataset, text = "") {
  const made = Object.assign(document.createElement(name), { textContent: text });
  Object.assign(made.dataset, dataset);
  return made;
}

function button(text, onclick) {
  return Object.assign(node("button", {}, text), { onclick });
}

function show() {
  list.replaceChildren();
  for (const message of agent.messages) {
    const shown = node("article", { role: message.role });
    if (message.role === "tool") shown.append(node("div", { tool: message.toolCallId }, message.content));
    else if (message.content) shown.append(node("span", { text: "" }, message.content));
    list.append(shown);
  }
  for (const interrupt of agent.pendingInterrupts) {
    const answer = (payload) => resume([{ interruptId: interrupt.id, status: "resolved", payload }]);
    if (interrupt.reason === "client_tool") {
      list.append(button("Locate", () => answer({ city: "Kyiv" })));
    } else {
      list.append(button("Approve", () => answer({ approved: true })));
      list.append(button("Deny", () => answer({ approved: false, reason: "No." })));
      const edited = { ...interrupt.metadata.arguments, cents: 1 };
      list.append(button("Edit", () => answer({ approved: true, arguments: edited })));
    }
  }
}

const follower = { onMessagesChanged: show, onRunFinalized: show };

async function follow(start) {
  main.dataset.status = "streaming";
  try {
    await start();
    main.dataset.status = "ready";
  } catch {
    main.dataset.status = "lost";
    setTimeout(() => follow(() => agent.follow(follower)), 1000);
  }
  show();
}

const run = (parameters, subscriber = follower) => follow(() => agent.runAgent(parameters, subscriber));

async function resume(answers) {
  let refused = false; // another tab was first: see what became of it
  await run({ resume: answers }, { ...follower, onRunErrorEvent: () => (refused = true) });
  if (refused) follow(() => agent.follow(follower));
}

const [send, stop, again] = root.querySelectorAll("button");
send.onclick = () => {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: input.value });
  run({});
};
stop.onclick = () => fetch(`/api/sessions/${session}/chat/stop/`, { method: "POST", headers: { "X-CSRFToken": csrf } });
again.onclick = async () => {
  await agent.regenerate();
  follow(() => agent.follow(follower));
};

follow(() => agent.follow(follower));
