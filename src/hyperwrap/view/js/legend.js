// The legend: what nodes are coloured by, and what each colour stands for.

import { gradient, kindColour, LARGEST_LEGEND } from "./colours.js";
import { el, number } from "./dom.js";

export class Legend {
  /**
   * @param {string[]} ids what the nodes can be coloured by
   * @param {{choose: (id: string) => void, toggle: (kind: number) => void}} events
   */
  constructor(ids, events) {
    this.events = events;
    this.select = el("select", { "aria-label": "Colour by", onchange: () => events.choose(this.select.value) },
      ...ids.map((id) => el("option", { value: id }, id)));
    this.body = el("div", { class: "hw-legend-body" });
    this.element = el("details", { class: "hw-legend hw-card", open: true },
      el("summary", {}, "Colours"), el("div", { class: "hw-row" }, el("span", {}, "by"), this.select), this.body);
  }

  /** @param {import("./colours.js").Colouring} colouring @param {boolean} dark @param {Set<number>} hidden */
  show(colouring, dark, hidden) {
    this.select.value = colouring.id;
    this.body.replaceChildren(...(colouring.kind === "numbers" ? [this.#ramp(colouring, dark)] : this.#kinds(colouring, hidden, dark)));
  }

  #ramp(/** @type {import("./colours.js").Numbers} */ { low, high, whole }, /** @type {boolean} */ dark) {
    const bar = el("div", { class: "hw-ramp" }), text = (/** @type {number} */ x) => (whole ? `${x}` : number(x));
    bar.style.background = gradient(dark);
    return el("div", {}, bar, el("div", { class: "hw-row hw-ends" }, el("span", {}, text(low)), el("span", {}, text(high))));
  }

  #kinds(/** @type {import("./colours.js").Kinds} */ colouring, /** @type {Set<number>} */ hidden, /** @type {boolean} */ dark) {
    const shown = colouring.names.slice(0, LARGEST_LEGEND).map((name, kind) => {
      const dot = el("span", { class: "hw-dot" });
      dot.style.background = kindColour(colouring, kind, dark);
      return el("button", {
        type: "button", class: "hw-kind", "aria-pressed": `${!hidden.has(kind)}`, title: `Show or hide ${name}`,
        onclick: () => this.events.toggle(kind),
      }, dot, el("span", {}, name));
    });
    const rest = colouring.names.length - shown.length;
    return rest > 0 ? [...shown, el("p", { class: "hw-note" }, `and ${rest} more`)] : shown;
  }
}
