// What a decoder makes of places: images or profiles, decoded beforehand.

import { el, number } from "./dom.js";

/** Tiles of places, and of the points themselves if they have any. */
export class Tiles {
  /** What the darkest and the brightest shade stand for. */
  low = 0;
  high = 1;

  /** @param {any} data @returns {Tiles | null} */
  static of(data) {
    return data.about.tiles ? new Tiles(data) : null;
  }

  /** @param {any} data */
  constructor(data) {
    this.shape = data.about.tiles.shape;
    [this.low, this.high] = data.about.tiles.range;
    this.values = data.array("tiles");
    this.places = data.array("tile_places");
    this.size = this.shape.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
  }

  /** The tile decoded nearest to a place, `{x, y}` its logarithm at the origin. */
  nearest(/** @type {{x: number, y: number}} */ place) {
    const r = Math.hypot(place.x, place.y), angle = Math.atan2(place.y, place.x);
    let best = -1, least = Infinity;
    for (let i = 0; i < this.places.length / 2; i++) {
      const s = Math.hypot(this.places[2 * i], this.places[2 * i + 1]), turn = angle - Math.atan2(this.places[2 * i + 1], this.places[2 * i]);
      // sinh²(d/2) = sinh²((r − s)/2) + sinh r sinh s sin²(turn/2)
      const d = 2 * Math.asinh(Math.sqrt(Math.sinh((r - s) / 2) ** 2 + Math.sinh(r) * Math.sinh(s) * Math.sin(turn / 2) ** 2));
      if (d < least) [least, best] = [d, i];
    }
    return best < 0 ? null : { picture: this.picture(best), text: `At radius ${number(r)}; the nearest place decoded is ${number(least)} away.` };
  }

  /** @param {number} tile */
  picture(tile) {
    const values = this.values.subarray(tile * this.size, (tile + 1) * this.size);
    return this.shape.length === 1 ? this.#profile(values) : this.#image(values);
  }

  #image(/** @type {ArrayLike<number>} */ values) {
    const [height, width, channels = 1] = this.shape;
    const canvas = el("canvas", { class: "hw-tile", width, height, role: "img", "aria-label": "Image decoded at this place" });
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    for (let i = 0; i < width * height; i++) {
      for (let k = 0; k < 3; k++) image.data[4 * i + k] = values[channels * i + (channels === 3 ? k : 0)];
      image.data[4 * i + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }

  #profile(/** @type {ArrayLike<number>} */ values) {
    const width = 288, height = 96, canvas = el("canvas", { class: "hw-profile", width, height, role: "img", "aria-label": "Profile decoded at this place" });
    const context = canvas.getContext("2d"), step = width / values.length;
    context.fillStyle = "#3f7fd0";
    for (let i = 0; i < values.length; i++) context.fillRect(i * step, height * (1 - values[i] / 255), Math.max(step - 0.5, 0.5), (height * values[i]) / 255);
    return canvas;
  }
}
