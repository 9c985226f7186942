// The data of a page: a safetensors file, as pack.py writes it.

import { contour, kl } from "./laws.js";
import { apply, between, carrying, inverse, length, polar, times, upright } from "./plane.js";

/** @typedef {import("./plane.js").Isometry} Isometry */
/** @typedef {import("./plane.js").Pose} Pose */
/** @typedef {{name: string, kind: "category", categories: string[], values: Uint16Array}} Categories */
/** @typedef {{name: string, kind: "number", categories: null, values: Float32Array}} Values */

/**
 * A part of the plane: its rows, its frame F(g, a), a circle in it around all its points, the cells within.
 * @typedef {{index: number, first: number, count: number, g: import("./plane.js").Complex, a: number,
 *   x: number, y: number, r: number, within: number[]}} Cell
 */

const DTYPES = { F32: Float32Array, F64: Float64Array, I32: Int32Array, U8: Uint8Array, U16: Uint16Array };
export const LEVELS = 12;
const NEWLINE = 10;
const MASSES = [0.99, 0.9, 0.5];

/** The bytes of a pack, unpacked if they are gzipped. @param {ArrayBuffer} buffer */
export async function openPack(buffer) {
  const [a, b] = new Uint8Array(buffer);
  if (a !== 0x1f || b !== 0x8b) return new Pack(buffer);
  const stream = new Blob([buffer]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Pack(await new Response(stream).arrayBuffer());
}

/** Nodes by row: places in chunks, names, a tree, laws, columns. */
export class Pack {
  /** @param {ArrayBuffer} buffer */
  constructor(buffer) {
    const size = Number(new DataView(buffer).getBigUint64(0, true));
    this.buffer = buffer;
    this.start = 8 + size;
    this.header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
    this.about = JSON.parse(this.header.__metadata__.about);
    /** @type {number} */
    this.count = this.about.count;
    this.place = /** @type {Float32Array} */ (this.array("place"));
    this.scale = /** @type {Float32Array | null} */ (this.array("scale"));
    this.scaleColumns = this.scale ? this.scale.length / this.count : 0;
    this.entropy = /** @type {Float32Array | null} */ (this.array("entropy"));
    this.names = lines(/** @type {Uint8Array} */ (this.array("names")), this.count);
    this.#readCells();
    this.#readTree();
    this.#readColumns();
  }

  /** @param {string} name @returns {any} a typed array, or null */
  array(name) {
    const found = this.header[name];
    if (!found) return null;
    const Kind = DTYPES[/** @type {keyof typeof DTYPES} */ (found.dtype)], [start, end] = found.data_offsets;
    return new Kind(this.buffer, this.start + start, (end - start) / Kind.BYTES_PER_ELEMENT);
  }

  #readCells() {
    const cells = this.array("cells"), anchors = this.array("anchors");
    this.levels = this.array("levels");
    /** @type {Cell[]} */
    this.cells = Array.from({ length: cells.length / 3 }, (_, i) => ({
      index: i, first: cells[3 * i + 1], count: cells[3 * i + 2],
      g: /** @type {[number, number]} */ ([anchors[6 * i], anchors[6 * i + 1]]), a: anchors[6 * i + 2],
      x: anchors[6 * i + 3], y: anchors[6 * i + 4], r: anchors[6 * i + 5],
      /** @type {number[]} */ within: [],
    }));
    for (let i = 1; i < this.cells.length; i++) this.cells[cells[3 * i]].within.push(i);
    /** The chunk of each row. */
    this.chunk = new Uint32Array(this.count);
    for (const cell of this.cells) if (!cell.within.length) this.chunk.fill(cell.index, cell.first, cell.first + cell.count);
  }

  /** Children, subtree sizes and levels, from the parents. */
  #readTree() {
    const { count } = this, parent = /** @type {Int32Array | null} */ (this.array("parent"));
    this.tree = parent !== null;
    this.parent = parent ?? new Int32Array(this.tree ? count : 0);
    if (!parent) return;
    const start = new Uint32Array(count + 1), below = new Uint32Array(count);
    for (let i = 0; i < count; i++) if (parent[i] >= 0) start[parent[i] + 1]++;
    for (let i = 0; i < count; i++) start[i + 1] += start[i];
    const next = start.slice();
    for (let i = 0; i < count; i++) if (parent[i] >= 0) below[next[parent[i]]++] = i;
    this.childStart = start;
    this.childList = below;
    this.#measure(parent, start, below);
  }

  #measure(/** @type {Int32Array} */ parent, /** @type {Uint32Array} */ start, /** @type {Uint32Array} */ below) {
    const { count } = this, order = new Uint32Array(count);
    let filled = 0;
    for (let i = 0; i < count; i++) if (parent[i] < 0) order[filled++] = i;
    this.level = new Uint16Array(count);
    this.size = new Uint32Array(count).fill(1);
    for (let at = 0; at < filled; at++) {
      const row = order[at];
      for (let k = start[row]; k < start[row + 1]; k++) {
        this.level[below[k]] = this.level[row] + 1;
        order[filled++] = below[k];
      }
    }
    for (let at = filled - 1; at >= 0; at--) if (parent[order[at]] >= 0) this.size[parent[order[at]]] += this.size[order[at]];
  }

  #readColumns() {
    /** @type {(Categories | Values)[]} */
    this.columns = this.about.columns.map((/** @type {any} */ { name, categories }, /** @type {number} */ i) =>
      ({ name, categories, kind: categories ? "category" : "number", values: this.array(`column.${i}`) }));
  }

  // --- names and the tree -------------------------------------------------------------------------------

  /** @param {number} row */
  name(row) {
    return decoder.decode(this.names.bytes.subarray(this.names.offsets[row], this.names.offsets[row + 1] - 1));
  }

  /** The row of a name, −1 if there is none. @param {string} name */
  row(name) {
    const wanted = new TextEncoder().encode(name), { bytes, offsets } = this.names;
    for (let row = 0; row < this.count; row++) {
      if (offsets[row + 1] - 1 - offsets[row] !== wanted.length) continue;
      let i = 0;
      while (i < wanted.length && bytes[offsets[row] + i] === wanted[i]) i++;
      if (i === wanted.length) return row;
    }
    return -1;
  }

  /** @param {number} row */
  children(row) {
    return this.childList?.subarray(this.childStart?.[row], this.childStart?.[row + 1]) ?? new Uint32Array(0);
  }

  /** The parent, its parent, and so on. @param {number} row */
  ancestors(row) {
    const found = [];
    for (let at = this.parent[row]; at >= 0 && found.length < 1000; at = this.parent[at]) found.push(at);
    return found;
  }

  // --- places -------------------------------------------------------------------------------------------

  /** Where a node is. @param {number} row @returns {Pose} */
  pose(row) {
    const { g, a } = this.cells[this.chunk[row]];
    return { g, a, step: carrying(this.place[2 * row], this.place[2 * row + 1]) };
  }

  /** Its distance from the origin. @param {number} row */
  radius(row) {
    return polar(this.pose(row)).radius;
  }

  /** The logarithm of a node at the origin. @param {number} row */
  tangent(row) {
    const { radius, angle } = polar(this.pose(row));
    return { x: radius * Math.cos(angle), y: radius * Math.sin(angle) };
  }

  /** The nodes nearest to a node, itself left out. @param {number} row @param {number} limit */
  nearest(row, limit) {
    const back = inverse(this.pose(row).step), { g, a } = this.cells[this.chunk[row]];
    /** @type {{row: number, distance: number}[]} */
    let best = [];
    const least = (/** @type {number} */ i) => {
      const cell = this.cells[i], view = times(back, between(g, a, cell.g, cell.a));
      return { cell, view, distance: nearestInCircle(view, cell) };
    };
    const waiting = [least(0)];
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      if (best.length === limit && next.distance > best[limit - 1].distance) continue;
      waiting.push(...next.cell.within.map(least).sort((p, q) => q.distance - p.distance));
      if (!next.cell.within.length) best = this.#merged(best, row, next.cell, next.view, limit);
    }
    return best;
  }

  #merged(/** @type {{row: number, distance: number}[]} */ best, /** @type {number} */ own, /** @type {any} */ cell,
    /** @type {Isometry} */ view, /** @type {number} */ limit) {
    for (let row = cell.first; row < cell.first + cell.count; row++) {
      if (row === own) continue;
      const distance = length(times(view, carrying(this.place[2 * row], this.place[2 * row + 1])));
      if (best.length === limit && distance >= best[limit - 1].distance) continue;
      best.push({ row, distance });
      best.sort((p, q) => p.distance - q.distance || p.row - q.row);
      best.length = Math.min(best.length, limit);
    }
    return best;
  }

  // --- laws ---------------------------------------------------------------------------------------------

  /** @param {number} row @returns {import("./laws.js").Law} */
  law(row) {
    return { pose: upright(this.pose(row)), scale: this.sigma(row) };
  }

  /** The standard deviations, along both axes. @param {number} row @returns {[number, number]} */
  sigma(row) {
    const { scale, scaleColumns: wide } = this;
    return scale ? [scale[wide * row], scale[wide * row + wide - 1]] : [0, 0];
  }

  /** @param {number} row @param {number} other */
  kl(row, other) {
    return kl(this.law(row), this.law(other));
  }

  /** Lines around 99, 90 and 50 % of a node's mass, as poses' steps. @param {number} row */
  contours(row) {
    return MASSES.map((mass) => ({ mass, line: contour(this.sigma(row), mass) }));
  }
}

const decoder = new TextDecoder();

/** Where each line begins. @param {Uint8Array} bytes @param {number} count */
function lines(bytes, count) {
  const offsets = new Uint32Array(count + 1);
  let row = 1;
  for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, at + 1)) offsets[row++] = at + 1;
  offsets[count] = bytes.length + 1;
  return { bytes, offsets };
}

/** A bound from below for the distance of 0 from the image of a circle. */
function nearestInCircle(/** @type {Isometry} */ view, /** @type {{x: number, y: number, r: number}} */ { x, y, r }) {
  const [hx, hy] = apply(inverse(view), 0, 0), across = Math.hypot(x - hx, y - hy);
  if (across <= r) return 0;
  // The nearest point of a Euclidean circle lies on a circle about h; d = 2·asinh(|z−h|/√((1−|z|²)(1−|h|²))).
  const gap = across - r, inner = Math.max(0, Math.min(Math.hypot(x, y) - r, 1)), rim = (1 - inner) * (1 + inner);
  const own = 1 / (view[0] ** 2 + view[1] ** 2);
  return 2 * Math.asinh(gap / Math.sqrt(Math.max(rim * own, 1e-300)));
}
