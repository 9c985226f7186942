// What runs on the GPU: points, edges as geodesics, the disc.

import { glsl } from "./models.js";

const seenBy = (/** @type {number} */ model) => `#version 300 es
precision highp float; precision highp int; precision highp sampler2D;
uniform sampler2D frames;  // of each chunk, seen by the camera: α and β, composed in float64
uniform vec2 half_size;    // pixels
uniform float unit;        // pixels
vec2 times(vec2 a, vec2 b) { return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
vec2 conj(vec2 a) { return vec2(a.x, -a.y); }
${glsl(model)}
// Where a point of a chunk is in the disc, and 1 − |w|², which is not to be taken from w.
vec3 seen(vec2 z, uint chunk) {
  vec4 m = texelFetch(frames, ivec2(chunk & 255u, chunk >> 8), 0);
  vec2 n = times(m.xy, z) + m.zw, d = times(conj(m.zw), z) + conj(m.xy);
  float dd = dot(d, d);
  return vec3(times(n, conj(d)) / dd, (1.0 - dot(z, z)) / dd);
}`;

export const pointVertex = (/** @type {number} */ model) => `${seenBy(model)}
layout(location = 0) in vec2 place; layout(location = 1) in uint chunk;
layout(location = 2) in vec4 colour; layout(location = 3) in float weight;
uniform vec3 sizes;        // of a point at the rim, in the middle, and more per unit of weight
flat out vec4 fill; flat out float width;
void main() {
  vec3 w = seen(place, chunk);
  float s = size(w.xy, w.z);
  width = sizes.x + (sizes.y + sizes.z * weight) * pow(max(s, 0.0), 0.6);
  fill = colour;
  gl_PointSize = width + 1.0;
  gl_Position = colour.a == 0.0 ? vec4(2.0, 2.0, 2.0, 1.0)
    : vec4(picture(w.xy, w.z) * unit / half_size, 0.9 - weight / 24.0 - 0.1 * s, 1.0);
}`;

export const POINT_FRAGMENT = `#version 300 es
precision mediump float;
flat in vec4 fill; flat in float width;
out vec4 seen;
void main() {
  float alpha = clamp(0.5 * width + 0.5 - length((gl_PointCoord - 0.5) * (width + 1.0)), 0.0, 1.0);
  if (alpha < 0.06) discard;
  seen = vec4(fill.rgb, fill.a * alpha);
}`;

// Edges, one strip after the other; the geodesics are found in strips.js.
export const EDGE_VERTEX = `#version 300 es
precision highp float;
uniform vec2 half_size;
layout(location = 0) in vec2 place; layout(location = 1) in vec2 side; layout(location = 2) in vec4 colour;
out vec4 shade; out vec2 across;
void main() {
  shade = colour;
  across = vec2(side.x * (side.y + 1.0), side.y);
  gl_Position = vec4(place / half_size, 0.95, 1.0);
}`;

export const EDGE_FRAGMENT = `#version 300 es
precision mediump float;
in vec4 shade; in vec2 across;
out vec4 seen;
void main() { seen = vec4(shade.rgb, shade.a * clamp(across.y + 0.5 - abs(across.x), 0.0, 1.0)); }`;

// A ring, between two radii.
export const RING_VERTEX = `#version 300 es
precision highp float;
uniform vec2 half_size; uniform vec2 radii;
out float across;
void main() {
  float angle = float(gl_VertexID >> 1) * 6.28318531 / 256.0;
  across = float(gl_VertexID & 1);
  gl_Position = vec4(vec2(cos(angle), sin(angle)) * mix(radii.x, radii.y, across) / half_size, 0.99, 1.0);
}`;

export const RING_FRAGMENT = `#version 300 es
precision mediump float;
uniform vec4 ink; uniform float soft;
in float across;
out vec4 seen;
void main() { seen = vec4(ink.rgb, ink.a * mix(1.0, 1.0 - abs(2.0 * across - 1.0), soft)); }`;
