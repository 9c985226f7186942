// The law of a node, G(μ, Σ) with Σ = diag σ²: its divergences and the contours of its density.

import { heading, length, seen, times, translation } from "./plane.js";

/**
 * Where the centre is, the frame carried there from the origin, and σ in it.
 * @typedef {{pose: import("./plane.js").Pose, scale: [number, number]}} Law
 */

const STEP = 0.5; // of the trapezoid rule, which for a Gaussian converges like e^{−2π²/h²}
const TAIL = 6; // standard deviations
const GRID = Array.from({ length: (2 * TAIL) / STEP + 1 }, (_, i) => i * STEP - TAIL);
const DIRECTIONS = 180;

/** log(sinh r / r). @param {number} r */
export const logSinhc = (r) => (r < 1e-3 ? (r * r) / 6 : r + Math.log(-Math.expm1(-2 * r) / (2 * r)));

/** KL(p‖q), by quadrature over the tangent space of p. @param {Law} p @param {Law} q */
export function kl(p, q) {
  const view = seen(q.pose, p.pose), [a, b] = p.scale, [c, d] = q.scale;
  let sum = 0, mass = 0;
  for (const x of GRID) for (const y of GRID) {
    const weight = Math.exp(-(x * x + y * y) / 2), r = Math.hypot(a * x, b * y);
    const z = times(view, translation(r, Math.atan2(b * y, a * x))), s = length(z), angle = heading(z);
    const u = (s * Math.cos(angle)) / c, v = (s * Math.sin(angle)) / d;
    sum += weight * ((u * u + v * v - x * x - y * y) / 2 + logSinhc(s) - logSinhc(r));
    mass += weight;
  }
  return sum / mass + Math.log((c * d) / (a * b));
}

/** How far from the centre the density has fallen by a factor e^{−drop}, in a direction with precision q = Σ (cos²/σ²). */
function extent(/** @type {number} */ q, /** @type {number} */ drop) {
  // q·r²/2 + log(sinh r / r) = drop, by Newton from outside: the left side is convex, so no step goes too far.
  let r = Math.sqrt((2 * drop) / q);
  for (let i = 0; i < 12; i++) {
    const slope = q * r + (r < 1e-3 ? r / 3 : 1 / Math.tanh(r) - 1 / r);
    if (!(slope > 0)) break;
    r -= ((q * r * r) / 2 + logSinhc(r) - drop) / slope;
  }
  return Math.max(r, 0);
}

/**
 * The line of equal density around the region of this mass, as distances in directions around the centre.
 * @param {[number, number]} scale @param {number} mass @returns {{radius: number, angle: number}[]}
 */
export function contour([a, b], mass) {
  const angles = Array.from({ length: DIRECTIONS }, (_, i) => (2 * Math.PI * i) / DIRECTIONS);
  const precision = angles.map((t) => (Math.cos(t) / a) ** 2 + (Math.sin(t) / b) ** 2);
  const within = (/** @type {number} */ drop) => precision.reduce((sum, q) =>
    sum - Math.expm1((-q * extent(q, drop) ** 2) / 2) / q, 0) / (DIRECTIONS * a * b);
  let low = 0, high = 1; // of the drop
  while (within(high) < mass) high *= 2;
  for (let i = 0; i < 36; i++) {
    const middle = (low + high) / 2;
    if (within(middle) < mass) low = middle;
    else high = middle;
  }
  return angles.map((angle, i) => ({ radius: extent(precision[i], high), angle }));
}

