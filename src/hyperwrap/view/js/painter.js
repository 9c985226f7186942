// Drawing a picture with WebGL2: the ground, edges, points.

import { buffer, frameTable, program } from "./gpu.js";
import { EDGE_FRAGMENT, EDGE_VERTEX, POINT_FRAGMENT, POINT_VERTEX, RING_FRAGMENT, RING_VERTEX } from "./shaders.js";

/** @typedef {{background: number[], disc: number[], edge: number[], rim: number[], tint: number}} Theme */
/** @typedef {{segments: number, list: EdgeList}} Edges */
/**
 * @typedef {{frames: Float32Array, theme: Theme, model: import("./models.js").Model, ratio: number, unit: number,
 *   sizes: number[], rows: Uint32Array, edges: Edges[]}} Picture
 * Lengths are in device pixels.
 */
/** @typedef {[name: string, from: WebGLBuffer | null, numbers: number, stride: number, offset: number]} Attribute */

const EDGE = 28; // bytes: two ends of three floats, four bytes of colour
const CORNERS = 256; // of a circle

export class Painter {
  /** @type {import("./gpu.js").Program} */ point;
  /** @type {import("./gpu.js").Program} */ edge;
  /** @type {import("./gpu.js").Program} */ ring;
  /** @type {WebGLTexture | null} */ texture = null;
  /** @type {WebGLBuffer | null} */ colours = null;
  /** @type {WebGLBuffer | null} */ ends = null;
  /** @type {WebGLVertexArrayObject | null} */ points = null;
  /** @type {WebGLVertexArrayObject | null} */ strips = null;

  /** @param {WebGL2RenderingContext} gl @param {import("./pack.js").Pack} data @param {Uint8Array} weights */
  constructor(gl, data, weights) {
    this.gl = gl;
    this.data = data;
    this.weights = weights;
    this.start(new Uint8Array(4 * data.count));
  }

  /** Brings everything to the GPU; again, after it was lost. @param {Uint8Array} colours */
  start(colours) {
    const { gl, data } = this;
    this.point = program(gl, POINT_VERTEX, POINT_FRAGMENT);
    this.edge = program(gl, EDGE_VERTEX, EDGE_FRAGMENT);
    this.ring = program(gl, RING_VERTEX, RING_FRAGMENT);
    this.texture = frameTable(gl, Math.ceil(data.cells.frames.length / 256));
    const [place, chunk, colour, weight] = [data.place, data.chunk, colours, this.weights].map((values) => buffer(gl, values));
    this.colours = colour;
    this.points = this.#attributes(this.point, 0, [["place", place, 2, 0, 0], ["chunk", chunk, 1, 0, 0], ["colour", colour, 4, 0, 0], ["weight", weight, 1, 0, 0]]);
    gl.bindVertexArray(this.points);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
    gl.bindVertexArray(null);
    this.ends = gl.createBuffer();
    this.strips = this.#attributes(this.edge, 1, [["from", this.ends, 3, EDGE, 0], ["to", this.ends, 3, EDGE, 12], ["colour", this.ends, 4, EDGE, 24]]);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    gl.depthFunc(gl.LEQUAL);
  }

  #attributes(/** @type {import("./gpu.js").Program} */ { slot }, /** @type {number} */ divisor, /** @type {Attribute[]} */ attributes) {
    const { gl } = this, array = gl.createVertexArray();
    gl.bindVertexArray(array);
    for (const [name, from, numbers, stride, offset] of attributes) {
      const at = slot(name);
      gl.bindBuffer(gl.ARRAY_BUFFER, from);
      gl.enableVertexAttribArray(at);
      if (name === "chunk") gl.vertexAttribIPointer(at, numbers, gl.UNSIGNED_INT, stride, offset);
      else if (name === "colour" || name === "weight") gl.vertexAttribPointer(at, numbers, gl.UNSIGNED_BYTE, name === "colour", stride, offset);
      else gl.vertexAttribPointer(at, numbers, gl.FLOAT, false, stride, offset);
      gl.vertexAttribDivisor(at, divisor);
    }
    gl.bindVertexArray(null);
    return array;
  }

  /** @param {Uint8Array} colours four bytes per row */
  setColours(colours) {
    const { gl } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.colours);
    gl.bufferData(gl.ARRAY_BUFFER, colours, gl.DYNAMIC_DRAW);
  }

  /** @param {Picture} picture */
  draw(picture) {
    const { gl } = this, { theme, frames } = picture;
    gl.viewport(0, 0, gl.canvas.width, gl.canvas.height);
    gl.clearColor(theme.background[0], theme.background[1], theme.background[2], 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.disable(gl.DEPTH_TEST);
    if (picture.model.round) this.#disc(picture);
    else this.#band(picture);
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, 256, frames.length / 1024, gl.RGBA, gl.FLOAT, frames);
    this.#edges(picture);
    gl.enable(gl.DEPTH_TEST);
    this.#points(picture);
  }

  #disc(/** @type {Picture} */ { theme, unit, ratio }) {
    const { gl } = this, { made, at } = this.ring;
    gl.useProgram(made);
    gl.uniform2f(at("half_size"), gl.canvas.width / 2, gl.canvas.height / 2);
    const ring = (/** @type {number} */ inner, /** @type {number} */ outer, /** @type {number[]} */ [red, green, blue], /** @type {number} */ soft) => {
      gl.uniform2f(at("radii"), inner, outer);
      gl.uniform4f(at("ink"), red, green, blue, 1);
      gl.uniform1f(at("soft"), soft);
      gl.drawArrays(gl.TRIANGLE_STRIP, 0, 2 * CORNERS + 2);
    };
    ring(0, unit, theme.disc, 0);
    ring(unit - 1.2 * ratio, unit + 1.2 * ratio, theme.rim, 1);
  }

  #band(/** @type {Picture} */ { theme, unit, ratio }) {
    const { gl } = this, { width, height } = gl.canvas, low = Math.round(height / 2 - unit), line = Math.max(1, Math.round(ratio));
    gl.enable(gl.SCISSOR_TEST);
    const stripe = (/** @type {number} */ from, /** @type {number} */ tall, /** @type {number[]} */ [red, green, blue]) => {
      gl.scissor(0, from, width, tall);
      gl.clearColor(red, green, blue, 1);
      gl.clear(gl.COLOR_BUFFER_BIT);
    };
    stripe(low - line, Math.round(2 * unit) + 2 * line, theme.rim);
    stripe(low, Math.round(2 * unit), theme.disc);
    gl.disable(gl.SCISSOR_TEST);
  }

  /** Takes a program up, with the uniforms that both kinds of things have. */
  #use(/** @type {import("./gpu.js").Program} */ { made, at }, /** @type {Picture} */ { unit, model }) {
    const { gl } = this;
    gl.useProgram(made);
    gl.uniform2f(at("half_size"), gl.canvas.width / 2, gl.canvas.height / 2);
    gl.uniform1f(at("unit"), unit);
    gl.uniform1i(at("model"), model.index);
    return at;
  }

  #points(/** @type {Picture} */ picture) {
    const { gl } = this, at = this.#use(this.point, picture), [rim, more, weight] = picture.sizes;
    gl.uniform1i(at("frames"), 0);
    gl.uniform3f(at("sizes"), rim, more, weight);
    gl.bindVertexArray(this.points);
    if (picture.rows.length === this.data.count) gl.drawArrays(gl.POINTS, 0, this.data.count);
    else {
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, picture.rows, gl.STREAM_DRAW);
      gl.drawElements(gl.POINTS, picture.rows.length, gl.UNSIGNED_INT, 0);
    }
    gl.bindVertexArray(null);
  }

  #edges(/** @type {Picture} */ picture) {
    if (!picture.edges.length) return;
    const { gl } = this, { theme } = picture, at = this.#use(this.edge, picture);
    gl.uniform4f(at("ink"), theme.edge[0], theme.edge[1], theme.edge[2], theme.edge[3]);
    gl.uniform1f(at("tint"), theme.tint);
    gl.uniform1f(at("thick"), picture.ratio);
    gl.bindVertexArray(this.strips);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.ends);
    for (const { segments, list } of picture.edges) {
      gl.bufferData(gl.ARRAY_BUFFER, list.bytes, gl.STREAM_DRAW);
      gl.uniform1f(at("segments"), segments);
      gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 2 * (segments + 1), list.count);
    }
    gl.bindVertexArray(null);
  }
}

/** Edges as the shader wants them, in a list that grows. */
export class EdgeList {
  count = 0;
  whole = new Uint8Array(1024 * EDGE);
  floats = new Float32Array(this.whole.buffer);

  #grow() {
    const old = this.whole;
    this.whole = new Uint8Array(2 * old.length);
    this.whole.set(old);
    this.floats = new Float32Array(this.whole.buffer);
  }

  /** @param {Float64Array} ends @param {Uint8Array} colours @param {number} at @param {number} alpha */
  add(ends, colours, at, alpha) {
    if ((this.count + 1) * EDGE > this.whole.length) this.#grow();
    const f = (this.count * EDGE) / 4, b = this.count * EDGE + 24;
    this.floats[f] = ends[0];
    this.floats[f + 1] = ends[1];
    this.floats[f + 2] = ends[3];
    this.floats[f + 3] = ends[4];
    this.floats[f + 4] = ends[5];
    this.floats[f + 5] = ends[7];
    for (let k = 0; k < 3; k++) this.whole[b + k] = colours[at + k];
    this.whole[b + 3] = 255 * alpha;
    this.count += 1;
  }

  get bytes() {
    return this.whole.subarray(0, this.count * EDGE);
  }
}
