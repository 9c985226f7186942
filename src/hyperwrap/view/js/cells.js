// Cells: parts of the plane with a circle around all their points, one within the other.
//
// The first come with the data, each with a frame of its own. Their chunks are halved here, down to a
// few rows, in the frame of the chunk.

const FEW = 8; // rows of a cell that is not halved

export class Cells {
  /**
   * @param {Int32Array} outer parent, first row and number of rows of the cells that come with the data
   * @param {Float64Array} anchors their frames and circles
   * @param {Float32Array} place @param {Uint32Array | null} size what rows weigh
   */
  constructor(outer, anchors, place, size) {
    const frames = outer.length / 3, rows = place.length / 2, room = frames + Math.ceil((4 * rows) / FEW) + 1;
    this.place = place;
    this.size = size;
    /** @type {{g: import("./plane.js").Complex, a: number}[]} */
    this.frames = Array.from({ length: frames }, (_, i) => ({ g: [anchors[6 * i], anchors[6 * i + 1]], a: anchors[6 * i + 2] }));
    this.chunkOfRow = new Uint32Array(rows);
    this.length = frames;
    this.frame = new Uint32Array(room);
    this.first = new Uint32Array(room);
    this.count = new Uint32Array(room);
    this.x = new Float32Array(room);
    this.y = new Float32Array(room);
    this.r = new Float32Array(room);
    /** The heaviest row of each cell. */
    this.chief = new Uint32Array(room);
    /** The rows furthest to the left, right, bottom and top of the cells that were halved here. */
    this.outmost = new Uint32Array(4 * room);
    /** Where the two halves of a cell are; 0 if it has none. */
    this.halves = new Uint32Array(room);
    /** @type {number[][]} the cells within those that came with the data */
    this.inner = Array.from({ length: frames }, () => []);
    for (let i = 0; i < frames; i++) this.#read(i, outer, anchors);
    for (let i = frames - 1; i >= 0; i--) this.#finish(i);
  }

  #read(/** @type {number} */ i, /** @type {Int32Array} */ outer, /** @type {Float64Array} */ anchors) {
    const [parent, first, count] = outer.subarray(3 * i, 3 * i + 3);
    if (i) this.inner[parent].push(i);
    this.frame[i] = i;
    this.first[i] = first;
    this.count[i] = count;
    this.x[i] = anchors[6 * i + 3];
    this.y[i] = anchors[6 * i + 4];
    this.r[i] = anchors[6 * i + 5] * (1 + 1e-6);
  }

  #finish(/** @type {number} */ i) {
    this.chief[i] = this.first[i];
    if (this.inner[i].length) {
      for (const each of this.inner[i]) if (this.#weight(this.chief[each]) > this.#weight(this.chief[i])) this.chief[i] = this.chief[each];
      return;
    }
    this.chunkOfRow.fill(i, this.first[i], this.first[i] + this.count[i]);
    this.#halve(i);
  }

  /** @param {number} row */
  #weight(row) {
    return this.size ? this.size[row] : 0;
  }

  /** Halves a cell again and again, and finds who is the chief of each. */
  #halve(/** @type {number} */ i) {
    const { first, count, halves, chief } = this;
    if (count[i] <= FEW) {
      for (let row = first[i]; row < first[i] + count[i]; row++) if (this.#weight(row) > this.#weight(chief[i])) chief[i] = row;
      return;
    }
    const half = count[i] >> 1, a = this.#add(this.frame[i], first[i], half), b = this.#add(this.frame[i], first[i] + half, count[i] - half);
    halves[i] = a;
    this.#halve(a);
    this.#halve(b);
    chief[i] = this.#weight(chief[b]) > this.#weight(chief[a]) ? chief[b] : chief[a];
  }

  /** A cell of these rows; the other half comes right after it. */
  #add(/** @type {number} */ frame, /** @type {number} */ first, /** @type {number} */ count) {
    const i = this.length++, { place, outmost } = this;
    let left = 2 * first, right = left, low = left, high = left, far = 0;
    for (let k = 2 * first; k < 2 * (first + count); k += 2) {
      if (place[k] < place[left]) left = k;
      if (place[k] > place[right]) right = k;
      if (place[k + 1] < place[low + 1]) low = k;
      if (place[k + 1] > place[high + 1]) high = k;
    }
    outmost.set([left / 2, right / 2, low / 2, high / 2], 4 * i);
    const x = (place[left] + place[right]) / 2, y = (place[low + 1] + place[high + 1]) / 2;
    for (let k = 2 * first; k < 2 * (first + count); k += 2) far = Math.max(far, (place[k] - x) ** 2 + (place[k + 1] - y) ** 2);
    this.frame[i] = frame;
    this.first[i] = this.chief[i] = first;
    this.count[i] = count;
    this.x[i] = x;
    this.y[i] = y;
    this.r[i] = Math.sqrt(far) * (1 + 1e-6) + 1e-7;
    return i;
  }

  /** The cells within a cell. @param {number} i @returns {ArrayLike<number> & Iterable<number>} */
  within(i) {
    if (this.halves[i]) return [this.halves[i], this.halves[i] + 1];
    return this.inner[i] ?? [];
  }
}
