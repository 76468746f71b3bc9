"use strict";
// The list: "/" goes to the search, and a choice applies at once. Without this, "Apply" does.
{
    const form = document.getElementById("hx-filters");
    const search = document.getElementById("searchbar");
    const typing = (target) => target.closest("input, textarea, select, [contenteditable]");

    if (form && search) {
        form.addEventListener("change", (event) => {
            if (event.target.matches("select, input[type=date]")) {
                form.requestSubmit();
            }
        });
        form.addEventListener("formdata", (event) => {
            [...event.formData].filter(([, value]) => value === "").forEach(([name]) => event.formData.delete(name));
        });
    }
    document.addEventListener("keydown", (event) => {
        if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) {
            return;
        }
        const field = search || document.querySelector("#searchbar, [data-hx-search]");
        if (field) {
            event.preventDefault();
            field.focus();
            field.select();
        }
    });
    document.addEventListener("click", (event) => {
        document.querySelectorAll(".hx-pop[open]").forEach((pop) => {
            if (!pop.contains(event.target)) {
                pop.open = false;
            }
        });
    });
    document.addEventListener("keydown", (event) => {
        const pop = event.key === "Escape" && event.target.closest(".hx-pop[open]");
        if (pop) {
            pop.open = false;
            pop.querySelector("summary").focus();
        }
    });
}
