// What nodes are coloured by: depth, entropy, branch, or a column of the user's.

import { number, short } from "./dom.js";

/** Told apart by any eye; the first six are Okabe and Ito's. */
const KINDS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f6bb3", "#b0a800", "#8c564b"];
/** The same, brighter, on a dark ground. */
const BRIGHT = ["#56a8f5", "#ffb83d", "#34d1a1", "#f29ccb", "#9bdcff", "#ff8a4c", "#b3a5ff", "#ded84a", "#d9a08f"];
const OTHER = "#8b909a";
/** From dark to bright, evenly for any eye (viridis). */
const RAMP = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const MISSING = 65535;
export const LARGEST_LEGEND = 40;

/** @typedef {{id: string, label: string, kind: "kinds", names: string[], of: Uint16Array}} Kinds */
/** @typedef {{id: string, label: string, kind: "numbers", of: ArrayLike<number>, low: number, high: number, whole: boolean}} Numbers */
/** @typedef {Kinds | Numbers} Colouring */

/** All that these data can be coloured by, by id. @returns {Map<string, () => Colouring>} */
export function colourings(/** @type {any} */ data) {
  const found = new Map();
  for (const column of data.columns) {
    found.set(column.name, column.kind === "category"
      ? () => ({ id: column.name, label: column.name, kind: "kinds", names: column.categories, of: column.values })
      : () => numbers(column.name, column.values));
  }
  if (data.tree) found.set("branch", () => branches(data));
  if (data.tree) found.set("depth", () => numbers("depth", data.level));
  if (data.entropy) found.set("entropy", () => numbers("entropy", data.entropy));
  found.set("radius", () => numbers("radius", data.radii()));
  return found;
}

/** @param {string} id @param {ArrayLike<number>} of @returns {Numbers} */
function numbers(id, of) {
  let low = Infinity, high = -Infinity, whole = true;
  for (let i = 0; i < of.length; i++) {
    const x = of[i];
    if (!Number.isFinite(x)) continue;
    if (x < low) low = x;
    if (x > high) high = x;
    whole = whole && Number.isInteger(x);
  }
  return { id, label: id, kind: "numbers", of, low, high, whole };
}

/** The large subtree that a node is in: the largest is split until there are enough. @returns {Kinds} */
function branches(/** @type {any} */ data) {
  const { parent, size, count } = data;
  const roots = [];
  for (let i = 0; i < count; i++) if (parent[i] < 0) roots.push(i);
  let open = roots.sort((a, b) => size[b] - size[a]).slice(0, 100);
  // The largest is split as long as there is room, or it is more than its share.
  for (let i = 0; i < 60 && open.length; i++) {
    const children = [...data.children(open[0])];
    if (!children.length || (open.length >= KINDS.length && size[open[0]] < (1.5 * count) / KINDS.length)) break;
    open = [...open.slice(1), ...children].sort((a, b) => size[b] - size[a]).slice(0, 100);
  }
  open = open.slice(0, KINDS.length);
  const of = new Uint16Array(count).fill(open.length);
  open.forEach((row, kind) => (of[row] = kind));
  for (const row of topDown(data)) if (of[row] === open.length && parent[row] >= 0) of[row] = of[parent[row]];
  return { id: "branch", label: "branch", kind: "kinds", names: [...open.map((row) => short(data.name(row))), "other"], of };
}

/** Rows with every parent before its children. */
function topDown(/** @type {any} */ data) {
  const { level, count } = data;
  let deepest = 0;
  for (let i = 0; i < count; i++) if (level[i] > deepest) deepest = level[i];
  const start = new Uint32Array(deepest + 2);
  for (let i = 0; i < count; i++) start[level[i] + 1]++;
  for (let l = 1; l < start.length; l++) start[l] += start[l - 1];
  const order = new Uint32Array(count);
  for (let i = 0; i < count; i++) order[start[level[i]]++] = i;
  return order;
}

/** @param {string} hex */
export function rgb(hex) {
  const x = parseInt(hex.slice(1), 16);
  return [x >> 16, (x >> 8) & 255, x & 255];
}

/** The colour at `t` in 0 … 1 of the ramp, less the end that the background swallows. */
function ramp(/** @type {number} */ t, /** @type {boolean} */ dark) {
  const place = (dark ? 0.28 + 0.72 * t : 0.9 * t) * (RAMP.length - 1);
  const first = Math.min(Math.floor(place), RAMP.length - 2), rest = place - first;
  const [a, b] = [rgb(RAMP[first]), rgb(RAMP[first + 1])];
  return a.map((x, i) => Math.round(x + rest * (b[i] - x)));
}

/** `#rrggbb` of one kind. */
export function kindColour(/** @type {Kinds} */ colouring, /** @type {number} */ kind, /** @type {boolean} */ dark) {
  const last = colouring.id === "branch" && kind === colouring.names.length - 1;
  return last || kind === MISSING ? OTHER : (dark ? BRIGHT : KINDS)[kind % KINDS.length];
}

/** The ramp as a CSS gradient. @param {boolean} dark */
export const gradient = (dark) =>
  `linear-gradient(90deg, ${Array.from({ length: 9 }, (_, i) => `rgb(${ramp(i / 8, dark)})`).join(", ")})`;

/**
 * Four bytes per node; a node that is hidden has no colour at all.
 * @param {Colouring} colouring @param {boolean} dark @param {Set<number>} hidden kinds that are switched off
 * @param {Uint8Array | null} kept rows that stay, if only some do
 */
export function paint(colouring, dark, hidden, kept) {
  const count = colouring.of.length, out = new Uint8Array(4 * count);
  const words = new Uint32Array(out.buffer);
  const table = colouring.kind === "kinds" ? kindTable(colouring, hidden, dark) : rampTable(dark);
  const missing = word(rgb(OTHER), 255);
  if (colouring.kind === "kinds") for (let i = 0; i < count; i++) words[i] = table[colouring.of[i]] ?? missing;
  else {
    const { of, low, high } = colouring, scale = high > low ? 255 / (high - low) : 0;
    for (let i = 0; i < count; i++) words[i] = Number.isNaN(of[i]) ? missing : table[Math.round((of[i] - low) * scale)];
  }
  if (kept) for (let i = 0; i < count; i++) if (!kept[i]) words[i] = 0;
  return out;
}

const word = (/** @type {number[]} */ [r, g, b], /** @type {number} */ a) =>
  new Uint32Array(new Uint8Array([r, g, b, a]).buffer)[0];

function kindTable(/** @type {Kinds} */ colouring, /** @type {Set<number>} */ hidden, /** @type {boolean} */ dark) {
  return colouring.names.map((_, kind) => (hidden.has(kind) ? 0 : word(rgb(kindColour(colouring, kind, dark)), 255)));
}

const rampTable = (/** @type {boolean} */ dark) => Array.from({ length: 256 }, (_, i) => word(ramp(i / 255, dark), 255));

/** What a node's colour stands for, as text. @param {Colouring} colouring @param {number} row */
export function meaning(colouring, row) {
  if (colouring.kind === "numbers") return colouring.whole ? `${colouring.of[row]}` : number(colouring.of[row]);
  return colouring.names[colouring.of[row]] ?? "missing";
}
