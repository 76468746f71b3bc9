"use strict";
// Renews the panels of a page now and then. What is there stays and takes on what is new, so that focus, place,
// selections and what was unfolded are kept; nothing is asked for while the page is hidden or paused.
{
    const INTERVAL = 5000;
    const SLOWEST = 60000;
    const button = document.getElementById("hx-now-live");
    const panels = document.getElementById("hx-now");

    const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);
    const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

    const takeAttributes = (old, fresh) => {
        for (const {name} of [...old.attributes]) {
            if (!fresh.hasAttribute(name) && name !== "open") {
                old.removeAttribute(name);
            }
        }
        for (const {name, value} of fresh.attributes) {
            if (old.getAttribute(name) !== value && name !== "open") {
                old.setAttribute(name, value);
            }
        }
    };

    const take = (old, fresh) => {
        if (old.nodeType !== Node.ELEMENT_NODE) {
            if (old.nodeValue !== fresh.nodeValue) {
                old.nodeValue = fresh.nodeValue;
            }
            return;
        }
        if (old.isEqualNode(fresh)) {
            return;
        }
        takeAttributes(old, fresh);
        const keyed = new Map([...old.childNodes].filter(keyOf).map((child) => [keyOf(child), child]));
        let place = old.firstChild;
        for (const next of [...fresh.childNodes]) {
            const key = keyOf(next);
            let match = key ? keyed.get(key) : place;
            if (match && !alike(match, next)) {
                match = null;
            }
            if (!match) {
                old.insertBefore(document.importNode(next, true), place);
                continue;
            }
            if (match === place) {
                place = place.nextSibling;
            } else {
                old.insertBefore(match, place);
            }
            take(match, next);
        }
        while (place) {
            const gone = place;
            place = place.nextSibling;
            gone.remove();
        }
    };

    // What the reader looks at: the row with the focus, or else the first one in sight of a page that was scrolled.
    const lookedAt = (part) => {
        const focused = document.activeElement.closest("[data-key]");
        if (focused && part.contains(focused)) {
            return focused;
        }
        const isInSight = (row) => row.getBoundingClientRect().top >= 0;
        return window.scrollY > 0 ? [...part.querySelectorAll("[data-key]")].find(isInSight) : undefined;
    };

    // An element that moves loses the focus; the reader keeps the focus, and sees the same.
    const takeOver = (old, fresh) => {
        const focused = document.activeElement;
        const row = lookedAt(old);
        const before = row ? row.getBoundingClientRect().top : 0;
        take(old, fresh);
        if (focused && focused !== document.activeElement && focused.isConnected) {
            focused.focus({preventScroll: true});
        }
        if (row && row.isConnected) {
            window.scrollBy({top: row.getBoundingClientRect().top - before, behavior: "instant"});
        }
    };

    const freshOf = async (url) => {
        const response = await fetch(url, {credentials: "same-origin"});
        if (!response.ok) {
            throw new Error(String(response.status));
        }
        const page = new DOMParser().parseFromString(await response.text(), "text/html");
        const fresh = page.querySelector("[data-now]");
        if (!fresh) {
            throw new Error("not the panels: logged out?");
        }
        return fresh;
    };

    let live = sessionStorage.getItem("hx-now") !== "paused";

    if (button && panels) {
        const label = button.querySelector(".hx-live-label");
        const interval = Number(button.dataset.every) || INTERVAL;
        let wait = interval;
        let timer = 0;

        const show = (state) => {
            label.textContent = button.dataset[state];
            button.classList.toggle("hx-lost", state === "lost");
            button.setAttribute("aria-pressed", String(live));
        };

        const plan = (delay) => {
            clearTimeout(timer);
            if (live && !document.hidden) {
                timer = setTimeout(renew, delay);
            }
        };

        const renew = async () => {
            try {
                takeOver(panels.querySelector("[data-now]"), await freshOf(button.dataset.url));
                wait = interval;
                if (panels.querySelector("[data-ended]")) {
                    document.querySelectorAll("[data-until-ended]").forEach((part) => part.remove());
                    return;
                }
                show("on");
            } catch {
                wait = Math.min(wait * 2, SLOWEST);
                show("lost");
            }
            plan(wait);
        };

        document.querySelectorAll(".hx-now-renew").forEach((link) => link.remove());
        button.hidden = false;
        show(live ? "on" : "off");
        button.addEventListener("click", () => {
            live = !live;
            sessionStorage.setItem("hx-now", live ? "" : "paused");
            show(live ? "on" : "off");
            plan(0);
        });
        document.addEventListener("visibilitychange", () => plan(0));
        plan(interval);
    }

    // Slower parts: each has its address and how often it is renewed.
    document.querySelectorAll("[data-renew]").forEach((part) => {
        setInterval(async () => {
            if (live && !document.hidden) {
                try {
                    takeOver(part.querySelector("[data-now]"), await freshOf(part.dataset.renew));
                } catch {
                    // The time under it says how old it is; the next one may come through.
                }
            }
        }, Number(part.dataset.every));
    });
}
