// What runs on the GPU: points, edges as geodesics, the disc.

import { GLSL } from "./models.js";

const SEEN = `#version 300 es
precision highp float; precision highp int; precision highp sampler2D;
uniform sampler2D frames;  // of each chunk, seen by the camera: α and β, composed in float64
uniform vec2 half_size;    // pixels
uniform float unit;        // pixels
uniform int model;
vec2 times(vec2 a, vec2 b) { return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
vec2 conj(vec2 a) { return vec2(a.x, -a.y); }
${GLSL}
// Where a point of a chunk is in the disc, and 1 − |w|², which is not to be taken from w.
vec3 seen(vec2 z, uint chunk) {
  vec4 m = texelFetch(frames, ivec2(chunk & 255u, chunk >> 8), 0);
  vec2 n = times(m.xy, z) + m.zw, d = times(conj(m.zw), z) + conj(m.xy);
  float dd = dot(d, d);
  return vec3(times(n, conj(d)) / dd, (1.0 - dot(z, z)) / dd);
}`;

export const POINT_VERTEX = `${SEEN}
in vec2 place; in uint chunk; in vec4 colour; in float weight;
uniform vec3 sizes;        // of a point at the rim, in the middle, and more per unit of weight
flat out vec4 fill; flat out float width;
void main() {
  vec3 w = seen(place, chunk);
  float s = size(w.xy, w.z, model);
  width = sizes.x + (sizes.y + sizes.z * weight) * pow(max(s, 0.0), 0.6);
  fill = colour;
  gl_PointSize = width + 1.0;
  gl_Position = colour.a == 0.0 ? vec4(2.0, 2.0, 2.0, 1.0)
    : vec4(picture(w.xy, w.z, model) * unit / half_size, 0.9 - weight / 24.0 - 0.1 * s, 1.0);
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

// An edge is a strip along the chord of the Klein disc. With k on the chord, the geodesic is at
// k/(1 + √(1−|k|²)), and 1 − |k|² is a sum of positive terms. Its ends are k and 1 − |k|².
export const EDGE_VERTEX = `#version 300 es
precision highp float; precision highp int;
uniform vec2 half_size; uniform float unit; uniform int model; uniform vec4 ink; uniform float tint;
uniform float segments; uniform float thick;
in vec3 from; in vec3 to; in vec4 colour;
out vec4 shade; out float across; flat out float half_width;
${GLSL}
vec2 along(float t, out float q) {
  float s = 1.0 - t;
  vec2 k = s * from.xy + t * to.xy, apart = from.xy - to.xy;
  float m = sqrt(s * s * from.z + t * t * to.z + s * t * (from.z + to.z + dot(apart, apart)));
  q = 2.0 * m / (1.0 + m);
  return picture(k / (1.0 + m), q, model) * unit;
}
float eased(float t) { return 0.5 - 0.5 * cos(3.14159265 * t); }
void main() {
  float part = float(gl_VertexID >> 1) / segments, side = float(gl_VertexID & 1) * 2.0 - 1.0, q, p;
  vec2 here = along(eased(part), q);
  vec2 way = (part < 0.5 ? 1.0 : -1.0) * (along(eased(part + (part < 0.5 ? 0.03 : -0.03)), p) - here);
  vec2 normal = length(way) > 0.0 ? vec2(-way.y, way.x) / length(way) : vec2(0.0);
  half_width = 0.5 * thick * mix(0.8, 1.7, q);
  across = side * (half_width + 1.0);
  shade = vec4(mix(ink.rgb, colour.rgb, tint), ink.a * colour.a * mix(0.55, 1.0, sqrt(clamp(q, 0.0, 1.0))));
  gl_Position = vec4((here + across * normal) / half_size, 0.95, 1.0);
}`;

export const EDGE_FRAGMENT = `#version 300 es
precision mediump float;
in vec4 shade; in float across; flat in float half_width;
out vec4 seen;
void main() { seen = vec4(shade.rgb, shade.a * clamp(half_width + 0.5 - abs(across), 0.0, 1.0)); }`;

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
