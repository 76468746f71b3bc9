"use strict";
// The head of a session's page: copy its id, and close the menu of actions as menus do.
{
    const DONE = 1500;

    const showCopies = (root) => {
        root.querySelectorAll("[data-copies]").forEach((button) => {
            button.hidden = !navigator.clipboard;
        });
    };

    document.addEventListener("click", async (event) => {
        const button = event.target.closest("[data-copies]");
        if (button) {
            const label = button.querySelector("span");
            const before = label.textContent;
            await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
            label.textContent = button.dataset.done;
            setTimeout(() => {
                label.textContent = before;
            }, DONE);
        }
        document.querySelectorAll("details.hx-more[open]").forEach((menu) => {
            menu.open = menu.contains(event.target);
        });
    });

    document.addEventListener("keydown", (event) => {
        const menu = event.key === "Escape" && document.querySelector("details.hx-more[open]");
        if (menu) {
            menu.open = false;
            menu.querySelector("summary").focus();
        }
    });

    const head = document.getElementById("hx-head");
    if (head) {
        showCopies(head);
        new MutationObserver(() => showCopies(head)).observe(head, {childList: true});
    }
}
