// The data of a page: a safetensors file, as pack.py writes it.

import { contour, kl } from "./laws.js";
import { Cells } from "./cells.js";
import { apply, between, carrying, inverse, length, polar, times, upright } from "./plane.js";

/** @typedef {import("./plane.js").Isometry} Isometry */
/** @typedef {import("./plane.js").Pose} Pose */
/** @typedef {{name: string, kind: "category", categories: string[], values: Uint16Array}} Categories */
/** @typedef {{name: string, kind: "number", categories: null, values: Float32Array}} Values */

const DTYPES = { F32: Float32Array, F64: Float64Array, I32: Int32Array, U8: Uint8Array, U16: Uint16Array };
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
  tree = false;
  /** @type {Int32Array} the row of each parent, −1 for a root */
  parent = new Int32Array(0);
  /** @type {Uint32Array | null} nodes at or below each */ size = null;
  /** @type {Uint16Array} how far below its root each is */ level = new Uint16Array(0);
  /** Children of a row: from `childStart` of it to that of the next. */
  childStart = new Uint32Array(1);
  childList = new Uint32Array(0);
  /** @type {{row: number, lines: {mass: number, line: {radius: number, angle: number}[]}[]} | null} */ contoured = null;

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
    this.#readTree();
    this.cells = new Cells(this.array("cells"), this.array("anchors"), this.place, this.size);
    this.chunk = this.cells.chunkOfRow;
    this.#readColumns();
  }

  /** @param {string} name @returns {any} a typed array, or null */
  array(name) {
    const found = this.header[name];
    if (!found) return null;
    const Kind = DTYPES[/** @type {keyof typeof DTYPES} */ (found.dtype)], [start, end] = found.data_offsets;
    return new Kind(this.buffer, this.start + start, (end - start) / Kind.BYTES_PER_ELEMENT);
  }

  /** Children, subtree sizes and levels, from the parents. */
  #readTree() {
    const { count } = this, parent = /** @type {Int32Array | null} */ (this.array("parent"));
    this.tree = parent !== null;
    if (!parent) return;
    this.parent = parent;
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
    const size = (this.size = new Uint32Array(count).fill(1));
    for (let at = 0; at < filled; at++) {
      const row = order[at];
      for (let k = start[row]; k < start[row + 1]; k++) {
        this.level[below[k]] = this.level[row] + 1;
        order[filled++] = below[k];
      }
    }
    for (let at = filled - 1; at >= 0; at--) if (parent[order[at]] >= 0) size[parent[order[at]]] += size[order[at]];
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
    return this.childList.subarray(this.childStart[row], this.childStart[row + 1]);
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
    const { g, a } = this.cells.frames[this.chunk[row]];
    return { g, a, step: carrying(this.place[2 * row], this.place[2 * row + 1]) };
  }

  /** Its distance from the origin. @param {number} row */
  radius(row) {
    return polar(this.pose(row)).radius;
  }

  /** The same of all nodes. */
  radii() {
    const { place } = this, frames = this.cells.frames.map(({ a }) => [Math.cosh(a / 2), Math.sinh(a / 2)]);
    return Float32Array.from(this.chunk, (chunk, row) => {
      const [cosh, sinh] = frames[chunk], x = place[2 * row], y = place[2 * row + 1];
      return 2 * Math.asinh(Math.hypot(cosh * x + sinh, cosh * y) / Math.sqrt(1 - x * x - y * y));
    });
  }

  /** The logarithm of a node at the origin. @param {number} row */
  tangent(row) {
    const { radius, angle } = polar(this.pose(row));
    return { x: radius * Math.cos(angle), y: radius * Math.sin(angle) };
  }

  /** The nodes nearest to a node, itself left out. @param {number} row @param {number} limit */
  nearest(row, limit) {
    const { cells, place } = this, { g, a, step } = this.pose(row), back = inverse(step);
    const views = cells.frames.map((frame) => times(back, between(g, a, frame.g, frame.a)));
    /** @type {{row: number, distance: number}[]} */
    const best = [];
    const worst = () => (best.length === limit ? best[limit - 1].distance : Infinity);
    const gap = (/** @type {number} */ cell) => ({ cell, least: nearestInCircle(views[cells.frame[cell]], cells.x[cell], cells.y[cell], cells.r[cell]) });
    const waiting = [gap(0)];
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      if (next.least > worst()) continue;
      const { cell } = next, within = cells.within(cell);
      waiting.push(...Array.from(within, gap).sort((p, q) => q.least - p.least));
      if (within.length) continue;
      for (let other = cells.first[cell]; other < cells.first[cell] + cells.count[cell]; other++) {
        const distance = length(times(views[cells.frame[cell]], carrying(place[2 * other], place[2 * other + 1])));
        if (other !== row && distance < worst()) insert(best, { row: other, distance }, limit);
      }
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

  /** Lines around 99, 90 and 50 % of a node's mass, by distance and direction. @param {number} row */
  contours(row) {
    if (this.contoured?.row !== row) this.contoured = { row, lines: MASSES.map((mass) => ({ mass, line: contour(this.sigma(row), mass) })) };
    return this.contoured.lines;
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

/** Puts something found among the best. */
function insert(/** @type {{row: number, distance: number}[]} */ best, /** @type {{row: number, distance: number}} */ found, /** @type {number} */ limit) {
  let place = best.length;
  while (place > 0 && found.distance < best[place - 1].distance) place--;
  best.splice(place, 0, found);
  best.length = Math.min(best.length, limit);
}

/** A bound from below for the distance of 0 from the image of a circle. */
function nearestInCircle(/** @type {Isometry} */ view, /** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ r) {
  const [hx, hy] = apply(inverse(view), 0, 0), across = Math.hypot(x - hx, y - hy);
  if (across <= r) return 0;
  // d = 2·asinh(|z−h|/√((1−|z|²)(1−|h|²))), and no z of the circle is nearer to h, or further from the rim, than this.
  const inner = Math.max(0, Math.min(Math.hypot(x, y) - r, 1)), rim = (1 - inner) * (1 + inner);
  return 2 * Math.asinh((across - r) / Math.sqrt(Math.max(rim / (view[0] ** 2 + view[1] ** 2), 1e-300)));
}
