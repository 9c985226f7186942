// Drawing a picture with WebGL2: the ground, edges, points.

import { buffer, frameTable, program } from "./gpu.js";
import { EDGE_FRAGMENT, EDGE_VERTEX, POINT_FRAGMENT, pointVertex, RING_FRAGMENT, RING_VERTEX } from "./shaders.js";

/** @typedef {{background: number[], disc: number[], edge: number[], rim: number[], tint: number}} Theme */
/**
 * @typedef {{frames: Float32Array, theme: Theme, model: import("./models.js").Model, ratio: number, unit: number,
 *   sizes: number[], rows: Uint32Array, edges: import("./strips.js").Strips | null}} Picture
 * Lengths are in device pixels.
 */
/** @typedef {[name: string, from: WebGLBuffer | null, numbers: number, stride: number, offset: number]} Attribute */

const VERTEX_BYTES = 20;
const CORNERS = 256; // of a circle

export class Painter {
  /** @type {Map<number, import("./gpu.js").Program>} what draws points, for each model */ point = new Map();
  /** @type {import("./gpu.js").Program} */ edge;
  /** @type {import("./gpu.js").Program} */ ring;
  /** @type {WebGLTexture | null} */ texture = null;
  /** @type {WebGLBuffer | null} */ colours = null;
  /** @type {WebGLBuffer | null} */ vertices = null;
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
    this.point.clear();
    this.edge = program(gl, EDGE_VERTEX, EDGE_FRAGMENT);
    this.ring = program(gl, RING_VERTEX, RING_FRAGMENT);
    this.texture = frameTable(gl, Math.ceil(data.cells.frames.length / 256));
    const [place, chunk, colour, weight] = [data.place, data.chunk, colours, this.weights].map((values) => buffer(gl, values));
    this.colours = colour;
    this.points = this.#attributes([["place", place, 2, 0, 0], ["chunk", chunk, 1, 0, 0], ["colour", colour, 4, 0, 0], ["weight", weight, 1, 0, 0]]);
    gl.bindVertexArray(this.points);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
    gl.bindVertexArray(null);
    const edges = (this.vertices = gl.createBuffer());
    this.strips = this.#attributes([["place", edges, 2, VERTEX_BYTES, 0], ["side", edges, 2, VERTEX_BYTES, 8], ["colour", edges, 4, VERTEX_BYTES, 16]]);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    gl.depthFunc(gl.LEQUAL);
  }

  /** In this order, which is that of the slots. */
  #attributes(/** @type {Attribute[]} */ attributes) {
    const { gl } = this, array = gl.createVertexArray();
    gl.bindVertexArray(array);
    for (const [at, [name, from, numbers, stride, offset]] of attributes.entries()) {
      gl.bindBuffer(gl.ARRAY_BUFFER, from);
      gl.enableVertexAttribArray(at);
      if (name === "chunk") gl.vertexAttribIPointer(at, numbers, gl.UNSIGNED_INT, stride, offset);
      else if (name === "colour" || name === "weight") gl.vertexAttribPointer(at, numbers, gl.UNSIGNED_BYTE, name === "colour", stride, offset);
      else gl.vertexAttribPointer(at, numbers, gl.FLOAT, false, stride, offset);
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

  #points(/** @type {Picture} */ picture) {
    const { gl } = this, { model, unit, sizes: [rim, more, weight] } = picture;
    const { made, at } = this.point.get(model.index) ?? program(gl, pointVertex(model.index), POINT_FRAGMENT);
    this.point.set(model.index, { made, at });
    gl.useProgram(made);
    gl.uniform2f(at("half_size"), gl.canvas.width / 2, gl.canvas.height / 2);
    gl.uniform1f(at("unit"), unit);
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

  #edges(/** @type {Picture} */ { edges }) {
    if (!edges?.count) return;
    const { gl } = this, { made, at } = this.edge;
    gl.useProgram(made);
    gl.uniform2f(at("half_size"), gl.canvas.width / 2, gl.canvas.height / 2);
    gl.bindVertexArray(this.strips);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.vertices);
    gl.bufferData(gl.ARRAY_BUFFER, edges.used, gl.STREAM_DRAW);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, edges.count);
    gl.bindVertexArray(null);
  }
}
