// The picture: which chunks are in sight, how they lie before the camera, and drawing them.
//
// Every picture the matrices camera⁻¹·anchor are composed in float64. The shader applies them to the
// places of points in their chunk, which float32 holds well.

import { Camera } from "./camera.js";
import { buffer, frameTable, program } from "./gpu.js";
import { MODELS, size } from "./models.js";
import { apply, between, carrying, inverse, origin, seen, times, translation } from "./plane.js";
import { EDGE_FRAGMENT, EDGE_VERTEX, POINT_FRAGMENT, POINT_VERTEX, RING_FRAGMENT, RING_VERTEX } from "./shaders.js";
import { LEVELS } from "./pack.js";

/** @typedef {import("./plane.js").Isometry} Isometry */
/** @typedef {import("./plane.js").Complex} Complex */
/** @typedef {{cell: number, first: number, count: number, pixels: number}} Run */

const MARGIN = 14; // pixels between the disc and the edge of the picture
const TINY = 0.5; // pixels; what lies within so much is drawn as one point
const LARGEST = 400; // magnification
const DEEPER = 1.8; // how far a wheel goes, per e-fold
const REACH = 12; // pixels from a point that still hit it
const HUGE = 1e30; // of |α|² in float32

/**
 * @typedef {{background: number[], disc: number[], edge: number[], rim: number[], tint: number}} Theme
 */

export class Scene {
  /** @param {HTMLCanvasElement} canvas @param {import("./pack.js").Pack} data */
  constructor(canvas, data) {
    const gl = canvas.getContext("webgl2", { antialias: false, alpha: false, powerPreference: "high-performance" });
    if (!gl) throw new Error("no WebGL2");
    this.canvas = canvas;
    this.gl = gl;
    this.data = data;
    this.camera = new Camera();
    this.model = MODELS.poincare;
    this.magnification = 1;
    this.edges = false;
    /** Pixels by which a point may be off that is drawn as another one; 0 draws every one. */
    this.tolerance = 0.75;
    this.width = this.height = this.ratio = 1;
    const count = data.cells.length;
    this.bases = new Float64Array(4 * count); // anchors seen from the frame of the camera
    this.views = new Float64Array(4 * count); // and from the camera
    this.frames = new Float32Array(4 * 256 * Math.ceil(count / 256));
    /** @type {Run[]} */
    this.runs = [];
    this.drawn = { points: 0, edges: 0 };
    this.colours = new Uint8Array(4 * data.count).fill(255);
    /** @type {Theme} */
    this.theme = { background: [1, 1, 1], disc: [1, 1, 1], edge: [0, 0, 0, 1], rim: [0, 0, 0, 1], tint: 0 };
    this.#start();
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => { this.#start(); this.draw(); });
  }

  // --- on the GPU ---------------------------------------------------------------------------------------

  #start() {
    const { gl, data } = this;
    this.point = program(gl, POINT_VERTEX, POINT_FRAGMENT);
    this.edge = program(gl, EDGE_VERTEX, EDGE_FRAGMENT);
    this.ring = program(gl, RING_VERTEX, RING_FRAGMENT);
    this.texture = frameTable(gl, this.frames.length / 1024);
    this.buffers = { place: buffer(gl, data.place), chunk: buffer(gl, data.chunk), colour: buffer(gl, this.colours),
      weight: buffer(gl, this.#weights()), above: null, aboveChunk: null };
    this.points = gl.createVertexArray();
    gl.bindVertexArray(this.points);
    this.#attributes(this.point, 0, 0);
    gl.bindVertexArray(null);
    this.multi = gl.getExtension("WEBGL_multi_draw");
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    gl.depthFunc(gl.LEQUAL);
  }

  /** How much a point weighs, from the size of its subtree. */
  #weights() {
    const { size: sizes, count } = this.data, weights = new Uint8Array(count);
    if (sizes) for (let i = 0; i < count; i++) weights[i] = Math.round(Math.log2(sizes[i]));
    return weights;
  }

  /** Points at the attributes of rows, from `first` on. */
  #attributes(/** @type {ReturnType<typeof program>} */ { slot }, /** @type {number} */ first, /** @type {number} */ divisor) {
    const { gl, buffers } = this;
    const bind = (/** @type {string} */ name, /** @type {WebGLBuffer | null} */ from, /** @type {number} */ length, /** @type {number} */ kind, /** @type {number} */ bytes) => {
      const at = slot(name);
      if (at < 0) return;
      gl.bindBuffer(gl.ARRAY_BUFFER, from);
      gl.enableVertexAttribArray(at);
      if (kind === gl.UNSIGNED_INT) gl.vertexAttribIPointer(at, length, kind, 0, first * bytes);
      else gl.vertexAttribPointer(at, length, kind, name === "colour", 0, first * bytes);
      gl.vertexAttribDivisor(at, divisor);
    };
    bind("place", buffers.place, 2, gl.FLOAT, 8);
    bind("chunk", buffers.chunk, 1, gl.UNSIGNED_INT, 4);
    bind("colour", buffers.colour, 4, gl.UNSIGNED_BYTE, 4);
    bind("weight", buffers.weight, 1, gl.UNSIGNED_BYTE, 1);
    bind("above", buffers.above, 2, gl.FLOAT, 8);
    bind("above_chunk", buffers.aboveChunk, 1, gl.UNSIGNED_INT, 4);
  }

  /** The parents of rows, when edges are first drawn; a root is its own. */
  #bringEdges() {
    const { data, gl, buffers } = this, { count, parent, place, chunk } = data;
    if (buffers.above) return;
    const above = new Float32Array(2 * count), aboveChunk = new Uint32Array(count);
    for (let row = 0; row < count; row++) {
      const up = parent[row] >= 0 ? parent[row] : row;
      above[2 * row] = place[2 * up];
      above[2 * row + 1] = place[2 * up + 1];
      aboveChunk[row] = chunk[up];
    }
    buffers.above = buffer(gl, above);
    buffers.aboveChunk = buffer(gl, aboveChunk);
  }

  /** @param {Uint8Array} colours four bytes per row; with alpha 0 it is not drawn */
  setColours(colours) {
    const { gl, buffers } = this;
    this.colours = colours;
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.colour);
    gl.bufferData(gl.ARRAY_BUFFER, colours, gl.DYNAMIC_DRAW);
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
      for (const cell of data.cells) bases.set(between(g, a, cell.g, cell.a), 4 * cell.index);
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
    const { data } = this, waiting = [0];
    /** @type {Run[]} */
    const runs = [];
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      const cell = data.cells[next], image = this.#image(cell);
      if (!cell.count || this.#outside(image)) continue;
      if (image.pixels < TINY && this.tolerance) runs.push({ cell: next, first: cell.first, count: 1, pixels: image.pixels });
      else if (cell.within.length) waiting.push(...cell.within);
      else runs.push({ cell: next, first: cell.first, count: this.#enough(cell, image), pixels: image.pixels });
    }
    this.runs = runs.sort((p, q) => p.first - q.first);
  }

  /** The circle of a cell before the camera, and by how much it is magnified at most. */
  #image(/** @type {import("./pack.js").Cell} */ { index, x, y, r }) {
    const i = 4 * index, { views } = this;
    const ar = views[i], ai = views[i + 1], br = views[i + 2], bi = views[i + 3];
    const nr = ar * x - ai * y + br, ni = ar * y + ai * x + bi, dr = br * x + bi * y + ar, di = br * y - bi * x - ai;
    const pole = Math.hypot(dr, di), slope = Math.hypot(br, bi) * r, gap = pole - slope;
    if (!(gap > 0)) return { x: 0, y: 0, r: Infinity, pixels: Infinity, spread: Infinity };
    const d = gap * (pole + slope), abr = ar * br - ai * bi, abi = ar * bi + ai * br;
    const cx = (nr * dr + ni * di - abr * r * r) / d, cy = (ni * dr - nr * di - abi * r * r) / d;
    const grown = this.unit * this.model.stretch(cx, cy, r / d);
    return { x: cx, y: cy, r: r / d, pixels: grown * (r / d), spread: (grown * r) / gap ** 2 };
  }

  /** Whether nothing of a circle can be in the picture. */
  #outside(/** @type {{x: number, y: number, r: number}} */ { x, y, r }) {
    if (this.model === MODELS.band) {
      const far = Math.log((Math.hypot(1 + Math.abs(x), y) - r) / (Math.hypot(1 - Math.abs(x), y) + r)) * (2 / Math.PI);
      return far * this.unit > this.width / 2 + MARGIN;
    }
    if (this.model !== MODELS.poincare) return false;
    const out = r * this.unit + MARGIN;
    return Math.abs(x) * this.unit - out > this.width / 2 || Math.abs(y) * this.unit - out > this.height / 2;
  }

  /** How many rows of a chunk are enough that each of the others is as near to one as the tolerance. */
  #enough(/** @type {import("./pack.js").Cell} */ { index, count }, /** @type {{spread: number}} */ { spread }) {
    if (!this.tolerance) return count;
    const level = Math.max(0, Math.ceil(Math.log2((2 * Math.SQRT2 * spread) / this.tolerance)));
    return level >= LEVELS ? count : this.data.levels[LEVELS * index + level];
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
    const { gl, theme } = this;
    this.#look();
    this.#choose();
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.depthMask(true);
    gl.clearColor(theme.background[0], theme.background[1], theme.background[2], 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.disable(gl.DEPTH_TEST);
    this.#drawGround();
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, 256, this.frames.length / 1024, gl.RGBA, gl.FLOAT, this.frames);
    this.drawn = { points: 0, edges: 0 };
    if (this.edges && this.data.tree) this.#drawEdges();
    gl.enable(gl.DEPTH_TEST);
    this.#drawPoints();
  }

  /** The uniforms that both kinds of things have. */
  #use(/** @type {ReturnType<typeof program>} */ { made, at }) {
    const { gl } = this;
    gl.useProgram(made);
    gl.uniform1i(at("frames"), 0);
    gl.uniform2f(at("half_size"), this.canvas.width / 2, this.canvas.height / 2);
    gl.uniform1f(at("unit"), this.unit * this.ratio);
    gl.uniform1i(at("model"), this.model.index);
    return at;
  }

  #drawGround() {
    const { gl, theme, unit, ratio } = this, { width, height } = this.canvas, r = unit * ratio;
    if (!this.model.round) {
      const low = Math.round(height / 2 - r), tall = Math.round(2 * r), line = Math.max(1, Math.round(ratio));
      gl.enable(gl.SCISSOR_TEST);
      for (const [from, size, colour] of /** @type {[number, number, number[]][]} */ ([[low - line, tall + 2 * line, theme.rim], [low, tall, theme.disc]])) {
        gl.scissor(0, from, width, size);
        gl.clearColor(colour[0], colour[1], colour[2], 1);
        gl.clear(gl.COLOR_BUFFER_BIT);
      }
      return gl.disable(gl.SCISSOR_TEST);
    }
    const { made, at } = this.ring;
    gl.useProgram(made);
    gl.uniform2f(at("half_size"), width / 2, height / 2);
    const ring = (/** @type {number} */ inner, /** @type {number} */ outer, /** @type {number[]} */ [red, green, blue], /** @type {number} */ soft) => {
      gl.uniform2f(at("radii"), inner, outer);
      gl.uniform4f(at("ink"), red, green, blue, 1);
      gl.uniform1f(at("soft"), soft);
      gl.drawArrays(gl.TRIANGLE_STRIP, 0, 514);
    };
    ring(0, r, theme.disc, 0);
    return ring(r - 1.2 * ratio, r + 1.2 * ratio, theme.rim, 1);
  }

  /** Sizes in pixels: at the rim, more in the middle, and more per doubling of the subtree. */
  get sizes() {
    const n = this.data.count, most = n < 3000 ? 5 : n < 30_000 ? 4.2 : n < 300_000 ? 3.2 : 2.2;
    return [1.1, most - 1.1, this.data.tree ? 0.4 : 0];
  }

  #drawPoints() {
    const { gl } = this, runs = joined(this.runs), at = this.#use(/** @type {any} */ (this.point)), { ratio } = this;
    const [rim, more, weight] = this.sizes;
    gl.uniform3f(at("sizes"), rim * ratio, more * ratio, weight * ratio);
    gl.bindVertexArray(this.points);
    const first = Int32Array.from(runs, (run) => run.first), count = Int32Array.from(runs, (run) => run.count);
    if (this.multi) this.multi.multiDrawArraysWEBGL(gl.POINTS, first, 0, count, 0, runs.length);
    else for (let i = 0; i < runs.length; i++) gl.drawArrays(gl.POINTS, first[i], count[i]);
    gl.bindVertexArray(null);
    this.drawn.points = count.reduce((sum, n) => sum + n, 0);
  }

  #drawEdges() {
    this.#bringEdges();
    const { gl, theme, ratio } = this, runs = joined(this.runs), edge = /** @type {any} */ (this.edge), at = this.#use(edge);
    const total = runs.reduce((sum, run) => sum + run.count, 0), segments = total < 4000 ? 20 : total < 20_000 ? 12 : 6;
    gl.uniform4f(at("ink"), theme.edge[0], theme.edge[1], theme.edge[2], theme.edge[3]);
    gl.uniform1f(at("tint"), theme.tint);
    gl.uniform1f(at("segments"), segments);
    gl.uniform1f(at("thick"), ratio);
    for (const run of runs) {
      this.#attributes(edge, run.first, 1);
      gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 2 * (segments + 1), run.count);
    }
    this.drawn.edges = total;
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

  /** Where a node is in the picture, and how large. @param {number} row */
  project(row) {
    const at = this.#pixels(this.#seen(row)), [rim, more, weight] = this.sizes;
    const heavy = this.data.size ? Math.round(Math.log2(this.data.size[row])) : 0;
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

  /** Rows in sight, the important ones first. @param {number} limit */
  visible(limit) {
    const { data, runs } = this, share = runs.reduce((sum, run) => sum + Math.min(run.pixels, 400), 1e-9);
    /** @type {{row: number, weight: number}[]} */
    const found = [];
    for (const { first, count, pixels } of runs) {
      const some = Math.min(count, 1 + Math.round((4 * limit * Math.min(pixels, 400)) / share));
      for (let row = first; row < first + some; row++) {
        if (!this.colours[4 * row + 3]) continue;
        const at = this.project(row);
        if (at.visible) found.push({ row, weight: Math.log2(data.size ? data.size[row] : 1) / 2 + 3 * Math.log2(0.02 + at.scale) });
      }
    }
    return found.sort((p, q) => q.weight - p.weight || p.row - q.row).slice(0, limit).map(({ row }) => row);
  }

  /** The node at a pixel, −1 if none is near. @param {number} x @param {number} y */
  pick(x, y, reach = REACH) {
    let best = -1, least = reach;
    for (const { cell, first, count } of this.runs) {
      const image = this.#image(this.data.cells[cell]);
      if (this.model.round && this.model.index === 0 && this.#far(image, x, y) > reach) continue;
      for (let row = first; row < first + count; row++) {
        if (!this.colours[4 * row + 3]) continue;
        const at = this.project(row), far = Math.hypot(at.x - x, at.y - y) - 0.3 * at.size;
        if (far < least) [best, least] = [row, far];
      }
    }
    return best;
  }

  /** Pixels between a pixel and a circle of the disc. */
  #far(/** @type {{x: number, y: number, r: number}} */ circle, /** @type {number} */ x, /** @type {number} */ y) {
    const { unit } = this;
    return Math.hypot(this.width / 2 + circle.x * unit - x, this.height / 2 - circle.y * unit - y) - circle.r * unit;
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
  geodesic(a, b, segments = 24) {
    const [p, q] = [a, b].map(klein), apart = (p.x - q.x) ** 2 + (p.y - q.y) ** 2;
    const found = new Float64Array(2 * segments + 2);
    for (let i = 0; i <= segments; i++) {
      const t = 0.5 - 0.5 * Math.cos((Math.PI * i) / segments), s = 1 - t;
      const m = Math.sqrt(s * s * p.q + t * t * q.q + s * t * (p.q + q.q + apart)), x = (s * p.x + t * q.x) / (1 + m), y = (s * p.y + t * q.y) / (1 + m);
      const [u, v] = this.model.to(x, y, (2 * m) / (1 + m));
      found[2 * i] = this.width / 2 + u * this.unit;
      found[2 * i + 1] = this.height / 2 - v * this.unit;
    }
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

/** Runs that follow one another as one. @param {Run[]} runs */
function joined(runs) {
  /** @type {{first: number, count: number}[]} */
  const found = [];
  for (const { first, count } of runs) {
    const last = found[found.length - 1];
    if (last && last.first + last.count === first) last.count += count;
    else found.push({ first, count });
  }
  return found;
}

/** A place in the Klein disc, with 1 − |k|². @param {Isometry} m */
function klein([ar, ai, br, bi]) {
  const q = 1 / (ar * ar + ai * ai), t = 2 - q;
  return { x: (2 * q * (br * ar - bi * ai)) / t, y: (2 * q * (bi * ar + br * ai)) / t, q: (q / t) ** 2 };
}
