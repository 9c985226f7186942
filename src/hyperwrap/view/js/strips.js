// Edges as strips of triangles, along the geodesics between nodes.
//
// In the Klein disc a geodesic is a chord. With k on it, the place in the Poincaré disc is k/(1 + √(1−|k|²)),
// and 1 − |k|² is a sum of positive terms.

/** @typedef {{x: number, y: number, q: number}} End where in the Klein disc, and 1 − |k|² */

const VERTEX = 5; // words: place, side, half the width, colour
const PIECES = 32; // pieces of an edge
const eased = Array.from({ length: PIECES + 1 }, (_, n) => Float64Array.from({ length: n + 1 }, (_, i) => 0.5 - 0.5 * Math.cos((Math.PI * i) / n)));

/** Places along the geodesic, closer together where it ends: calls `found(x, y, q)`, in the Poincaré disc. */
export function along(/** @type {End} */ a, /** @type {End} */ b, /** @type {number} */ pieces, /** @type {(x: number, y: number, q: number, i: number) => void} */ found) {
  const apart = (a.x - b.x) ** 2 + (a.y - b.y) ** 2;
  for (let i = 0; i <= pieces; i++) {
    const t = eased[pieces][i], s = 1 - t, m = Math.sqrt(s * s * a.q + t * t * b.q + s * t * (a.q + b.q + apart));
    found((s * a.x + t * b.x) / (1 + m), (s * a.y + t * b.y) / (1 + m), (2 * m) / (1 + m), i);
  }
}

/** Strips, one after the other, in a list that grows. */
export class Strips {
  /** Vertices, and edges. */
  count = 0;
  edges = 0;
  floats = new Float32Array(4096 * VERTEX);
  words = new Uint32Array(this.floats.buffer);
  #line = new Float64Array(3 * (PIECES + 1));

  /**
   * @param {End} a @param {End} b @param {number} pieces @param {import("./models.js").Model} model
   * @param {number} unit pixels @param {number} thick pixels @param {number} rgb as a word @param {number} alpha 0 … 1
   */
  add(a, b, pieces, model, unit, thick, rgb, alpha) {
    const line = this.#line;
    along(a, b, pieces, (x, y, q, i) => {
      const [u, v] = model.to(x, y, q);
      line[3 * i] = u * unit;
      line[3 * i + 1] = v * unit;
      line[3 * i + 2] = q;
    });
    while ((this.count + 2 * pieces + 4) * VERTEX > this.floats.length) this.#grow();
    for (let i = 0; i <= pieces; i++) {
      const from = 3 * Math.max(0, i - 1), to = 3 * Math.min(pieces, i + 1), dx = line[to] - line[from], dy = line[to + 1] - line[from + 1];
      const far = Math.hypot(dx, dy) || 1, q = line[3 * i + 2], half = 0.5 * thick * (0.8 + 0.9 * q), word = rgb | (Math.round(255 * alpha * (0.55 + 0.45 * Math.sqrt(q))) << 24);
      const nx = (-dy / far) * (half + 1), ny = (dx / far) * (half + 1), x = line[3 * i], y = line[3 * i + 1];
      if (i === 0 && this.count) this.#repeat(x + nx, y + ny, half, word); // nothing is drawn on the way from the last edge
      this.#vertex(x + nx, y + ny, 1, half, word);
      this.#vertex(x - nx, y - ny, -1, half, word);
    }
    this.edges += 1;
  }

  #repeat(/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ half, /** @type {number} */ word) {
    const last = (this.count - 1) * VERTEX;
    this.floats.copyWithin(last + VERTEX, last, last + VERTEX);
    this.count += 1;
    this.#vertex(x, y, 1, half, word);
  }

  #vertex(/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ side, /** @type {number} */ half, /** @type {number} */ word) {
    const at = this.count++ * VERTEX;
    this.floats[at] = x;
    this.floats[at + 1] = y;
    this.floats[at + 2] = side;
    this.floats[at + 3] = half;
    this.words[at + 4] = word;
  }

  #grow() {
    const old = this.words;
    this.words = new Uint32Array(2 * old.length);
    this.words.set(old);
    this.floats = new Float32Array(this.words.buffer);
  }

  /** What the GPU is given. */
  get used() {
    return this.words.subarray(0, this.count * VERTEX);
  }
}
