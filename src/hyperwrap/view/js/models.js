// Four pictures of the plane, each from and to the Poincaré disc, in units of the half height.

/** @typedef {import("./plane.js").Complex} Complex */
/**
 * @typedef {{title: string, index: number, round: boolean, to: (x: number, y: number, q: number) => Complex,
 *   from: (x: number, y: number) => Complex, stretch: (x: number, y: number, r: number) => number}} Model
 * `q` is 1 − |w|²; `stretch` bounds by how much lengths grow in a circle around w.
 */

const LENS = 0.25; // the wide picture shows this part of every distance

/** @type {Record<string, Model>} */
export const MODELS = {
  poincare: { title: "Poincaré", index: 0, round: true, to: (x, y) => [x, y], from: (x, y) => [x, y], stretch: () => 1 },
  klein: {
    title: "Klein", index: 1, round: true,
    to: (x, y, q) => [(2 * x) / (2 - q), (2 * y) / (2 - q)],
    from: (x, y) => {
      const s = 1 + Math.sqrt(Math.max(0, 1 - x * x - y * y));
      return [x / s, y / s];
    },
    stretch: () => 2,
  },
  band: { // (4/π)·artanh w
    title: "Band", index: 2, round: false,
    to: (x, y, q) => [Math.log(((1 + x) ** 2 + y * y) / ((1 - x) ** 2 + y * y)) / Math.PI, (2 / Math.PI) * Math.atan2(2 * y, q)],
    from: (x, y) => {
      const u = (Math.PI / 2) * x, v = (Math.PI / 2) * y, s = 1 / Math.cosh(u), d = 1 + Math.cos(v) * s;
      return [Math.tanh(u) / d, (Math.sin(v) * s) / d];
    },
    stretch: (x, y, r) => (4 / Math.PI) / Math.max(1e-9, (Math.hypot(1 - x, y) - r) * (Math.hypot(1 + x, y) - r)),
  },
  wide: { // tanh(¼·artanh |w|) from the middle: not conformal, but it shows all levels of a hierarchy
    title: "Wide", index: 3, round: true,
    to: (x, y, q) => {
      const r = Math.hypot(x, y), e = (q / (1 + r) ** 2) ** LENS, s = r < 1e-6 ? LENS : (1 - e) / ((1 + e) * r);
      return [s * x, s * y];
    },
    from: (x, y) => {
      const r = Math.min(Math.hypot(x, y), 1 - 1e-9), s = r < 1e-6 ? 1 / LENS : Math.tanh(Math.atanh(r) / LENS) / r;
      return [s * x, s * y];
    },
    stretch: () => 1 / LENS,
  },
};

/** How large things are there: 1 in the middle, 0 at the rim. @param {Model} model @param {number} x @param {number} y @param {number} q */
export function size(model, x, y, q) {
  if (model === MODELS.wide) {
    const e = (q / (1 + Math.hypot(x, y)) ** 2) ** LENS;
    return ((4 * e) / (1 + e) ** 2) ** 2;
  }
  return model.round ? q : q / Math.hypot(1 - x * x + y * y, 2 * x * y);
}

/** The same on the GPU, for one of the models. @param {number} index */
export const glsl = (index) => [`
vec2 picture(vec2 w, float q) { return w; }
float size(vec2 w, float q) { return q; }`, `
vec2 picture(vec2 w, float q) { return 2.0 * w / (2.0 - q); }
float size(vec2 w, float q) { return q; }`, `
vec2 picture(vec2 w, float q) {
  vec2 p = vec2(1.0 + w.x, w.y), m = vec2(1.0 - w.x, w.y);
  return vec2(log(max(dot(p, p), 1e-30) / max(dot(m, m), 1e-30)), 2.0 * atan(2.0 * w.y, q)) / 3.14159265;
}
float size(vec2 w, float q) {
  return q / max(length(vec2(1.0 - w.x * w.x + w.y * w.y, 2.0 * w.x * w.y)), 1e-12);
}`, `
float less(vec2 w, float q) { float s = 1.0 + length(w); return pow(q / (s * s), ${LENS}); }
vec2 picture(vec2 w, float q) {
  float r = length(w), e = less(w, q);
  return w * (r < 1e-3 ? ${LENS} : (1.0 - e) / ((1.0 + e) * r));
}
float size(vec2 w, float q) { float e = less(w, q), s = 4.0 * e / ((1.0 + e) * (1.0 + e)); return s * s; }`][index];
