// Names on the picture, without overlap, the important first; and what is drawn around a selected node.

import { short } from "./dom.js";

const CANDIDATES = 700;
const GAP = 4; // pixels between labels

/**
 * @typedef {{row: number, text: string, x: number, y: number, left: number, top: number, right: number,
 *   bottom: number, font: string, alpha: number}} Label
 */

/** Labels and marks, on a canvas over the scene. */
export class Overlay {
  /** @param {HTMLCanvasElement} canvas @param {any} data @param {any} scene */
  constructor(canvas, data, scene) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.data = data;
    this.scene = scene;
    /** @type {Map<string, number>} widths of texts that were measured */
    this.widths = new Map();
    /** @type {Set<number>} rows whose names were shown last, which keep their places */
    this.shown = new Set();
    /** @type {Label[]} */
    this.labels = [];
    this.look = { ink: "#000", halo: "#fff", accent: "#00f", background: "#fff", family: "sans-serif" };
    this.width = this.height = 0;
    this.selected = -1;
  }

  /** @param {number} width @param {number} height @param {number} ratio */
  setSize(width, height, ratio) {
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /** @param {{selected: number, hovered: number, path: number[], isHidden: (row: number) => boolean, limit: number}} state */
  draw(state) {
    const { context } = this;
    context.clearRect(0, 0, this.width, this.height);
    this.labels = this.place(state);
    context.textBaseline = "middle";
    context.lineJoin = "round";
    if (state.selected >= 0) this.#law(state.selected, [state.selected, ...state.path]);
    for (const label of this.labels) this.#write(label, label.row === state.selected);
    if (state.selected >= 0) this.#ring(state.selected, 7);
    if (state.hovered >= 0) this.#hover(state.hovered);
    context.globalAlpha = 1;
  }

  /** The contours of a node's density, and the way up to its root. */
  #law(/** @type {number} */ row, /** @type {number[]} */ path) {
    const { context, look, scene } = this;
    context.strokeStyle = context.fillStyle = look.accent;
    for (const { points } of scene.contours(row) ?? []) {
      this.#trace(points);
      context.closePath();
      context.globalAlpha = 0.07;
      context.fill();
      context.globalAlpha = 0.5;
      context.lineWidth = 1;
      context.stroke();
    }
    context.globalAlpha = 0.9;
    context.lineWidth = 2;
    for (const each of path) {
      const line = scene.edgePath(each);
      if (!line) continue;
      this.#trace(line);
      context.stroke();
    }
  }

  #trace(/** @type {ArrayLike<number>} */ points) {
    this.context.beginPath();
    for (let i = 0; i < points.length; i += 2) this.context.lineTo(points[i], points[i + 1]);
  }

  /** The names that fit. @returns {Label[]} */
  place(/** @type {any} */ { selected, path, isHidden, limit }) {
    this.selected = selected;
    const first = [selected, ...path].filter((row) => row >= 0), special = new Set(first);
    const candidates = [];
    for (const row of new Set([...first, ...this.scene.visible(CANDIDATES)])) {
      if (isHidden(row) && !special.has(row)) continue;
      const at = this.scene.project(row);
      if (!at.visible || at.x < 0 || at.y < 0 || at.x > this.width || at.y > this.height) continue;
      const weight = Math.log2(1 + (this.data.size ? this.data.size[row] : 1)) / 2 + 3 * Math.log2(0.02 + at.scale);
      const kept = (special.has(row) ? 100 : 0) + (this.shown.has(row) ? 1 : 0);
      candidates.push({ row, at, weight, order: weight + kept });
    }
    candidates.sort((a, b) => b.order - a.order || a.row - b.row);
    /** @type {Label[]} */
    const placed = [];
    for (const { row, at } of candidates) {
      if (placed.length >= limit) break;
      const label = this.#fit(row, at, placed, special.has(row));
      if (label) placed.push(label);
    }
    this.shown = new Set(placed.map((label) => label.row));
    return placed;
  }

  #fit(/** @type {number} */ row, /** @type {any} */ at, /** @type {Label[]} */ placed, /** @type {boolean} */ special) {
    const text = short(this.data.name(row)), size = Math.round(2 * (10 + 5 * at.scale)) / 2;
    const font = `${special || at.scale > 0.5 ? 600 : 400} ${size}px ${this.look.family}`;
    const wide = this.#width(text, font), tall = size + 2, off = row === this.selected ? 12 : 6;
    const places = [[at.x + off, at.y], [at.x - off - wide, at.y], [at.x - wide / 2, at.y - off - tall / 2],
      [at.x - wide / 2, at.y + off + tall / 2]];
    for (const [x, y] of places) {
      const box = { left: x - GAP, top: y - tall / 2 - 1, right: x + wide + GAP, bottom: y + tall / 2 + 1 };
      const inside = box.left >= 0 && box.right <= this.width && box.top >= 0 && box.bottom <= this.height;
      if (!inside || placed.some((other) => overlap(box, other))) continue;
      return { row, text, x, y, font, alpha: special ? 1 : Math.min(1, 0.65 + 1.2 * at.scale), ...box };
    }
    return null;
  }

  #width(/** @type {string} */ text, /** @type {string} */ font) {
    const key = font + text;
    let wide = this.widths.get(key);
    if (wide === undefined) {
      this.context.font = font;
      wide = this.context.measureText(text).width;
      if (this.widths.size > 20000) this.widths.clear();
      this.widths.set(key, wide);
    }
    return wide;
  }

  #write(/** @type {Label} */ { text, x, y, font, alpha }, /** @type {boolean} */ selected) {
    const { context, look } = this;
    context.font = font;
    context.globalAlpha = alpha;
    context.lineWidth = 3.5;
    context.strokeStyle = this.#inDisc(x, y) ? look.halo : look.background;
    context.strokeText(text, x, y);
    context.fillStyle = selected ? look.accent : look.ink;
    context.fillText(text, x, y);
  }

  #inDisc(/** @type {number} */ x, /** @type {number} */ y) {
    const disc = this.scene.disc();
    return !disc || Math.hypot(x - disc.x, y - disc.y) < disc.r;
  }

  #ring(/** @type {number} */ row, /** @type {number} */ radius) {
    const at = this.scene.project(row), { context, look } = this;
    if (!at.visible) return;
    context.globalAlpha = 1;
    context.beginPath();
    context.arc(at.x, at.y, radius, 0, 2 * Math.PI);
    context.lineWidth = 4;
    context.strokeStyle = look.halo;
    context.stroke();
    context.lineWidth = 2;
    context.strokeStyle = look.accent;
    context.stroke();
  }

  #hover(/** @type {number} */ row) {
    const at = this.scene.project(row);
    if (!at.visible) return;
    this.#ring(row, 6);
    const { context, look } = this, text = this.data.name(row);
    context.font = `500 13px ${look.family}`;
    const wide = context.measureText(text).width + 16;
    const x = Math.max(4, Math.min(at.x - wide / 2, this.width - wide - 4)), y = at.y > 46 ? at.y - 38 : at.y + 14;
    context.fillStyle = look.ink;
    context.beginPath();
    context.roundRect(x, y, wide, 25, 6);
    context.fill();
    context.fillStyle = look.halo;
    context.fillText(text, x + 8, y + 13);
  }
}

/** @typedef {{left: number, top: number, right: number, bottom: number}} Box */

/** @param {Box} a @param {Box} b */
export const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
