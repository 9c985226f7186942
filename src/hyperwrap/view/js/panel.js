// What is known about the selected node.

import { count, el, iconButton, number, short } from "./dom.js";

const MOST = 8; // rows of a list
const COMPARED = 40; // nearest centres that are compared by KL

export class Panel {
  /**
   * @param {any} data
   * @param {{go: (row: number) => void, centre: (row: number) => void, close: () => void, link: () => void,
   *   depth: (levels: number | null) => void, hover: (row: number) => void}} events
   */
  constructor(data, events) {
    this.data = data;
    this.events = events;
    this.element = el("section", { class: "hw-panel", "aria-label": "Selected node", hidden: true });
    this.timer = 0;
  }

  /** @param {number} row @param {number | null} depth */
  show(row, depth) {
    clearTimeout(this.timer);
    this.element.hidden = row < 0;
    if (row < 0) return;
    const { data, events } = this, name = data.name(row), near = el("div", {});
    this.element.replaceChildren(
      el("header", { class: "hw-head" },
        el("h2", { dir: "auto" }, short(name)),
        iconButton("target", "Centre this node (Enter)", () => events.centre(row)),
        iconButton("copy", "Copy a link to this view", () => events.link()),
        iconButton("close", "Close (Esc)", () => events.close())),
      ...(short(name) === name ? [] : [el("p", { class: "hw-full", dir: "auto" }, name)]),
      this.#facts(row),
      ...(data.tree ? [this.#levels(row, depth), this.#children(row)] : []),
      near);
    this.element.scrollTop = 0;
    if (data.scale) this.timer = setTimeout(() => near.replaceChildren(...this.#divergences(row)), 60);
  }

  /** A place that was decoded. @param {HTMLElement} picture @param {string} text */
  showPlace(picture, text) {
    clearTimeout(this.timer);
    this.element.hidden = false;
    this.element.replaceChildren(
      el("header", { class: "hw-head" }, el("h2", {}, "Decoded here"),
        iconButton("close", "Close (Esc)", () => this.events.close())),
      picture, el("p", { class: "hw-note" }, text));
  }

  #facts(/** @type {number} */ row) {
    const { data } = this, sigma = sigmas(data, row);
    const facts = [
      ...(data.tree ? [["level", `${data.level[row]}`], ["nodes in its subtree", count(data.size[row])]] : []),
      ["distance from the origin", number(data.radius(row))],
      ...(data.entropy ? [["entropy", `${number(data.entropy[row])} nats`]] : []),
      ...(sigma.length ? [["scale σ", [...new Set(sigma.map(number))].join(", ")]] : []),
      ...data.columns.map((/** @type {any} */ column) => [column.name, value(column, row)]),
    ];
    return el("dl", { class: "hw-facts" }, ...facts.map(([term, text]) => el("div", {}, el("dt", {}, term), el("dd", { dir: "auto" }, text))));
  }

  #levels(/** @type {number} */ row, /** @type {number | null} */ depth) {
    if (this.data.size[row] < 2) return "";
    const choice = el("select", { "aria-label": "Levels shown below this node",
      onchange: () => this.events.depth(choice.value === "all" ? null : Number(choice.value)) },
      ...["all", "1", "2", "3", "4", "5"].map((text) => el("option", { value: text, selected: text === `${depth ?? "all"}` }, text)));
    return el("label", { class: "hw-row hw-levels" }, el("span", {}, "levels shown below"), choice);
  }

  #children(/** @type {number} */ row) {
    const { data } = this, children = [...data.children(row)].sort((a, b) => data.size[b] - data.size[a]);
    if (!children.length) return "";
    const list = this.#list(children.slice(0, MOST).map((child) => [child, count(data.size[child])]));
    const rest = children.length - MOST;
    return this.#part(`${count(children.length)} ${children.length === 1 ? "child" : "children"}`, "nodes", list,
      rest > 0 ? `and ${count(rest)} smaller ones` : "");
  }

  /** Ancestors, and the nearest others, by KL. */
  #divergences(/** @type {number} */ row) {
    const { data } = this, above = data.tree ? data.ancestors(row) : [];
    const seen = new Set([row, ...above]);
    const others = data.nearest(row, COMPARED).map((/** @type {any} */ found) => found.row).filter((/** @type {number} */ other) => !seen.has(other));
    const measured = (/** @type {number[]} */ rows) => rows.map((other) => /** @type {[number, number]} */ ([other, data.kl(row, other)]));
    const parts = [];
    if (above.length) parts.push(this.#part("Ancestors", "KL", this.#list(measured(above).map(([r, x]) => [r, number(x)])),
      "KL(this ‖ ancestor), in nats: small where the ancestor covers this node"));
    const best = measured(others).sort((a, b) => a[1] - b[1]).slice(0, MOST);
    if (best.length) parts.push(this.#part("Neighbours", "KL", this.#list(best.map(([r, x]) => [r, number(x)])),
      `the least of KL(this ‖ other) among the ${others.length} nearest centres that are no ancestors`));
    return parts;
  }

  #part(/** @type {string} */ title, /** @type {string} */ unit, /** @type {HTMLElement} */ list, /** @type {string} */ note) {
    return el("section", { class: "hw-part" }, el("h3", {}, title, el("span", {}, unit)), list,
      ...(note ? [el("p", { class: "hw-note" }, note)] : []));
  }

  #list(/** @type {[number, string][]} */ rows) {
    const { data, events } = this;
    return el("ul", { class: "hw-list" }, ...rows.map(([row, text]) => el("li", {},
      el("button", { type: "button", onclick: () => events.go(row), onpointerenter: () => events.hover(row), onpointerleave: () => events.hover(-1) },
        el("span", { dir: "auto" }, short(data.name(row))), el("span", { class: "hw-value" }, text)))));
  }
}

/** The standard deviations of a node. @returns {number[]} */
function sigmas(/** @type {any} */ data, /** @type {number} */ row) {
  const { scale, scaleColumns: wide } = data;
  return scale ? [...scale.subarray(wide * row, wide * (row + 1))] : [];
}

function value(/** @type {any} */ column, /** @type {number} */ row) {
  if (column.kind === "category") return column.categories[column.values[row]] ?? "–";
  return number(column.values[row]);
}
