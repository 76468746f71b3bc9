"use strict";
// Following a session: asks for what is new, and puts it where the order of the page wants it.
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

        const show = (state) => {
            label.textContent = button.dataset[state];
            button.classList.toggle("hx-lost", state === "lost");
        };

        const place = (entry) => {
            const known = document.getElementById(entry.id);
            if (known) {
                return;
            }
            entry.classList.add("hx-new");
            if (button.dataset.order === "newest") {
                list.prepend(entry);
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
            list.querySelectorAll(".hx-empty").forEach((empty) => empty.remove());
            entries.forEach((entry) => place(document.adoptNode(entry)));
            if (entries.length) {
                head.replaceChildren(...root.querySelector("[data-part=head]").childNodes);
                said.textContent = `#${root.dataset.last}`;
            }
            after = Number(root.dataset.last);
            return after < Number(root.dataset.head);
        };

        const ask = async () => {
            if (busy || !following || document.hidden) {
                return;
            }
            busy = true;
            let more = false;
            try {
                const response = await fetch(`${button.dataset.url}?after=${after}`, {credentials: "same-origin"});
                if (!response.ok) {
                    throw new Error(String(response.status));
                }
                more = take(await response.text());
                wait = INTERVAL;
                show("on");
            } catch {
                wait = Math.min(wait * 2, SLOWEST);
                show("lost");
            }
            busy = false;
            plan(more ? 0 : wait);
        };

        const plan = (delay) => {
            clearTimeout(timer);
            if (following) {
                timer = setTimeout(ask, delay);
            }
        };

        const turn = (on) => {
            following = on;
            button.setAttribute("aria-pressed", String(on));
            show(on ? "on" : "off");
            sessionStorage.setItem("hx-live", on ? button.dataset.url : "");
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
