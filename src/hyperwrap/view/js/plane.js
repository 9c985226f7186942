// Isometries of the hyperbolic plane, exact at any depth.
//
// An isometry of the Poincaré disc is (α β; β̄ ᾱ), |α|² − |β|² = 1, here [Re α, Im α, Re β, Im β].
// Far out its entries grow like e^{r/2}, and the product of two such loses what it is about. So a
// place is a frame F(g, a), at distance a from the origin in the direction of g, and a small step
// from there; two frames see each other by a formula in which nothing cancels (chunks.py).

/** @typedef {[number, number]} Complex */
/** @typedef {[number, number, number, number]} Isometry */
/**
 * Where somebody stands and looks: the frame F(g, a), then the step.
 * @typedef {{g: Complex, a: number, step: Isometry}} Pose
 */

export const IDENTITY = /** @type {Isometry} */ ([1, 0, 0, 0]);
const NEAR = 4; // steps longer than this are taken into the frame

/** @param {Isometry} m @param {Isometry} n @returns {Isometry} */
export function times([ar, ai, br, bi], [cr, ci, dr, di]) {
  return [ar * cr - ai * ci + br * dr + bi * di, ar * ci + ai * cr + bi * dr - br * di,
    ar * dr - ai * di + br * cr + bi * ci, ar * di + ai * dr + bi * cr - br * ci];
}

/** @param {Isometry} m @returns {Isometry} */
export const inverse = ([ar, ai, br, bi]) => [ar, -ai, -br, -bi];

/** The image of a point. @param {Isometry} m @param {number} x @param {number} y @returns {Complex} */
export function apply([ar, ai, br, bi], x, y) {
  const nr = ar * x - ai * y + br, ni = ar * y + ai * x + bi;
  const dr = br * x + bi * y + ar, di = br * y - bi * x - ai, d = dr * dr + di * di;
  return [(nr * dr + ni * di) / d, (ni * dr - nr * di) / d];
}

/** By distance and direction, from 0. @param {number} distance @param {number} angle @returns {Isometry} */
export function translation(distance, angle) {
  const s = Math.sinh(distance / 2);
  return [Math.cosh(distance / 2), 0, s * Math.cos(angle), s * Math.sin(angle)];
}

/** Takes 0 to a point of the disc. @param {number} x @param {number} y @returns {Isometry} */
export function carrying(x, y) {
  const s = 1 / Math.sqrt((1 - Math.hypot(x, y)) * (1 + Math.hypot(x, y)));
  return [s, 0, s * x, s * y];
}

/** @param {number} angle @returns {Isometry} */
export const rotation = (angle) => [Math.cos(angle / 2), Math.sin(angle / 2), 0, 0];

/** As far as 0 is moved. @param {Isometry} m */
export const length = ([, , br, bi]) => 2 * Math.asinh(Math.hypot(br, bi));

/** The direction in which 0 is moved. @param {Isometry} m */
export const heading = ([ar, ai, br, bi]) => Math.atan2(bi, br) + Math.atan2(ai, ar);

/** Undoes what rounding does to |α|² − |β|² = 1. @param {Isometry} m @returns {Isometry} */
function normal([ar, ai, br, bi]) {
  const s = Math.sqrt(1 + br * br + bi * bi) / Math.hypot(ar, ai);
  return [s * ar, s * ai, br, bi];
}

// --- frames -------------------------------------------------------------------------------------------

/** The rounding error of x·y, by Dekker. */
function productError(/** @type {number} */ x, /** @type {number} */ y) {
  const cx = 134217729 * x, hx = cx - (cx - x), lx = x - hx;
  const cy = 134217729 * y, hy = cy - (cy - y), ly = y - hy;
  return lx * ly - (x * y - hx * hy - lx * hy - hx * ly);
}

/** The angle from g to h, to full relative accuracy. @param {Complex} g @param {Complex} h */
export function turn(g, h) {
  const p = g[0] * h[1], q = g[1] * h[0];
  const across = p - q + (productError(g[0], h[1]) - productError(g[1], h[0]));
  return Math.atan2(across, g[0] * h[0] + g[1] * h[1]);
}

/** F(g, a)⁻¹·F(h, b). @param {Complex} g @param {number} a @param {Complex} h @param {number} b @returns {Isometry} */
export function between(g, a, h, b) {
  const half = turn(g, h) / 2, cos = Math.cos(half), sin = Math.sin(half), inner = (b - a) / 2, outer = (b + a) / 2;
  return [cos * Math.cosh(inner), sin * Math.cosh(outer), cos * Math.sinh(inner), sin * Math.sinh(outer)];
}

/** What is at `there`, seen from `here`. @param {Pose} here @param {Pose} there */
export const seen = (here, there) =>
  times(inverse(here.step), times(between(here.g, here.a, there.g, there.a), there.step));

/** @returns {Pose} */
export const origin = () => ({ g: [1, 0], a: 0, step: IDENTITY });

/** A pose a step further. @param {Pose} pose @param {Isometry} step @returns {Pose} */
export const stepped = (pose, step) => ({ ...pose, step: normal(times(pose.step, step)) });

/** The pose with a long step taken into its frame, as far as a direction in float64 allows. @param {Pose} pose @returns {Pose} */
export function settled(pose) {
  const before = length(pose.step);
  if (before < NEAR) return pose;
  const out = times(translation(pose.a, 0), pose.step), angle = heading(out), a = length(out);
  const [x, y] = pose.g, cos = Math.cos(angle), sin = Math.sin(angle);
  /** @type {Complex} */
  const g = [x * cos - y * sin, x * sin + y * cos];
  const step = normal(times(between(g, a, pose.g, pose.a), pose.step));
  return length(step) < before ? { g, a, step } : pose;
}

/** How far a pose is from the origin, and in which direction. @param {Pose} pose @returns {{radius: number, angle: number}} */
export function polar({ g, a, step }) {
  const out = times(translation(a, 0), step);
  return { radius: length(out), angle: Math.atan2(g[1], g[0]) + heading(out) };
}

/**
 * The pose at a pose's place whose frame was carried there from the origin without turning.
 * @param {Pose} pose @returns {Pose}
 */
export function upright(pose) {
  // The origin, seen from here: opposite to it is outward, which is the direction of `angle`.
  const home = times(inverse(pose.step), translation(-pose.a, 0)), { radius, angle } = polar(pose);
  const outward = radius > 0 ? heading(home) + Math.PI : 0;
  const back = radius > 0 ? -angle : heading0(home) - Math.atan2(pose.g[1], pose.g[0]);
  return stepped(pose, rotation(outward + back));
}

/** The turn of an isometry that leaves 0 in place. */
const heading0 = (/** @type {Isometry} */ [ar, ai]) => 2 * Math.atan2(ai, ar);
