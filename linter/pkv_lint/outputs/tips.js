// Shows what a title says as soon as the pointer is there, and in a focused `.tour` as the arrow keys go from item to
// item. Browsers show titles late, and to the mouse alone; where scripts are switched off that is what remains.
(() => {
  "use strict";
  const ITEMS = "[data-tip], [title], g:has(> title)";
  const STEPS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };
  const tip = document.body.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.setAttribute("role", "status");
  let shown = null;

  // The title, taken away from the browser when it is first asked for.
  function textOf(item) {
    if (item.dataset.tip === undefined) {
      const title = item.querySelector(":scope > title");
      item.dataset.tip = title ? title.textContent : item.getAttribute("title");
      if (title) title.remove();
      else item.removeAttribute("title");
      item.setAttribute("aria-label", item.dataset.tip);
    }
    return item.dataset.tip;
  }

  function show(item, x, y, spoken) {
    if (shown !== item) {
      hide();
      shown = item;
      item.classList.add("shown");
      tip.setAttribute("aria-live", spoken ? "polite" : "off");
      tip.textContent = textOf(item);
      tip.classList.add("open");
    }
    const room = { x: innerWidth - tip.offsetWidth - 8, y: innerHeight - tip.offsetHeight - 8 };
    tip.style.left = `${Math.max(8, Math.min(x + 14, room.x))}px`;
    tip.style.top = `${y + 18 > room.y ? Math.max(8, y - tip.offsetHeight - 12) : y + 18}px`;
  }

  function hide() {
    if (shown) shown.classList.remove("shown");
    shown = null;
    tip.classList.remove("open");
  }

  document.addEventListener("pointermove", (event) => {
    const item = event.target.closest && event.target.closest(ITEMS);
    if (item) show(item, event.clientX, event.clientY, false);
    else hide();
  });
  document.addEventListener("pointerleave", hide);
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const tour = event.target.closest && event.target.closest(".tour");
    if (!tour || STEPS[event.key] === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const items = [...tour.querySelectorAll(ITEMS)];
    if (!items.length) return;
    event.preventDefault();
    const step = STEPS[event.key];
    const at = items.indexOf(shown);
    const next = (at < 0 && step < 0 ? items.length : at) + step;
    const item = items[Math.max(0, Math.min(next, items.length - 1))];
    const box = item.getBoundingClientRect();
    show(item, box.left + box.width / 2, box.top + box.height / 2, true);
  });

  document.documentElement.dataset.tips = "ready";
})();
