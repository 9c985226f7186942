// Search with completion: a box over the names.

import { count, el, icon, short } from "./dom.js";

const SHOWN = 12;
const SLICE = 2 ** 21; // bytes looked through before others have a turn

/** @typedef {{row: number, rank: number, size: number}} Hit */

/**
 * Rows whose names hold a text, the best first: names that are it, that begin with it, that have a word
 * that does; of these the largest subtrees. All names are looked through, slice by slice.
 */
export class Finder {
  /** @param {import("./pack.js").Pack} data */
  constructor(data) {
    this.data = data;
  }

  /** @param {string} text @param {AbortSignal} signal @returns {AsyncGenerator<number[]>} ever better answers */
  async *find(text, signal, limit = SHOWN) {
    const wanted = encoder.encode(text).map(fold), { bytes, offsets } = this.data.names;
    /** @type {Hit[]} */
    const best = [];
    for (let row = 0, at = 0; wanted.length && row < this.data.count;) {
      const until = Math.min(at + SLICE, bytes.length);
      for (; at < until; at++) {
        if (fold(bytes[at]) !== wanted[0] || !same(bytes, at, wanted)) continue;
        row = holder(offsets, at, row);
        if (at + wanted.length < offsets[row + 1]) this.#take(best, { row, rank: this.#rank(row, at, wanted.length), size: this.data.size?.[row] ?? 1 }, limit);
        at = offsets[row + 1] - 1;
      }
      if (at >= bytes.length) break;
      if (best.length) yield best.map((hit) => hit.row);
      await new Promise((next) => setTimeout(next));
      if (signal.aborted) return;
    }
    yield best.map((hit) => hit.row);
  }

  /** Puts a hit among the best, if it is one. */
  #take(/** @type {Hit[]} */ best, /** @type {Hit} */ hit, /** @type {number} */ limit) {
    let place = best.length;
    while (place > 0 && better(hit, best[place - 1])) place--;
    if (place >= limit) return;
    best.splice(place, 0, hit);
    best.length = Math.min(best.length, limit);
  }

  /** 0: the name, or all of it but the ending of a synset; 1: its beginning; 2: that of a word; 3: elsewhere. */
  #rank(/** @type {number} */ row, /** @type {number} */ at, /** @type {number} */ size) {
    const { bytes, offsets } = this.data.names, start = offsets[row], end = offsets[row + 1] - 1;
    if (at > start) return isLetter(bytes[at - 1]) ? 3 : 2;
    return at + size === end || short(this.data.name(row)).length === size && at + size < end && bytes[at + size] === DOT ? 0 : 1;
  }
}

const encoder = new TextEncoder(), DOT = 46;

const better = (/** @type {Hit} */ a, /** @type {Hit} */ b) =>
  a.rank < b.rank || (a.rank === b.rank && (a.size > b.size || (a.size === b.size && a.row < b.row)));

/** ASCII capitals as small letters, and blanks as underscores. @param {number} byte */
const fold = (byte) => (byte >= 65 && byte <= 90 ? byte | 32 : byte === 32 ? 95 : byte);

/** Letters, digits and all beyond ASCII. @param {number} byte */
const isLetter = (byte) => byte >= 128 || (byte >= 48 && byte <= 57) || ((byte | 32) >= 97 && (byte | 32) <= 122);

function same(/** @type {Uint8Array} */ bytes, /** @type {number} */ at, /** @type {Uint8Array} */ wanted) {
  for (let i = 1; i < wanted.length; i++) if (fold(bytes[at + i]) !== wanted[i]) return false;
  return true;
}

/** The row whose name is at this byte, not before `low`. */
function holder(/** @type {Uint32Array} */ offsets, /** @type {number} */ at, low = 0) {
  let high = offsets.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle] <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** The box: a combobox with a list, as ARIA's authoring practices have it. */
export class SearchBox {
  /** @param {any} data @param {(row: number) => void} chosen @param {string} id */
  constructor(data, chosen, id) {
    this.data = data;
    this.finder = new Finder(data);
    this.chosen = chosen;
    this.id = id;
    /** @type {number[]} */
    this.rows = [];
    this.active = -1;
    this.abort = new AbortController();
    this.input = el("input", {
      type: "search", role: "combobox", placeholder: `Search ${count(data.count)} names`, autocomplete: "off",
      spellcheck: false, "aria-label": "Search for a name", "aria-expanded": "false", "aria-controls": `${id}-list`,
      "aria-autocomplete": "list", oninput: () => this.#search(), onkeydown: (/** @type {KeyboardEvent} */ e) => this.#key(e),
      onblur: () => this.#close(), onfocus: () => this.input.value && this.#search(),
    });
    this.list = el("ul", { role: "listbox", id: `${id}-list`, class: "hw-found", "aria-label": "Names found", hidden: true });
    this.none = el("p", { class: "hw-none", role: "status", hidden: true }, "No name contains this.");
    this.element = el("div", { class: "hw-search", role: "search" }, icon("search"), this.input, this.list, this.none);
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  async #search() {
    this.abort.abort();
    const { signal } = (this.abort = new AbortController()), text = this.input.value.trim();
    for await (const rows of this.finder.find(text, signal)) if (!signal.aborted) this.#show(rows, text);
    if (!signal.aborted) this.none.hidden = !text || this.rows.length > 0;
  }

  #show(/** @type {number[]} */ rows, /** @type {string} */ text) {
    this.rows = rows;
    this.active = rows.length ? 0 : -1;
    const { data } = this;
    this.list.replaceChildren(...rows.map((row, i) => el("li", {
      role: "option", id: `${this.id}-${i}`, "aria-selected": `${i === this.active}`,
      onpointerdown: (/** @type {Event} */ e) => { e.preventDefault(); this.#choose(i); },
    }, el("span", { class: "hw-name" }, ...marked(data.name(row), text)),
      el("span", { class: "hw-above" }, data.parent && data.parent[row] >= 0 ? short(data.name(data.parent[row])) : ""))));
    this.list.hidden = !rows.length;
    this.none.hidden = true;
    this.input.setAttribute("aria-expanded", `${rows.length > 0}`);
    this.#activate(this.active);
  }

  #activate(/** @type {number} */ i) {
    this.active = i;
    [...this.list.children].forEach((item, k) => item.setAttribute("aria-selected", `${k === i}`));
    if (i >= 0) this.input.setAttribute("aria-activedescendant", `${this.id}-${i}`);
    else this.input.removeAttribute("aria-activedescendant");
    this.list.children[i]?.scrollIntoView({ block: "nearest" });
  }

  #key(/** @type {KeyboardEvent} */ event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.rows.length) this.#activate((this.active + step + this.rows.length) % this.rows.length);
    else if (event.key === "Enter" && this.active >= 0) this.#choose(this.active);
    else if (event.key === "Escape") { this.#close(); this.input.blur(); } else return;
    event.preventDefault();
  }

  #choose(/** @type {number} */ i) {
    const row = this.rows[i];
    this.input.value = this.data.name(row);
    this.input.blur();
    this.chosen(row);
  }

  #close() {
    this.abort.abort();
    this.list.hidden = this.none.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  }
}

/** The name with what was searched for in bold. */
function marked(/** @type {string} */ name, /** @type {string} */ text) {
  const at = name.toLowerCase().replaceAll(" ", "_").indexOf(text.toLowerCase().replaceAll(" ", "_"));
  if (at < 0 || !text) return [name];
  return [name.slice(0, at), el("b", {}, name.slice(at, at + text.length)), name.slice(at + text.length)];
}
