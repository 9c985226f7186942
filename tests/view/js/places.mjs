// What the explorer would show: reads the path of a pack and rows as JSON, answers as JSON.
//   node places.mjs PACK '{"centre": 3, "rows": [0, 1], "size": 800}'
// `places` are from float64 matrices; `drawn` as the shader has it, in float32.

import { readFileSync } from "node:fs";
import { openPack } from "../../../src/hyperwrap/view/js/pack.js";
import { Scene } from "../../../src/hyperwrap/view/js/scene.js";
import { canvas } from "./fake.mjs";

const f = Math.fround;

/** POINT_VERTEX for the Poincaré disc. */
function shader(scene, row) {
  const { data } = scene, [ar, ai, br, bi] = scene.frames.subarray(4 * data.chunk[row], 4 * data.chunk[row] + 4);
  const [x, y] = data.place.subarray(2 * row, 2 * row + 2), times = (a, b, c, d) => [f(f(a * c) - f(b * d)), f(f(a * d) + f(b * c))];
  const [nx, ny] = times(ar, ai, x, y).map((v, i) => f(v + [br, bi][i]));
  const [dx, dy] = times(br, f(-bi), x, y).map((v, i) => f(v + [ar, f(-ai)][i]));
  const d = f(f(dx * dx) + f(dy * dy)), [u, v] = times(nx, ny, dx, f(-dy)).map((each) => f(each / d));
  return [scene.width / 2 + u * scene.unit, scene.height / 2 - v * scene.unit];
}

const [, , path, asked] = process.argv, { centre, rows, size } = JSON.parse(asked), bytes = readFileSync(path);
const data = await openPack(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
const scene = new Scene(canvas(), data);
scene.setSize(size, size, 1);
const row = data.row(`${centre}`), seen = rows.map((each) => data.row(`${each}`));
await scene.fly(row, 0);
scene.draw();
process.stdout.write(JSON.stringify({
  unit: scene.unit,
  places: [row, ...seen].map((each) => { const { x, y } = scene.project(each); return [x, y]; }),
  drawn: [row, ...seen].map((each) => shader(scene, each)),
  nearest: data.nearest(row, rows.length).map((found) => Number(data.name(found.row))),
  radius: data.radius(row),
}));
