// Where we look from: a pose, moved by drags, steps and flights.

import { carrying, heading, length, origin, rotation, seen, settled, stepped, translation } from "./plane.js";

/** @typedef {import("./plane.js").Pose} Pose */
/** @typedef {import("./plane.js").Complex} Complex */

/**
 * @typedef {{from: Pose, carried: Pose, to: Pose, spin: number, start: number, time: number, done: () => void,
 *   at: number | "home"}} Flight
 */

const INMOST = 0.9999;

export class Camera {
  constructor() {
    /** @type {Pose} */
    this.pose = origin();
    /** What the camera was sent to and has not left: a row, or "home". @type {number | "home" | null} */
    this.at = "home";
    /** @type {Flight | null} */
    this.flight = null;
  }

  /** @param {Pose} pose */
  #put(pose) {
    this.pose = settled(pose);
    this.at = null;
  }

  /** Moves the space so that what is at p comes to q, by a translation through the middle. @param {Complex} p @param {Complex} q */
  drag(p, q) {
    this.land();
    const [px, py] = inside(p), [qx, qy] = inside(q);
    // c with (p + c)/(1 + c̄p) = q
    const dx = qx - px, dy = qy - py, rx = px * qx - py * qy, ry = px * qy + py * qx, s = 1 / (1 - rx * rx - ry * ry);
    const c = inside([s * (dx + rx * dx + ry * dy), s * (dy + ry * dx - rx * dy)]);
    this.#put(stepped(this.pose, carrying(-c[0], -c[1])));
  }

  /** Goes so far towards a place, but not past it. @param {Complex} place @param {number} distance */
  approach([x, y], distance) {
    this.land();
    const whole = 2 * Math.atanh(Math.min(Math.hypot(x, y), INMOST));
    this.#put(stepped(this.pose, translation(Math.min(distance, whole), Math.atan2(y, x))));
  }

  /** Goes so far back towards the origin. @param {number} distance */
  retreat(distance) {
    this.land();
    const home = seen(this.pose, origin());
    this.#put(stepped(this.pose, translation(Math.min(distance, length(home)), heading(home))));
  }

  /**
   * Sets off along the geodesic to a place.
   * @param {Pose} place @param {number | "home"} at @param {number} time milliseconds; 0 is at once @returns {Promise<void>}
   */
  fly(place, at, time) {
    this.land();
    // The way there is a translation; somebody who was carried along it is turned by this much.
    const [ar, ai] = seen(this.pose, place), turned = 2 * Math.atan2(ai, ar);
    const carried = stepped(place, rotation(-turned)), spin = at === "home" ? turned : 0;
    return new Promise((done) => {
      this.flight = { from: this.pose, carried, to: spin ? place : carried, spin, start: 0, time, done, at };
      if (!time) this.step(0);
    });
  }

  /** Ends a flight where it is. */
  land() {
    this.flight?.done();
    this.flight = null;
  }

  /** @param {number} now milliseconds */
  step(now) {
    const { flight } = this;
    if (!flight) return;
    flight.start ||= now;
    const part = flight.time ? Math.min(1, (now - flight.start) / flight.time) : 1, eased = part * part * (3 - 2 * part);
    this.pose = part < 1 ? settled(stepped(partway(flight, eased), rotation(eased * flight.spin))) : flight.to;
    this.at = part < 1 ? null : flight.at;
    if (part === 1) this.land();
  }

  /** As text, to come back to. */
  get text() {
    const { g, a, step } = this.pose, bytes = new Uint8Array(new Float64Array([...g, a, ...step]).buffer);
    return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  }

  set text(/** @type {string} */ text) {
    const bytes = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
    if (bytes.length !== 56) return;
    const [x, y, a, ar, ai, br, bi] = new Float64Array(bytes.buffer);
    if (![x, y, a, ar, ai, br, bi].every(Number.isFinite) || !(x || y)) return;
    if (Math.abs(ar * ar + ai * ai - br * br - bi * bi - 1) > 1e-6 * (ar * ar + ai * ai) || a < 0) return;
    this.land();
    this.#put({ g: [x, y], a, step: [ar, ai, br, bi] });
  }
}

/** A point drawn back into the disc. @param {Complex} p @returns {Complex} */
function inside([x, y]) {
  const s = Math.min(1, INMOST / Math.hypot(x, y));
  return [s * x, s * y];
}

/** Part of the way of a flight; the second half is measured from its end. */
function partway(/** @type {Flight} */ { from, carried }, /** @type {number} */ part) {
  const whole = seen(from, carried), way = length(whole);
  if (part < 0.5) return stepped(from, translation(part * way, way ? heading(whole) : 0));
  return stepped(carried, translation((1 - part) * way, way ? heading(seen(carried, from)) : 0));
}
