// Divergences and contours of laws: reads the path of a pack and pairs of names, answers as JSON.

import { readFileSync } from "node:fs";
import { openPack } from "../../../src/hyperwrap/view/js/pack.js";

const [, , path, asked] = process.argv, { pairs, of } = JSON.parse(asked), bytes = readFileSync(path);
const data = await openPack(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
process.stdout.write(JSON.stringify({
  kl: pairs.map(([a, b]) => data.kl(data.row(a), data.row(b))),
  contours: data.contours(data.row(of)),
}));
