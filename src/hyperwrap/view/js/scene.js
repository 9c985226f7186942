// The picture: which chunks are in sight, how they lie before the camera, and drawing them.
//
// Every picture the matrices camera⁻¹·anchor are composed in float64. The shader applies them to the
// places of points in their chunk, which float32 holds well.

import { Camera } from "./camera.js";
import { MODELS, size } from "./models.js";
import { apply, between, carrying, inverse, origin, seen, times, translation } from "./plane.js";
import { Painter } from "./painter.js";
import { along, Strips } from "./strips.js";

/** @typedef {import("./plane.js").Isometry} Isometry */
/** @typedef {import("./plane.js").Complex} Complex */

const MARGIN = 14; // pixels between the disc and the edge of the picture
const NAMED = 12; // pixels of a cell of which somebody may have a name
const LARGEST = 400; // magnification
const DEEPER = 1.8; // how far a wheel goes, per e-fold
const REACH = 12; // pixels from a point that still hit it
const HUGE = 1e30; // of |α|² in float32
const LEAST = 1.5; // pixels of an edge
const BUDGET = 6000;

/** @typedef {import("./painter.js").Theme} Theme */

export class Scene {
  /** @param {HTMLCanvasElement} canvas @param {import("./pack.js").Pack} data */
  constructor(canvas, data) {
    const gl = canvas.getContext("webgl2", { antialias: false, alpha: false, powerPreference: "high-performance" });
    if (!gl) throw new Error("no WebGL2");
    this.canvas = canvas;
    this.data = data;
    this.camera = new Camera();
    this.model = MODELS.poincare;
    this.magnification = 1;
    this.edges = false;
    /** Pixels by which a point may be off that is drawn as another one; 0 draws every one. */
    this.tolerance = 0.75;
    this.width = this.height = this.ratio = 1;
    const count = data.cells.frames.length;
    /** @type {{g: Complex, a: number} | null} the frame that the bases are seen from */
    this.base = null;
    this.bases = new Float64Array(4 * count); // anchors seen from the frame of the camera
    this.views = new Float64Array(4 * count); // and from the camera
    this.frames = new Float32Array(4 * 256 * Math.ceil(count / 256));
    /** The rows that are drawn, the first `some` of them. */
    this.rows = new Uint32Array(data.count);
    this.some = 0;
    /** @type {number[]} rows with room for a name, maybe twice */
    this.notable = [];
    this.image = new Float64Array(4); // a circle before the camera: x, y, radius, pixels
    this.drawn = { points: 0, edges: 0 };
    /** @type {Uint8Array} */
    this.colours = new Uint8Array(4 * data.count).fill(255);
    /** @type {Theme} */
    this.theme = { background: [1, 1, 1], disc: [1, 1, 1], edge: [0, 0, 0, 1], rim: [0, 0, 0, 1], tint: 0 };
    this.painter = new Painter(gl, data, Uint8Array.from({ length: data.count }, (_, row) => this.weight(row)));
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => { this.painter.start(this.colours); this.draw(); });
  }

  // --- how it looks ----------------------------------------------------------------------------------------

  /** @param {Uint8Array} colours four bytes per row; with alpha 0 it is not drawn */
  setColours(colours) {
    this.colours = colours;
    this.painter.setColours(colours);
  }

  /** @param {Theme} theme */
  setTheme(theme) {
    this.theme = theme;
  }

  /** @param {number} width @param {number} height @param {number} ratio of device pixels */
  setSize(width, height, ratio) {
    Object.assign(this, { width, height, ratio });
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
  }

  /** Pixels of the half height of the picture. */
  get unit() {
    const room = this.model.round ? Math.min(this.width, this.height) : this.height;
    return Math.max(10, room / 2 - MARGIN) * this.magnification;
  }

  // --- what is in sight ---------------------------------------------------------------------------------

  /** Composes the frames of all chunks before the camera. */
  #look() {
    const { g, a, step } = this.camera.pose, { data, bases, views, frames } = this;
    if (this.base?.g !== g || this.base.a !== a) {
      data.cells.frames.forEach((frame, i) => bases.set(between(g, a, frame.g, frame.a), 4 * i));
      this.base = { g, a };
    }
    const [ar, ai, br, bi] = inverse(step);
    for (let i = 0; i < bases.length; i += 4) {
      const cr = bases[i], ci = bases[i + 1], dr = bases[i + 2], di = bases[i + 3];
      views[i] = ar * cr - ai * ci + br * dr + bi * di;
      views[i + 1] = ar * ci + ai * cr + bi * dr - br * di;
      views[i + 2] = ar * dr - ai * di + br * cr + bi * ci;
      views[i + 3] = ar * di + ai * dr + bi * cr - br * ci;
      const s = Math.min(1, Math.sqrt(HUGE / (views[i] ** 2 + views[i + 1] ** 2)));
      for (let k = i; k < i + 4; k++) frames[k] = s * views[k];
    }
  }

  /** Goes through the cells from the outermost; what is out of sight or too small to see is not gone into. */
  #choose() {
    const { cells } = this.data, { rows, image, tolerance } = this, waiting = [0];
    this.some = 0;
    this.notable = [];
    for (let cell = waiting.pop(); cell !== undefined; cell = waiting.pop()) {
      this.#project(cell);
      if (!cells.count[cell] || this.#outside()) continue;
      const pixels = image[3];
      if (pixels < tolerance) {
        rows[this.some++] = cells.chief[cell];
        continue;
      }
      const named = pixels > NAMED;
      if (named) this.notable.push(cells.chief[cell]);
      if (cells.halves[cell]) waiting.push(cells.halves[cell], cells.halves[cell] + 1);
      else if (cells.inner[cell]?.length) waiting.push(...cells.inner[cell]);
      else for (let row = cells.first[cell]; row < cells.first[cell] + cells.count[cell]; row++) {
        rows[this.some++] = row;
        if (named) this.notable.push(row);
      }
    }
  }

  /** Finds the circle of a cell before the camera. @param {number} cell */
  #project(cell) {
    const { cells } = this.data, { views, image } = this, i = 4 * cells.frame[cell], x = cells.x[cell], y = cells.y[cell], r = cells.r[cell];
    const ar = views[i], ai = views[i + 1], br = views[i + 2], bi = views[i + 3];
    const nr = ar * x - ai * y + br, ni = ar * y + ai * x + bi, dr = br * x + bi * y + ar, di = br * y - bi * x - ai;
    const d = dr * dr + di * di - (br * br + bi * bi) * r * r;
    if (!(d > 0)) { // it holds the whole rim
      image.fill(Infinity);
      if (this.model === MODELS.wide) image[3] = this.#span(cell);
      return image;
    }
    image[0] = (nr * dr + ni * di - (ar * br - ai * bi) * r * r) / d;
    image[1] = (ni * dr - nr * di - (ar * bi + ai * br) * r * r) / d;
    image[2] = r / d;
    image[3] = this.model === MODELS.wide ? this.#span(cell) : 2 * this.unit * image[2] * this.model.stretch(image[0], image[1], image[2]);
    return image;
  }

  /** Pixels between the outmost rows of a cell: in the wide picture a circle says little of what lies along the rim. */
  #span(/** @type {number} */ cell) {
    const { cells } = this.data;
    if (cells.frame[cell] === cell) return Infinity;
    let left = Infinity, right = -Infinity, top = Infinity, bottom = -Infinity;
    for (let k = 4 * cell; k < 4 * cell + 4; k++) {
      const { x, y } = this.#pixels(this.#seen(cells.outmost[k]));
      left = Math.min(left, x);
      right = Math.max(right, x);
      top = Math.min(top, y);
      bottom = Math.max(bottom, y);
    }
    return Math.hypot(right - left, bottom - top);
  }

  /** Whether nothing of the circle can be in the picture. */
  #outside() {
    const [x, y, r] = this.image;
    if (r === Infinity) return false;
    if (this.model === MODELS.band) {
      const far = Math.log((Math.hypot(1 + Math.abs(x), y) - r) / (Math.hypot(1 - Math.abs(x), y) + r)) / Math.PI;
      return 2 * far * this.unit > this.width / 2 + MARGIN;
    }
    if (this.model !== MODELS.poincare) return false;
    const out = r * this.unit + MARGIN;
    return Math.abs(x) * this.unit - out > this.width / 2 || Math.abs(y) * this.unit - out > this.height / 2;
  }

  // --- drawing ------------------------------------------------------------------------------------------

  get dirty() {
    return this.camera.flight !== null;
  }

  /** @param {number} now milliseconds */
  step(now) {
    this.camera.step(now);
  }

  draw() {
    this.#look();
    this.#choose();
    const { frames, theme, model, ratio } = this, edges = this.edges && this.data.tree ? this.#edges() : null;
    this.painter.draw({ frames, theme, model, ratio, edges, unit: this.unit * ratio, sizes: this.sizes.map((size) => size * ratio),
      rows: this.rows.subarray(0, this.some) });
    this.drawn = { points: this.some, edges: edges?.edges ?? 0 };
  }

  /** Sizes in pixels: at the rim, more in the middle, and more per doubling of the subtree. */
  get sizes() {
    const room = Math.exp(-this.some / 8000); // the fewer there are, the larger
    return [1.3, 1.2 + 4.3 * room, this.data.tree ? 0.3 + 0.15 * room : 0];
  }

  /** The edges of the rows that are drawn, but for those too short to see; of very many, those with the most below them. */
  #edges() {
    const { data, model, colours, theme } = this, unit = this.unit * this.ratio, strips = new Strips();
    const a = { x: 0, y: 0, q: 0 }, b = { x: 0, y: 0, q: 0 }, seen = [], heavy = new Uint32Array(256);
    for (let i = 0; i < this.some; i++) {
      const row = this.rows[i], up = data.parent[row];
      if (up < 0 || !colours[4 * row + 3]) continue;
      this.#end(row, a);
      this.#end(up, b);
      const pixels = this.unit * apart(a, b, model);
      if (pixels < LEAST) continue;
      seen.push({ row, up, pixels });
      heavy[this.weight(row)]++;
    }
    let least = 255;
    for (let sum = heavy[least]; least > 0 && (sum += heavy[least - 1]) <= BUDGET;) least--;
    for (const { row, up, pixels } of seen) {
      if (this.weight(row) < least) continue;
      this.#end(row, a);
      this.#end(up, b);
      const pieces = pixels < 8 ? 2 : pixels < 40 ? 8 : pixels < 160 ? 18 : 32, [red, green, blue] = [0, 1, 2].map((k) =>
        Math.round(255 * theme.edge[k] + theme.tint * (colours[4 * row + k] - 255 * theme.edge[k])));
      strips.add(a, b, pieces, model, unit, this.ratio, red | (green << 8) | (blue << 16), theme.edge[3] * Math.min(1, pixels / 6));
    }
    return strips;
  }

  /** A node in the Klein disc. @param {number} row @param {import("./strips.js").End} out */
  #end(row, out) {
    const { views, data } = this, i = 4 * data.chunk[row], x = data.place[2 * row], y = data.place[2 * row + 1];
    const ar = views[i], ai = views[i + 1], br = views[i + 2], bi = views[i + 3];
    const nr = ar * x - ai * y + br, ni = ar * y + ai * x + bi, dr = br * x + bi * y + ar, di = br * y - bi * x - ai;
    const d = dr * dr + di * di, q = (1 - x * x - y * y) / d, s = 2 / ((2 - q) * d);
    out.x = s * (nr * dr + ni * di);
    out.y = s * (ni * dr - nr * di);
    out.q = (q / (2 - q)) ** 2;
  }

  // --- places in the picture ----------------------------------------------------------------------------

  /** A node before the camera. @param {number} row @returns {Isometry} */
  #seen(row) {
    const i = 4 * this.data.chunk[row], { views } = this, { place } = this.data;
    return times([views[i], views[i + 1], views[i + 2], views[i + 3]], carrying(place[2 * row], place[2 * row + 1]));
  }

  /** Pixels of where an isometry takes 0. @param {Isometry} m */
  #pixels([ar, ai, br, bi]) {
    const q = 1 / (ar * ar + ai * ai), x = (br * ar - bi * ai) * q, y = (bi * ar + br * ai) * q;
    const [u, v] = this.model.to(x, y, q), s = size(this.model, x, y, q);
    return { x: this.width / 2 + u * this.unit, y: this.height / 2 - v * this.unit, scale: s };
  }

  /** How much a node counts, as the points are drawn. @param {number} row */
  weight(row) {
    return this.data.size ? Math.round(Math.log2(this.data.size[row])) : 0;
  }

  /** Where a node is in the picture, and how large. @param {number} row */
  project(row) {
    const at = this.#pixels(this.#seen(row)), [rim, more, weight] = this.sizes, heavy = this.weight(row);
    const visible = at.x > -MARGIN && at.y > -MARGIN && at.x < this.width + MARGIN && at.y < this.height + MARGIN;
    return { ...at, size: rim + (more + weight * heavy) * at.scale ** 0.6, visible };
  }

  /** The place of a pixel in the disc. @param {number} x @param {number} y @returns {Complex} */
  #place(x, y) {
    return this.model.from((x - this.width / 2) / this.unit, (this.height / 2 - y) / this.unit);
  }

  /** The logarithm, at the origin, of what is at a pixel; null outside of the plane. @param {number} x @param {number} y */
  unproject(x, y) {
    const [u, v] = this.#place(x, y);
    if (!(Math.hypot(u, v) < 1)) return null;
    const [p, q] = apply(seen(origin(), this.camera.pose), u, v), r = Math.hypot(p, q), d = 2 * Math.atanh(r);
    return r > 0 ? { x: (d * p) / r, y: (d * q) / r } : { x: 0, y: 0 };
  }

  /** Rows in sight that may be named, the important ones first. @param {number} limit */
  visible(limit) {
    const { data } = this;
    /** @type {{row: number, weight: number}[]} */
    const found = [];
    for (const row of new Set(this.notable)) {
      const at = this.project(row);
      if (this.colours[4 * row + 3] && at.visible) found.push({ row, weight: Math.log2(data.size ? data.size[row] : 1) / 2 + 3 * Math.log2(0.02 + at.scale) });
    }
    return found.sort((p, q) => q.weight - p.weight || p.row - q.row).slice(0, limit).map(({ row }) => row);
  }

  /** The node at a pixel, −1 if none is near. @param {number} x @param {number} y */
  pick(x, y, reach = REACH) {
    const { cells } = this.data, waiting = [0];
    let best = -1, least = reach;
    const look = (/** @type {number} */ row) => {
      if (!this.colours[4 * row + 3]) return;
      const at = this.project(row), far = Math.hypot(at.x - x, at.y - y) - 0.3 * at.size;
      if (far < least) [best, least] = [row, far];
    };
    for (let cell = waiting.pop(); cell !== undefined; cell = waiting.pop()) {
      if (this.#gap(cell, x, y) > least + REACH) continue;
      const within = cells.within(cell);
      if (this.image[3] < 1) look(cells.chief[cell]);
      else if (within.length) waiting.push(...within);
      else for (let row = cells.first[cell]; row < cells.first[cell] + cells.count[cell]; row++) look(row);
    }
    return best;
  }

  /** Pixels between a pixel and the circle of a cell, or less. */
  #gap(/** @type {number} */ cell, /** @type {number} */ x, /** @type {number} */ y) {
    const [u, v, r] = this.#project(cell), { unit } = this;
    if (r === Infinity || this.model !== MODELS.poincare) return this.#outside() ? Infinity : 0;
    return Math.hypot(this.width / 2 + u * unit - x, this.height / 2 - v * unit - y) - r * unit;
  }

  /** The node in the middle. */
  centre() {
    return this.pick(this.width / 2, this.height / 2, Infinity);
  }

  /** The disc in pixels; null for the band. */
  disc() {
    return this.model.round ? { x: this.width / 2, y: this.height / 2, r: this.unit } : null;
  }

  /** The geodesic from a node to its parent, x and y in turn; null for a root. @param {number} row */
  edgePath(row) {
    const up = this.data.tree ? this.data.parent[row] : -1;
    return up < 0 ? null : this.geodesic(this.#seen(row), this.#seen(up));
  }

  /** @param {Isometry} a @param {Isometry} b */
  geodesic(a, b, pieces = 32) {
    const found = new Float64Array(2 * pieces + 2);
    along(klein(a), klein(b), pieces, (x, y, q, i) => {
      const [u, v] = this.model.to(x, y, q);
      found[2 * i] = this.width / 2 + u * this.unit;
      found[2 * i + 1] = this.height / 2 - v * this.unit;
    });
    return found;
  }

  /** The contours of a node's density, x and y in turn; null for points. @param {number} row */
  contours(row) {
    if (!this.data.scale) return null;
    const view = seen(this.camera.pose, this.data.law(row).pose);
    return this.data.contours(row).map(({ mass, line }) => ({ mass, points: Float64Array.from(line.flatMap(({ radius, angle }) => {
      const { x, y } = this.#pixels(times(view, translation(radius, angle)));
      return [x, y];
    })) }));
  }

  // --- moving -------------------------------------------------------------------------------------------

  /** Moves what is at one pixel to another. */
  drag(/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ u, /** @type {number} */ v) {
    this.camera.drag(this.#place(x, y), this.#place(u, v));
  }

  /** Deeper towards a pixel, or back towards the origin; larger, where there is no tree. @param {number} factor @param {number} x @param {number} y */
  zoom(factor, x, y) {
    if (!this.data.tree) return this.magnify(factor, x, y);
    const way = DEEPER * Math.log(factor);
    if (way < 0) this.camera.retreat(-way);
    else this.camera.approach(this.#place(x, y), way);
  }

  /** Larger about a pixel. @param {number} factor @param {number} x @param {number} y */
  magnify(factor, x, y) {
    const place = this.#place(x, y);
    this.magnification = Math.max(1, Math.min(LARGEST, this.magnification * factor));
    this.camera.drag(place, this.#place(x, y));
  }

  /** @param {number} row @param {number} time milliseconds */
  fly(row, time) {
    return this.camera.fly(this.data.pose(row), row, time);
  }

  /** @param {number} time milliseconds */
  home(time) {
    this.magnification = 1;
    return this.camera.fly(origin(), "home", time);
  }

  /** @param {string} model */
  setModel(model) {
    this.model = MODELS[model];
  }

  /** @param {boolean} on */
  showEdges(on) {
    this.edges = on;
  }

  /** The view as text; null if it is where a click on the selected node would lead. @param {number} selected */
  state(selected) {
    const { at, text } = this.camera, plain = selected < 0 ? at === "home" : at === selected;
    return plain && this.magnification === 1 ? null : `${text}.${Math.round(100 * this.magnification)}`;
  }

  /** @param {string} state @returns {boolean} whether it was one */
  restore(state) {
    const [text, magnification] = state.split(".");
    try {
      this.camera.text = text;
    } catch {
      return false;
    }
    this.magnification = Math.max(1, Math.min(LARGEST, Number(magnification) / 100 || 1));
    return true;
  }
}

/** How far apart the ends of an edge are in the picture, or a bit more. */
function apart(/** @type {import("./strips.js").End} */ a, /** @type {import("./strips.js").End} */ b, /** @type {import("./models.js").Model} */ model) {
  const m = Math.sqrt(a.q), n = Math.sqrt(b.q), s = 1 + m, t = 1 + n;
  if (model !== MODELS.wide) return (model.round ? model.stretch(0, 0, 0) : 8) * Math.hypot(a.x / s - b.x / t, a.y / s - b.y / t);
  const [x, y] = model.to(a.x / s, a.y / s, (2 * m) / s), [u, v] = model.to(b.x / t, b.y / t, (2 * n) / t);
  return Math.hypot(x - u, y - v);
}

/** A place in the Klein disc, with 1 − |k|². @param {Isometry} m */
function klein([ar, ai, br, bi]) {
  const q = 1 / (ar * ar + ai * ai), t = 2 - q;
  return { x: (2 * q * (br * ar - bi * ai)) / t, y: (2 * q * (bi * ar + br * ai)) / t, q: (q / t) ** 2 };
}
