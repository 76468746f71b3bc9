"use strict";
// Following a session. What is new comes as a piece of the page, asked for now and then; where the project
// serves the event stream, anything that comes through it says that it is time to ask.
{
    const INTERVAL = 1500;
    const SLOWEST = 15000;
    const button = document.getElementById("hx-live");

    const follow = (button) => {
        const list = document.getElementById("hx-timeline");
        const head = document.getElementById("hx-head");
        const said = document.getElementById("hx-live-said");
        const label = button.querySelector(".hx-live-label");
        let after = Number(button.dataset.after);
        let wait = INTERVAL;
        let timer = 0;
        let following = false;
        let busy = false;
        let again = false;
        let stream = null;

        const show = (state) => {
            label.textContent = button.dataset[state];
            button.classList.toggle("hx-lost", state === "lost");
        };

        const place = (entry) => {
            if (document.getElementById(entry.id)) {
                return;
            }
            entry.classList.add("hx-new");
            if (button.dataset.order === "newest") {
                const day = list.querySelector(":scope > .hx-newday:first-child");
                if (day) {
                    day.after(entry);
                } else {
                    list.prepend(entry);
                }
            } else {
                list.append(entry);
            }
        };

        const take = (text) => {
            const page = new DOMParser().parseFromString(text, "text/html");
            const root = page.querySelector("[data-last]");
            if (!root) {
                throw new Error("not the timeline: logged out?");
            }
            const entries = [...root.querySelectorAll("[data-part=entries] > li")];
            if (entries.length) {
                list.querySelectorAll(".hx-empty").forEach((empty) => empty.remove());
                entries.forEach((entry) => place(document.adoptNode(entry)));
                head.replaceChildren(...root.querySelector("[data-part=head]").childNodes);
                said.textContent = `#${root.dataset.last}`;
            }
            after = Number(root.dataset.last);
            return after < Number(root.dataset.head);
        };

        const plan = (delay) => {
            clearTimeout(timer);
            if (following) {
                timer = setTimeout(ask, delay);
            }
        };

        const ask = async () => {
            if (!following || document.hidden) {
                return;
            }
            if (busy) {
                again = true;
                return;
            }
            busy = true;
            again = false;
            let more = false;
            try {
                const response = await fetch(`${button.dataset.url}?after=${after}`, {credentials: "same-origin"});
                if (!response.ok) {
                    throw new Error(String(response.status));
                }
                more = take(await response.text());
                wait = stream ? SLOWEST : INTERVAL;
                show("on");
            } catch {
                wait = Math.min(wait * 2, SLOWEST);
                show("lost");
            }
            busy = false;
            if (following) {
                plan(more || again ? 0 : wait);
            } else {
                show("off");
            }
        };

        const listen = async () => {
            const own = new AbortController();
            stream = own;
            try {
                const response = await fetch(`${button.dataset.stream}?after=${after}`, {
                    credentials: "same-origin",
                    headers: {Accept: "text/event-stream"},
                    signal: own.signal,
                });
                if (!response.ok) {
                    throw new Error(String(response.status));
                }
                const reader = response.body.getReader();
                for (let part = await reader.read(); !part.done; part = await reader.read()) {
                    plan(0);
                }
            } catch {
                // Asking now and then goes on without it.
            }
            if (stream === own) {
                stream = null;
                plan(INTERVAL);
            }
        };

        const turn = (on) => {
            following = on;
            button.setAttribute("aria-pressed", String(on));
            show(on ? "on" : "off");
            sessionStorage.setItem("hx-live", on ? button.dataset.url : "");
            if (stream) {
                stream.abort();
                stream = null;
            }
            if (on && button.dataset.stream) {
                listen();
            }
            plan(0);
        };

        button.hidden = false;
        button.addEventListener("click", () => turn(!following));
        document.addEventListener("visibilitychange", () => plan(0));
        if (sessionStorage.getItem("hx-live") === button.dataset.url) {
            turn(true);
        }
    };

    if (button) {
        follow(button);
    }
}
