// Isometries: the group, and frames far out, where every product of large matrices is lost.

import assert from "node:assert/strict";
import { test } from "node:test";
import { MODELS, size } from "../../../src/hyperwrap/view/js/models.js";
import * as plane from "../../../src/hyperwrap/view/js/plane.js";

const near = (actual, expected, tolerance = 1e-13) =>
  actual.forEach((x, i) => assert.ok(Math.abs(x - expected[i]) <= tolerance * Math.max(1, Math.abs(expected[i])), `${actual} ≠ ${expected}`));

test("an isometry and its inverse are nothing", () => {
  const m = plane.times(plane.translation(1.3, 0.4), plane.rotation(2));
  near(plane.times(m, plane.inverse(m)), plane.IDENTITY);
});

test("a product does one after the other", () => {
  const m = plane.carrying(0.3, -0.2), n = plane.translation(0.7, 2), [x, y] = plane.apply(n, 0.1, 0.5);
  near(plane.apply(plane.times(m, n), 0.1, 0.5), plane.apply(m, x, y));
});

test("a translation has its length and heading", () => {
  for (const distance of [1e-9, 0.5, 3, 60]) {
    near([plane.length(plane.translation(distance, 1.1)), plane.heading(plane.translation(distance, 1.1))], [distance, 1.1]);
  }
});

test("a turn is known to its last bit", () => {
  const g = [0.1, 0.7], h = [0.1 * (1 + 2 ** -52), 0.7];
  // g × h = −0.7·(the gap between the two first entries), exactly
  const expected = (-0.7 * (h[0] - g[0])) / (g[0] * h[0] + g[1] * h[1]);
  near([plane.turn(g, h) / expected], [1], 1e-12);
});

test("frames see each other as matrices do, where these still hold", () => {
  const frame = (angle, a) => plane.times(plane.rotation(angle), plane.translation(a, 0));
  const direct = plane.times(plane.inverse(frame(0.3, 2)), frame(1.1, 3));
  near(plane.between([Math.cos(0.3), Math.sin(0.3)], 2, [2 * Math.cos(1.1), 2 * Math.sin(1.1)], 3), direct, 1e-12);
});

test("a pose far out takes a long step into its frame and stays where it is", () => {
  for (const a of [0, 5, 20, 40]) {
    const pose = { g: [0.6, 0.8], a, step: plane.translation(7, 2) }, settled = plane.settled(pose);
    near(plane.seen(pose, settled), plane.IDENTITY, 1e-9);
    assert.ok(plane.length(settled.step) <= 7);
  }
  assert.ok(plane.length(plane.settled({ g: [1, 0], a: 3, step: plane.translation(7, 2) }).step) < 1e-6);
});

test("an upright pose looks as one that was carried from the origin", () => {
  const pose = { g: [0.6, 0.8], a: 1.5, step: plane.carrying(0.2, 0.5) }, { radius, angle } = plane.polar(pose);
  const carried = { g: [1, 0], a: 0, step: plane.translation(radius, angle) };
  const [ar, ai, br, bi] = plane.seen(carried, plane.upright(pose));
  near([ar * ar, ai, br, bi], [1, 0, 0, 0], 1e-12);
  const turned = { g: [0.6, 0.8], a: 0, step: plane.rotation(1) };
  near(plane.seen(plane.origin(), plane.upright(turned)).slice(1), [0, 0, 0], 1e-12);
});

test("every picture leads back to where it came from", () => {
  for (const [name, { to, from }] of Object.entries(MODELS)) {
    for (const [radius, angle] of [[0, 0], [1e-7, 1], [0.5, 2], [0.9, -1.2], [0.999, 0.3]]) {
      const x = radius * Math.cos(angle), y = radius * Math.sin(angle), q = (1 - radius) * (1 + radius);
      near(from(...to(x, y, q)), [x, y], name === "klein" ? 1e-9 : 1e-11);
    }
  }
});

test("the wide picture shows a quarter of every distance from the middle", () => {
  for (const distance of [1e-8, 0.1, 2, 10, 25]) {
    const r = Math.tanh(distance / 2), q = 1 / Math.cosh(distance / 2) ** 2;
    const shown = Math.tanh(distance / 8);
    near(MODELS.wide.to(r, 0, q), [shown, 0], 1e-9);
    near([size(MODELS.wide, r, 0, q)], [(1 - shown ** 2) ** 2], 1e-9);
  }
});
